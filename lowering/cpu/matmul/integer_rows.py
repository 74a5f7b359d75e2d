# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""The rows of the lhs of a product of 8-bit integers, read where they lie: groups of steps of k, and sums of rows."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from torch_mlir import ir
from torch_mlir.dialects import arith, vector

from kiln.lowering.cpu.builder import Builder, Index
from kiln.lowering.cpu.matmul.integers import OFFSET, Units

__all__ = ["RowsInPlace"]


@dataclass(frozen=True)
class RowsInPlace:
    """Rows of i8 with unit stride, `stride` apart, of a group of steps of k at least."""

    b: Builder
    buffer: ir.Value
    stride: Index
    units: Units

    def tiles(self, rows: Index, height: int, body: Callable[[Index, list[Index]], None]) -> None:
        """`body(i, numbers of the rows)` for tiles of `height` rows; the last one is lower where `rows` is known, else
        its last row is there several times."""
        b = self.b
        if isinstance(rows, int):
            full = rows // height * height
            b.for_(0, full, height, lambda i: body(i, [b.addi(i, r) for r in range(height)]))
            if rows > full:
                body(full, list(range(full, rows)))
            return
        last = b.subi(rows, 1)
        b.for_(0, rows, height, lambda i: body(i, [b.mini(b.addi(i, r), last) for r in range(height)]))

    def starts(self, lhs: Index, numbers: Sequence[Index]) -> list[Index]:
        """Where the rows begin, in a block that begins at `lhs`."""
        return [self.b.addi(lhs, self.b.muli(x, self.stride)) for x in numbers]

    def group(self, start: Index, k: Index) -> ir.Value:
        """The steps of k from one on that make a group, as an i32."""
        b = self.b
        steps = b.vload(self.buffer, b.addi(start, k), self.units.group)
        return b.extract(vector.bitcast(b.vec(1, b.i32), steps), 0)

    def last_group(self, start: Index, depth: Index, count: Index) -> ir.Value:
        """The last `count` of `depth` steps of k, and zeros up to a group: nothing behind the row is read."""
        b, group = self.b, self.units.group
        bits = b.muli(b.subi(group, count), 8)
        by = b.int_(bits, b.i32) if isinstance(bits, int) else arith.index_cast(b.i32, bits)
        return arith.shrui(self.group(start, b.subi(depth, group)), by)

    def keep_sums(self, lhs: Index, rows: Index, depth: Index, height: int, to: ir.Value) -> None:
        """Writes what the rows have too much where the rhs is shifted: -OFFSET times their sums. Several rows at once,
        since a sum waits for the one before."""
        b, units = self.b, self.units
        step = units.width * units.group
        full = b.round_down(depth, step)
        tail = b.subi(depth, full)
        ones, zero = b.int_(1, b.vec(step, b.i8)), b.zero(b.vec(units.width, b.i32))

        def some(i: Index, numbers: list[Index]) -> None:
            starts = self.starts(lhs, numbers)

            def add(k: Index, acc: Sequence[ir.Value], mask: ir.Value | None = None) -> list[ir.Value]:
                rows = [b.vload(self.buffer, b.addi(start, k), step, mask) for start in starts]
                return [units.add(b, total, ones, x) for total, x in zip(acc, rows, strict=True)]

            before = b.for_(0, full, step, add, [zero] * len(starts))
            mask = b.tail_mask(tail, step)
            some_left = b.cmpi("sgt", tail, 0)
            totals = b.if_(some_left, lambda: add(full, before, mask), lambda: before, [zero.type] * len(starts))
            for r, total in enumerate(totals):
                b.store(arith.muli(b.reduce("add", total), b.int_(-OFFSET, b.i32)), to, b.addi(i, r))

        self.tiles(rows, height, some)
