# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Fusions around a product or convolution: epilogues, several results, parts, layouts, sizes at run time."""

import pytest
import torch
import torch.nn.functional as F
from fusion_support import TYPES, close, emit_fusion, run_fusion

from kiln.lowering.gpu.dot.fusions import DotOptions

# result = residual + gelu(x @ w^T + bias), and the sums before gelu as a second result
GELU = """
func.func @main(%r: tensor<{m}x{n}x{t}>, %x: tensor<{m}x{k}x{t}>, %w: tensor<{n}x{k}x{t}>, %b: tensor<{n}x{t}>)
    -> (tensor<{m}x{n}x{t}>, tensor<{m}x{n}x{t}>) {{
  %0:2 = "kiln.fusion"(%r, %x, %w, %b) ({{
  ^bb0(%r_: tensor<{m}x{n}x{t}>, %x_: tensor<{m}x{k}x{t}>, %w_: tensor<{n}x{k}x{t}>, %b_: tensor<{n}x{t}>):
    %1 = "kiln.matmul"(%x_, %w_) {{transpose_lhs = false, transpose_rhs = true}}
      : (tensor<{m}x{k}x{t}>, tensor<{n}x{k}x{t}>) -> tensor<{m}x{n}x{t}>
    %2 = "kiln.empty"() {{shape = affine_map<() -> ({m}, {n})>}} : () -> tensor<{m}x{n}x{t}>
    %3 = linalg.generic {{indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d1)>,
        affine_map<(d0, d1) -> (d0, d1)>], iterator_types = ["parallel", "parallel"]}}
        ins(%1, %b_ : tensor<{m}x{n}x{t}>, tensor<{n}x{t}>) outs(%2 : tensor<{m}x{n}x{t}>) {{
    ^bb0(%in: {t}, %c: {t}, %out: {t}):
      %7 = arith.addf %in, %c : {t}
      linalg.yield %7 : {t}
    }} -> tensor<{m}x{n}x{t}>
    %4 = linalg.generic {{indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0, d1)>,
        affine_map<(d0, d1) -> (d0, d1)>], iterator_types = ["parallel", "parallel"]}}
        ins(%3, %r_ : tensor<{m}x{n}x{t}>, tensor<{m}x{n}x{t}>) outs(%2 : tensor<{m}x{n}x{t}>) {{
    ^bb0(%in: {t}, %c: {t}, %out: {t}):
      %root = arith.constant 0.707106769 : {t}
      %half = arith.constant 0.5 : {t}
      %one = arith.constant 1.0 : {t}
      %8 = arith.mulf %in, %root : {t}
      %9 = math.erf %8 : {t}
      %10 = arith.mulf %in, %half : {t}
      %11 = arith.addf %9, %one : {t}
      %12 = arith.mulf %10, %11 : {t}
      %13 = arith.addf %12, %c : {t}
      linalg.yield %13 : {t}
    }} -> tensor<{m}x{n}x{t}>
    "kiln.yield"(%4, %3) : (tensor<{m}x{n}x{t}>, tensor<{m}x{n}x{t}>) -> ()
  }}) {{kind = "matmul", name = "gelu"}} : (tensor<{m}x{n}x{t}>, tensor<{m}x{k}x{t}>, tensor<{n}x{k}x{t}>,
    tensor<{n}x{t}>) -> (tensor<{m}x{n}x{t}>, tensor<{m}x{n}x{t}>)
  return %0#0, %0#1 : tensor<{m}x{n}x{t}>, tensor<{m}x{n}x{t}>
}}
"""


@pytest.mark.parametrize("element", ["f32", "bf16", "f16"])
@pytest.mark.parametrize(("m", "n", "k"), [(20, 64, 48), (1, 96, 130), (96, 1, 130), (77, 33, 100)])
def test_bias_gelu_residual(m, n, k, element):
    dtype, tolerance = TYPES[element]
    r, x, w, bias = (torch.randn(s).to(dtype) for s in ((m, n), (m, k), (n, k), (n,)))
    out, before = torch.full((m, n), 7.0, dtype=dtype), torch.full((m, n), 7.0, dtype=dtype)
    run_fusion(GELU.format(m=m, n=n, k=k, t=element), [r, x, w, bias], [out, before])
    sums = x.double() @ w.double().T + bias.double()
    close(before, sums, tolerance)
    close(out, F.gelu(sums) + r.double(), tolerance)


