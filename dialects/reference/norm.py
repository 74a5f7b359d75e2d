# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Normalisations."""

from typing import Any

from torch_mlir import ir

from kiln.dialects import affine, scalar
from kiln.dialects.builder import Body, Builder, dims


def _mean(
    b: Builder, x: ir.Value, index: list[Any], kept: list[Any], sizes: list[Any], iterators: str, count: Any
) -> Any:
    """Mean of `x` over the reduced loops, in `x`'s type; `count` is how many elements that is."""
    compute = x.type.element_type
    total = b.reduce([(x, index)], kept, sizes, iterators, compute, 0, lambda v, t: scalar.add(t, v))
    return b.map([(total, dims(len(sizes)))], sizes, compute, lambda t: scalar.div(t, count))


def _scaled(y: ir.Value, parameters: list[ir.Value], compute: ir.Type, element: ir.Type) -> ir.Value:
    """`value * weight + bias` with what parameters there are, rounded to `element`."""
    if parameters:
        y = scalar.mul(y, scalar.cast(parameters[0], compute))
    if len(parameters) > 1:
        y = scalar.add(y, scalar.cast(parameters[1], compute))
    return scalar.cast(y, element)


def _scaled_value(compute: ir.Type, element: ir.Type) -> Body:
    """The body of `_scaled` by itself: of a value and its parameters."""

    def body(value: ir.Value, *parameters: ir.Value) -> ir.Value:
        return _scaled(value, list(parameters), compute, element)

    return body


def _scaled_product(compute: ir.Type, element: ir.Type) -> Body:
    """The body of `_scaled` of a product: of both factors and the parameters."""

    def body(value: ir.Value, factor: ir.Value, *parameters: ir.Value) -> ir.Value:
        return _scaled(scalar.mul(value, factor), list(parameters), compute, element)

    return body


def _normalised(
    b: Builder,
    x: ir.Value,
    index: list[Any],
    row: list[Any],
    row_sizes: list[Any],
    iterators: str,
    count: Any,
    eps: float,
) -> tuple[ir.Value, ir.Value]:
    """`(x - mean, 1 / sqrt(variance + eps))`: two passes, biased variance."""
    compute = x.type.element_type
    sizes = b.sizes(x)
    mean = _mean(b, x, index, row, row_sizes, iterators, count)
    centred = b.map([(x, index), (mean, row)], sizes, compute, scalar.distance)
    total = b.reduce(
        [(centred, index)], row, row_sizes, iterators, compute, 0, lambda v, t: scalar.add(t, scalar.mul(v, v))
    )

    def inverse(t: ir.Value) -> ir.Value:
        return scalar.rsqrt(scalar.add(scalar.div(t, count), scalar.constant(compute, eps)))

    return centred, b.map([(total, dims(len(row_sizes)))], row_sizes, compute, inverse)


def layer_norm(op: Any, b: Builder) -> ir.Value:
    """Mean, centred values, variance, scale: over the trailing `axes`."""
    element = op.x.type.element_type
    compute = scalar.compute_type(element)
    sizes = b.sizes(op.x)
    lead = len(sizes) - len(list(op.axes))
    here, row = dims(len(sizes)), dims(len(sizes))[:lead]
    iterators = "p" * lead + "r" * (len(sizes) - lead)
    wide = b.cast(op.x, compute)
    count = b.product_value(sizes[lead:], compute)
    centred, inverse = _normalised(b, wide, here, row, sizes[:lead], iterators, count, op.eps.value)
    return b.map(
        [(centred, here), (inverse, row), *[(p, here[lead:]) for p in op.params]],
        sizes,
        element,
        _scaled_product(compute, element),
    )


