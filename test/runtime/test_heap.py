# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Freed memory goes back to the system, large tensors ask for large pages; a system without either is no error."""

import ctypes
from pathlib import Path

import pytest
import torch

import kiln
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


def _advised(tensor: torch.Tensor) -> bool:
    """Whether the middle of a tensor lies in memory for which large pages were asked (``hg`` of ``VmFlags``)."""
    middle, inside = tensor.data_ptr() + tensor.nbytes // 2, False
    for line in Path("/proc/self/smaps").read_text(encoding="utf-8").splitlines():
        words = line.split()
        if "-" in words[0] and not words[0].endswith(":"):
            first, last = (int(x, 16) for x in words[0].split("-"))
            inside = first <= middle < last
        elif inside and words[0] == "VmFlags:":
            return "hg" in words
    return False


@pytest.mark.skipif(
    not Path("/sys/kernel/mm/transparent_hugepage").exists() or not Path("/proc/self/smaps").exists(),
    reason="a system without large pages",
)
@pytest.mark.parametrize("dynamic", [False, True])
def test_large_results_have_large_pages(dynamic: bool) -> None:
    compiled = torch.compile(lambda x: x * x + 1, backend=kiln.backend, fullgraph=True, dynamic=dynamic)
    for rows, large in ((heap.LARGE // 4096, True), (heap.LARGE // 4096 // 4, False)):
        x = torch.randn(rows, 1024)
        result = compiled(x)
        torch.testing.assert_close(result, x * x + 1)
        if large:
            assert _advised(result)


def test_no_advice_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heap, "_madvise", lambda: None)
    tensor = torch.empty(heap.LARGE, dtype=torch.uint8)
    assert heap.use_large_pages(tensor) is tensor
