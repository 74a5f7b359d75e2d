# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Accesses outside of their buffer are errors that say which op, where, and touch nothing."""

import os
import sys

import pytest
import torch
import torch.nn.functional as F

import kiln
from kiln.errors import AccessError
from kiln.lowering.gpu.builder import Builder
from kiln.lowering.ttcpu.settings import Settings

sys.path.insert(0, os.path.dirname(__file__))
from kernel_text import load, range_, run, store


def compiled(function, **options):
    torch._dynamo.reset()
    options = {"target": "tt-cpu", "fallback": False, "cache": False, **options}
    return torch.compile(function, backend=kiln.backend, fullgraph=True, options=options)


def parts(*sizes: int) -> list[torch.Tensor]:
    """Zeros that lie one behind the other in one piece of memory."""
    return list(torch.zeros(sum(sizes)).split(list(sizes)))


# -- one op -----------------------------------------------------------------------------------------------


def test_a_store_behind_the_end():
    x, out, behind = torch.randn(64), *parts(50, 14)
    body = f"""{range_(64)}{load("x", "%a0", 64)}{store("%x", "%a1", 64)}"""
    with pytest.raises(AccessError) as error:
        run("!tt.ptr<f32>; !tt.ptr<f32>", body, [x, out])
    text = str(error.value)
    assert "tt.store #1 at -:13:7 in" in text and "kernel @kernel, program 0: writes at byte 252 of argument 1" in text
    assert "behind its end: it has 200 bytes" in text
    assert torch.equal(out, x[:50]) and (behind == 0).all()


def test_a_load_in_front_of_the_start():
    x, out = torch.randn(96)[32:], torch.zeros(64)
    body = f"""{range_(64)}
      %minus = arith.constant -3 : i32
      %p = "tt.addptr"(%a0, %minus) : (!tt.ptr<f32>, i32) -> !tt.ptr<f32>
      {load("x", "%p", 64)}{store("%x", "%a1", 64)}"""
    with pytest.raises(AccessError, match="tt.load #1.* reads at byte -4 of argument 0, in front of its start"):
        run("!tt.ptr<f32>; !tt.ptr<f32>", body, [x, out])
    assert out[:3].isnan().all() and torch.equal(out[3:], x[:61])


def test_half_an_element_is_outside():
    body = """
      %c = arith.constant 1 : i64
      %b = "tt.bitcast"(%a0) : (!tt.ptr<i16>) -> !tt.ptr<i32>
      %p = "tt.addptr"(%b, %c) : (!tt.ptr<i32>, i64) -> !tt.ptr<i32>
      %v = arith.constant 7 : i32
      "tt.store"(%p, %v) : (!tt.ptr<i32>, i32) -> ()"""
    out = torch.zeros(4, dtype=torch.int16)
    run("!tt.ptr<i16>", body, [out])
    assert out.tolist() == [0, 0, 7, 0]
    with pytest.raises(AccessError, match="at byte 4 of argument 0, .* 6 bytes"):
        run("!tt.ptr<i16>", body, [out[:3]])


def test_lanes_that_a_mask_leaves_out_may_point_anywhere():
    x, out = torch.randn(40), torch.zeros(64)
    body = f"""{range_(64)}
      %n = arith.constant dense<40> : tensor<64xi32>
      %m = arith.cmpi slt, %r, %n : tensor<64xi32>
      {load("x", "%a0", 64, mask="%m")}{store("%x", "%a1", 64, mask="%m")}"""
    run("!tt.ptr<f32>; !tt.ptr<f32>", body, [x, out])
    assert torch.equal(out[:40], x)


@pytest.mark.parametrize("chosen", [0, 1])
def test_a_pointer_that_is_chosen_has_the_memory_of_its_own(chosen):
    """What one tensor's accesses hit behind its end is the other tensor: still an error."""
    first, second = parts(64, 80)
    body = f"""{range_(80)}
      %zero = arith.constant 0 : i32
      %c = arith.cmpi eq, %a2, %zero : i32
      %p = arith.select %c, %a0, %a1 : !tt.ptr<f32>
      %one = arith.constant dense<1.0> : tensor<80xf32>
      {store("%one", "%p", 80)}"""
    body = body.replace("80", "128").replace("tensor<128xf32>", "tensor<128xf32>")
    with pytest.raises(AccessError, match=rf"writes at byte 508 of argument {chosen}, .* {[256, 320][chosen]} bytes"):
        run("!tt.ptr<f32>; !tt.ptr<f32>; i32", body, [first, second], [chosen])
    assert first.sum() == 64 * (chosen == 0) and second.sum() == 80 * (chosen == 1)


