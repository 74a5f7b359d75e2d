# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Rows of a left operand, a register tile of them at a time."""

from collections.abc import Callable
from dataclasses import dataclass

from torch_mlir import ir

from kiln.lowering.cpu.builder import Builder, Index

__all__ = ["Rows"]


@dataclass(frozen=True)
class Rows:
    """Element [i, k] at start + i * row + k * step of a buffer.

    padded: rows are there up to a multiple of a tile's height. zeros: steps of k are, up to a multiple of a group, and
    are zero.
    """

    buffer: ir.Value
    start: Index
    row: Index
    step: Index = 1
    padded: bool = False
    zeros: bool = False

    def tiles(self, b: Builder, rows: Index, height: int, body: Callable[[Index, list[Index]], None]) -> None:
        """`body(i, starts)` for tiles of `height` of `rows` rows, with where each of their rows begins.

        The last tile is lower where `rows` is known. Else its rows past the end are the last one again: their sums land
        in padding that nothing reads.
        """

        def exact(i: Index, count: int = height) -> None:  # one base and known distances make cheap addresses
            start = b.addi(self.start, b.muli(i, self.row))
            body(i, [b.addi(start, b.muli(r, self.row)) for r in range(count)])

        def clamped(i: Index) -> None:
            last = b.subi(rows, 1)
            numbers = [b.mini(b.addi(i, r), last) for r in range(height)]
            body(i, [b.addi(self.start, b.muli(x, self.row)) for x in numbers])

        if self.padded:
            b.for_(0, rows, height, exact)
        elif isinstance(rows, int):
            full = rows // height * height
            b.for_(0, full, height, exact)
            if rows > full:
                exact(full, rows - full)
        else:
            b.for_(0, rows, height, clamped)
