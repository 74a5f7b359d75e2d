# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Kernels in Triton IR, run on the CPU, against PyTorch in float64."""

import os
import sys

import pytest
import torch

from kiln.errors import UnsupportedError

sys.path.insert(0, os.path.dirname(__file__))
from kernel_text import PROGRAM_RANGE, load, range_, run, store


@pytest.mark.parametrize("size", [1, 64, 200])
def test_masked_elements_are_neither_read_nor_written(size):
    x, out = torch.randn(size), torch.full((size + 64,), 7.0)
    body = f"""{PROGRAM_RANGE}{load("x", "%a0", 64, mask="%m")}
      %e = math.exp %x : tensor<64xf32>
      {store("%e", "%a1", 64, mask="%m")}"""
    run("!tt.ptr<f32>; !tt.ptr<f32>; i32", body, [x, out], [size], grid="()[s0] -> (s0 ceildiv 64)")
    torch.testing.assert_close(out[:size].double(), x.double().exp(), rtol=1e-6, atol=0)
    assert (out[size:] == 7).all()


def test_program_numbers_along_three_axes():
    out = torch.zeros(24, dtype=torch.int32)
    body = """
      %x = "tt.get_program_id"() {axis = 0 : i32} : () -> i32
      %y = "tt.get_program_id"() {axis = 1 : i32} : () -> i32
      %z = "tt.get_program_id"() {axis = 2 : i32} : () -> i32
      %nx = "tt.get_num_programs"() {axis = 0 : i32} : () -> i32
      %ny = "tt.get_num_programs"() {axis = 1 : i32} : () -> i32
      %0 = arith.muli %z, %ny : i32
      %1 = arith.addi %0, %y : i32
      %2 = arith.muli %1, %nx : i32
      %3 = arith.addi %2, %x : i32
      %p = "tt.addptr"(%a0, %3) : (!tt.ptr<i32>, i32) -> !tt.ptr<i32>
      %c10 = arith.constant 10 : i32
      %c100 = arith.constant 100 : i32
      %4 = arith.muli %y, %c10 : i32
      %5 = arith.muli %z, %c100 : i32
      %6 = arith.addi %x, %4 : i32
      %7 = arith.addi %6, %5 : i32
      "tt.store"(%p, %7) : (!tt.ptr<i32>, i32) -> ()
    """
    run("!tt.ptr<i32>", body, [out], grid="() -> (2, 3, 4)")
    assert out.tolist() == [x + 10 * y + 100 * z for z in range(4) for y in range(3) for x in range(2)]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_short_floats_are_computed_in_f32(dtype):
    name = {torch.bfloat16: "bf16", torch.float16: "f16"}[dtype]
    x, out = torch.randn(64).to(dtype), torch.zeros(64, dtype=dtype)
    body = f"""{range_(64)}{load("x", "%a0", 64, name)}
      %y = arith.mulf %x, %x : tensor<64x{name}>
      %z = math.sqrt %y : tensor<64x{name}>
      {store("%z", "%a1", 64, name)}"""
    run(f"!tt.ptr<{name}>; !tt.ptr<{name}>", body, [x, out])
    torch.testing.assert_close(out, (x * x).float().sqrt().to(dtype))


def test_booleans_are_bytes_in_memory():
    x, out = torch.randn(64), torch.zeros(64, dtype=torch.bool)
    body = f"""{range_(64)}{load("x", "%a0", 64)}
      %zero = arith.constant dense<0.0> : tensor<64xf32>
      %y = arith.cmpf ogt, %x, %zero : tensor<64xf32>
      {store("%y", "%a1", 64, "i1")}"""
    run("!tt.ptr<f32>; !tt.ptr<i1>", body, [x, out])
    assert torch.equal(out, x > 0)


@pytest.mark.parametrize("axis", [0, 1])
def test_reductions_along_both_axes(axis):
    x, out = torch.randn(16, 32), torch.zeros(512)
    left = 32 if axis == 0 else 16
    body = f"""{range_(512)}{load("x", "%a0", 512)}
      %y = "tt.reshape"(%x) : (tensor<512xf32>) -> tensor<16x32xf32>
      %s = "tt.reduce"(%y) ({{
      ^bb0(%p: f32, %q: f32):
        %t = arith.addf %p, %q : f32
        "tt.reduce.return"(%t) : (f32) -> ()
      }}) {{axis = {axis} : i32}} : (tensor<16x32xf32>) -> tensor<{left}xf32>
      %k = "tt.make_range"() {{start = 0 : i32, end = {left} : i32}} : () -> tensor<{left}xi32>
      {store("%s", "%a1", left, index="%k")}"""
    run("!tt.ptr<f32>; !tt.ptr<f32>", body, [x, out])
    torch.testing.assert_close(out[:left].double(), x.double().sum(axis), rtol=1e-5, atol=1e-5)


