# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""What the import of a node asks of an operator's schema and of a node's value."""

import functools
from collections.abc import Iterator
from typing import Any, cast

import sympy
import torch
from torch._ops import OpOverload
from torch_mlir import ir

from kiln.frontend.import_.fx_values import is_unbacked, value_leaves

__all__ = ["AFFINE_OPS", "LIST_KINDS", "SIZE_HINTS", "SIZE_READS", "leaf_symbols", "new_symbols", "parameters"]

aten = torch.ops.aten

AFFINE_OPS = (
    (ir.AffineAddExpr, "torch.aten.add.int"),
    (ir.AffineMulExpr, "torch.aten.mul.int"),
    (ir.AffineFloorDivExpr, "torch.aten.floordiv.int"),
    (ir.AffineModExpr, "torch.aten.remainder.int"),
)
"""The torch dialect's ops on integers that the parts of an affine expression are."""

SIZE_READS = {aten.sym_size.int, aten.sym_stride.int, aten.sym_numel.default, aten.sym_storage_offset.default}
SIZE_HINTS = {aten.sym_constrain_range.default, aten.sym_constrain_range_for_size.default}
"""Hints for the shape environment, and checks on sizes that Dynamo's guards already made: nothing to run."""

LIST_KINDS: dict[type, str] = {
    torch.IntType: "int",
    torch.FloatType: "float",
    torch.BoolType: "bool",
    torch.StringType: "str",
    torch.TensorType: "vtensor",
}
"""The torch dialect's names of the types that elements of a list may have in a schema."""


@functools.lru_cache(maxsize=1024)
def parameters(target: OpOverload) -> tuple[tuple[str, Any, Any], ...]:
    """Name, type and default of each parameter. PyTorch makes new objects of a schema at each look."""
    return tuple((p.name, p.type, p.default_value) for p in target._schema.arguments)


def leaf_symbols(leaf: Any) -> Iterator[tuple[int | None, str]]:
    """``(dim, name)`` of the unbacked symbols that are sizes of a tensor; ``(None, name)`` for a number itself: an
    integer, or a boolean, which PyTorch writes as ``Eq(u0, 1)``.
    """
    if isinstance(leaf, torch.SymBool):
        expr: Any = cast(Any, leaf.node).expr
        if isinstance(expr, sympy.Eq) and expr.args[1] == 1 and is_unbacked(expr.args[0]):
            yield None, expr.args[0].name
        return
    sizes = leaf.size() if isinstance(leaf, torch.Tensor) else [leaf]
    for dim, size in enumerate(sizes):
        if isinstance(size, torch.SymInt):
            expr: Any = cast(Any, size.node).expr
            if expr.is_Symbol and is_unbacked(expr):
                yield (dim if isinstance(leaf, torch.Tensor) else None), expr.name


def new_symbols(value: Any) -> Iterator[str]:
    """The unbacked symbols that the tensors and integers of a node's value show."""
    for leaf in value_leaves(value):
        for _, name in leaf_symbols(leaf):
            yield name
