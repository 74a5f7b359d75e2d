# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""The builder: what is known folds, and what does not broadcast is refused. Its text is in builder.lit.py."""

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


def test_blocks_that_do_not_broadcast() -> None:
    def body(b: Builder, x: ir.Value, n: ir.Value) -> None:
        with pytest.raises(ValueError, match=r"\[16\] and \[32\] do not broadcast"):
            b.addi(b.arange(16), b.arange(32))

    emitted(body)