@pytest.mark.parametrize("persistent", [False, True])
def test_operands_through_descriptors(persistent):
    m, n, k = 192, 256, 128
    r, x, w, bias = (torch.randn(s).to(torch.bfloat16) for s in ((m, n), (m, k), (n, k), (n,)))
    out, before = torch.empty(m, n, dtype=torch.bfloat16), torch.empty(m, n, dtype=torch.bfloat16)
    changes = {
        "persistent": persistent,
        "programs": 5,
        "epilogue_pieces": 2,
        "block_m": 64,
        "block_n": 64,
        "block_k": 64,
    }
    text = GELU.format(m=m, n=n, k=k, t="bf16")
    run_fusion(text, [r, x, w, bias], [out, before], options=DotOptions(descriptors=True), changes=changes)
    sums = x.double() @ w.double().T + bias.double()
    close(before, sums, 1e-2)
    close(out, F.gelu(sums) + r.double(), 1e-2)


@pytest.mark.parametrize("kernel", ["gpu.gemm.tile", "gpu.gemm.tma"])
@pytest.mark.parametrize("pieces", [1, 2, 4])
@pytest.mark.parametrize("n", [192, 320, 96, 72])
def test_columns_that_pieces_divide_and_tiles_do_not(kernel, pieces, n):
    """A piece of the last tile may lie behind the last column as a whole: it is not stored there."""
    m, k, block_n = 136, 64, 128
    r, x, w, bias = (torch.randn(s).to(torch.bfloat16) for s in ((m, n), (m, k), (n, k), (n,)))
    guard = 2 * block_n
    memory = torch.full((2, m * n + guard), 7.0, dtype=torch.bfloat16)
    out, before = (row[: m * n].view(m, n) for row in memory)
    changes = {"block_m": 64, "block_n": block_n, "block_k": 32, "num_stages": 2, "num_warps": 4, "group_m": 8}
    changes |= {"kernel": kernel, "epilogue_pieces": pieces, "persistent": kernel == "gpu.gemm.tma", "programs": 3}
    options = DotOptions(descriptors=kernel == "gpu.gemm.tma")
    run_fusion(GELU.format(m=m, n=n, k=k, t="bf16"), [r, x, w, bias], [out, before], options=options, changes=changes)
    assert torch.equal(memory[:, m * n :], torch.full((2, guard), 7.0, dtype=torch.bfloat16))
    sums = x.double() @ w.double().T + bias.double()
    close(before, sums, 1e-2)
    close(out, F.gelu(sums) + r.double(), 1e-2)


def test_descriptors_of_a_batch_of_one():
    """[1, m, k] @ [n, k]^T: the batch has an index in the result, and none in the descriptors."""
    text = """func.func @main(%x: tensor<1x128x64xbf16>, %w: tensor<128x64xbf16>) -> tensor<1x128x128xbf16> {
      %0 = "kiln.fusion"(%x, %w) ({
      ^bb0(%a: tensor<1x128x64xbf16>, %b: tensor<128x64xbf16>):
        %p = "kiln.matmul"(%a, %b) {transpose_lhs = false, transpose_rhs = true}
          : (tensor<1x128x64xbf16>, tensor<128x64xbf16>) -> tensor<1x128x128xbf16>
        "kiln.yield"(%p) : (tensor<1x128x128xbf16>) -> ()
      }) {kind = "matmul", name = "product"}
        : (tensor<1x128x64xbf16>, tensor<128x64xbf16>) -> tensor<1x128x128xbf16>
      return %0 : tensor<1x128x128xbf16>
    }"""
    x, w = torch.randn(1, 128, 64).bfloat16(), torch.randn(128, 64).bfloat16()
    out = torch.empty(1, 128, 128, dtype=torch.bfloat16)
    changes = {"block_m": 64, "block_n": 64, "block_k": 64, "num_stages": 2}
    changes |= {"kernel": "gpu.gemm.tma", "persistent": False, "programs": 132, "epilogue_pieces": 1}
    run_fusion(text, [x, w], [out], options=DotOptions(descriptors=True), changes=changes)
    close(out, x.double() @ w.double().T, 1e-2)
    assert "tt.tensordesc" in str(emit_fusion(text, DotOptions(descriptors=True), changes))


