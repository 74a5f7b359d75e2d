# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Sampling of images at positions of a grid: as gathers that are weighted and summed, or by ATen in float32.

Positions are computed in ATen's order of operations (aten/src/ATen/native/cuda/GridSampler.cuh), in float32 for 16-bit
grids, so that they fall into the same cells as eager's. Nothing is read outside of an image, and what lies outside
counts as 0 whatever the image holds.

On CPUs, ATen's calls on 16-bit tensors are wrong. They round positions to the grid's type, so that some fall into
other cells, and read memory outside of images with channels last (seen with PyTorch 2.11 and 2.13). Here ATen does them
in float32, with `emulate_precision_casts` as well.
"""

from collections.abc import Callable, Sequence
from functools import partial
from math import prod
from typing import Any

import torch
from torch import Tensor
from torch._prims_common import suggest_memory_format

from kiln.lowering import paths

__all__ = ["sampling_decompositions"]

aten = torch.ops.aten

_TAKEN = paths.group("cuda grid-sampling", "nearest", "cubic", "left to ATen")
_WIDENED = paths.group("cpu grid-sampling", "in float32", "gradients in float32")

_DEVICES = ("cuda",)
"""On CPUs ATen's code for whole vectors is faster (benchmarks/results/image_sampling.json)."""
_NEAREST, _CUBIC = 1, 2
_ZEROS, _BORDER = 0, 1
_CUBIC_A = -0.75


def sampling_decompositions() -> dict[Any, Callable[..., Any]]:
    """Op overload -> a decomposition, which returns NotImplemented where ATen's op stays."""
    return {
        aten.grid_sampler_2d.default: _sampled,
        aten.grid_sampler_3d.default: partial(_widened, aten.grid_sampler_3d.default),
        aten.grid_sampler_2d_backward.default: partial(_widened_gradients, aten.grid_sampler_2d_backward.default),
        aten.grid_sampler_3d_backward.default: partial(_widened_gradients, aten.grid_sampler_3d_backward.default),
    }


def _sampled(x: Tensor, grid: Tensor, mode: int, padding: int, align_corners: bool) -> Any:
    """x: [N, C, H, W], grid: [N, h, w, 2], of columns and rows from -1 to 1; result: [N, C, h, w]."""
    if not _is_taken(x, grid, mode):
        if x.device.type in _DEVICES:
            _TAKEN("left to ATen")
        return _widened(aten.grid_sampler_2d.default, x, grid, mode, padding, align_corners)
    image = _Image(x, padding, align_corners)
    at = [image.pixels(grid[..., 1 - d].to(image.wide).unsqueeze(1), d) for d in range(2)]
    if mode == _NEAREST:
        _TAKEN("nearest")
        # Halfway between two pixels the even one.
        return image.gathered([image.inside(p, d).round() for d, p in enumerate(at)]).to(x.dtype)
    _TAKEN("cubic")
    return image.cubic(at).to(x.dtype)


def _widened(op: Callable[..., Any], x: Tensor, grid: Tensor, *how: Any) -> Any:
    """The call in float32 where ATen's of 16 bits on a CPU is wrong."""
    if not _is_narrow(x, grid):
        return NotImplemented
    _WIDENED("in float32")
    return op(x.float(), grid.float(), *how).to(x.dtype)


def _widened_gradients(op: Callable[..., Any], out: Tensor, x: Tensor, grid: Tensor, *how: Any) -> Any:
    """Gradients of the image and of the grid, each a tensor or None, by that of the result."""
    if not _is_narrow(x, grid):
        return NotImplemented
    _WIDENED("gradients in float32")
    found = op(out.float(), x.float(), grid.float(), *how)
    return tuple(None if gradient is None else gradient.to(x.dtype) for gradient in found)


def _is_narrow(x: Tensor, grid: Tensor) -> bool:
    return x.device.type == "cpu" and x.dtype in (torch.bfloat16, torch.float16) and x.dtype == grid.dtype


