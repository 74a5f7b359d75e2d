# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Pooling as reductions over windows of a padded input.

The loops are batch, channels, the spatial dims, then the window. A ``kiln.empty`` of the window's sizes is a second
input: it gives the window loops their extents, and no element of it is read.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from torch_mlir import ir

from kiln.dialects.dtypes import I32, I64, DType

from .context import LoweringContext
from .emitter import Body
from .index import size_scalar
from .registry import lowers
from .scalars import Scalar, ScalarBuilder
from .shape_ops import pad
from .sizes import Expr, as_expr, constant_of, dim


@dataclass(frozen=True)
class Window:
    """Sizes of a pooling window per spatial dim, in elements."""

    kernel: list[int]
    stride: list[int]
    padding: list[int]
    dilation: list[int]
    ceil: bool = False


def _spread(values: list[int], count: int) -> list[int]:
    """PyTorch takes one number for all spatial dims."""
    return values * count if len(values) == 1 else values


def _window(
    cx: LoweringContext, count: int, stride: int, padding: int, dilation: int | None, ceil: int | None
) -> Window:
    """The window from the operand positions; the stride defaults to the kernel."""
    kernel = _spread(cx.const_list(1), count)
    strides = cx.const_list(stride, None) or kernel
    return Window(
        kernel,
        _spread(strides, count),
        _spread(cx.const_list(padding, None) or [0], count),
        _spread(cx.const_list(dilation), count) if dilation is not None else [1] * count,
        cx.const_bool(ceil) if ceil is not None else False,
    )


def _reduce_windows(
    cx: LoweringContext,
    x: ir.Value,
    window: Window,
    shape: Sequence[Expr],
    fill: float | int | bool,
    accumulate: DType,
    maximum: bool,
) -> ir.Value:
    """Maximum or sum over each window, in the type ``accumulate``; padding counts as ``fill``."""

    def body(b: ScalarBuilder, value: Scalar, _: Scalar, acc: Scalar) -> Scalar:
        value = b.cast(value, accumulate)
        return b.maximum(acc, value) if maximum else b.add(acc, value)

    return _over_windows(cx, x, window, shape, [(fill, accumulate)], body)[0]


def _over_windows(
    cx: LoweringContext,
    x: ir.Value,
    window: Window,
    shape: Sequence[Expr],
    starts: Sequence[tuple[float | int | bool, DType]],
    body: Body,
) -> list[ir.Value]:
    """A reduction over each window, whose loops come last; padding counts as the first of the numbers that the results
    start from. ``body`` also gets an element that is not to be read.
    """
    rank, count = len(shape), len(window.kernel)
    lead = rank - count
    low = [0] * lead + window.padding
    high: list[int | Expr] = [0] * rank
    for k in range(count):
        at = lead + k
        if window.ceil:
            # Exactly what the last window needs: more than the padding, or a crop.
            reach = (window.kernel[k] - 1) * window.dilation[k] + 1 - window.padding[k]
            high[at] = (shape[at] - 1) * window.stride[k] + reach - cx.shape(x)[at]
        else:
            high[at] = window.padding[k]
    padded = pad(cx, x, starts[0][0], low, high)
    extent = cx.empty(window.kernel, cx.dtype(x))
    source = [dim(k) for k in range(lead)] + [
        dim(lead + k) * window.stride[k] + dim(rank + k) * window.dilation[k] for k in range(count)
    ]
    window_map = [dim(rank + k) for k in range(count)]
    out_maps = [[dim(k) for k in range(rank)]] * len(starts)
    inits = [cx.full(number, shape, dtype) for number, dtype in starts]
    return cx.generic([padded, extent], [source, window_map], inits, out_maps, "p" * rank + "r" * count, body)


def _max_pool(cx: LoweringContext, count: int) -> ir.Value:
    x = cx.tensor(0)
    window = _window(cx, count, 2, 3, 4, 5)
    dtype = cx.dtype(x)
    if dtype.is_bool:
        cx.unsupported("pooling of bool")
    accumulate = dtype.compute
    pooled = _reduce_windows(cx, x, window, cx.result_shape(), dtype.min, accumulate, maximum=True)
    return cx.cast(pooled, dtype)


_SPATIAL = {"1d": 1, "2d": 2, "3d": 3}


def _spatial(name: str) -> int:
    return next(count for text, count in _SPATIAL.items() if text in name)


@lowers("torch.aten.max_pool1d", "torch.aten.max_pool2d", "torch.aten.max_pool3d")
def lower_max_pool(cx: LoweringContext) -> ir.Value:
    """`aten.max_pool{1,2,3}d` as `kiln.pool`."""
    return _max_pool(cx, _spatial(cx.name))


@lowers("torch.aten.max_pool2d_with_indices", "torch.aten.max_pool3d_with_indices")
def lower_max_pool_with_indices(cx: LoweringContext) -> list[ir.Value | None]:
    """The maxima, and where they are used, their positions in the image."""
    count = _spatial(cx.name)
    return _max_pool_with_positions(cx, count) if cx.result_used(1) else [_max_pool(cx, count), None]