# Batches of products, each matrix of the left operand with one of the right; several batch dims, and places in memory.
BATCHES = """func.func @main(%x: tensor<2x3x{x}xbf16>, %w: tensor<2x3x{w}xbf16>) -> tensor<2x3x100x72xbf16> {{
  %0 = "kiln.fusion"(%x, %w) ({{
  ^bb0(%a: tensor<2x3x{x}xbf16>, %b: tensor<2x3x{w}xbf16>):
    %p = "kiln.matmul"(%a, %b) {{transpose_lhs = {tx}, transpose_rhs = {tw}}}
      : (tensor<2x3x{x}xbf16>, tensor<2x3x{w}xbf16>) -> tensor<2x3x100x72xbf16>
    "kiln.yield"(%p) : (tensor<2x3x100x72xbf16>) -> ()
  }}) {{kind = "matmul", name = "product", layouts = [
      affine_map<(d0, d1, d2, d3) -> ({xp})>, affine_map<(d0, d1, d2, d3) -> ({wp})>,
      affine_map<(d0, d1, d2, d3) -> (d0 * 21600 + d1 * 7200 + d2 * 72 + d3)>]}}
    : (tensor<2x3x{x}xbf16>, tensor<2x3x{w}xbf16>) -> tensor<2x3x100x72xbf16>
  return %0 : tensor<2x3x100x72xbf16>
}}"""


@pytest.mark.parametrize("persistent", [False, True])
@pytest.mark.parametrize(("tx", "tw"), [(False, False), (False, True), (True, True)])
@pytest.mark.parametrize("repeated", [False, True])
def test_batches_through_descriptors(tx, tw, repeated, persistent):
    """Left: batches inside of rows, as heads are in a projection's result. Right: one after the other, or one for all
    of the second dim."""
    # Transposed, rows of 100 elements lie 104 apart.
    x = torch.randn(2, 88, 3, 100).to(torch.bfloat16) if tx else torch.randn(2, 100, 3, 88).to(torch.bfloat16)
    w = torch.randn(2, 1 if repeated else 3, *((72, 88) if tw else (88, 72))).to(torch.bfloat16)
    width = 104 if tx else 88
    text = BATCHES.format(
        x="88x100" if tx else "100x88", w="72x88" if tw else "88x72", tx=str(tx).lower(), tw=str(tw).lower(),
        xp=f"d0 * {x.shape[1] * 3 * width} + d2 * {3 * width} + d1 * {width} + d3",
        wp=("d0 * 6336" if repeated else "d0 * 19008 + d1 * 6336") + f" + d2 * {88 if tw else 72} + d3",
    )  # fmt: skip
    changes = {"kernel": "gpu.gemm.tma", "persistent": persistent, "programs": 5, "epilogue_pieces": 2, "group_m": 2}
    changes |= {"block_m": 64, "block_n": 64, "block_k": 32, "num_stages": 2}
    out = torch.full((2, 3, 100, 72), 7.0, dtype=torch.bfloat16)
    left = x.transpose(1, 2).double()
    right = w.expand(2, 3, -1, -1).double()
    memory = x if not tx else torch.nn.functional.pad(x, (0, 4), value=torch.nan)
    run_fusion(text, [memory.contiguous(), w], [out], options=DotOptions(descriptors=True), changes=changes)
    close(out, (left.mT if tx else left) @ (right.mT if tw else right), 1e-2)
    kernel = str(emit_fusion(text, DotOptions(descriptors=True), changes))
    assert kernel.count("tt.descriptor_load") == 2 and "tensor<1x1x" in kernel


