# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Launches one by one, each in a range with the kernel's name and the model's line, for Nsight and torch.profiler."""

import array
import contextlib
import ctypes
import itertools
from collections.abc import Callable, Generator

import torch

from kiln.runtime.binding import StateLayout
from kiln.runtime.cuda.driver import CudaError
from kiln.runtime.split import short_title

__all__ = ["launched_in_ranges"]

_HEADER = 5
"""Words in front of the number of the inputs that a segment looks at (`CudaBinder.table`)."""


def launched_in_ranges(
    launch: Callable[[int], None], graph: str, names: Callable[[int], list[str]]
) -> Callable[[int], None]:
    """What launches the segment of a state in ranges: one for all of it, and one for each kernel.

    Args:
      launch: runs the table that the state names.
      graph: the plan's name.
      names: what the entries of the table at an address are.
    """

    def launched(state: int) -> None:
        word = ctypes.c_int64.from_address(state + 8 * StateLayout.TABLE)
        table = word.value
        header, entries = _parts(table)
        titles = names(table) or [graph] * len(entries)
        try:
            with _range(f"kiln {graph}"):
                for title, group in itertools.groupby(zip(titles, entries, strict=True), lambda pair: pair[0]):
                    words = array.array("q", [*header, *(word for _, entry in group for word in entry), 0])
                    word.value = words.buffer_info()[0]
                    try:
                        with _range(short_title(title)):
                            launch(state)
                    except CudaError as error:
                        error.add_note(f"in the range of {title}")  # the launcher counts entries of this table
                        raise
        finally:
            word.value = table

    return launched


@contextlib.contextmanager
def _range(title: str) -> Generator[None, None, None]:
    """A region of PyTorch's profiler while one runs (which may make NVTX ranges of them), else an NVTX range."""
    if torch.autograd.profiler._is_profiler_enabled:
        with torch.profiler.record_function(title):
            yield
        return
    torch.cuda.nvtx.range_push(title)
    try:
        yield
    finally:
        torch.cuda.nvtx.range_pop()


def _parts(table: int) -> tuple[list[int], list[list[int]]]:
    """The words of a table in front of its entries, and those of each entry."""

    def words(at: int, count: int) -> list[int]:
        return list((ctypes.c_int64 * count).from_address(table + 8 * at))

    start = _HEADER + 1 + words(_HEADER, 1)[0]
    entries: list[list[int]] = []
    at = start
    while words(at, 1)[0]:
        length = words(at + 1, 1)[0]
        entries.append(words(at, length))
        at += length
    return words(0, start), entries
