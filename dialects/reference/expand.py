# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Replacing named ops by their reference lowerings."""

from collections.abc import Callable
from typing import Any

from torch_mlir import ir
from torch_mlir.dialects import tensor

from kiln.dialects.kiln.family import name_of
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
                        # Op and reference may know different sizes.
                        typed = new if new.type == old.type else tensor.cast(old.type, new)
                        old.replace_all_uses_with(typed)
                erased.append(op.operation)
    # Last, since the analysis holds values by address.
    for op in reversed(erased):
        op.erase()
    return count + len(erased)