# Three products of one matrix with rows known at run time, each result with a bias or a scale of its own.
PARTS = """
func.func @main(%x: tensor<?x96xf32> {{kiln.shape = affine_map<()[s0] -> (s0, 96)>}}, %q: tensor<64x96xf32>,
    %k: tensor<24x96xf32>, %v: tensor<24x96xf32>, %b: tensor<64xf32>, %s0: index {{kiln.symbol = "s0"}})
    -> (tensor<?x64xf32>, tensor<?x24xf32>, tensor<?x24xf32>) {{
  %0:3 = "kiln.fusion"(%x, %q, %k, %v, %b, %s0) ({{
  ^bb0(%x_: tensor<?x96xf32>, %q_: tensor<64x96xf32>, %k_: tensor<24x96xf32>, %v_: tensor<24x96xf32>,
      %b_: tensor<64xf32>, %n: index):
    %1 = "kiln.matmul"(%x_, %q_) {{transpose_lhs = false, transpose_rhs = true}}
      : (tensor<?x96xf32>, tensor<64x96xf32>) -> tensor<?x64xf32>
    %2 = "kiln.matmul"(%x_, %k_) {{transpose_lhs = false, transpose_rhs = true}}
      : (tensor<?x96xf32>, tensor<24x96xf32>) -> tensor<?x24xf32>
    %3 = "kiln.matmul"(%x_, %v_) {{transpose_lhs = false, transpose_rhs = true}}
      : (tensor<?x96xf32>, tensor<24x96xf32>) -> tensor<?x24xf32>
    %e = "kiln.empty"(%n) {{shape = affine_map<()[s0] -> (s0, 64)>}} : (index) -> tensor<?x64xf32>
    %4 = linalg.generic {{indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d1)>,
        affine_map<(d0, d1) -> (d0, d1)>], iterator_types = ["parallel", "parallel"]}}
        ins(%1, %b_ : tensor<?x64xf32>, tensor<64xf32>) outs(%e : tensor<?x64xf32>) {{
    ^bb0(%in: f32, %c: f32, %out: f32):
      %7 = arith.addf %in, %c : f32
      linalg.yield %7 : f32
    }} -> tensor<?x64xf32>
    "kiln.yield"(%4, %2, %3) : (tensor<?x64xf32>, tensor<?x24xf32>, tensor<?x24xf32>) -> ()
  }}) {{kind = "matmul", name = "qkv", parts = array<i64: 0, 1, 2>, layouts = [
      affine_map<(d0, d1)[s0] -> (d0 * 96 + d1)>, affine_map<(d0, d1)[s0] -> (d0 * 96 + d1)>,
      affine_map<(d0, d1)[s0] -> (d0 * 96 + d1)>, affine_map<(d0, d1)[s0] -> (d0 * 96 + d1)>,
      affine_map<(d0)[s0] -> (d0)>, affine_map<(d0, d1)[s0] -> (d0 * {stride} + d1)>,
      affine_map<(d0, d1)[s0] -> (d0 * 24 + d1)>, affine_map<(d0, d1)[s0] -> (d1 * s0 + d0)>]}}
    : (tensor<?x96xf32>, tensor<64x96xf32>, tensor<24x96xf32>, tensor<24x96xf32>, tensor<64xf32>, index)
    -> (tensor<?x64xf32>, tensor<?x24xf32>, tensor<?x24xf32>)
  return %0#0, %0#1, %0#2 : tensor<?x64xf32>, tensor<?x24xf32>, tensor<?x24xf32>
}}
"""


