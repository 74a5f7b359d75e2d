# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Memory of the process: what compiling has freed goes back to the system; large tensors get large pages."""

import ctypes
import functools
import sys
from collections.abc import Callable

import torch

__all__ = ["LARGE", "give_back", "use_large_pages"]

LARGE = 32 << 20
"""Bytes from which glibc gives every allocation pages of its own, which freeing returns to the system: what is said of
them concerns nothing else, and each new tensor has to fault them in again."""

_PAGE = 2 << 20
_MADV_HUGEPAGE = 14


def give_back() -> None:
    """Return free pages of the heap to the system, where the C library can do that (glibc).

    MLIR and LLVM free many small blocks in several threads' arenas, which glibc keeps: 10 to 20 MiB that a process
    would hold for no use, and that would lie below whatever is allocated next.
    """
    trim = _trim()
    if trim is not None:
        trim(0)


@functools.cache
def _trim() -> Callable[[int], int] | None:
    try:
        function = ctypes.CDLL(None).malloc_trim
    except (AttributeError, OSError, TypeError):  # another C library; Windows has no handle of the process itself
        return None
    function.argtypes, function.restype = (ctypes.c_size_t,), ctypes.c_int
    return function


def use_large_pages(tensor: torch.Tensor) -> torch.Tensor:
    """Ask the system for pages of 2 MiB below a tensor of `LARGE` bytes or more, before it is written; returns it.

    A fault for each 4 KiB takes longer than most kernels that fill a tensor: 64 MiB of products of two numbers took 32
    ms, 8 ms with large pages (one core of a Zen 5 server). Where the system has none (Linux's `transparent_hugepage`)
    nothing changes. PyTorch asks for them itself if `THP_MEM_ALLOC_ENABLE` is set.
    """
    size = tensor.untyped_storage().nbytes()
    advise = _madvise() if size >= LARGE else None
    if advise is not None:
        start = tensor.untyped_storage().data_ptr()
        first, last = -(-start // _PAGE) * _PAGE, (start + size) // _PAGE * _PAGE
        advise(first, last - first, _MADV_HUGEPAGE)
    return tensor


@functools.cache
def _madvise() -> Callable[[int, int, int], int] | None:
    if not sys.platform.startswith("linux"):
        return None
    function = ctypes.CDLL(None).madvise
    function.argtypes, function.restype = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int), ctypes.c_int
    return function
