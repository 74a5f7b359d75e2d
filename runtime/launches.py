# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Launches as the launcher's table has them (lowering/host/launcher.py): in groups that share one parallel region."""

from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["ReadyLaunch", "Touched", "launch_groups"]

_WAIT, _SINGLE = 1, 2


@dataclass(frozen=True)
class Touched:
    """Bytes `start` to `end` of one piece of memory that a launch reads or writes."""

    memory: int
    start: int
    end: int
    is_written: bool

    def conflicts(self, other: "Touched") -> bool:
        """Whether the order of two accesses matters."""
        overlap = self.memory == other.memory and self.start < other.end and other.start < self.end
        return overlap and (self.is_written or other.is_written)


@dataclass(frozen=True)
class ReadyLaunch:
    """One launch: entry address, thread count, words of its block but the last, memory, scratch bytes per thread."""

    entry: int
    threads: int
    words: Sequence[int]
    touched: Sequence[Touched]
    scratch: int

    def waits_for(self, other: "ReadyLaunch") -> bool:
        """Whether this launch may only start when `other`, an earlier one, is done on all threads."""
        # Threads find their scratch memory at multiples of its size: with equal sizes each keeps to its own.
        if self.scratch and other.scratch and self.scratch != other.scratch:
            return True
        return any(mine.conflicts(theirs) for mine in self.touched for theirs in other.touched)


def launch_groups(launches: Sequence[ReadyLaunch], regions: bool = True) -> list[int]:
    """The groups of a table, without the 0 that ends it.

    From the first launch that several threads share to the last one is a group: a region costs as much as two
    barriers, and a launch in it that one thread does alone little more than it does outside.
    """
    shared = [i for i, launch in enumerate(launches) if launch.threads > 1]
    if not regions:
        groups = [[launch] for launch in launches]
    elif shared:
        groups = [list(launches[: shared[0]]), list(launches[shared[0] : shared[-1] + 1])]
        groups.append(list(launches[shared[-1] + 1 :]))
    else:
        groups = [list(launches)]
    words: list[int] = []
    for group in groups:
        if group:
            body = _group(group)
            words += (max(launch.threads for launch in group), len(body) + 2, *body)
    return words


def _group(group: Sequence[ReadyLaunch]) -> list[int]:
    """The launches of a group and the 0 that ends it."""
    is_team = any(launch.threads > 1 for launch in group)
    words: list[int] = []
    pending: list[ReadyLaunch] = []  # launches that may still run when the next one starts
    for launch in group:
        mode = 0
        if is_team:
            if any(launch.waits_for(other) for other in pending):
                mode |= _WAIT
                pending = []
            if launch.threads == 1:
                mode |= _SINGLE
            pending.append(launch)
        threads = launch.threads if launch.threads > 1 else 0
        words += (launch.entry, mode, len(launch.words) // 2 + 1, *launch.words, 0, threads)
    return [*words, 0]
