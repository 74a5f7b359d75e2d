# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Gradients of average poolings as pointwise ops: each element of an image adds up the windows that cover it.

Only sizes and strides of the pooled image are asked for, so that it need not be kept for the gradient.

PyTorch's CUDA kernel for channels last takes images for ones without a border (seen in 2.11): where a border
has to be left to ATen, it is given a planar image.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import torch
from torch import Tensor
from torch._prims_common import suggest_memory_format

from kiln.lowering import paths
from kiln.lowering.cpu.rules import GradientRules, rules_for

__all__ = ["average_decompositions"]

aten = torch.ops.aten

_TAKEN = paths.group("any average-gradients", "channels last", "planar", "left to ATen")
_BORDERS = paths.group("cuda average-gradients", "a border of an image with channels last left to ATen")

_MOST_WINDOWS = 25
"""Windows that cover one element: each is a load of a gradient."""


def average_decompositions() -> dict[Any, Callable[..., Any]]:
    """Op overload -> a decomposition, which returns NotImplemented where ATen's op stays."""
    return {
        aten.avg_pool2d_backward.default: _pooled,
        aten.avg_pool3d_backward.default: _pooled,
        aten._adaptive_avg_pool2d_backward.default: _adaptive(2),
        aten._adaptive_avg_pool3d_backward.default: _adaptive(3),
    }


