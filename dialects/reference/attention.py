# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Attention: scores, mask, softmax, weighted sum."""

from typing import Any

from torch_mlir import ir

from kiln.dialects import affine, scalar
from kiln.dialects.builder import Builder, dim, dims, here
from kiln.errors import UnsupportedError


def attention(op: Any, b: Builder) -> ir.Value:
    """Loops of the scores: batch dims, head, s, t, then e."""
    query, key, value, mask = op.query, op.key, op.value, op.mask
    compute = scalar.compute_type(query.type.element_type)
    q_sizes, k_sizes = b.sizes(query), b.sizes(key)
    rank = len(q_sizes)
    batch, head, s, t, e = dims(rank - 3), dim(rank - 3), dim(rank - 2), dim(rank - 1), dim(rank)
    key_head = _key_head(op, head, q_sizes[-3], k_sizes[-3])
    sizes = [*q_sizes[:-1], k_sizes[-2]]
    scale = scalar.constant(compute, op.scale.value)
    fill = op.operation.attributes["fill"] if "fill" in op.operation.attributes else None

    def dot(x: ir.Value, y: ir.Value, total: ir.Value) -> ir.Value:
        return scalar.add(total, scalar.mul(scalar.cast(x, compute), scalar.cast(y, compute)))

    inputs = [(query, [*batch, head, s, e]), (key, [*batch, key_head, t, e])]
    scores = b.reduce(inputs, [*batch, head, s, t], sizes, "p" * rank + "r", compute, 0, dot)

    def weigh(v: ir.Value, *extra: ir.Value) -> ir.Value:
        v = scalar.mul(v, scale)
        removed = scalar.constant(compute, float("-inf"))
        masked = removed if fill is None else scalar.constant(compute, fill.value)
        for m in extra:
            v = scalar.add(v, scalar.cast(m, compute)) if scalar.is_float(m.type) else scalar.select(m, v, masked)
        if op.causal.value:
            v = scalar.select(scalar.compare("le", here(rank - 1), here(rank - 2)), v, removed)
        return v

    point = [*batch, head, s, t]
    masks = [] if mask is None else [(mask, broadcast_index(b.sizes(mask), point))]
    scores = b.map([(scores, point), *masks], sizes, compute, weigh)

    row, row_sizes = point[:-1], sizes[:-1]
    iterators = "p" * (rank - 1) + "r"
    low = scalar.lowest(compute)
    top = b.reduce([(scores, point)], row, row_sizes, iterators, compute, low, lambda v, m: scalar.maximum(m, v))

    def exponential(v: ir.Value, m: ir.Value) -> ir.Value:
        # A row with no key left has the maximum -inf: take 0 there, so that its exponentials are 0, not NaN.
        zero = scalar.constant(compute, 0)
        none_left = scalar.compare("eq", m, scalar.constant(compute, low))
        return scalar.exp(scalar.sub(v, scalar.select(none_left, zero, m)))

    weights = b.map([(scores, point), (top, row)], sizes, compute, exponential)
    total = b.reduce([(weights, point)], row, row_sizes, iterators, compute, 0, lambda v, t_: scalar.add(t_, v))

    def divide(v: ir.Value, t_: ir.Value) -> ir.Value:
        if fill is not None:
            return scalar.div(v, t_)
        zero = scalar.constant(compute, 0)
        return scalar.select(scalar.compare("eq", t_, zero), zero, scalar.div(v, t_))

    weights = b.map([(weights, point), (total, row)], sizes, compute, divide)
    # Loops of the output: batch dims, head, s, v, then t.
    out_v, out_t = dim(rank - 1), dim(rank)
    inputs = [(weights, [*batch, head, s, out_t]), (value, [*batch, key_head, out_t, out_v])]
    out = b.reduce(inputs, [*batch, head, s, out_v], b.sizes(op.result), "p" * rank + "r", compute, 0, dot)
    return b.cast(out, op.result.type.element_type)


def _key_head(op: Any, head: ir.AffineExpr, heads: ir.AffineExpr, key_heads: ir.AffineExpr) -> ir.AffineExpr:
    """The key/value head that a query head reads."""
    if heads == key_heads:
        return head
    h, g = affine.constant_of(heads), affine.constant_of(key_heads)
    if h is None or g is None:
        raise UnsupportedError(op.OPERATION_NAME, str(op.location), "grouped queries with a dynamic number of heads")
    return ir.AffineExpr.get_floor_div(head, ir.AffineExpr.get_constant(h // g))


def broadcast_index(sizes: list[ir.AffineExpr], point: list[ir.AffineExpr]) -> list[Any]:
    """Index of a tensor that broadcasts to the loops `point`."""
    aligned = point[len(point) - len(sizes) :]
    return [0 if affine.constant_of(n) == 1 else p for n, p in zip(sizes, aligned, strict=True)]