@pytest.mark.parametrize("rows", [1, 17, 64, 150])
def test_products_of_one_matrix(rows):
    x, q, k, v, bias = (torch.randn(s) for s in ((rows, 96), (64, 96), (24, 96), (24, 96), (64,)))
    wide = torch.full((rows, 80), 7.0)
    keys, values = torch.full((rows, 24), 7.0), torch.full((24, rows), 7.0)
    run_fusion(PARTS.format(stride=80), [x, q, k, v, bias], [wide, keys, values], symbols=[rows])
    close(wide[:, :64], x.double() @ q.double().T + bias.double(), 2e-6)
    assert (wide[:, 64:] == 7.0).all()
    close(keys, x.double() @ k.double().T, 2e-6)
    close(values.T, x.double() @ v.double().T, 2e-6)


# Projections of one size, and a smaller one between them.
ALIKE = """
func.func @main(%x: tensor<77x96xf32>, %q: tensor<40x96xf32>, %k: tensor<24x96xf32>, %v: tensor<40x96xf32>,
    %c: tensor<40xf32>, %d: tensor<40xf32>) -> (tensor<77x40xf32>, tensor<77x24xf32>, tensor<77x40xf32>) {
  %0:3 = "kiln.fusion"(%x, %q, %k, %v, %c, %d) ({
  ^bb0(%x_: tensor<77x96xf32>, %q_: tensor<40x96xf32>, %k_: tensor<24x96xf32>, %v_: tensor<40x96xf32>,
      %c_: tensor<40xf32>, %d_: tensor<40xf32>):
    %e = "kiln.empty"() {shape = affine_map<() -> (77, 40)>} : () -> tensor<77x40xf32>
    %1 = "kiln.matmul"(%x_, %q_) {transpose_lhs = false, transpose_rhs = true}
      : (tensor<77x96xf32>, tensor<40x96xf32>) -> tensor<77x40xf32>
    %2 = linalg.generic {indexing_maps = [affine_map<(a, b) -> (a, b)>, affine_map<(a, b) -> (b)>,
        affine_map<(a, b) -> (a, b)>], iterator_types = ["parallel", "parallel"]}
        ins(%1, %c_ : tensor<77x40xf32>, tensor<40xf32>) outs(%e : tensor<77x40xf32>) {
    ^bb0(%i: f32, %j: f32, %o: f32):
      %r = arith.addf %i, %j : f32
      linalg.yield %r : f32
    } -> tensor<77x40xf32>
    %3 = "kiln.matmul"(%x_, %k_) {transpose_lhs = false, transpose_rhs = true}
      : (tensor<77x96xf32>, tensor<24x96xf32>) -> tensor<77x24xf32>
    %4 = "kiln.matmul"(%x_, %v_) {transpose_lhs = false, transpose_rhs = true}
      : (tensor<77x96xf32>, tensor<40x96xf32>) -> tensor<77x40xf32>
    %5 = linalg.generic {indexing_maps = [affine_map<(a, b) -> (a, b)>, affine_map<(a, b) -> (b)>,
        affine_map<(a, b) -> (a, b)>], iterator_types = ["parallel", "parallel"]}
        ins(%4, %d_ : tensor<77x40xf32>, tensor<40xf32>) outs(%e : tensor<77x40xf32>) {
    ^bb0(%i: f32, %j: f32, %o: f32):
      %r = arith.addf %i, %j : f32
      linalg.yield %r : f32
    } -> tensor<77x40xf32>
    "kiln.yield"(%2, %3, %5) : (tensor<77x40xf32>, tensor<77x24xf32>, tensor<77x40xf32>) -> ()
  }) {kind = "matmul", name = "qkv", parts = array<i64: 0, 1, 2>}
    : (tensor<77x96xf32>, tensor<40x96xf32>, tensor<24x96xf32>, tensor<40x96xf32>, tensor<40xf32>, tensor<40xf32>)
    -> (tensor<77x40xf32>, tensor<77x24xf32>, tensor<77x40xf32>)
  return %0#0, %0#1, %0#2 : tensor<77x40xf32>, tensor<77x24xf32>, tensor<77x40xf32>
}
"""


