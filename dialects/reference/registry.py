# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Building the reference lowering of an op, which the table of ops names."""

from typing import Any

from torch_mlir import ir

from kiln.dialects.builder import Builder
from kiln.dialects.kiln.table import op_names, opdef
from kiln.dialects.shapes import SymbolicShapes


def has_reference(op: Any) -> bool:
    """Whether `op` is a named op, one with a reference lowering."""
    return opdef(op).reference is not None


def reference_names() -> tuple[str, ...]:
    """Names of all ops with a reference lowering, sorted."""
    return op_names(lambda entry: entry.reference is not None)


def reference(op: Any, shapes: SymbolicShapes | None = None) -> list[ir.Value]:
    """Build `op`'s meaning in `linalg` and `kiln` data movement right before it; returns a value per result.

    `op` is left as it is: replace its results and erase it.  `shapes` is the analysis of the enclosing function or
    fusion, made here if not given.  Raises KeyError for an op without a reference.
    """
    if shapes is None:
        parent = op.operation.parent
        assert parent is not None
        shapes = SymbolicShapes(parent)
    with ir.InsertionPoint(op), op.location:
        results = opdef(op).expand(op.operation.opview, Builder(shapes))
    return [results] if isinstance(results, ir.Value) else list(results)
