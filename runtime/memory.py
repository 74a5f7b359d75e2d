# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Offsets of intermediate buffers in one shared workspace."""

from bisect import insort
from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["ALIGNMENT", "Interval", "Placed", "aligned", "assign_offsets", "smallest_gap"]

ALIGNMENT = 64
"""Bytes: a cache line, and the widest vector."""


@dataclass(frozen=True)
class Interval:
    """A buffer of `size` bytes that lives from step `first` to step `last`, both included."""

    size: int
    first: int
    last: int


@dataclass(frozen=True, order=True)
class Placed:
    """Bytes `offset` to `end`, in use from step `first` to step `last`."""

    offset: int
    end: int
    first: int
    last: int

    def meets(self, first: int, last: int) -> bool:
        """Whether they are in use at one of the steps `first` to `last`."""
        return self.first <= last and first <= self.last


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
    placed: list[Placed] = []
    total = 0
    for i in order:
        interval = intervals[i]
        size = aligned(interval.size)
        if size == 0:
            continue
        gap = smallest_gap(placed, interval, None)
        offsets[i] = gap[0] if gap is not None else _end(placed, interval)
        insort(placed, Placed(offsets[i], offsets[i] + size, interval.first, interval.last))
        total = max(total, offsets[i] + size)
    return offsets, total


def smallest_gap(placed: Sequence[Placed], interval: Interval, limit: int | None) -> tuple[int, int] | None:
    """(offset, bytes left over) of the smallest gap below `limit` that has room for an interval; None if none has.

    placed: what is there already, ordered by offset; only what is in use at the same steps is in the way. limit: None
    leaves out the room behind all of it.
    """
    size, free = aligned(interval.size), 0
    found: list[tuple[int, int]] = []
    for other in placed:
        if other.meets(interval.first, interval.last):
            found.append((other.offset - free - size, free))
            free = max(free, other.end)
    if limit is not None:
        found.append((limit - free - interval.size, free))
    left, offset = min((f for f in found if f[0] >= 0), default=(-1, 0))
    return (offset, left) if left >= 0 else None


def _end(placed: Sequence[Placed], interval: Interval) -> int:
    """The end of what is in use at the same steps as an interval."""
    return max((o.end for o in placed if o.meets(interval.first, interval.last)), default=0)
