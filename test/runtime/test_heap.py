# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Freed memory goes back to the system, and a C library that cannot do that is no error."""

import ctypes
from pathlib import Path

import pytest

from kiln.runtime import heap

_STATUS = Path("/proc/self/status")
_MIB = 1 << 20


def _resident() -> int:
    line = next(line for line in _STATUS.read_text(encoding="utf-8").splitlines() if line.startswith("VmRSS:"))
    return 1024 * int(line.split()[1])


@pytest.mark.skipif(
    not _STATUS.exists() or not hasattr(ctypes.CDLL(None), "malloc_trim"), reason="not Linux with glibc"
)
def test_freed_blocks_go_back() -> None:
    library = ctypes.CDLL(None)
    library.malloc.restype, library.malloc.argtypes = ctypes.c_void_p, (ctypes.c_size_t,)
    library.free.restype, library.free.argtypes = None, (ctypes.c_void_p,)
    blocks = []
    for _ in range(64 * _MIB >> 13):  # 8 KiB each: below what glibc maps on its own
        block = library.malloc(8192)
        ctypes.memset(block, 1, 8192)
        blocks.append(block)
    last = blocks.pop()  # holds the top of the heap, which free() would give back by itself
    for block in blocks:
        library.free(block)
    before = _resident()
    heap.give_back()
    after = _resident()
    library.free(last)
    assert before - after > 48 * _MIB


def test_without_the_function(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_library(name: str | None) -> object:
        raise TypeError("no handle of the process itself")

    monkeypatch.setattr(heap.ctypes, "CDLL", no_library)
    heap._trim.cache_clear()
    try:
        assert heap._trim() is None
        heap.give_back()
    finally:
        heap._trim.cache_clear()
