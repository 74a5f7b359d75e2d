# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""What the partitions of one program share: shared memory, barriers, and the copy engine.

A copy into shared memory is under way from when it is started to an arbitrary time; its block is NaN until then. It
counts at its barrier when it arrives. A copy out of shared memory reads its block as late as it may: when it is waited
for, so that what overwrites the block too early is what is copied.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch

from kiln.errors import AccessError

__all__ = ["Barrier", "Descriptor", "Memory", "TtgirError"]


class TtgirError(AssertionError):
    """A kernel does what hardware leaves undefined, or waits for ever."""


@dataclass
class Barrier:
    """An mbarrier: a phase ends when all arrivals and all bytes that were announced are there."""

    name: str
    count: int = 0
    pending: int = 0
    bytes: int = 0
    phase: int = 0

    def start(self, count: int) -> None:
        """Initialise the barrier for `count` arrivals. Raises TtgirError if it is in use."""
        if self.count:
            raise TtgirError(f"barrier {self.name} is initialised twice")
        self.count = self.pending = count

    def arrive(self, count: int = 1, expected: int = 0) -> None:
        """`count` arrivals, which announce `expected` bytes."""
        self._needs_start()
        if count > self.pending:
            raise TtgirError(f"barrier {self.name} has {self.pending} arrivals left in its phase, and {count} come")
        self.pending -= count
        self.bytes += expected
        self._turn()

    def deliver(self, size: int) -> None:
        """Bytes of a copy have arrived; they may come before they are announced."""
        self._needs_start()
        self.bytes -= size
        self._turn()

    def has_ended(self, phase: int) -> bool:
        """Whether the phase of this parity, which is the current one or the one before, is over."""
        self._needs_start()
        return self.phase != phase

    def _turn(self) -> None:
        if self.pending == 0 and self.bytes == 0:
            self.phase ^= 1
            self.pending = self.count

    def _needs_start(self) -> None:
        if not self.count:
            raise TtgirError(f"barrier {self.name} is used before it is initialised")


@dataclass
class Memory:
    """A view of shared memory: `data` shares its storage with the allocation's. name: for messages. owner: the
    allocation's blocks that were written by threads, and not made known to the copy engine by a fence, by partition.
    """

    name: str
    data: torch.Tensor
    dirty: dict[str, str] = field(default_factory=dict[str, str])

    def part(self, index: int) -> "Memory":
        """Slot `index` of the first dim."""
        if not 0 <= index < self.data.shape[0]:
            raise AccessError(f"slot {index} of {self.name}, which has {self.data.shape[0]}")
        return Memory(f"{self.name}[{index}]", self.data[index], self.dirty)

    @property
    def bytes(self) -> int:
        """The size of the memory in bytes."""
        return self.data.numel() * self.data.element_size()


@dataclass
class Descriptor:
    """A tensor map: a view of the tensor with its sizes, and the block that it moves."""

    name: str
    tensor: torch.Tensor
    block: tuple[int, ...]

    def load(self, start: Sequence[int], into: Memory) -> None:
        """Copies the block at `start`: zeros where it is outside of the tensor."""
        block = torch.zeros(self.block, dtype=self.tensor.dtype)
        inside, within = self._place(start)
        block[within] = self.tensor[inside]
        into.data.copy_(block.reshape(into.data.shape))

    def store(self, start: Sequence[int], data: torch.Tensor) -> None:
        """Writes what of the block at `start` is inside of the tensor."""
        inside, within = self._place(start)
        self.tensor[inside] = data.reshape(self.block)[within]

    def _place(self, start: Sequence[int]) -> tuple[tuple[slice, ...], tuple[slice, ...]]:
        """The part of the tensor, and of the block."""
        if len(start) != len(self.block):
            raise TtgirError(f"{len(start)} coordinates for {self.name}, which has {len(self.block)} dims")
        inside: list[slice] = []
        within: list[slice] = []
        for first, block, size in zip(start, self.block, self.tensor.shape, strict=True):
            low, high = max(0, min(first, size)), max(0, min(first + block, size))
            inside.append(slice(low, high))
            within.append(slice(low - first, high - first) if high > low else slice(0, 0))
        return tuple(inside), tuple(within)
