# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Which function is the reference lowering of which op."""

from collections.abc import Callable, Sequence
from typing import Any

from torch_mlir import ir

from kiln.dialects.kiln.family import name_of
from kiln.dialects.reference.builder import Builder
from kiln.dialects.shapes import SymbolicShapes

Reference = Callable[[Any, Builder], Sequence[ir.Value] | ir.Value]

_REFERENCES: dict[str, Reference] = {}


def reference_of(name: str) -> Callable[[Reference], Reference]:
    """Decorator: the function builds the results of op `name` from its operands."""

    def register(function: Reference) -> Reference:
        _REFERENCES[name] = function
        return function

    return register


def has_reference(op: Any) -> bool:
    """Whether `op` is a named op, one with a reference lowering."""
    return name_of(op) in _REFERENCES


def reference_names() -> list[str]:
    """Names of all ops with a reference lowering, sorted."""
    return sorted(_REFERENCES)


def reference(op: Any, shapes: SymbolicShapes | None = None) -> list[ir.Value]:
    """Build `op`'s meaning in `linalg` and `kiln` data movement right before it; returns a value per result.

    `op` is left as it is: replace its results and erase it.  `shapes` is the analysis of the enclosing function or
    fusion, made here if not given.  Raises KeyError for an op without a reference.
    """
    function = _REFERENCES[name_of(op)]
    if shapes is None:
        parent = op.operation.parent
        assert parent is not None
        shapes = SymbolicShapes(parent)
    with ir.InsertionPoint(op), op.location:
        results = function(op.operation.opview, Builder(shapes))
    return [results] if isinstance(results, ir.Value) else list(results)