def test_a_reduction_of_values_and_indices():
    x, out = torch.randn(64), torch.zeros(1, dtype=torch.int32)
    body = f"""{range_(64)}{load("x", "%a0", 64)}
      %v, %i = "tt.reduce"(%x, %r) ({{
      ^bb0(%v0: f32, %i0: i32, %v1: f32, %i1: i32):
        %less = arith.cmpf olt, %v1, %v0 : f32
        %v2 = arith.select %less, %v1, %v0 : f32
        %i2 = arith.select %less, %i1, %i0 : i32
        "tt.reduce.return"(%v2, %i2) : (f32, i32) -> ()
      }}) {{axis = 0 : i32}} : (tensor<64xf32>, tensor<64xi32>) -> (f32, i32)
      "tt.store"(%a1, %i) : (!tt.ptr<i32>, i32) -> ()"""
    run("!tt.ptr<f32>; !tt.ptr<i32>", body, [x, out])
    assert out.item() == x.argmin().item()


@pytest.mark.parametrize("reverse", [False, True])
def test_scans_in_both_directions(reverse):
    x, out = torch.randn(64), torch.zeros(64)
    body = f"""{range_(64)}{load("x", "%a0", 64)}
      %s = "tt.scan"(%x) ({{
      ^bb0(%p: f32, %q: f32):
        %t = arith.addf %p, %q : f32
        "tt.scan.return"(%t) : (f32) -> ()
      }}) {{axis = 0 : i32, reverse = {str(reverse).lower()}}} : (tensor<64xf32>) -> tensor<64xf32>
      {store("%s", "%a1", 64)}"""
    run("!tt.ptr<f32>; !tt.ptr<f32>", body, [x, out])
    wide = x.double()
    expected = wide.flip(0).cumsum(0).flip(0) if reverse else wide.cumsum(0)
    torch.testing.assert_close(out.double(), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("axis", [0, 1])
def test_a_scan_rounds_as_seldom_as_on_a_gpu(axis, reverse):
    """Added one after the other, 2048 equal numbers are off by 100 units in the last place: they all round one way."""
    rows, n = (2048, 2) if axis == 0 else (2, 2048)
    x, out = torch.full((rows, n), 0.07), torch.zeros(rows, n)
    x[-1] *= -1.5
    tile = f"tensor<{rows}x{n}xf32>"
    body = f"""{range_(4096)}{load("x", "%a0", 4096)}
      %y = "tt.reshape"(%x) : (tensor<4096xf32>) -> {tile}
      %s = "tt.scan"(%y) ({{
      ^bb0(%p: f32, %q: f32):
        %t = arith.addf %p, %q : f32
        "tt.scan.return"(%t) : (f32) -> ()
      }}) {{axis = {axis} : i32, reverse = {str(reverse).lower()}}} : ({tile}) -> {tile}
      %flat = "tt.reshape"(%s) : ({tile}) -> tensor<4096xf32>
      {store("%flat", "%a1", 4096)}"""
    run("!tt.ptr<f32>; !tt.ptr<f32>", body, [x, out])
    wide = x.double()
    exact = wide.flip(axis).cumsum(axis).flip(axis) if reverse else wide.cumsum(axis)
    assert ((out - exact).abs() / exact.abs().clamp_min(0.01)).max() < 8 * 2**-24


def test_an_accumulator_that_a_loop_carries():
    """A product over two tiles of K: the accumulator changes in place, and its start is left alone."""
    a, b, out = torch.randn(2, 16, 16), torch.randn(2, 16, 16), torch.zeros(256)
    body = f"""{range_(256)}
      %zero = arith.constant dense<0.0> : tensor<16x16xf32>
      %low = arith.constant 0 : i32
      %high = arith.constant 2 : i32
      %one = arith.constant 1 : i32
      %size = arith.constant 256 : i32
      %sum = scf.for %k = %low to %high step %one iter_args(%acc = %zero) -> (tensor<16x16xf32>) : i32 {{
        %at = arith.muli %k, %size : i32
        %pa = "tt.addptr"(%a0, %at) : (!tt.ptr<f32>, i32) -> !tt.ptr<f32>
        %pb = "tt.addptr"(%a1, %at) : (!tt.ptr<f32>, i32) -> !tt.ptr<f32>
        {load("x", "%pa", 256)}
        {load("y", "%pb", 256)}
        %x2 = "tt.reshape"(%x) : (tensor<256xf32>) -> tensor<16x16xf32>
        %y1 = "tt.reshape"(%y) : (tensor<256xf32>) -> tensor<16x16xf32>
        %y2 = "tt.trans"(%y1) {{order = array<i32: 1, 0>}} : (tensor<16x16xf32>) -> tensor<16x16xf32>
        %d = "tt.dot"(%x2, %y2, %acc) {{inputPrecision = 2 : i32, maxNumImpreciseAcc = 0 : i32}}
          : (tensor<16x16xf32>, tensor<16x16xf32>, tensor<16x16xf32>) -> tensor<16x16xf32>
        scf.yield %d : tensor<16x16xf32>
      }}
      %both = arith.addf %sum, %zero : tensor<16x16xf32>
      %flat = "tt.reshape"(%both) : (tensor<16x16xf32>) -> tensor<256xf32>
      {store("%flat", "%a2", 256)}"""
    run("!tt.ptr<f32>; !tt.ptr<f32>; !tt.ptr<f32>", body, [a, b, out], grid="() -> (3)")
    expected = sum(a[k].double() @ b[k].double().T for k in range(2))
    torch.testing.assert_close(out.reshape(16, 16).double(), expected, rtol=1e-5, atol=1e-5)


def test_blocks_that_a_loop_exchanges():
    """Fibonacci on blocks: each value carried becomes the other's."""
    out = torch.zeros(64)
    body = f"""{range_(64)}
      %zero = arith.constant dense<0.0> : tensor<64xf32>
      %ones = arith.constant dense<1.0> : tensor<64xf32>
      %low = arith.constant 0 : i32
      %one = arith.constant 1 : i32
      %p, %q = scf.for %k = %low to %a1 step %one iter_args(%x = %zero, %y = %ones)
          -> (tensor<64xf32>, tensor<64xf32>) : i32 {{
        %z = arith.addf %x, %y : tensor<64xf32>
        scf.yield %y, %z : tensor<64xf32>, tensor<64xf32>
      }}
      {store("%p", "%a0", 64)}"""
    for steps, expected in ((0, 0), (1, 1), (10, 55)):
        run("!tt.ptr<f32>; i32", body, [out], [steps])
        assert (out == expected).all()


def test_branches_that_yield_blocks_and_scalars():
    out = torch.zeros(64)
    body = f"""{range_(64)}
      %zero = arith.constant 0 : i32
      %is_zero = arith.cmpi eq, %a1, %zero : i32
      %x, %s = scf.if %is_zero -> (tensor<64xf32>, f32) {{
        %u = arith.constant dense<2.0> : tensor<64xf32>
        %t = arith.constant 3.0 : f32
        scf.yield %u, %t : tensor<64xf32>, f32
      }} else {{
        %f = arith.sitofp %r : tensor<64xi32> to tensor<64xf32>
        %t = arith.constant 5.0 : f32
        scf.yield %f, %t : tensor<64xf32>, f32
      }}
      %b = "tt.splat"(%s) : (f32) -> tensor<64xf32>
      %y = arith.mulf %x, %b : tensor<64xf32>
      {store("%y", "%a0", 64)}"""
    run("!tt.ptr<f32>; i32", body, [out], [0])
    assert (out == 6).all()
    run("!tt.ptr<f32>; i32", body, [out], [1])
    assert torch.equal(out, torch.arange(64) * 5.0)


def test_atomic_additions_of_all_programs():
    x, out = torch.randn(640), torch.zeros(64)
    body = f"""{range_(64)}
      %pid = "tt.get_program_id"() {{axis = 0 : i32}} : () -> i32
      %c = arith.constant 64 : i32
      %at = arith.muli %pid, %c : i32
      %p = "tt.addptr"(%a0, %at) : (!tt.ptr<f32>, i32) -> !tt.ptr<f32>
      {load("x", "%p", 64)}
      %os = "tt.splat"(%a1) : (!tt.ptr<f32>) -> tensor<64x!tt.ptr<f32>>
      %op = "tt.addptr"(%os, %r) : (tensor<64x!tt.ptr<f32>>, tensor<64xi32>) -> tensor<64x!tt.ptr<f32>>
      %half = arith.constant dense<32> : tensor<64xi32>
      %m = arith.cmpi slt, %r, %half : tensor<64xi32>
      %old = "tt.atomic_rmw"(%op, %x, %m) {{atomic_rmw_op = 5 : i32, sem = 1 : i32, scope = 1 : i32}}
        : (tensor<64x!tt.ptr<f32>>, tensor<64xf32>, tensor<64xi1>) -> tensor<64xf32>"""
    run("!tt.ptr<f32>; !tt.ptr<f32>", body, [x, out], grid="() -> (10)")
    expected = x.reshape(10, 64).double().sum(0)
    expected[32:] = 0
    torch.testing.assert_close(out.double(), expected, rtol=1e-5, atol=1e-5)


def test_descriptors_clip_at_the_end_of_the_tensor():
    x, out = torch.randn(20, 24), torch.full((20, 24), 7.0)
    body = """
      %rows = arith.constant 20 : i32
      %columns = arith.constant 24 : i32
      %stride = arith.constant 24 : i64
      %one = arith.constant 1 : i64
      %pid = "tt.get_program_id"() {axis = 0 : i32} : () -> i32
      %c16 = arith.constant 16 : i32
      %i = arith.muli %pid, %c16 : i32
      %j = arith.constant 16 : i32
      %in = "tt.make_tensor_descriptor"(%a0, %rows, %columns, %stride, %one) {padding = 1 : i32}
        : (!tt.ptr<f32>, i32, i32, i64, i64) -> !tt.tensordesc<tensor<16x16xf32>>
      %out = "tt.make_tensor_descriptor"(%a1, %rows, %columns, %stride, %one) {padding = 1 : i32}
        : (!tt.ptr<f32>, i32, i32, i64, i64) -> !tt.tensordesc<tensor<16x16xf32>>
      %x = "tt.descriptor_load"(%in, %i, %j) : (!tt.tensordesc<tensor<16x16xf32>>, i32, i32) -> tensor<16x16xf32>
      %y = arith.addf %x, %x : tensor<16x16xf32>
      "tt.descriptor_store"(%out, %y, %i, %j)
        : (!tt.tensordesc<tensor<16x16xf32>>, tensor<16x16xf32>, i32, i32) -> ()"""
    run("!tt.ptr<f32>; !tt.ptr<f32>", body, [x, out], grid="() -> (2)")
    assert torch.equal(out[:, 16:], 2 * x[:, 16:])
    assert (out[:, :16] == 7).all()


@pytest.mark.parametrize(
    ("symbol", "reference"),
    [("__nv_tanhf", torch.tanh), ("__nv_log1pf", torch.log1p), ("__nv_erff", torch.erf), ("__nv_rintf", torch.round),
     ("__ocml_expm1_f32", torch.expm1), ("__nv_lgammaf", torch.lgamma), ("__nv_fabsf", torch.abs)],
)  # fmt: skip
def test_functions_of_the_device_library(symbol, reference):
    x, out = torch.rand(64) * 3, torch.zeros(64)
    body = f"""{range_(64)}{load("x", "%a0", 64)}
      %y = "tt.extern_elementwise"(%x) {{libname = "", libpath = "", symbol = "{symbol}", pure = true}}
        : (tensor<64xf32>) -> tensor<64xf32>
      {store("%y", "%a1", 64)}"""
    run("!tt.ptr<f32>; !tt.ptr<f32>", body, [x, out])
    torch.testing.assert_close(out.double(), reference(x.double()), rtol=2e-6, atol=1e-6)


def test_an_unknown_device_function_is_named():
    x = torch.zeros(64)
    body = f"""{range_(64)}{load("x", "%a0", 64)}
      %y = "tt.extern_elementwise"(%x) {{libname = "", libpath = "", symbol = "__nv_nonsensef", pure = true}}
        : (tensor<64xf32>) -> tensor<64xf32>
      {store("%y", "%a1", 64)}"""
    with pytest.raises(UnsupportedError, match="__nv_nonsensef"):
        run("!tt.ptr<f32>; !tt.ptr<f32>", body, [x, x])


def test_join_split_and_transpose():
    x, y, out = torch.randn(64), torch.randn(64), torch.zeros(128)
    body = f"""{range_(64)}{load("x", "%a0", 64)}{load("y", "%a1", 64)}
      %j = "tt.join"(%x, %y) : (tensor<64xf32>, tensor<64xf32>) -> tensor<64x2xf32>
      %t = "tt.trans"(%j) {{order = array<i32: 1, 0>}} : (tensor<64x2xf32>) -> tensor<2x64xf32>
      %f = "tt.reshape"(%t) : (tensor<2x64xf32>) -> tensor<128xf32>
      {range_(128, "w")}
      {store("%f", "%a2", 128, index="%w")}"""
    run("!tt.ptr<f32>; !tt.ptr<f32>; !tt.ptr<f32>", body, [x, y, out])
    assert torch.equal(out, torch.cat([x, y]))


def test_a_remainder_by_a_size_known_at_run_time():
    """LLVM's loop vectoriser took `(i + start) % n` for the same in all lanes."""
    x, out = torch.randn(130), torch.zeros(640)
    body = f"""{PROGRAM_RANGE}
      %k = "tt.splat"(%a3) : (i32) -> tensor<64xi32>
      %q = arith.remui %r, %k : tensor<64xi32>
      %xs = "tt.splat"(%a0) : (!tt.ptr<f32>) -> tensor<64x!tt.ptr<f32>>
      %xp = "tt.addptr"(%xs, %q) : (tensor<64x!tt.ptr<f32>>, tensor<64xi32>) -> tensor<64x!tt.ptr<f32>>
      %x = "tt.load"(%xp, %m) {{operandSegmentSizes = array<i32: 1, 1, 0>}}
        : (tensor<64x!tt.ptr<f32>>, tensor<64xi1>) -> tensor<64xf32>
      {store("%x", "%a1", 64, mask="%m")}"""
    run("!tt.ptr<f32>; !tt.ptr<f32>; i32; i32", body, [x, out], [600, 130], grid="()[s0, s1] -> (s0 ceildiv 64)")
    assert torch.equal(out[:600], x.repeat(5)[:600])
    assert (out[600:] == 0).all()


@pytest.mark.parametrize("size", [0, 1, 5, 50])
def test_sizes_of_a_negative_dividend_round_up(size):
    """As affine maps mean `ceildiv`: a quotient of numbers without a sign is far too large."""
    out = torch.zeros(16, dtype=torch.int32)
    body = """
      %n = "tt.get_num_programs"() {axis = 0 : i32} : () -> i32
      %p = "tt.get_program_id"() {axis = 0 : i32} : () -> i32
      %o = "tt.addptr"(%a0, %p) : (!tt.ptr<i32>, i32) -> !tt.ptr<i32>
      "tt.store"(%o, %n) : (!tt.ptr<i32>, i32) -> ()
    """
    run("!tt.ptr<i32>; i32", body, [out], [size], grid="()[s0] -> (s0 ceildiv 7 + (3 - s0) ceildiv 5 + 5)")
    count = -(-size // 7) - (size - 3) // 5 + 5
    expected = torch.zeros(16, dtype=torch.int32)
    expected[:count] = count
    assert torch.equal(out, expected)


def test_a_sample_of_the_grid_writes_its_part_alone():
    size = 64 * 9 + 5
    x, out = torch.randn(size), torch.full((size + 64,), 7.0)
    body = f"""{PROGRAM_RANGE}{load("x", "%a0", 64, mask="%m")}
      %e = math.exp %x : tensor<64xf32>
      {store("%e", "%a1", 64, mask="%m")}"""
    types, grid = "!tt.ptr<f32>; !tt.ptr<f32>; i32", "()[s0] -> (s0 ceildiv 64)"
    run(types, body, [x, out], [size], grid, programs=[9, 0, 4])
    expected = torch.full((size + 64,), 7.0)
    for start in (0, 256, 576):
        expected[start : min(start + 64, size)] = x[start : start + 64].exp()
    torch.testing.assert_close(out, expected, rtol=1e-6, atol=0)
    with pytest.raises(IndexError, match="programs \\[10\\] of @kernel, whose grid has 10"):
        run(types, body, [x, out], [size], grid, programs=[0, 10])