@dataclass(frozen=True)
class _Windows:
    """The windows along one spatial dim of an image: of an image of ``size`` elements, ``count`` windows."""

    size: int
    count: int
    kernel: int
    stride: int
    padding: int

    @property
    def covering(self) -> int:
        """The most windows that cover an element."""
        return -(-self.kernel // self.stride)

    def elements(self, include_padding: bool, device: torch.device) -> int | Tensor:
        """What each window counts as its elements; a number where all count alike."""
        low, high = (-self.padding, self.size + self.padding) if include_padding else (0, self.size)
        starts = [n * self.stride - self.padding for n in range(self.count)]
        reach = self.size + self.padding
        counts = {min(n + self.kernel, reach, high) - max(n, low) for n in starts}
        if len(counts) == 1:
            return counts.pop()
        start = torch.arange(self.count, dtype=torch.int32, device=device) * self.stride - self.padding
        return (start + self.kernel).clamp(max=high) - start.clamp(min=low)

    def spread(self, grad: Tensor, dim: int) -> Tensor:
        """The sum, for each element of the image, of what its windows have along ``dim``."""
        first, last = self.padding // self.stride, (self.size - 1 + self.padding) // self.stride
        front = max(0, self.covering - 1 - first)
        amounts = [0, 0] * (grad.dim() - 1 - dim) + [front, max(0, last + 1 - self.count)]
        if any(amounts):
            grad = aten.constant_pad_nd.default(grad, amounts, 0.0)
        offset = self._offsets(grad, dim) if self.kernel % self.stride else None
        found: Tensor | None = None
        for behind in range(self.covering):
            start = front + first - behind
            mine = self._repeat(grad.narrow(dim, start, last - first + 1), dim, self.padding - first * self.stride)
            if offset is not None and (behind + 1) * self.stride > self.kernel:  # elements that have no such window
                mine = torch.where(offset + behind * self.stride < self.kernel, mine, 0.0)
            found = mine if found is None else found + mine
        assert found is not None
        return found

    def _repeat(self, grad: Tensor, dim: int, start: int) -> Tensor:
        """Each element as often as windows are apart, of which those of the image are taken."""
        if self.stride > 1:
            shape = list(grad.shape)
            grad = grad.unsqueeze(dim + 1).expand([*shape[: dim + 1], self.stride, *shape[dim + 1 :]])
            grad = grad.reshape([*shape[:dim], shape[dim] * self.stride, *shape[dim + 1 :]])
        return grad if grad.shape[dim] == self.size else grad.narrow(dim, start, self.size)

    def _offsets(self, grad: Tensor, dim: int) -> Tensor:
        """Each element's offset in the last window that covers it, or in the gap behind it."""
        place = torch.arange(self.size, dtype=torch.int32, device=grad.device) + self.padding
        return (place % self.stride).view([-1, *[1] * (grad.dim() - 1 - dim)])


def _pooled(
    grad: Tensor,
    x: Tensor,
    kernel_size: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    ceil_mode: bool,
    count_include_pad: bool,
    divisor_override: int | None,
) -> Any:
    count = 2 if len(kernel_size) == 2 else 3
    given = [list(n) * (count if len(n) == 1 else 1) for n in (kernel_size, stride or kernel_size, padding)]
    found = NotImplemented
    if _is_known(grad, x, count):
        windows = [_Windows(*n) for n in zip(x.shape[-count:], grad.shape[-count:], *given, strict=True)]
        found = _gradient(grad, x, windows, count_include_pad, divisor_override)
    wanted = suggest_memory_format(x)
    if found is NotImplemented and x.device.type == "cuda" and wanted == torch.channels_last and any(padding):
        _BORDERS("a border of an image with channels last left to ATen")
        planar = x.new_empty(x.shape)
        arguments = (kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override)
        found = aten.avg_pool2d_backward.default(grad, planar, *arguments).contiguous(memory_format=wanted)
    return found


def _adaptive(count: int) -> Callable[[Tensor, Tensor], Any]:
    """Windows that do not overlap, where the result's sizes divide the image's."""

    def pooled(grad: Tensor, x: Tensor) -> Any:
        if not _is_known(grad, x, count):
            return NotImplemented
        sizes = list(zip(x.shape[-count:], grad.shape[-count:], strict=True))
        if any(size % n for size, n in sizes):
            return NotImplemented
        return _gradient(grad, x, [_Windows(size, n, size // n, size // n, 0) for size, n in sizes], True, None)

    return pooled


def _is_known(grad: Tensor, x: Tensor, count: int) -> bool:
    """Whether spatial sizes are known, of an image of floats on a device that Kiln has kernels for."""
    sizes = (*x.shape[-count:], *grad.shape[-count:])
    is_ours = x.device.type in ("cpu", "cuda") and x.dtype.is_floating_point
    return is_ours and all(isinstance(n, int) and n > 0 for n in sizes)


def _suits_rows(windows: _Windows) -> bool:
    """Whether a CPU's kernels read vectors of the gradient along a row, where that was measured to be faster than
    ATen.
    """
    rules = rules_for(GradientRules)
    is_long = windows.size > rules.average_row or windows.size % windows.stride == 0
    return windows.stride <= rules.average_step and is_long


def _gradient(grad: Tensor, x: Tensor, windows: list[_Windows], include_padding: bool, divisor: int | None) -> Any:
    wanted, rank = suggest_memory_format(x), x.dim()
    is_planar = wanted == torch.contiguous_format
    suits = x.device.type == "cuda" or not is_planar or _suits_rows(windows[-1])
    if prod(w.covering for w in windows) > _MOST_WINDOWS or not suits:
        _TAKEN("left to ATen")
        return NotImplemented
    _TAKEN("planar" if is_planar else "channels last")
    last = list(range(rank)) if is_planar else [0, *range(2, rank), 1]
    # In the order that memory has, so that no reshape copies.
    found = grad.to(torch.float32 if x.dtype.itemsize < 4 else x.dtype).permute(last)
    at = [last.index(rank - len(windows) + k) for k in range(len(windows))]
    number = divisor or 1
    for dim, w in zip(at, windows, strict=True):
        elements = w.elements(include_padding, x.device) if divisor is None else 1
        if isinstance(elements, int):
            number *= elements
        else:
            found = found / elements.view([-1, *[1] * (rank - 1 - dim)])
    for dim, w in zip(at, windows, strict=True):
        found = w.spread(found, dim)
    found = (found / number).to(x.dtype)
    return found.permute([last.index(d) for d in range(rank)]).contiguous(memory_format=wanted)
