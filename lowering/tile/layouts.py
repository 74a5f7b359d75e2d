# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Where the operands and results of a fusion lie: maps from indices to element offsets, and what they tell."""

from collections.abc import Sequence

from torch_mlir import ir

from kiln.dialects import affine
from kiln.errors import UnsupportedError
from kiln.lowering.tile.body import FusionBody

__all__ = ["contiguous", "fusion_layouts", "offset_of", "strides_of"]


def fusion_layouts(fusion: ir.OpView, body: FusionBody) -> list[ir.AffineMap]:
    """Element offsets of the operands and results: the `layouts` attribute, or row-major where it is absent."""
    attributes = fusion.operation.attributes
    if "layouts" in attributes:
        return [ir.AffineMapAttr(a).value for a in ir.ArrayAttr(attributes["layouts"])]
    return [contiguous(body.dims(v), len(body.symbols)) for v in [*body.tensors, *body.roots]]


def contiguous(sizes: Sequence[ir.AffineExpr], symbols: int) -> ir.AffineMap:
    """Row-major layout of a tensor of these sizes."""
    offset: ir.AffineExpr = ir.AffineConstantExpr.get(0)
    for i, size in enumerate(sizes):
        offset = offset * size + ir.AffineDimExpr.get(i)
    return ir.AffineMap.get(len(sizes), symbols, [offset])


def strides_of(layout: ir.AffineMap, rank: int) -> list[ir.AffineExpr]:
    """Strides of an operand; leading dims that it lacks have stride 0."""
    linear = affine.linear_coefficients(layout.results[0])
    if linear is None:
        raise UnsupportedError("kiln.matmul", "", f"an operand that is not strided: {layout}")
    zero = ir.AffineConstantExpr.get(0)
    strides = [linear[1].get(i, zero) for i in range(layout.n_dims)]
    return [zero] * (rank - len(strides)) + strides


def offset_of(layout: ir.AffineMap) -> ir.AffineExpr:
    """The offset of a strided layout's first element; a packed one starts at 0."""
    linear = affine.linear_coefficients(layout.results[0])
    return linear[0] if linear is not None else ir.AffineConstantExpr.get(0)