def _max_pool_with_positions(cx: LoweringContext, count: int) -> list[ir.Value | None]:
    """The first of equal maxima, and the last NaN, as PyTorch's kernel finds them."""
    x, shape = cx.tensor(0), cx.result_shape()
    window, dtype = _window(cx, count, 2, 3, 4, 5), cx.dtype(x)
    if dtype.is_bool:
        cx.unsupported("pooling of bool")
    if not cx.state.finds_positions:
        cx.unsupported("the positions of the maxima are used")
    if any(p and d > 1 for p, d in zip(window.padding, window.dilation, strict=True)):
        cx.unsupported("the positions of maxima in dilated windows of a padded image")
    accumulate, rank = dtype.compute, len(shape)

    def body(b: ScalarBuilder, value: Scalar, _: Scalar, best: Scalar, at: Scalar) -> Sequence[Scalar]:
        value = b.cast(value, accumulate)
        takes = b.cmp("gt", value, best)
        if dtype.is_float:
            takes = b.or_(takes, b.is_nan(value))
        here = b.index(rank)
        for k in range(1, count):
            here = b.add(b.mul(here, window.kernel[k]), b.index(rank + k))
        return b.select(takes, value, best), b.select(takes, b.cast(here, I32), at)

    maxima, offsets = _over_windows(cx, x, window, shape, [(dtype.min, accumulate), (0, I32)], body)
    sizes = cx.shape(x)[rank - count :]

    def position(b: ScalarBuilder, offset: Scalar) -> Scalar:
        found: Scalar = b.const(0, I64)
        for k, size in enumerate(sizes):
            behind = prod(window.kernel[k + 1 :])
            step = b.div(offset, behind) if behind > 1 else offset
            offset = b.sub(offset, b.mul(step, behind))
            place = b.add(
                b.mul(b.index(rank - count + k), window.stride[k]), b.mul(b.cast(step, I64), window.dilation[k])
            )
            if window.padding[k]:
                # Only where nothing was taken, all being as small as the padding, is this before the image.
                place = b.maximum(b.sub(place, window.padding[k]), 0)
            found = b.add(b.mul(found, size_scalar(cx, b, size)), place)
        return found

    return [cx.cast(maxima, dtype), cx.pointwise([offsets], position, I64)]


@lowers("torch.aten.avg_pool1d", "torch.aten.avg_pool2d", "torch.aten.avg_pool3d")
def lower_avg_pool(cx: LoweringContext) -> ir.Value:
    """``avg_pool(x, kernel, stride, padding, ceil_mode, count_include_pad, divisor_override)``."""
    x, count = cx.tensor(0), _spatial(cx.name)
    dtype, shape = cx.dtype(x), cx.result_shape()
    if not dtype.is_float:
        cx.unsupported(f"average pooling of {dtype.name}")
    window = _window(cx, count, 2, 3, None, 4)
    include = cx.const_bool(5, True)
    divisor = cx.const_int(6, None) if cx.num_operands > 6 else None
    total = _reduce_windows(cx, x, window, shape, 0.0, dtype.compute, maximum=False)
    lead = len(shape) - count
    sizes = cx.shape(x)
    clipped = [k for k in range(count) if divisor is None and (window.ceil or (window.padding[k] and not include))]
    fixed = divisor
    if fixed is None:
        fixed = 1
        for k in range(count):
            fixed *= 1 if k in clipped else window.kernel[k]

    def body(b: ScalarBuilder, value: Scalar) -> Scalar:
        if not clipped:
            return b.div(value, float(fixed))
        elements = b.const(fixed, I64)
        for k in clipped:
            margin = window.padding[k]
            size = size_scalar(cx, b, sizes[lead + k])
            start = b.sub(b.mul(b.index(lead + k), window.stride[k]), margin)
            end = b.minimum(b.add(start, window.kernel[k]), b.add(size, margin))
            if not include:
                start, end = b.maximum(start, 0), b.minimum(end, size)
            elements = b.mul(elements, b.sub(end, start))
        return b.div(value, b.cast(elements, value.dtype))

    return cx.pointwise([total], body, dtype)


@lowers(
    "torch.aten._adaptive_avg_pool2d",
    "torch.aten.adaptive_avg_pool2d",
    "torch.aten._adaptive_avg_pool3d",
    "torch.aten.adaptive_avg_pool3d",
    "torch.aten.adaptive_avg_pool1d",
)
def lower_adaptive_avg_pool(cx: LoweringContext) -> ir.Value:
    """Windows of ``floor(o * I / O) .. ceil((o + 1) * I / O)``; all alike where the output sizes divide the input's."""
    x = cx.tensor(0)
    if not cx.dtype(x).is_float:
        cx.unsupported(f"average pooling of {cx.dtype(x).name}")
    return _adaptive(cx, x, _spatial(cx.name), maximum=False)


@lowers("torch.aten.adaptive_max_pool1d", "torch.aten.adaptive_max_pool2d", "torch.aten.adaptive_max_pool3d")
def lower_adaptive_max_pool(cx: LoweringContext) -> list[ir.Value | None]:
    """`aten.adaptive_max_pool{1,2,3}d` as `kiln.pool`; unsupported where the positions are used."""
    if cx.result_used(1):
        cx.unsupported("the positions of the maxima are used")
    return [_adaptive(cx, cx.tensor(0), _spatial(cx.name), maximum=True), None]


