# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""The builder: what is known folds, shapes broadcast, constants are one per kernel."""

from collections.abc import Callable

import pytest
from torch_mlir import ir

from kiln.dialects import create_context, kiln, tt
from kiln.lowering.gpu.builder import Builder, kernel


def emitted(body: Callable[[Builder, ir.Value, ir.Value], None]) -> str:
    """The text of a kernel of (pointer to f32, i32), which verifies."""
    with create_context(), ir.Location.unknown():
        module = ir.Module.create()
        types = [tt.ptr(ir.F32Type.get()), ir.IntegerType.get_signless(32)]
        with ir.InsertionPoint(module.body):
            kernel("k", types, body)
        assert module.operation.verify()
        return kiln.to_text(module)


def test_ints_fold() -> None:
    def body(b: Builder, x: ir.Value, n: ir.Value) -> None:
        assert (b.addi(2, 3), b.muli(4, 5), b.divi(17, 5), b.remi(17, 5), b.ceildivi(17, 5)) == (5, 20, 3, 2, 4)
        assert b.cmpi("slt", 1, 2) is True
        assert b.andc(True, b.cmpi("slt", n, 4)) is not None
        assert b.addi(n, 0) == n and b.muli(1, n) == n and b.muli(n, 0) == 0
        assert b.addptr(x, 0) == x

    assert "arith.addi" not in emitted(body)


def test_shapes_broadcast() -> None:
    def body(b: Builder, x: ir.Value, n: ir.Value) -> None:
        rows, columns = b.lanes(16, 0, 2), b.lanes(32, 1, 2)
        at = b.addi(b.muli(rows, 32), columns)
        assert tt.shape_of(at.type) == [16, 32]
        b.store(b.addptr(x, at), b.constant(0.0, b.f32), b.cmpi("slt", at, n))

    text = emitted(body)
    assert '"tt.store"' in text and "tensor<16x32xi1>" in text


def test_blocks_that_do_not_broadcast() -> None:
    def body(b: Builder, x: ir.Value, n: ir.Value) -> None:
        with pytest.raises(ValueError, match=r"\[16\] and \[32\] do not broadcast"):
            b.addi(b.arange(16), b.arange(32))

    emitted(body)


def test_constants_and_ranges_are_one_per_kernel() -> None:
    def body(b: Builder, x: ir.Value, n: ir.Value) -> None:
        for _ in range(2):
            b.store(b.addptr(x, b.arange(16)), b.splat(b.constant(1.5, b.f32), [16]))

    text = emitted(body)
    assert text.count("tt.make_range") == 1
    assert text.count("dense<1.500000e+00>") == 1


def test_a_mask_that_always_holds_is_none() -> None:
    def body(b: Builder, x: ir.Value, n: ir.Value) -> None:
        b.store(x, b.load(x, True, 0.0), b.cmpi("slt", 3, 4))

    assert "i1" not in emitted(body)


def test_loops_of_one_step_are_inlined() -> None:
    def body(b: Builder, x: ir.Value, n: ir.Value) -> None:
        one = b.constant(1.0, b.f32)
        assert b.for_(0, 4, 8, lambda i, carried: [b.addf(carried[0], 1.0)], [one])
        (total,) = b.for_(0, n, 8, lambda i, carried: [b.addf(carried[0], 1.0)], [one], {"tt.num_stages": "2 : i32"})
        b.store(x, total)

    text = emitted(body)
    assert text.count("scf.for") == 1
    assert "tt.num_stages = 2 : i32" in text


def test_small_floats_convert_through_their_own_op() -> None:
    def body(b: Builder, x: ir.Value, n: ir.Value) -> None:
        small = b.cast_float(b.load(x), ir.Float8E4M3FNType.get())
        half = b.cast_float(b.cast_float(b.load(x), b.f16), b.bf16)
        b.store(x, b.addf(b.cast_float(small, b.f32), b.cast_float(half, b.f32)))

    text = emitted(body)
    assert text.count('"tt.fp_to_fp"') == 2
    assert "rounding = 1 : i32" in text
