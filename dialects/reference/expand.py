# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Replacing named ops by their reference lowerings."""

from collections.abc import Callable
from typing import Any

from torch_mlir import ir
from torch_mlir.dialects import tensor

from kiln.dialects.kiln.family import name_of
from kiln.dialects.kiln.table import opdef
from kiln.dialects.reference.registry import has_reference, reference
from kiln.dialects.shapes import SymbolicShapes


def expand_all(parent: ir.Operation, chosen: Callable[[Any], bool] = has_reference) -> int:
    """Expand the `chosen` named ops of a function, and of the fusions in it; returns how many."""
    shapes: SymbolicShapes | None = None
    erased: list[ir.Operation] = []
    count = 0
    for block in parent.regions[0].blocks:
        for op in list(block.operations):
            if name_of(op) == "kiln.fusion":
                count += expand_all(op.operation, chosen)
            elif has_reference(op) and chosen(op):
                shapes = shapes or SymbolicShapes(parent)
                results = reference(op, shapes)
                with ir.InsertionPoint(op), op.location:
                    for old, new in zip(op.operation.results, results, strict=True):
                        _replace(old, new)
                erased.append(op.operation)
    # Last, since the analysis holds values by address.
    for op in reversed(erased):
        op.erase()
    return count + len(erased)


def _replace(old: ir.Value, new: ir.Value) -> None:
    """Let all read `new`, of which the reference may know more sizes than the op's type says, or fewer.

    Loops and ops with sizes of their own take either. A cast would end fusion, and no later pass knows one, so there is
    one only where types have to be equal.
    """
    if new.type != old.type:
        strict = [(use.owner, use.operand_number) for use in old.uses if not _takes_any_sizes(use)]
        if strict:
            typed = tensor.cast(old.type, new)
            for owner, number in strict:
                owner.operation.operands[number] = typed
    old.replace_all_uses_with(new)


def _takes_any_sizes(use: ir.OpOperand) -> bool:
    """Whether the reader's own types do not depend on the type of this operand."""
    op = use.owner.operation
    if op.name == "linalg.generic":
        return use.operand_number < len(op.operands) - len(op.results)
    return opdef(op).takes_any_sizes
