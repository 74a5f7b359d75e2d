# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Gradients of paddings by reflected edges as pointwise ops: the border is folded back, dim by dim.

Only sizes and strides of the padded image are asked for, so that it need not be kept for the gradient.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch._prims_common import suggest_memory_format

from kiln.lowering import paths
from kiln.lowering.cpu.rules import GradientRules, rules_for

__all__ = ["padding_decompositions"]

aten = torch.ops.aten

_TAKEN = paths.group("any padding-gradients", "folded back")
_LEFT = paths.group("cpu padding-gradients", "wide border left to ATen")


def padding_decompositions() -> dict[Any, Callable[..., Any]]:
    """Op overload -> a decomposition, which returns NotImplemented where ATen's op stays."""
    return {
        aten.reflection_pad1d_backward.default: _gradient,
        aten.reflection_pad2d_backward.default: _gradient,
    }


def _gradient(grad: Tensor, x: Tensor, padding: Sequence[int]) -> Any:
    rank, count = x.dim(), len(padding) // 2
    is_known = all(isinstance(n, int) for n in (*x.shape[-count:], *padding))
    if not is_known or min(padding) < 0 or x.device.type not in ("cpu", "cuda") or not x.dtype.is_floating_point:
        return NotImplemented
    if count == 2 and x.device.type == "cpu" and max(padding) > rules_for(GradientRules).reflected_border:
        _LEFT("wide border left to ATen")
        return NotImplemented
    _TAKEN("folded back")
    found = grad.to(torch.float32 if x.dtype.itemsize < 4 else x.dtype)
    for k in range(count):
        dim = rank - 1 - k
        found = _reflected(found, dim, x.shape[dim], padding[2 * k], padding[2 * k + 1])
    # ATen's kernels on GPUs give planar images.
    wanted = suggest_memory_format(x) if x.device.type == "cpu" else torch.contiguous_format
    return found.to(x.dtype).contiguous(memory_format=wanted)


def _reflected(grad: Tensor, dim: int, size: int, low: int, high: int) -> Tensor:
    found = grad.narrow(dim, low, size)
    if low:
        found = found + _placed(grad.narrow(dim, 0, low).flip(dim), dim, 1, size)
    if high:
        found = found + _placed(grad.narrow(dim, low + size, high).flip(dim), dim, size - 1 - high, size)
    return found


def _placed(x: Tensor, dim: int, start: int, size: int) -> Tensor:
    """``x`` from the element ``start`` of ``size`` elements on, which are 0 otherwise."""
    amounts = [0, 0] * (x.dim() - 1 - dim) + [start, size - start - x.shape[dim]]
    return aten.constant_pad_nd.default(x, amounts, 0.0)
