# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Matrix products as ``aten.linear``, ``aten.bmm`` and ``aten._addmm_activation``."""

from collections.abc import Sequence
from math import prod

from torch_mlir import ir

from kiln.dialects import kiln
from kiln.lowering.gpu.dot.activation import gelu_behind
from kiln.lowering.gpu.dot.choice import added_bias
from kiln.passes.vendor.sizes import Symbols, static_sizes

__all__ = ["product"]


def product(op: ir.Operation, symbols: Symbols, reason: str) -> tuple[ir.Value, ir.Value] | None:
    """``aten.linear`` of a weight ``[N, K]`` (a view of one ``[K, N]``), with the bias that is added right after it."""
    result = ir.RankedTensorType(op.results[0].type)
    sizes = symbols.sizes(op.results[0])
    if sizes is None:
        return None
    bias, replaced = added_bias(op.results[0])
    is_known = result.has_static_shape  # the other call takes matrices: rows are joined by views of known sizes
    activated = gelu_behind(replaced) if bias is not None and is_known else None
    if bias is not None and activated is not None:
        return _activated_product(op, bias, activated, reason)
    if ir.RankedTensorType(op.operands[1].type).rank > 2:
        return _batch_of_products(op, reason)
    # Behind the addition: the bias may be computed between the two.
    with ir.InsertionPoint(replaced.owner.operation), op.location:
        lhs = _turned(op.operands[0], bool(op.attributes["transpose_lhs"].value))
        weight = _turned(op.operands[1], not op.attributes["transpose_rhs"].value)
        inputs = [lhs, weight, *([bias] if bias is not None else [])]
        args = [{"operand": i} for i in range(len(inputs))]
        shape, values = sizes
        call = kiln.aten("aten.linear.default", inputs, args, {}, [result], [shape], [None], values, reason=reason)
    return replaced, call.results[0]


def _turned(matrices: ir.Value, is_turned: bool) -> ir.Value:
    """A view with the last two dims exchanged."""
    if not is_turned:
        return matrices
    shape = list(ir.RankedTensorType(matrices.type).shape)
    order = [*range(len(shape) - 2), len(shape) - 1, len(shape) - 2]
    turned = ir.AffineMap.get(len(shape), 0, [ir.AffineExpr.get_dim(i) for i in order])
    return kiln.view(matrices, turned, static_sizes([shape[i] for i in order]))


def _joined(value: ir.Value, kept: int) -> ir.Value:
    """A view with all dims but the last `kept` as one."""
    shape = list(ir.RankedTensorType(value.type).shape)
    lead, rest = shape[:-kept], shape[-kept:]
    if len(lead) == 1:
        return value
    d = [ir.AffineExpr.get_dim(i) for i in range(1 + kept)]
    parts, left = list[ir.AffineExpr](), d[0]
    for size in reversed(lead[1:]):
        parts.insert(0, ir.AffineExpr.get_mod(left, size))
        left = ir.AffineExpr.get_floor_div(left, size)
    return kiln.view(value, ir.AffineMap.get(1 + kept, 0, [left, *parts, *d[1:]]), static_sizes([prod(lead), *rest]))


def _apart(value: ir.Value, shape: Sequence[int]) -> ir.Value:
    """The reverse: a view of these sizes."""
    kept = ir.RankedTensorType(value.type).rank - 1
    lead = shape[: len(shape) - kept]
    if len(lead) == 1:
        return value
    d = [ir.AffineExpr.get_dim(i) for i in range(len(shape))]
    position = d[0]
    for i, size in enumerate(lead[1:], 1):
        position = position * size + d[i]
    return kiln.view(value, ir.AffineMap.get(len(shape), 0, [position, *d[len(lead) :]]), static_sizes(shape))


def _batch_of_products(op: ir.Operation, reason: str) -> tuple[ir.Value, ir.Value]:
    """``aten.bmm``: leading dims are one, in views around the call."""
    result = ir.RankedTensorType(op.results[0].type)
    with ir.InsertionPoint(op), op.location:
        lhs = _turned(_joined(op.operands[0], 2), bool(op.attributes["transpose_lhs"].value))
        rhs = _turned(_joined(op.operands[1], 2), bool(op.attributes["transpose_rhs"].value))
        sizes = [prod(result.shape[:-2]), *result.shape[-2:]]
        type_ = ir.RankedTensorType.get(sizes, result.element_type)
        args = [{"operand": 0}, {"operand": 1}]
        call = kiln.aten(
            "aten.bmm.default", [lhs, rhs], args, {}, [type_], [static_sizes(sizes)], [None], reason=reason
        )
        return op.results[0], _apart(call.results[0], result.shape)


def _activated_product(op: ir.Operation, bias: ir.Value, replaced: ir.Value, reason: str) -> tuple[ir.Value, ir.Value]:
    """``aten._addmm_activation`` of matrices: leading dims are rows, in views around the call."""
    result = ir.RankedTensorType(op.results[0].type)
    with ir.InsertionPoint(replaced.owner.operation), op.location:
        lhs = _turned(_joined(op.operands[0], 1), bool(op.attributes["transpose_lhs"].value))
        weight = _turned(op.operands[1], bool(op.attributes["transpose_rhs"].value))
        sizes = [prod(result.shape[:-1]), result.shape[-1]]
        type_ = ir.RankedTensorType.get(sizes, result.element_type)
        args = [{"operand": i} for i in range(3)]
        named = {"use_gelu": True}
        name = "aten._addmm_activation.default"
        call = kiln.aten(name, [bias, lhs, weight], args, named, [type_], [static_sizes(sizes)], [None], reason=reason)
        return replaced, _apart(call.results[0], result.shape)
