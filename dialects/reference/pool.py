# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Pooling: one reduction over the window, on the padded input."""

from typing import Any

from torch_mlir import ir

from kiln.dialects import affine, scalar
from kiln.dialects.builder import Builder, dim, dims, here


class _Window:
    """Loops of a pool: n, c, output positions, then window positions."""

    def __init__(self, op: Any, b: Builder) -> None:
        self.kernel, self.stride = list(op.kernel), list(op.stride)
        self.padding, self.dilation = list(op.padding), list(op.dilation)
        self.spatial = len(self.kernel)
        self.rank = self.spatial + 2
        self.sizes = b.sizes(op.result)
        self.inputs = b.sizes(op.x)[2:]
        position = [dim(2 + i) for i in range(self.spatial)]
        self.window = [dim(self.rank + i) for i in range(self.spatial)]
        steps = zip(position, self.stride, self.window, self.dilation, strict=True)
        self.index = [dim(0), dim(1), *[p * s + k * d for p, s, k, d in steps]]
        self.iterators = "p" * self.rank + "r" * self.spatial

    def pad(self, b: Builder, x: ir.Value, value: float | int) -> ir.Value:
        """`x` extended to just what the windows read: also cropped, or beyond the padding where sizes round up."""
        high: list[Any] = []
        for i in range(self.spatial):
            last = (self.sizes[2 + i] - 1) * self.stride[i] + self.dilation[i] * (self.kernel[i] - 1) + 1
            high.append(affine.simplify(last - self.inputs[i] - self.padding[i]))
        return b.pad(x, value, [0, 0, *self.padding], [0, 0, *high])

    def position(self, i: int) -> ir.Value:
        """Input coordinate of spatial dim `i` that the body stands at, possibly outside."""
        at = _add(_mul(here(2 + i), self.stride[i]), _mul(here(self.rank + i), self.dilation[i]))
        return _add(at, _index(-self.padding[i]))


def _index(value: int) -> ir.Value:
    return scalar.constant(ir.IndexType.get(), value)


def _add(a: ir.Value, b: ir.Value) -> ir.Value:
    return scalar.add(a, b)


def _mul(a: ir.Value, factor: int) -> ir.Value:
    return a if factor == 1 else scalar.mul(a, _index(factor))


def pool(op: Any, b: Builder) -> Any:
    """Maximum or sum over the window; the average divides by what it counts."""
    window = _Window(op, b)
    if op.mode.value == "avg":
        return _average(op, b, window)
    return _maximum(op, b, window) if op.indices is None else _maximum_with_indices(op, b, window)


def _maximum(op: Any, b: Builder, w: _Window) -> ir.Value:
    element = op.x.type.element_type
    low = scalar.lowest(element)
    x = w.pad(b, op.x, low)
    shape = b.empty(element, w.kernel)
    inputs = [(x, w.index), (shape, w.window)]
    return b.reduce(inputs, dims(w.rank), w.sizes, w.iterators, element, low, lambda v, _, m: scalar.maximum(m, v))


def _maximum_with_indices(op: Any, b: Builder, w: _Window) -> list[ir.Value]:
    """The first element wins that is larger than all before, or NaN: PyTorch's `max_pool2d_with_indices`."""
    element = op.x.type.element_type
    index_type = ir.IntegerType.get_signless(64)
    x = w.pad(b, op.x, scalar.lowest(element))
    shape = b.empty(element, w.kernel)
    bounds = [b.size_value(n) for n in w.inputs]
    outs = [b.fill(element, w.sizes, scalar.lowest(element)), b.fill(index_type, w.sizes, -1)]

    def body(v: ir.Value, _: ir.Value, best: ir.Value, at: ir.Value) -> list[ir.Value]:
        inside = scalar.constant(ir.IntegerType.get_signless(1), 1)
        flat = _index(0)
        for i, bound in enumerate(bounds):
            p = w.position(i)
            # One unsigned comparison covers both ends.
            inside = scalar.both(inside, scalar.compare("lt", p, bound, "u"))
            flat = scalar.add(scalar.mul(flat, bound), p)
        better = scalar.either(scalar.compare("gt", v, best), scalar.is_nan(v))
        first = scalar.compare("lt", at, scalar.constant(index_type, 0))
        take = scalar.both(inside, scalar.either(better, first))
        return [scalar.select(take, v, best), scalar.select(take, scalar.cast(flat, index_type), at)]

    here_ = dims(w.rank)
    return b.generic([x, shape], [w.index, w.window], outs, [here_, here_], w.iterators, body)


def _average(op: Any, b: Builder, w: _Window) -> ir.Value:
    element = op.x.type.element_type
    compute = scalar.compute_type(element)
    x = w.pad(b, op.x, 0)
    shape = b.empty(element, w.kernel)
    total = b.reduce(
        [(x, w.index), (shape, w.window)],
        dims(w.rank),
        w.sizes,
        w.iterators,
        compute,
        0,
        lambda v, _, t: scalar.add(t, scalar.cast(v, compute)),
    )
    bounds = [b.size_value(n) for n in w.inputs]

    def divide(t: ir.Value) -> ir.Value:
        divisor = op.divisor.value
        count = scalar.constant(compute, divisor) if divisor else scalar.cast(_count(op, w, bounds), compute)
        return scalar.cast(scalar.div(t, count), element)

    return b.map([(total, dims(w.rank))], w.sizes, element, divide)


def _count(op: Any, w: _Window, bounds: list[ir.Value]) -> ir.Value:
    """How many elements the window holds, with or without padded ones, as an index value."""
    product = _index(1)
    for i, bound in enumerate(bounds):
        start = _add(_mul(here(2 + i), w.stride[i]), _index(-w.padding[i]))
        end = scalar.minimum(_add(start, _index(w.kernel[i])), _add(bound, _index(w.padding[i])))
        if not op.count_include_pad.value:
            start, end = scalar.maximum(start, _index(0)), scalar.minimum(end, bound)
        product = scalar.mul(product, scalar.sub(end, start))
    return product
