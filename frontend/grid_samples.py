# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Samples of images at the points of a grid (`torch.nn.functional.grid_sample`), as gathers and pointwise ops.

Positions in the image are computed in f32 for images of 16 bits, where eager's have 16 bits. An element outside of the
image is no number that is multiplied by zero, as in PyTorch's formula, but a zero: an image may hold NaN and Inf.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from kiln.lowering import paths

__all__ = ["grid_sample_decompositions"]

aten = torch.ops.aten

_TAKEN = paths.group("any grid-samples", "bilinear", "nearest", "zeros", "border", "reflection")

_BILINEAR, _NEAREST = 0, 1
"""Of ATen's `GridSamplerInterpolation`."""
_ZEROS, _BORDER = 0, 1
"""Of ATen's `GridSamplerPadding`; 2 is reflection."""


def grid_sample_decompositions() -> dict[Any, Callable[..., Any]]:
    """Op overload -> its decomposition; bicubic samples, and those of other devices, stay ATen's."""
    return {aten.grid_sampler_2d.default: _grid_sample}


def _grid_sample(image: Tensor, grid: Tensor, interpolation: int, padding: int, align_corners: bool) -> Any:
    """Elements of `image` [N, C, H, W] at `grid` [N, h, w, 2], whose points are (x, y) from -1 to 1: [N, C, h, w]."""
    if interpolation not in (_BILINEAR, _NEAREST) or image.device.type != "cpu":
        return NotImplemented
    if image.is_contiguous(memory_format=torch.channels_last) and not image.is_contiguous():
        return NotImplemented
    _TAKEN("bilinear" if interpolation == _BILINEAR else "nearest")
    _TAKEN(("zeros", "border", "reflection")[padding])
    n, _, height, width = image.shape
    wide = torch.float32 if image.dtype.itemsize == 2 else image.dtype
    points = grid.to(wide).reshape(n, 1, -1, 2)
    x = _position(points[..., 0], width, padding, align_corners)
    y = _position(points[..., 1], height, padding, align_corners)
    if interpolation == _NEAREST:
        found = _elements(image, x.round(), y.round())
    else:
        left, top = x.floor(), y.floor()
        right, bottom = left + 1, top + 1
        found = (
            _elements(image, left, top).to(wide) * ((right - x) * (bottom - y))
            + _elements(image, right, top).to(wide) * ((x - left) * (bottom - y))
            + _elements(image, left, bottom).to(wide) * ((right - x) * (y - top))
            + _elements(image, right, bottom).to(wide) * ((x - left) * (y - top))
        ).to(image.dtype)
    return found.reshape(n, image.shape[1], *grid.shape[1:3])


def _position(at: Tensor, size: Any, padding: int, align_corners: bool) -> Tensor:
    """Positions from -1 to 1 as those among `size` elements, moved into the image as `padding` says."""
    at = (at + 1) / 2 * (size - 1) if align_corners else ((at + 1) * size - 1) / 2
    if padding == _ZEROS:
        return at
    if padding != _BORDER:
        at = _reflected(at, 0, 2 * (size - 1)) if align_corners else _reflected(at, -1, 2 * size - 1)
    # As ATen's on a CPU, a NaN is the first element.
    return torch.where(at > 0, torch.where(at < size - 1, at, size - 1), 0)


def _reflected(at: Tensor, twice_low: Any, twice_high: Any) -> Tensor:
    """`at` mirrored at both bounds, of which twice the value is given, until it lies between them."""
    if isinstance(twice_high, int) and twice_low == twice_high:
        return torch.zeros_like(at)
    span = twice_high - twice_low
    distance = (at * 2 - twice_low).abs()
    turns = torch.floor(distance / span)
    rest = distance - turns * span
    return (torch.where(turns % 2 == 0, rest, span - rest) + twice_low) / 2


def _elements(image: Tensor, x: Tensor, y: Tensor) -> Tensor:
    """Elements [N, C, P] at whole positions [N, 1, P]; zeros outside of the image."""
    n, channels, height, width = image.shape
    is_inside = (x >= 0) & (x < width) & (y >= 0) & (y < height)
    index = torch.where(is_inside, y, 0).to(torch.int64) * width + torch.where(is_inside, x, 0).to(torch.int64)
    values = torch.gather(image.reshape(n, channels, -1), 2, index.expand(-1, channels, -1))
    return torch.where(is_inside, values, 0)
