# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What kernels around a `kiln.scatter_nd` have in common for all targets."""

from collections.abc import Sequence

from torch_mlir import ir

from kiln.dialects.kiln import name_of
from kiln.errors import UnsupportedError
from kiln.lowering.tile.access import Indices
from kiln.lowering.tile.body import FusionBody

__all__ = ["named_dims", "scatter_of", "target_index"]


def scatter_of(body: FusionBody) -> ir.OpView:
    """The scatter of a body. Raises UnsupportedError where the kernel has a further result."""
    op = next(op for op in body.operations if name_of(op) == "kiln.scatter_nd")
    if [body.roots[i] for i in body.mine] != list(op.results):
        raise UnsupportedError("kiln.scatter_nd", str(op.location), "more than one result")
    return op


def named_dims(op: ir.OpView) -> list[int]:
    """The dims of the result that indices tell."""
    return list(ir.DenseI64ArrayAttr(op.operation.attributes["dims"]))


def target_index(op: ir.OpView, point: Sequence[ir.AffineExpr]) -> Indices:
    """Where the element of `src` at `point` is written, 0 along the dims that indices tell."""
    named = named_dims(op)
    loops = iter(ir.DenseI64ArrayAttr(op.operation.attributes["loops"]))
    zero = ir.AffineConstantExpr.get(0)
    rank = ir.RankedTensorType(op.results[0].type).rank
    return tuple(zero if d in named else point[next(loops)] for d in range(rank))