def _is_taken(x: Tensor, grid: Tensor, mode: int) -> bool:
    """Nearest pixels of planar images, and cubic ones in 16 bits: other kernels of ATen's are as fast or faster."""
    is_faster = (
        suggest_memory_format(x) == torch.contiguous_format if mode == _NEAREST else mode == _CUBIC and x.itemsize == 2
    )
    is_known = all(type(n) is int for n in (*x.shape, *grid.shape)) and 0 < prod(x.shape) < 2**31
    return is_faster and is_known and x.device.type in _DEVICES and x.dtype == grid.dtype


class _Image:
    """An image, and how positions outside of it are treated."""

    def __init__(self, x: Tensor, padding: int, align_corners: bool) -> None:
        self.x, self.sizes, self.padding, self.align_corners = x, x.shape[2:], padding, align_corners
        self.wide = torch.float64 if x.dtype == torch.float64 else torch.float32
        self.batch = torch.arange(x.shape[0], device=x.device).view(-1, 1, 1, 1)
        self.channel = torch.arange(x.shape[1], device=x.device).view(1, -1, 1, 1)

    def pixels(self, position: Tensor, d: int) -> Tensor:
        """A position along a spatial dim, from -1 to 1, in pixels."""
        size = self.sizes[d]
        return ((position + 1) / 2) * (size - 1) if self.align_corners else ((position + 1) * size - 1) / 2

    def inside(self, position: Tensor, d: int) -> Tensor:
        """A position in pixels, by the image's padding."""
        size = self.sizes[d]
        if self.padding == _ZEROS:
            return position
        if self.padding != _BORDER:
            ends = (0, 2 * (size - 1)) if self.align_corners else (-1, 2 * size - 1)
            position = _reflected(position, *ends)
        # ATen's minimum and maximum make 0 of NaN.
        return torch.where(position.isnan(), 0.0, position).clamp(0, size - 1)

    def gathered(self, places: Sequence[Tensor]) -> Tensor:
        """The pixels at whole places; 0 outside of the image."""
        is_inside: Tensor | None = None
        indices: list[Tensor] = []
        for place, size in zip(places, self.sizes, strict=True):
            if self.padding == _ZEROS:
                fits = (place >= 0) & (place <= size - 1)
                is_inside = fits if is_inside is None else is_inside & fits
                place = torch.where(fits, place, 0.0)
            indices.append(place.to(torch.int32).clamp(0, size - 1))
        value = aten._unsafe_index.Tensor(self.x, [self.batch, self.channel, *indices]).to(self.wide)
        return value if is_inside is None else torch.where(is_inside, value, 0.0)

    def cubic(self, at: Sequence[Tensor]) -> Tensor:
        """The convolution of 4 x 4 pixels with a cubic kernel; each pixel is moved inside, not the position."""
        low = [p.floor() for p in at]
        rows, columns = (_weights(p - c) for p, c in zip(at, low, strict=True))
        total: Tensor | None = None
        for i, of_row in enumerate(rows):
            line: Tensor | None = None
            for j, of_column in enumerate(columns):
                value = self.gathered([self.inside(low[0] + (i - 1), 0), self.inside(low[1] + (j - 1), 1)])
                line = value * of_column if line is None else line + value * of_column
            assert line is not None
            total = line * of_row if total is None else total + line * of_row
        assert total is not None
        return total


def _reflected(position: Tensor, twice_low: int, twice_high: int) -> Tensor:
    """Positions between two ends (given as twice their values), by reflection at them."""
    if twice_low == twice_high:
        return torch.zeros_like(position)
    low, span = twice_low / 2, (twice_high - twice_low) / 2
    distance = (position - low).abs()
    rest = torch.fmod(distance, span)
    is_even = torch.remainder((distance / span).floor(), 2) == 0
    return torch.where(is_even, rest + low, span - rest + low)


def _weights(t: Tensor) -> list[Tensor]:
    """Of the pixels at -1, 0, 1 and 2 from the one before a position that lies t behind it (Keys' kernel)."""

    def near(x: Tensor) -> Tensor:
        return ((_CUBIC_A + 2) * x - (_CUBIC_A + 3)) * x * x + 1

    def far(x: Tensor) -> Tensor:
        return ((_CUBIC_A * x - 5 * _CUBIC_A) * x + 8 * _CUBIC_A) * x - 4 * _CUBIC_A

    return [far(t + 1), near(t), near(1 - t), far(2 - t)]