@pytest.mark.parametrize("steps", [4, 5])
def test_a_pointer_that_a_loop_moves(steps):
    out, behind = parts(64, 64)
    body = f"""{range_(16)}
      %low = arith.constant 0 : i32
      %one = arith.constant 1 : i32
      %size = arith.constant 16 : i32
      %v = arith.constant dense<1.0> : tensor<16xf32>
      %end = scf.for %k = %low to %a1 step %one iter_args(%p = %a0) -> (!tt.ptr<f32>) : i32 {{
        {store("%v", "%p", 16)}
        %q = "tt.addptr"(%p, %size) : (!tt.ptr<f32>, i32) -> !tt.ptr<f32>
        scf.yield %q : !tt.ptr<f32>
      }}"""
    if steps == 4:
        run("!tt.ptr<f32>; i32", body, [out], [steps])
    else:
        with pytest.raises(AccessError, match="writes at byte 316 of argument 0"):
            run("!tt.ptr<f32>; i32", body, [out], [steps])
    assert out.sum() == 64 and behind.sum() == 0


def test_an_atomic_behind_the_end():
    out, behind = parts(48, 16)
    body = f"""{range_(64)}
      %one = arith.constant dense<1.0> : tensor<64xf32>
      %s = "tt.splat"(%a0) : (!tt.ptr<f32>) -> tensor<64x!tt.ptr<f32>>
      %p = "tt.addptr"(%s, %r) : (tensor<64x!tt.ptr<f32>>, tensor<64xi32>) -> tensor<64x!tt.ptr<f32>>
      %old = "tt.atomic_rmw"(%p, %one) {{atomic_rmw_op = 5 : i32, sem = 1 : i32, scope = 1 : i32}}
        : (tensor<64x!tt.ptr<f32>>, tensor<64xf32>) -> tensor<64xf32>"""
    with pytest.raises(AccessError, match="tt.atomic_rmw #1.* changes at byte 252 of argument 0"):
        run("!tt.ptr<f32>", body, [out])
    assert out.sum() == 48 and behind.sum() == 0


def test_scratch_memory_has_an_end_too():
    body = f"""{range_(64)}
      %one = arith.constant dense<1> : tensor<64xi8>
      {store("%one", "%a1", 64, "i8")}"""
    for size in (64, 32):
        attributes = f", kiln.scratch_bytes = affine_map<() -> ({size})>"
        arguments = ("!tt.ptr<f32>; !tt.ptr<i8>", body, [torch.zeros(1)])
        if size == 64:
            run(*arguments, attributes=attributes)
        else:
            with pytest.raises(AccessError, match="writes at byte 63 of its scratch memory"):
                run(*arguments, attributes=attributes)


def test_the_first_program_that_is_wrong_is_named():
    body = f"""
      %pid = "tt.get_program_id"() {{axis = 0 : i32}} : () -> i32
      %c = arith.constant 64 : i32
      %at = arith.muli %pid, %c : i32
      %p = "tt.addptr"(%a0, %at) : (!tt.ptr<f32>, i32) -> !tt.ptr<f32>
      {range_(64)}
      %one = arith.constant dense<1.0> : tensor<64xf32>
      {store("%one", "%p", 64)}"""
    out = torch.zeros(64 * 7)
    with pytest.raises(AccessError, match="program 7: writes at byte 2044"):
        run("!tt.ptr<f32>", body, [out], grid="() -> (9)", settings=Settings(order="forward"))
    assert (out == 1).all()  # the programs go on
    with pytest.raises(AccessError, match="program 8"):
        run("!tt.ptr<f32>", body, [out], grid="() -> (9)", settings=Settings(order="reversed"))


DESCRIPTOR = """
      %rows = arith.constant {rows} : i32
      %columns = arith.constant 24 : i32
      %stride = arith.constant {stride} : i64
      %one = arith.constant 1 : i64
      %i = arith.constant 0 : i32
      %in = "tt.make_tensor_descriptor"(%a0, %rows, %columns, %stride, %one) {{padding = {padding} : i32}}
        : (!tt.ptr<f32>, i32, i32, i64, i64) -> !tt.tensordesc<tensor<32x32xf32>>
      %x = "tt.descriptor_load"(%in, %i, %i) : (!tt.tensordesc<tensor<32x32xf32>>, i32, i32) -> tensor<32x32xf32>
      %y = "tt.reshape"(%x) : (tensor<32x32xf32>) -> tensor<1024xf32>
"""


def described(x: torch.Tensor, rows: int = 20, stride: int = 24, padding: int = 1) -> torch.Tensor:
    out = torch.zeros(1024)
    body = DESCRIPTOR.format(rows=rows, stride=stride, padding=padding) + range_(1024) + store("%y", "%a1", 1024)
    run("!tt.ptr<f32>; !tt.ptr<f32>", body, [x, out])
    return out.reshape(32, 32)


def test_a_descriptor_is_checked_where_it_is_made():
    x = torch.randn(20, 24)
    assert torch.equal(described(x)[:20, :24], x) and (described(x)[20:] == 0).all()
    filled = described(x, padding=2)
    assert torch.equal(filled[:20, :24], x) and filled[20:].isnan().all() and filled[:, 24:].isnan().all()
    with pytest.raises(AccessError, match="a tensor map of argument 0 reaches byte 2012; it has 1920 bytes"):
        described(x, rows=21)
    with pytest.raises(AccessError, match="a tensor map's stride of argument 0 is 88 bytes, no multiple of 16"):
        described(x, stride=22)