def rms_norm(op: Any, b: Builder) -> ir.Value:
    """Mean of squares, then scale."""
    element = op.x.type.element_type
    compute = scalar.compute_type(element)
    sizes = b.sizes(op.x)
    lead = len(sizes) - len(list(op.axes))
    here, row = dims(len(sizes)), dims(len(sizes))[:lead]
    iterators = "p" * lead + "r" * (len(sizes) - lead)
    wide = b.cast(op.x, compute)
    count = b.product_value(sizes[lead:], compute)
    squares = b.reduce(
        [(wide, here)], row, sizes[:lead], iterators, compute, 0, lambda v, t: scalar.add(t, scalar.mul(v, v))
    )

    def inverse(t: ir.Value) -> ir.Value:
        return scalar.rsqrt(scalar.add(scalar.div(t, count), scalar.constant(compute, op.eps.value)))

    scale = b.map([(squares, row)], sizes[:lead], compute, inverse)
    return b.map(
        [(wide, here), (scale, row), *[(p, here[lead:]) for p in op.params]],
        sizes,
        element,
        _scaled_product(compute, element),
    )


def batch_norm(op: Any, b: Builder) -> ir.Value:
    """`x * scale + shift`, with both computed once per channel: eager's order of operations (`batch_norm_cpu`)."""
    element = op.x.type.element_type
    compute = scalar.compute_type(element)
    sizes = b.sizes(op.x)
    here, channel = dims(len(sizes)), dims(1)
    params = [(p, channel) for p in op.params]

    def scaling(variance: ir.Value, *weight: ir.Value) -> ir.Value:
        wide = scalar.cast(variance, compute)
        inverse = scalar.rsqrt(scalar.add(wide, scalar.constant(compute, op.eps.value)))
        return scalar.mul(inverse, scalar.cast(weight[0], compute)) if weight else inverse

    def shifting(mean: ir.Value, scale: ir.Value, *bias: ir.Value) -> ir.Value:
        start = scalar.cast(bias[0], compute) if bias else scalar.constant(compute, 0)
        return scalar.sub(start, scalar.mul(scalar.cast(mean, compute), scale))

    def body(v: ir.Value, scale: ir.Value, shift: ir.Value) -> ir.Value:
        return scalar.cast(scalar.add(scalar.mul(scalar.cast(v, compute), scale), shift), element)

    scale = b.map([(op.variance, channel), *params[:1]], sizes[1:2], compute, scaling)
    shift = b.map([(op.mean, channel), (scale, channel), *params[1:]], sizes[1:2], compute, shifting)
    return b.map([(op.x, here), (scale, here[1:2]), (shift, here[1:2])], sizes, element, body)


def group_norm(op: Any, b: Builder) -> ir.Value:
    """As layer norm on `[N, groups, C / groups, *]`, a view of the input."""
    element = op.x.type.element_type
    compute = scalar.compute_type(element)
    sizes = b.sizes(op.x)
    groups = op.groups.value
    per_group = affine.simplify(ir.AffineExpr.get_floor_div(sizes[1], ir.AffineExpr.get_constant(groups)))
    split_sizes = [sizes[0], groups, per_group, *sizes[2:]]
    d = dims(len(split_sizes))
    split = b.view(b.cast(op.x, compute), [d[0], d[1] * per_group + d[2], *d[3:]], split_sizes)
    split_sizes = b.sizes(split)
    iterators = "pp" + "r" * (len(split_sizes) - 2)
    count = b.product_value(split_sizes[2:], compute)
    centred, inverse = _normalised(b, split, d, d[:2], split_sizes[:2], iterators, count, op.eps.value)
    scaled = b.map([(centred, d), (inverse, d[:2])], split_sizes, compute, scalar.mul)
    here = dims(len(sizes))
    group = ir.AffineExpr.get_floor_div(here[1], per_group)
    joined = b.view(scaled, [here[0], group, ir.AffineExpr.get_mod(here[1], per_group), *here[2:]], sizes)
    return b.map(
        [(joined, here), *[(p, [here[1]]) for p in op.params]],
        sizes,
        element,
        _scaled_value(compute, element),
    )
