# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""The C library's heap: memory that compiling has freed goes back to the system."""

import ctypes
import functools
from collections.abc import Callable

__all__ = ["give_back"]


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
