# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""The partitions of one program, which go on in an order that a seed decides, and the copies that are under way."""

import random
from collections.abc import Callable, Generator
from dataclasses import dataclass

from kiln.lowering.ttcpu.ttgir.memory import Barrier, TtgirError

__all__ = ["Copies", "Partition", "Wait", "run_partitions"]


@dataclass
class Wait:
    """What a partition that cannot go on waits for."""

    barrier: Barrier
    phase: int
    line: int

    def __str__(self) -> str:
        b = self.barrier
        state = f"phase {b.phase}, {b.pending} of {b.count} arrivals and {b.bytes} bytes are missing"
        return f"line {self.line}: waits for the end of phase {self.phase} of {b.name} ({state})"


Partition = Generator[Wait | None, None, None]
"""Runs up to the next op that others can see; yields what it waits for, if anything."""


class Copies:
    """Copies into shared memory that are under way, in no order."""

    def __init__(self) -> None:
        self.under_way: list[Callable[[], None]] = []

    def start(self, arrive: Callable[[], None]) -> None:
        """Begin a copy; `arrive` is called when it is done."""
        self.under_way.append(arrive)


def run_partitions(partitions: dict[str, Partition], copies: Copies, seed: int) -> None:
    """Runs all partitions to their end. Seeds 0 and 1: copies arrive when nobody can go on, and of the partitions that
    can, the first goes on, or the last; others: whatever comes.

    Raises TtgirError where none can go on.
    """
    choose = random.Random(seed)
    waits: dict[str, Wait | None] = dict.fromkeys(partitions)
    while partitions:
        ready = [n for n in partitions if (w := waits[n]) is None or w.barrier.has_ended(w.phase)]
        if not ready and not copies.under_way:
            raise TtgirError("no partition can go on: " + "; ".join(f"{n}, {w}" for n, w in waits.items() if w))
        is_lazy = seed < len(_FIRST)
        if copies.under_way and (not ready or not is_lazy and choose.random() < 0.3):
            copies.under_way.pop(choose.randrange(len(copies.under_way)))()
            continue
        name = ready[_FIRST[seed]] if is_lazy else choose.choice(ready)
        try:
            waits[name] = next(partitions[name])
        except StopIteration:
            del partitions[name], waits[name]
    if copies.under_way:
        raise TtgirError(f"{len(copies.under_way)} copies into shared memory are under way when the program ends")


_FIRST = (0, -1)