def test_an_assertion_that_does_not_hold():
    body = f"""{range_(64)}
      %n = "tt.splat"(%a1) : (i32) -> tensor<64xi32>
      %c = arith.cmpi slt, %r, %n : tensor<64xi32>
      "tt.assert"(%c) {{message = "index out of range in embedding"}} : (tensor<64xi1>) -> ()"""
    run("!tt.ptr<f32>; i32", body, [torch.zeros(1)], [64])
    with pytest.raises(IndexError, match=r"index out of range in embedding \(tt.assert #1"):
        run("!tt.ptr<f32>; i32", body, [torch.zeros(1)], [63])


# -- graphs -----------------------------------------------------------------------------------------------


def without_masks(monkeypatch):
    """A compiler with a defect: stores have no masks."""
    stores = Builder.store
    monkeypatch.setattr(
        Builder, "store", lambda self, pointer, value, mask=None, *rest, **named: stores(self, pointer, value, None)
    )


@pytest.mark.planted
def test_a_kernel_of_a_graph_is_named_with_its_line(monkeypatch):
    x = torch.randn(37, 29)
    run = compiled(lambda x: torch.sigmoid(x) + 1)
    assert torch.allclose(run(x), torch.sigmoid(x) + 1)
    without_masks(monkeypatch)
    run = compiled(lambda x: torch.sigmoid(x) + 1)
    for _ in range(2):  # the executor can be called again
        with pytest.raises(AccessError) as error:
            run(x)
        text = str(error.value)
        assert f"{os.path.basename(__file__)}:" in text and "writes at byte" in text
        assert "of result 0 (tensor, float32[37, 29]), behind its end: it has 4292 bytes" in text


@pytest.mark.planted
def test_without_bounds_nothing_is_said(monkeypatch):
    """The knob: a store of a whole block where the memory is there all the same."""
    without_masks(monkeypatch)
    x = torch.randn(1024)
    out = compiled(lambda x: x * 2, tt_cpu="bounds=off")(x)
    assert torch.equal(out, x * 2)


@pytest.mark.planted
def test_the_launch_that_is_wrong_is_named_among_several(monkeypatch):
    """Two kernels in one native call; only the second is wrong."""

    def graph(x, y):
        z = torch.softmax(x, 1)
        return z, (z @ y).sum(0)

    emit = kiln.lowering.gpu.tile.nest.emit_nest

    def shifted(e, nest, program):
        stores = Builder.store
        if len(nest.roots) and "sum" in str(e.body.fusion.location):
            Builder.store = lambda self, pointer, *rest, **named: stores(
                self, self.addptr(pointer, 1 << 20), *rest, **named
            )
        try:
            emit(e, nest, program)
        finally:
            Builder.store = stores

    monkeypatch.setattr("kiln.lowering.gpu.emit.emit_nest", shifted)
    with pytest.raises(AccessError, match="writes at byte 4194"):
        compiled(graph)(torch.randn(40, 33), torch.randn(33, 70))


@pytest.mark.parametrize("rows", [0, 5])
def test_tensors_without_elements_have_no_memory(rows):
    x = torch.randn(rows, 7)
    torch.testing.assert_close(compiled(lambda x: x.exp())(x), x.exp())


def test_views_with_steps_and_offsets_have_the_memory_up_to_their_last_element():
    x = torch.randn(40, 30)[3::4, 1::2]
    out = compiled(lambda x: torch.cat([x, x * 2], 1).t() + 1)(x)
    torch.testing.assert_close(out, torch.cat([x, x * 2], 1).t() + 1)


@pytest.mark.parametrize("dynamic", [False, True])
def test_dims_that_are_read_backwards_start_at_their_last_element(dynamic):
    torch._dynamo.reset()
    options = {"target": "tt-cpu", "fallback": False}
    run = torch.compile(lambda x: x.flip(0).cumsum(1), backend=kiln.backend, dynamic=dynamic, options=options)
    for shape in ((5, 7), (9, 4)):
        x = torch.randn(shape)
        torch.testing.assert_close(run(x), x.flip(0).cumsum(1))


@pytest.mark.planted
@pytest.mark.parametrize("steps", [7, -1])
def test_a_load_outside_of_a_tensor_that_is_read_backwards(monkeypatch, steps):
    loads = Builder.load
    monkeypatch.setattr(Builder, "load", lambda b, p, *rest, **named: loads(b, b.addptr(p, steps), *rest, **named))
    side = "behind its end" if steps > 0 else "in front of its start"
    with pytest.raises(AccessError, match=f"{side}: it has 140 bytes"):
        compiled(lambda x: x.flip(0).cumsum(1))(torch.randn(5, 7))


def test_an_index_out_of_range_is_an_error():
    table, index = torch.randn(10, 8), torch.tensor([3, 10])
    with pytest.raises(IndexError, match="out of range"):
        compiled(lambda t, i: F.embedding(i, t) * 2)(table, index)