def test_parts_that_differ_in_their_tensors_alone_share_their_code():
    x, q, k, v, c, d = (torch.randn(s) for s in ((77, 96), (40, 96), (24, 96), (40, 96), (40,), (40,)))
    outputs = [torch.full((77, n), 7.0) for n in (40, 24, 40)]
    run_fusion(ALIKE, [x, q, k, v, c, d], outputs)
    exact = [x.double() @ q.double().T + c, x.double() @ k.double().T, x.double() @ v.double().T + d]
    for found, reference in zip(outputs, exact, strict=True):
        close(found, reference, 2e-6)
    own = str(emit_fusion(ALIKE)).count("tt.dot")
    other = str(emit_fusion(ALIKE.replace("arith.addf %i, %j", "arith.mulf %i, %j", 1))).count("tt.dot")
    assert 2 * other == 3 * own  # two pieces of code for three parts, until one of them computes something else


# A convolution with bias and relu, channels last.
CONV = """
func.func @main(%x: tensor<{n}x{c}x9x7x{t}>, %w: tensor<{o}x{cg}x3x3x{t}>, %b: tensor<{o}x{t}>)
    -> tensor<{n}x{o}x5x4x{t}> {{
  %0 = "kiln.fusion"(%x, %w, %b) ({{
  ^bb0(%x_: tensor<{n}x{c}x9x7x{t}>, %w_: tensor<{o}x{cg}x3x3x{t}>, %b_: tensor<{o}x{t}>):
    %1 = "kiln.conv"(%x_, %w_) {{stride = array<i64: 2, 2>, padding = array<i64: 1, 1>, dilation = array<i64: 1, 1>,
      groups = {groups}, transposed = false, output_padding = array<i64: 0, 0>}}
      : (tensor<{n}x{c}x9x7x{t}>, tensor<{o}x{cg}x3x3x{t}>) -> tensor<{n}x{o}x5x4x{t}>
    %e = "kiln.empty"() {{shape = affine_map<() -> ({n}, {o}, 5, 4)>}} : () -> tensor<{n}x{o}x5x4x{t}>
    %2 = linalg.generic {{indexing_maps = [affine_map<(d0, d1, d2, d3) -> (d0, d1, d2, d3)>,
        affine_map<(d0, d1, d2, d3) -> (d1)>, affine_map<(d0, d1, d2, d3) -> (d0, d1, d2, d3)>],
        iterator_types = ["parallel", "parallel", "parallel", "parallel"]}}
        ins(%1, %b_ : tensor<{n}x{o}x5x4x{t}>, tensor<{o}x{t}>) outs(%e : tensor<{n}x{o}x5x4x{t}>) {{
    ^bb0(%in: {t}, %c: {t}, %out: {t}):
      %zero = arith.constant 0.0 : {t}
      %7 = arith.addf %in, %c : {t}
      %8 = arith.maximumf %7, %zero : {t}
      linalg.yield %8 : {t}
    }} -> tensor<{n}x{o}x5x4x{t}>
    "kiln.yield"(%2) : (tensor<{n}x{o}x5x4x{t}>) -> ()
  }}) {{kind = "conv", name = "conv", layouts = [
      affine_map<(d0, d1, d2, d3) -> (d0 * {c} * 63 + d2 * {c} * 7 + d3 * {c} + d1)>,
      affine_map<(d0, d1, d2, d3) -> (d0 * {cg} * 9 + d1 * 9 + d2 * 3 + d3)>, affine_map<(d0) -> (d0)>,
      affine_map<(d0, d1, d2, d3) -> (d0 * {o} * 20 + d2 * {o} * 4 + d3 * {o} + d1)>]}}
    : (tensor<{n}x{c}x9x7x{t}>, tensor<{o}x{cg}x3x3x{t}>, tensor<{o}x{t}>) -> tensor<{n}x{o}x5x4x{t}>
  return %0 : tensor<{n}x{o}x5x4x{t}>
}}
"""


