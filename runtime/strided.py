# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Ops that read memory as such, for tensors of which a plan decides where they lie.

``as_strided`` and its derivative: ATen counts from the start of the storage. In a plan a tensor may lie anywhere in a
storage that it shares with others, so here positions count from the tensor's first element, as the importer
(``frontend/import_/storage_views.py``) writes them. Results are memory of their own: a plan takes them for that.

Views of a computed tensor as another type: ATen wants the first element at a multiple of the other type's size. The
copy that eager has is there; a plan's view of a part of a tensor is copied. What eager computes may be an argument in a
plan (``x.clone()``); the result must not share its memory, so the plan hands a copy on.
"""

from collections.abc import Sequence

import torch

__all__ = ["DENSE", "IN_MEMORY", "OF_COMPUTED"]

IN_MEMORY = {
    "aten.as_strided.default": "kiln.strided.default",
    "aten.as_strided_scatter.default": "kiln.strided_scatter.default",
}
"""ATen's ops, and what stands for them in a plan."""

OF_COMPUTED = {"kiln.view_as.default", "kiln.view_as_complex.default"}
"""Views as another type whose results share no memory with the graph's arguments."""

DENSE = {"kiln.strided.default", "aten.as_strided_copy.default"}
"""Ops whose results lie in memory row by row, however the elements lie in what they read."""

_library = torch.library.Library("kiln", "FRAGMENT")
_library.define("strided(Tensor x, SymInt[] size, SymInt[] stride, SymInt? offset=None) -> Tensor")
_library.define("view_as(Tensor(a) x, ScalarType dtype) -> Tensor(a)")
_library.define("view_as_complex(Tensor(a) x) -> Tensor(a)")
_library.define("strided_scatter(Tensor x, Tensor src, SymInt[] size, SymInt[] stride, SymInt? offset=None) -> Tensor")


def _strided(x: torch.Tensor, size: Sequence[int], stride: Sequence[int], offset: int | None = None) -> torch.Tensor:
    return torch.as_strided(x, size, stride, x.storage_offset() + (offset or 0)).clone(
        memory_format=torch.contiguous_format
    )


def _strided_scatter(
    x: torch.Tensor, src: torch.Tensor, size: Sequence[int], stride: Sequence[int], offset: int | None = None
) -> torch.Tensor:
    copy = torch.empty_strided(x.size(), x.stride(), dtype=x.dtype, device=x.device).copy_(x)
    torch.as_strided(copy, size, stride, offset or 0).copy_(src)
    return copy


def _view_as(x: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    if dtype.itemsize == x.element_size():
        return x.view(dtype)
    return _in_steps_of(max(1, dtype.itemsize // x.element_size()), x).view(dtype)


def _view_as_complex(x: torch.Tensor) -> torch.Tensor:
    return torch.view_as_complex(_in_steps_of(2, x))


def _in_steps_of(count: int, x: torch.Tensor) -> torch.Tensor:
    """``x``, or a row-major copy where its last dim is not dense, or its first element or another dim's step, though it
    be a dim of size 1, is at no multiple of ``count`` elements.
    """
    places = (x.storage_offset(), *x.stride()[:-1])
    if x.stride(-1) == 1 and not any(place % count for place in places):
        return x
    return x.clone(memory_format=torch.contiguous_format)


_library.impl("strided", _strided, "CompositeExplicitAutograd")
_library.impl("strided_scatter", _strided_scatter, "CompositeExplicitAutograd")
_library.impl("view_as", _view_as, "CompositeExplicitAutograd")
_library.impl("view_as_complex", _view_as_complex, "CompositeExplicitAutograd")
