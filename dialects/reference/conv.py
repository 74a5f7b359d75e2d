# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Convolution: pad, then one reduction over channels and window."""

from typing import Any

from torch_mlir import ir

from kiln.dialects import affine
from kiln.dialects.builder import Builder, dim, dims
from kiln.dialects.reference.matmul import contract
from kiln.errors import UnsupportedError


def conv(op: Any, b: Builder) -> ir.Value:
    """Loops: n, o, output positions, then input channel of the group and window positions."""
    stride, padding, dilation = list(op.stride), list(op.padding), list(op.dilation)
    if op.transposed.value:
        return _transposed(op, b, stride, padding, dilation)
    x = b.pad(op.x, 0, [0, 0, *padding], [0, 0, *padding])
    per_group = b.sizes(op.weight)[0]
    return _direct(op, b, x, per_group, stride, dilation, False)


def _direct(
    op: Any,
    b: Builder,
    x: ir.Value,
    out_channels: ir.AffineExpr,
    stride: list[int],
    dilation: list[int],
    flipped: bool,
) -> ir.Value:
    """Convolution of a padded input; `flipped`: weight is `[C, O / groups, *kernel]` and read backwards."""
    weight, groups, sizes = op.weight, op.groups.value, b.sizes(op.result)
    spatial = len(stride)
    rank = spatial + 2
    n, o, c = dim(0), dim(1), dim(rank)
    position = [dim(2 + i) for i in range(spatial)]
    window = [dim(rank + 1 + i) for i in range(spatial)]
    first, second, *kernel = _static(b.sizes(weight))
    channels_in = first // groups if flipped else second
    channels_out = second if flipped else _static([out_channels])[0] // groups
    in_channel, out_in_group = c, o
    if groups > 1:
        group = ir.AffineExpr.get_floor_div(o, ir.AffineExpr.get_constant(channels_out))
        in_channel = group * channels_in + c
        out_in_group = ir.AffineExpr.get_mod(o, ir.AffineExpr.get_constant(channels_out))
    at = [p * s + k * d for p, s, k, d in zip(position, stride, window, dilation, strict=True)]
    if flipped:
        w_index = [in_channel, out_in_group, *[k * -1 + (n_ - 1) for k, n_ in zip(window, kernel, strict=True)]]
    else:
        w_index = [o, c, *window]
    # The extents of c and the window are not plain dims of any operand where the weight is read backwards.
    extents = b.empty(x.type.element_type, [channels_in, *kernel])
    iterators = "p" * rank + "r" * (spatial + 1)
    return contract(
        b,
        (x, [n, in_channel, *at]),
        (weight, w_index),
        dims(rank),
        sizes,
        iterators,
        extents=(extents, [c, *window]),
        rounded=op.result.type.element_type,
    )


def _transposed(op: Any, b: Builder, stride: list[int], padding: list[int], dilation: list[int]) -> ir.Value:
    """Zeros between the input's elements, then a convolution with stride 1 and the weight read backwards."""
    x = op.x
    sizes = b.sizes(x)
    extra = list(op.output_padding)
    spatial = len(stride)
    # [N, C, h, w] -> [N, C, h, 1, w, 1] -> pad -> [N, C, h, s, w, s] -> [N, C, h * s, w * s].
    split_sizes = [*sizes[:2]]
    index = dims(2)
    for i in range(spatial):
        index.append(dim(2 + 2 * i))
        split_sizes += [sizes[2 + i], 1]
    split = b.view(x, index, split_sizes)
    high = [0, 0]
    for s in stride:
        high += [0, s - 1]
    spread = b.pad(split, 0, [0] * len(high), high)
    flat_sizes = [*sizes[:2], *[affine.simplify(n * s) for n, s in zip(sizes[2:], stride, strict=True)]]
    flat_index: list[ir.AffineExpr] = dims(2)
    for i, s in enumerate(stride):
        factor = ir.AffineExpr.get_constant(s)
        flat_index += [ir.AffineExpr.get_floor_div(dim(2 + i), factor), ir.AffineExpr.get_mod(dim(2 + i), factor)]
    flat = b.view(spread, flat_index, flat_sizes)
    kernel = _static(b.sizes(op.weight))[2:]
    low = [d * (k - 1) - p for d, k, p in zip(dilation, kernel, padding, strict=True)]
    top = [a + e - (s - 1) for a, e, s in zip(low, extra, stride, strict=True)]
    padded = b.pad(flat, 0, [0, 0, *low], [0, 0, *top])
    ones = [1] * spatial
    out_channels = b.sizes(op.result)[1]
    return _direct(op, b, padded, out_channels, ones, dilation, True)


def _static(sizes: list[ir.AffineExpr]) -> list[int]:
    """The sizes of a weight, which must be constants."""
    known = [affine.constant_of(n) for n in sizes]
    if any(n is None for n in known):
        raise UnsupportedError("kiln.conv", "", "a weight of dynamic size")
    return [n for n in known if n is not None]
