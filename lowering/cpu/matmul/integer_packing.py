# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Rows of the lhs of a product of 8-bit integers: copies in scratch, and what they have too much."""

from collections.abc import Sequence

from torch_mlir import ir
from torch_mlir.dialects import arith

from kiln.lowering.cpu.builder import Index
from kiln.lowering.cpu.contraction.integers import OFFSET, IntegerUnit
from kiln.lowering.cpu.contraction.rows import Rows
from kiln.lowering.cpu.matmul.panels import Panels

__all__ = ["IntegersInScratch"]


class IntegersInScratch(Panels):
    """Blocks with areas of scratch for both operands, and for what the rows of the lhs have too much (`rows`): see
    `integers_layout`.
    """

    shifted: bool
    integers: IntegerUnit
    group: int
    step: int
    lhs: ir.Value
    rhs: ir.Value
    rows: ir.Value

    def pack_lhs(self, lhs: Index, rows: Index, depth: Index) -> None:
        """Copies the lhs block, and keeps what its rows have too much where the rhs is shifted."""
        b, stride = self.b, self.layout["lhs_stride"]
        kind = ir.MemRefType(self.lhs.type).element_type
        full = b.round_down(depth, self.step)
        tail = b.subi(depth, full)

        def store(x: ir.Value, at: Index) -> None:
            b.vstore(x if x.type.element_type == kind else arith.extsi(b.vec(self.step, kind), x), self.lhs, at)

        def row(i: Index) -> None:
            source, target = b.addi(lhs, b.muli(i, self.lhs_row)), b.muli(i, stride)

            def lanes(k: Index, mask: ir.Value | None) -> ir.Value:
                at = b.addi(source, b.muli(k, self.lhs_k))
                return b.gather(self.operands.lhs, at, self.lhs_k, self.step, mask)

            def copy(k: Index, acc: Sequence[ir.Value], mask: ir.Value | None = None) -> list[ir.Value]:
                x = lanes(k, mask)
                store(x, b.addi(target, k))
                return (
                    [self.integers.multiply_accumulate(b, acc[0], x, self.integers.ones(b))]
                    if self.shifted
                    else list(acc)
                )

            total = b.for_(0, full, self.step, copy, [b.zero(self.vector)])
            before = list(total)
            total = b.if_(
                b.cmpi("sgt", tail, 0),
                lambda: copy(full, before, b.tail_mask(tail, self.step)),
                lambda: before,
                [self.vector],
            )
            if self.shifted:
                self.keep_row_sum(total[0], i)

        b.for_(0, rows, 1, row)

    def keep_row_sums(self, left: Rows, rows: Index, depth: Index) -> None:
        """Keeps what rows of a lhs in place have too much; several at once, since a sum waits for the one before."""
        b, unit = self.b, self.integers
        full = b.round_down(depth, self.step)
        tail = b.subi(depth, full)

        def some(i: Index, starts: list[Index]) -> None:
            def add(k: Index, acc: Sequence[ir.Value], mask: ir.Value | None = None) -> list[ir.Value]:
                rows = [b.vload(left.buffer, b.addi(start, k), self.step, mask) for start in starts]
                return [unit.multiply_accumulate(b, y, x, unit.ones(b)) for y, x in zip(acc, rows, strict=True)]

            before = b.for_(0, full, self.step, add, [b.zero(self.vector)] * len(starts))
            mask = b.tail_mask(tail, self.step)
            some_left = b.cmpi("sgt", tail, 0)
            totals = b.if_(some_left, lambda: add(full, before, mask), lambda: before, [self.vector] * len(starts))
            for r, total in enumerate(totals):
                self.keep_row_sum(total, b.addi(i, r))

        left.tiles(b, rows, self.mr, some)

    def keep_row_sum(self, total: ir.Value, i: Index) -> None:
        """Keeps what row i has too much, of the sums of its steps of k."""
        b = self.b
        b.store(arith.muli(b.reduce("add", total), b.int_(-OFFSET, b.i32)), self.rows, i)
