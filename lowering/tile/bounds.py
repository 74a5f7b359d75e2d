# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Indices that are checked: ops whose clamp tells whoever runs the kernel that an index was out of range.

An op with the attribute ``kiln.checked`` is the last of a clamp, ``min(max(index, 0), size - 1)``. What a kernel does
where it changes an index in use is the target's.
"""

from torch_mlir import ir

from kiln.dialects.walk import defining_op
from kiln.lowering.tile.body import FusionBody

__all__ = ["CHECKED", "checked_ops", "unclamped", "without_casts"]

CHECKED = "kiln.checked"
_CASTS = ("arith.index_cast", "arith.extsi", "arith.trunci")
"""Ops that hand an index on in another type."""


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


def without_casts(index: ir.Value) -> ir.Value:
    """What an index is cast from."""
    op = defining_op(index)
    while op is not None and op.name in _CASTS:
        index = op.operands[0]
        op = defining_op(index)
    return index
