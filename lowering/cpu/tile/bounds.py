# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Indices out of range: kernels that clamp an index tell the executor so.

An op with the attribute ``kiln.checked`` is the last of a clamp, ``min(max(index, 0), size - 1)``. Where it changes an
index in a lane that is in use, the kernel stores 1 at the address that its last symbol is: a word of the call's state,
which the executor looks at after the launch (runtime/executor.py). A comparison and a branch that is not taken.
"""

from torch_mlir import ir
from torch_mlir.dialects import arith

from kiln.lowering.cpu.builder import Builder
from kiln.lowering.tile.body import FusionBody

__all__ = ["CHECKED", "checked_ops", "emit_check", "unclamped"]

CHECKED = "kiln.checked"


def checked_ops(body: FusionBody) -> list[str]:
    """The names of the ops whose indices a fusion's kernel checks, each once."""
    names: dict[str, None] = {}

    def visit(op: ir.Operation) -> ir.WalkResult:
        if CHECKED in op.attributes and unclamped(op) is not None:
            names[ir.StringAttr(op.attributes[CHECKED]).value] = None
        return ir.WalkResult.ADVANCE

    body.fusion.operation.walk(visit)
    return list(names)


def unclamped(op: ir.Operation) -> ir.Value | None:
    """The index that a checked clamp was given; None if rewriting left none to compare with."""
    for value in op.operands:
        owner = value.owner
        if isinstance(owner, ir.Operation | ir.OpView) and owner.operation.name == "arith.maxsi":
            return owner.operation.operands[0]
    return None


def emit_check(b: Builder, index: ir.Value, clamped: ir.Value, mask: ir.Value | None, flag: ir.Value) -> None:
    """Stores 1 at the address `flag` (an index) if `clamped` is not `index` in one of the lanes of `mask`."""
    wrong = arith.cmpi(arith.CmpIPredicate.ne, index, clamped)
    if isinstance(wrong.type, ir.VectorType):
        if mask is not None:
            wrong = arith.andi(wrong, mask)
        wrong = b.reduce("or", wrong)
    elif mask is not None:
        wrong = arith.andi(wrong, b.reduce("or", mask) if isinstance(mask.type, ir.VectorType) else mask)

    def store() -> None:
        i64 = ir.IntegerType.get_signless(64)
        pointer = ir.Type.parse("!llvm.ptr")
        address = ir.Operation.create("llvm.inttoptr", [pointer], [arith.index_cast(i64, flag)]).result
        one = arith.constant(i64, 1)
        ir.Operation.create("llvm.store", [], [one, address], {"ordering": ir.IntegerAttr.get(i64, 0)})

    b.if_(wrong, store)
