# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Where channels lie in the images that tensors are views of, before there are kernels."""

import math

from torch_mlir import ir

from kiln.dialects.walk import defining_op
from kiln.lowering.host.channels_last import is_made_channels_last
from kiln.lowering.host.elements import item_bytes
from kiln.lowering.tile.body import indexing_maps, reduction_dims

__all__ = ["in_memory_order", "is_of_channels_last", "stored_bytes"]


def is_of_channels_last(value: ir.Value) -> bool:
    """Whether a tensor is computed, by pointwise ops and views alone, from an image that is made channels last."""
    work, seen = [value], {value}
    while work:
        value = work.pop()
        if not isinstance(value.type, ir.RankedTensorType):
            continue
        if is_made_channels_last(value):
            return True
        op = defining_op(value)
        if op is not None and (op.name == "kiln.view" or _is_pointwise(op)):
            work += [v for v in op.operands if v not in seen]
            seen |= set(op.operands)
    return False


def in_memory_order(value: ir.Value) -> list[ir.AffineExpr]:
    """Indices, over the dims of a tensor, of which the last ones are those of neighbours: its own, or those of an image
    with channels last that it is, or is computed from as a view of.
    """
    index: list[ir.AffineExpr] = [ir.AffineDimExpr.get(d) for d in range(ir.RankedTensorType(value.type).rank)]
    if not is_made_channels_last(value):
        view = _view_below(value)
        if view is None or not is_made_channels_last(view.operands[0]):
            return index
        index = list(ir.AffineMapAttr(view.attributes["map"]).value.results)
    return [index[0], *index[2:], index[1]]


def _view_below(value: ir.Value) -> ir.Operation | None:
    """The view that a tensor is, or that pointwise ops compute it from element by element."""
    op = defining_op(value)
    while op is not None and _is_pointwise(op):
        maps, shape = indexing_maps(op.opview), ir.RankedTensorType(op.results[0].type).shape
        inputs = list(zip(op.operands, maps, strict=True))[: -len(op.results)]
        tensors = [v for v, m in inputs if m == maps[-1] and isinstance(v.type, ir.RankedTensorType)]
        op = next((defining_op(v) for v in tensors if ir.RankedTensorType(v.type).shape == shape), None)
    return op if op is not None and op.name == "kiln.view" else None


def stored_bytes(value: ir.Value) -> int:
    """Size in memory of what a tensor is a view of, or is converted from; 0 where it is not known."""
    op = defining_op(value)
    while op is not None and (op.name == "kiln.view" or (_is_pointwise(op) and len(op.operands) == 2)):
        if not isinstance(op.operands[0].type, ir.RankedTensorType):
            break  # a number
        value = op.operands[0]
        op = defining_op(value)
    type_ = ir.RankedTensorType(value.type)
    return math.prod(type_.shape) * item_bytes(type_) if type_.has_static_shape else 0


def _is_pointwise(op: ir.Operation) -> bool:
    return op.name == "linalg.generic" and not reduction_dims(op.opview)
