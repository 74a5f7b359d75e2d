# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Ops that read memory as such, for tensors of which a plan decides where they lie.

``as_strided`` and its derivative: ATen counts from the start of the storage. In a plan a tensor may lie anywhere in a
storage that it shares with others, so here positions count from the tensor's first element, as the importer
(``frontend/import_/storage_views.py``) writes them. Results are memory of their own: a plan takes them for that.

Views as another type (``view_as_complex``, ``view(torch.int16)``): ATen wants the first element at a multiple of the
other type's size, and the result has the memory of what it views. What eager computes may be an argument in a plan
(``x.clone()``), a part of another tensor, or one that is used as such as well. ``kiln.own`` stands for it: the tensor
itself where nobody else has its memory, else a copy.
"""

from collections.abc import Sequence

import torch

__all__ = ["DENSE", "IN_MEMORY", "OWN"]

IN_MEMORY = {
    "aten.as_strided.default": "kiln.strided.default",
    "aten.as_strided_scatter.default": "kiln.strided_scatter.default",
}
"""ATen's ops, and what stands for them in a plan."""

OWN = "kiln.own.default"
"""The operator for a tensor with memory of its own."""

DENSE = {"kiln.strided.default", "aten.as_strided_copy.default"}
"""Ops whose results lie in memory row by row, however the elements lie in what they read."""

_library = torch.library.Library("kiln", "FRAGMENT")
_library.define("strided(Tensor x, SymInt[] size, SymInt[] stride, SymInt? offset=None) -> Tensor")
_library.define("own(Tensor(a) x) -> Tensor(a)")
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


def _own(x: torch.Tensor) -> torch.Tensor:
    return x  # what the plan has copied, where it must (runtime/program.py)


_library.impl("strided", _strided, "CompositeExplicitAutograd")
_library.impl("strided_scatter", _strided_scatter, "CompositeExplicitAutograd")
_library.impl("own", _own, "CompositeExplicitAutograd")