def _adaptive(cx: LoweringContext, x: ir.Value, count: int, maximum: bool) -> ir.Value:
    shape, dtype = cx.result_shape(), cx.dtype(x)
    lead = len(shape) - count
    accumulate = dtype.compute
    fill = dtype.min if maximum else 0.0
    if any(constant_of(size) == 0 for size in shape):
        return cx.full(0, shape, dtype)  # no element, and no window has a size
    if all(constant_of(size) == 1 for size in shape[lead:]):
        return _whole(cx, x, list(range(lead, len(shape))), maximum)
    inputs, outputs = [constant_of(s) for s in cx.shape(x)[lead:]], [constant_of(s) for s in shape[lead:]]
    sizes = [s for s in inputs if s is not None], [s for s in outputs if s is not None]
    if len(sizes[0]) != count or len(sizes[1]) != count or 0 in sizes[0]:
        cx.unsupported("adaptive pooling of dynamic sizes to more than one element")
    if all(i % o == 0 for i, o in zip(*sizes, strict=True)):
        kernel = [i // o for i, o in zip(*sizes, strict=True)]
        window = Window(kernel, kernel, [0] * count, [1] * count)
        pooled = _reduce_windows(cx, x, window, shape, fill, accumulate, maximum)
        if maximum:
            return cx.cast(pooled, dtype)
        elements = 1
        for k in kernel:
            elements *= k
        return cx.pointwise([pooled], lambda b, value: b.div(value, float(elements)), dtype)
    return _uneven(cx, x, sizes[0], sizes[1], maximum)


def _whole(cx: LoweringContext, x: ir.Value, dims: list[int], maximum: bool) -> ir.Value:
    """One window over the whole of ``dims``, whatever their sizes."""
    dtype, sizes = cx.dtype(x), cx.shape(x)
    if maximum:
        return cx.reduce([x], dims, dtype.min, lambda b, acc, v: b.maximum(acc, v), dtype, keepdim=True)
    total = cx.reduce([x], dims, 0.0, lambda b, acc, v: b.add(acc, v), dtype.compute, keepdim=True)
    elements = as_expr(1)
    for d in dims:
        elements = elements * sizes[d]
    return cx.pointwise(
        [total], lambda b, value: b.div(value, b.cast(size_scalar(cx, b, elements), value.dtype)), dtype
    )


def _uneven(cx: LoweringContext, x: ir.Value, inputs: list[int], outputs: list[int], maximum: bool) -> ir.Value:
    """Windows of unlike sizes: loops over the longest window, and a mask for what lies behind the end of each."""
    shape, dtype = cx.result_shape(), cx.dtype(x)
    rank, count = len(shape), len(inputs)
    lead = rank - count
    accumulate = dtype.compute
    fill = dtype.min if maximum else 0.0
    ranges = [[((o * i) // n, -(-(o + 1) * i // n)) for o in range(n)] for i, n in zip(inputs, outputs, strict=True)]
    longest = [max(end - start for start, end in spans) for spans in ranges]
    # The loops of the last window may run past the input.
    excess = [
        max(max(start for start, _ in spans) + long - i, 0)
        for spans, long, i in zip(ranges, longest, inputs, strict=True)
    ]
    padded = pad(cx, x, fill, [0] * rank, [0] * lead + excess)
    starts = [
        ir.AffineExpr.get_floor_div(dim(lead + k) * inputs[k], as_expr(outputs[k])) + dim(rank + k)
        for k in range(count)
    ]

    def bounds(b: ScalarBuilder, k: int) -> tuple[Scalar, Scalar]:
        scaled = b.mul(b.index(lead + k), inputs[k])
        start = b.div(scaled, outputs[k])
        return start, b.div(b.add(scaled, inputs[k] + outputs[k] - 1), outputs[k])

    def body(b: ScalarBuilder, value: Scalar, _: Scalar, acc: Scalar) -> Scalar:
        value = b.cast(value, accumulate)
        for k in range(count):
            start, end = bounds(b, k)
            inside = b.cmp("lt", b.add(start, b.index(rank + k)), end)
            value = b.select(inside, value, fill)
        return b.maximum(acc, value) if maximum else b.add(acc, value)

    identity = [dim(k) for k in range(rank)]
    source = [dim(k) for k in range(lead)] + starts
    extent = cx.empty(longest, dtype)
    window_map = [dim(rank + k) for k in range(count)]
    init = cx.full(fill, shape, accumulate)
    pooled = cx.generic([padded, extent], [source, window_map], [init], [identity], "p" * rank + "r" * count, body)[0]
    if maximum:
        return cx.cast(pooled, dtype)

    def mean(b: ScalarBuilder, value: Scalar) -> Scalar:
        elements = b.const(1, I64)
        for k in range(count):
            start, end = bounds(b, k)
            elements = b.mul(elements, b.sub(end, start))
        return b.div(value, b.cast(elements, value.dtype))

    return cx.pointwise([pooled], mean, dtype)
