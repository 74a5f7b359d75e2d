# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Matrix products as ``aten.linear``, ``aten.bmm`` and ``aten._addmm_activation``."""

from collections.abc import Mapping, Sequence
from math import prod

from torch_mlir import ir

from kiln.dialects import affine, kiln
from kiln.dialects.builder import Builder
from kiln.dialects.kiln.base import tensor_type
from kiln.dialects.shapes import SymbolicShapes
from kiln.lowering.gpu.dot.activation import gelu_behind
from kiln.lowering.gpu.dot.choice import added_bias
from kiln.passes.vendor.sizes import Symbols

__all__ = ["product"]


def product(op: ir.Operation, symbols: Symbols, reason: str) -> tuple[ir.Value, ir.Value] | None:
    """``aten.linear`` of a weight ``[N, K]`` (a view of one ``[K, N]``), with the bias that is added right after it."""
    result = ir.RankedTensorType(op.results[0].type)
    sizes = symbols.sizes(op.results[0])
    if sizes is None:
        return None
    build = Builder(SymbolicShapes(symbols.function))
    bias, replaced = added_bias(op.results[0])
    is_known = result.has_static_shape  # where it is not, the other call's rows would be joined by divisions
    activated = gelu_behind(replaced) if bias is not None and is_known else None
    if bias is not None and activated is not None:
        return _activated_product(op, build, bias, activated, reason)
    if ir.RankedTensorType(op.operands[1].type).rank > 2:
        return _batch_of_products(op, build, reason)
    # Behind the addition: the bias may be computed between the two.
    with ir.InsertionPoint(replaced.owner.operation), op.location:
        lhs = _turned(build, op.operands[0], bool(op.attributes["transpose_lhs"].value))
        weight = _turned(build, op.operands[1], not op.attributes["transpose_rhs"].value)
        inputs = [lhs, weight, *([bias] if bias is not None else [])]
        args = [{"operand": i} for i in range(len(inputs))]
        shape, values = sizes
        call = kiln.aten("aten.linear.default", inputs, args, {}, [result], [shape], [None], values, reason=reason)
    return replaced, call.results[0]


def _turned(build: Builder, matrices: ir.Value, is_turned: bool) -> ir.Value:
    """A view with the last two dims exchanged."""
    if not is_turned:
        return matrices
    sizes = build.sizes(matrices)
    order = [*range(len(sizes) - 2), len(sizes) - 1, len(sizes) - 2]
    return build.view(matrices, [ir.AffineExpr.get_dim(i) for i in order], [sizes[i] for i in order])


def _joined(build: Builder, value: ir.Value, kept: int) -> ir.Value:
    """A view with all dims but the last `kept` as one."""
    sizes = build.sizes(value)
    lead, rest = sizes[:-kept], sizes[-kept:]
    if len(lead) == 1:
        return value
    d = [ir.AffineExpr.get_dim(i) for i in range(1 + kept)]
    parts, left = list[ir.AffineExpr](), d[0]
    for size in reversed(lead[1:]):
        parts.insert(0, ir.AffineExpr.get_mod(left, size))
        left = ir.AffineExpr.get_floor_div(left, size)
    return build.view(value, [left, *parts, *d[1:]], [_product(lead), *rest])


def _apart(build: Builder, value: ir.Value, sizes: Sequence[ir.AffineExpr]) -> ir.Value:
    """The reverse: a view of these sizes."""
    kept = ir.RankedTensorType(value.type).rank - 1
    lead = sizes[: len(sizes) - kept]
    if len(lead) == 1:
        return value
    d = [ir.AffineExpr.get_dim(i) for i in range(len(sizes))]
    position = d[0]
    for i, size in enumerate(lead[1:], 1):
        position = position * size + d[i]
    return build.view(value, [position, *d[len(lead) :]], sizes)


def _called(
    build: Builder,
    name: str,
    inputs: Sequence[ir.Value],
    kwargs: Mapping[str, object],
    sizes: Sequence[ir.AffineExpr],
    reason: str,
) -> ir.Value:
    """The result, of these sizes, of a call with all inputs in order."""
    (shape,), values = build.shapes.pack((0, sizes))
    type_ = tensor_type(ir.RankedTensorType(inputs[-1].type).element_type, shape)
    args = [{"operand": i} for i in range(len(inputs))]
    return kiln.aten(name, inputs, args, dict(kwargs), [type_], [shape], [None], values, reason=reason).results[0]


def _batch_of_products(op: ir.Operation, build: Builder, reason: str) -> tuple[ir.Value, ir.Value]:
    """``aten.bmm``: leading dims are one, in views around the call."""
    sizes = build.sizes(op.results[0])
    with ir.InsertionPoint(op), op.location:
        lhs = _turned(build, _joined(build, op.operands[0], 2), bool(op.attributes["transpose_lhs"].value))
        rhs = _turned(build, _joined(build, op.operands[1], 2), bool(op.attributes["transpose_rhs"].value))
        called = _called(build, "aten.bmm.default", [lhs, rhs], {}, [_product(sizes[:-2]), *sizes[-2:]], reason)
        return op.results[0], _apart(build, called, sizes)


def _activated_product(
    op: ir.Operation, build: Builder, bias: ir.Value, replaced: ir.Value, reason: str
) -> tuple[ir.Value, ir.Value]:
    """``aten._addmm_activation`` of matrices: leading dims are rows, in views around the call."""
    sizes = build.sizes(op.results[0])
    with ir.InsertionPoint(replaced.owner.operation), op.location:
        lhs = _turned(build, _joined(build, op.operands[0], 1), bool(op.attributes["transpose_lhs"].value))
        weight = _turned(build, op.operands[1], bool(op.attributes["transpose_rhs"].value))
        name, named = "aten._addmm_activation.default", {"use_gelu": True}
        called = _called(build, name, [bias, lhs, weight], named, [_product(sizes[:-1]), sizes[-1]], reason)
        return replaced, _apart(build, called, sizes)


def _product(sizes: Sequence[ir.AffineExpr]) -> ir.AffineExpr:
    return affine.simplify(prod(sizes, start=ir.AffineExpr.get_constant(1)))