@pytest.mark.parametrize("element", ["f32", "bf16"])
@pytest.mark.parametrize(
    ("n", "c", "o", "groups"), [(3, 3, 20, 1), (1, 32, 24, 1), (2, 16, 32, 2), (1, 12, 12, 12), (1, 8, 1, 1)]
)
def test_convolution_bias_relu(n, c, o, groups, element):
    dtype, tolerance = TYPES[element]
    x, w, bias = (torch.randn(s).to(dtype) for s in ((n, c, 9, 7), (o, c // groups, 3, 3), (o,)))
    x = x.contiguous(memory_format=torch.channels_last)
    out = torch.full((n, o, 5, 4), 7.0, dtype=dtype).contiguous(memory_format=torch.channels_last)
    run_fusion(CONV.format(n=n, c=c, o=o, cg=c // groups, groups=groups, t=element), [x, w, bias], [out])
    want = F.conv2d(x.double(), w.double(), bias.double(), 2, 1, 1, groups).relu()
    close(out, want, tolerance)


# A gated unit: two products of one matrix meet in the epilogue.
GATE = """
func.func @main(%x: tensor<{m}x{k}x{t}>, %g: tensor<{n}x{k}x{t}>, %u: tensor<{n}x{k}x{t}>) -> tensor<{m}x{n}x{t}> {{
  %0 = "kiln.fusion"(%x, %g, %u) ({{
  ^bb0(%x_: tensor<{m}x{k}x{t}>, %g_: tensor<{n}x{k}x{t}>, %u_: tensor<{n}x{k}x{t}>):
    %1 = "kiln.matmul"(%x_, %g_) {{transpose_lhs = false, transpose_rhs = true}}
      : (tensor<{m}x{k}x{t}>, tensor<{n}x{k}x{t}>) -> tensor<{m}x{n}x{t}>
    %2 = "kiln.matmul"(%x_, %u_) {{transpose_lhs = false, transpose_rhs = true}}
      : (tensor<{m}x{k}x{t}>, tensor<{n}x{k}x{t}>) -> tensor<{m}x{n}x{t}>
    %e = "kiln.empty"() {{shape = affine_map<() -> ({m}, {n})>}} : () -> tensor<{m}x{n}x{t}>
    %3 = linalg.generic {{indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0, d1)>,
        affine_map<(d0, d1) -> (d0, d1)>], iterator_types = ["parallel", "parallel"]}}
        ins(%1, %2 : tensor<{m}x{n}x{t}>, tensor<{m}x{n}x{t}>) outs(%e : tensor<{m}x{n}x{t}>) {{
    ^bb0(%p: {t}, %q: {t}, %out: {t}):
      %zero = arith.constant 0.0 : {t}
      %7 = arith.maximumf %p, %zero : {t}
      %8 = arith.mulf %7, %q : {t}
      linalg.yield %8 : {t}
    }} -> tensor<{m}x{n}x{t}>
    "kiln.yield"(%3) : (tensor<{m}x{n}x{t}>) -> ()
  }}) {{kind = "matmul", name = "gate"}} : (tensor<{m}x{k}x{t}>, tensor<{n}x{k}x{t}>, tensor<{n}x{k}x{t}>)
    -> tensor<{m}x{n}x{t}>
  return %0 : tensor<{m}x{n}x{t}>
}}
"""


@pytest.mark.parametrize("element", ["f32", "bf16"])
@pytest.mark.parametrize(("m", "n", "k"), [(20, 64, 48), (1, 96, 130), (77, 1, 100)])
@pytest.mark.parametrize("descriptors", [False, True])
def test_gated_unit(m, n, k, element, descriptors):
    dtype, tolerance = TYPES[element]
    if descriptors:
        m, n, k = m * 64, n * 64, 128
    x, g, u = (torch.randn(s).to(dtype) for s in ((m, k), (n, k), (n, k)))
    out = torch.full((m, n), 7.0, dtype=dtype)
    run_fusion(GATE.format(m=m, n=n, k=k, t=element), [x, g, u], [out], options=DotOptions(descriptors=descriptors))
    close(out, (x.double() @ g.double().T).relu() * (x.double() @ u.double().T), tolerance)
