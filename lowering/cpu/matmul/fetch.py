# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Fetching the rhs that is wanted next into the second-level cache, while register tiles are multiplied.

A rhs that comes from memory is read by the first row of tiles alone, faster than memory gives it; the tiles after it
find it in a near cache. So each tile fetches its share of the columns, or the piece of k, behind its own ("fetch" in
schedules).
"""

from collections.abc import Callable
from typing import Protocol

from torch_mlir import ir

from kiln.dialects.schedules.cpu import PanelSchedule
from kiln.lowering.cpu.builder import Builder, Index
from kiln.lowering.cpu.contraction.sizes import LINE
from kiln.lowering.cpu.matmul.problem import Buffers

__all__ = ["Fetch", "next_lines", "steps_of_line"]

Fetch = Callable[[Index, Index], None]
"""Fetches the part of a tile, by its number among those of its columns, that goes with the steps of k from one on."""


class Tiles(Protocol):
    """What is asked of the walk over blocks (blocks.py)."""

    b: Builder
    s: PanelSchedule
    operands: Buffers
    mr: int
    nr: int
    rhs_k: Index
    rhs_col: Index
    next: Index


def steps_of_line(buffer: ir.Value) -> int:
    """Elements of a cache line: the steps of k for which a tile calls `Fetch` once."""
    return LINE * 8 // ir.MemRefType(buffer.type).element_type.width


def next_lines(blocks: Tiles, j: Index, right: Index, cols: Index) -> Fetch:
    """What the tiles of columns j ... fetch of the rhs that is wanted next, while they multiply: each its share of
    the cache lines, at each run of `steps_of_line` steps of k those of the same steps. `right`: where the rhs of these
    columns begins, if it lies in panels.
    """
    b, nr, rhs = blocks.b, blocks.nr, blocks.operands.rhs
    run = steps_of_line(rhs)
    tiles = max(1, -(-blocks.s.mc // blocks.mr))

    def lines(count: int, at: Callable[[Index], Index]) -> Callable[[Index], None]:
        """Fetches the share of tile `number` of `count` lines (or columns, or rows); at: where the n-th begins."""
        share = -(-count // tiles)

        def fetch(number: Index) -> None:
            for e in range(share):
                b.prefetch(rhs, at(b.addi(b.muli(number, share), e)), locality=2)

        return fetch

    if blocks.s.packed:  # the next panel, line by line
        after = b.addi(j, nr)
        inside = b.cmpi("slt", after, cols)
        panel = b.select_index(inside, b.addi(right, b.muli(nr, blocks.rhs_col)), blocks.next)

        def of_panel(number: Index, k: Index) -> None:
            start = b.addi(panel, b.muli(k, nr))
            lines(nr, lambda n: b.addi(start, b.muli(n, run)))(number)

        return of_panel
    if isinstance(blocks.rhs_col, int) and blocks.rhs_col == 1:
        first = b.addi(blocks.next, j)

        def of_rows(number: Index, k: Index) -> None:
            for column in range(0, nr, run):
                start = b.sum_(first, b.muli(k, blocks.rhs_k), column)
                lines(run, lambda n, start=start: b.addi(start, b.muli(n, blocks.rhs_k)))(number)

        return of_rows
    first = b.addi(blocks.next, b.muli(j, blocks.rhs_col))

    def of_columns(number: Index, k: Index) -> None:
        start = b.addi(first, b.muli(k, blocks.rhs_k))
        lines(nr, lambda n: b.addi(start, b.muli(n, blocks.rhs_col)))(number)

    return of_columns
