# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Constants made when code is loaded: in the order that a kernel reads them, one copy for all graphs."""

import hashlib
from collections.abc import Sequence
from weakref import WeakValueDictionary

import torch

from kiln.runtime.aten_call import affine_to_python

__all__ = ["packed", "shared", "unpacked"]

# By digest of the elements and what was made of them.
_copies: "WeakValueDictionary[tuple[object, ...], torch.Tensor]" = WeakValueDictionary()


def packed(tensor: torch.Tensor, layout: str, elements: int) -> torch.Tensor:
    """A one-dimensional tensor with element (s0, s1, ...) of ``tensor`` at offset ``layout``, and zeros elsewhere.

    Args:
        tensor: of any shape, strides and dtype, on the CPU.
        layout: affine text over ``s0, s1, ...``, one per dim, that gives each index another offset below ``elements``.
        elements: size of the result.

    Graphs that pack equal constants in one order, for several sizes of their inputs say, share the copy.
    """
    key = (*_content(tensor), layout, elements)
    copy = _copies.get(key)
    return copy if copy is not None else _copies.setdefault(key, _pack(tensor, layout, elements))


def unpacked(memory: torch.Tensor, layout: str, shape: Sequence[int]) -> torch.Tensor:
    """The tensor of sizes ``shape`` that was packed: inverse of ``packed``."""
    return memory[_addresses(layout, shape).to(memory.device)]


def shared(tensor: torch.Tensor) -> torch.Tensor:
    """``tensor``, or an equal one that was given before and is still in use.

    Equal are elements, dtype, shape, strides and device. Those of a GPU are copied to the host to be compared.
    """
    return _copies.setdefault((*_content(tensor), tensor.stride()), tensor)


def _content(tensor: torch.Tensor) -> tuple[object, ...]:
    data = tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data
    return hashlib.sha256(data).digest(), tensor.dtype, tuple(tensor.shape), tensor.device


def _pack(tensor: torch.Tensor, layout: str, elements: int) -> torch.Tensor:
    flat = torch.zeros(elements, dtype=tensor.dtype)
    flat[_addresses(layout, tensor.shape).reshape(-1)] = tensor.detach().reshape(-1)
    return flat


def _addresses(layout: str, shape: Sequence[int]) -> torch.Tensor:
    """The offset of each element of a tensor of sizes ``shape``."""
    rank = len(shape)
    grid = [torch.arange(n).reshape([n if d == i else 1 for d in range(rank)]) for i, n in enumerate(shape)]
    address = eval(compile(f"lambda s: {affine_to_python(layout)}", "<kiln layout>", "eval"))(grid)
    return torch.as_tensor(address).expand(list(shape))
