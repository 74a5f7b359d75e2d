# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Offsets of intermediate buffers in one shared workspace."""

from bisect import insort
from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["ALIGNMENT", "Interval", "aligned", "assign_offsets"]

ALIGNMENT = 64
"""Bytes: a cache line, and the widest vector."""


@dataclass(frozen=True)
class Interval:
    """A buffer of `size` bytes that lives from step `first` to step `last`, both included."""

    size: int
    first: int
    last: int


def aligned(size: int) -> int:
    """`size` rounded up to a multiple of `ALIGNMENT`."""
    return -(-size // ALIGNMENT) * ALIGNMENT


def assign_offsets(intervals: Sequence[Interval]) -> tuple[list[int], int]:
    """Byte offsets (in input order) so that buffers alive at the same step do not overlap, and the total size.

    Greedy by size, best fit: the largest buffer first, each into the smallest gap between the already placed
    buffers that live at the same time. Within a few per cent of the optimum on neural networks (Pisarchyk and Lee,
    "Efficient Memory Management for Deep Neural Net Inference", 2020). Offsets are multiples of `ALIGNMENT`.
    """
    order = sorted(range(len(intervals)), key=lambda i: (-intervals[i].size, intervals[i].first, i))
    offsets = [0] * len(intervals)
    placed: list[tuple[int, int, int, int]] = []  # (offset, end, first, last), by offset
    total = 0
    for i in order:
        interval = intervals[i]
        size = aligned(interval.size)
        if size == 0:
            continue
        best, best_gap, free = -1, -1, 0
        for offset, end, first, last in placed:
            if first > interval.last or last < interval.first:
                continue
            gap = offset - free
            if gap >= size and (best < 0 or gap < best_gap):
                best, best_gap = free, gap
            free = max(free, end)
        offsets[i] = best if best >= 0 else free
        insort(placed, (offsets[i], offsets[i] + size, interval.first, interval.last))
        total = max(total, offsets[i] + size)
    return offsets, total
