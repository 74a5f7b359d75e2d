# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Rows of a left operand, a register tile of them at a time."""

from collections.abc import Callable

from kiln.lowering.cpu.builder import Builder, Index

__all__ = ["row_tiles"]


def row_tiles(
    b: Builder, start: Index, row: Index, rows: Index, height: int, body: Callable[[Index, list[Index]], None]
) -> None:
    """`body(i, starts)` for tiles of `height` of `rows` rows, with where each of their rows begins: start + i * row.

    The last tile is lower where `rows` is known. Else its rows past the end are the last one again: their sums land in
    padding that nothing reads.
    """

    def exact(i: Index, count: int = height) -> None:  # one base and known distances make cheap addresses
        first = b.addi(start, b.muli(i, row))
        body(i, [b.addi(first, b.muli(r, row)) for r in range(count)])

    def clamped(i: Index) -> None:
        last = b.subi(rows, 1)
        numbers = [b.mini(b.addi(i, r), last) for r in range(height)]
        body(i, [b.addi(start, b.muli(x, row)) for x in numbers])

    if isinstance(rows, int):
        full = rows // height * height
        b.for_(0, full, height, exact)
        if rows > full:
            exact(full, rows - full)
    else:
        b.for_(0, rows, height, clamped)
