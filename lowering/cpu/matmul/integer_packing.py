# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Copies of the operands of a product of 8-bit integers in scratch: rows of the lhs, and the rhs in groups along k."""

from collections.abc import Sequence

from torch_mlir import ir
from torch_mlir.dialects import arith, vector

from kiln.lowering.cpu.builder import Index
from kiln.lowering.cpu.contraction import pack
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

    def place(self, target: Index, k: Index) -> Index:
        """Where the group of step k (a multiple of `group`) lies, for the columns that begin at `target`."""
        return self.b.addi(target, self.b.muli(k, self.nr))

    def turned(self, source: Index, target: Index, cols: Index, depth: Index) -> None:
        """Columns with unit stride along k: as vectors of four steps of k each, transposed in registers."""
        b, width = self.b, self.width
        last = b.subi(cols, 1)
        starts = [b.addi(source, b.muli(b.mini(i, last), self.rhs_col)) for i in range(width)]
        quads = 4 * width
        full = b.round_down(depth, quads)
        tail = b.subi(depth, full)
        bytes_ = b.vec(quads, b.i8)

        def rows(k: Index, mask: ir.Value | None = None) -> None:
            loaded = [
                vector.bitcast(self.vector, b.vload(self.operands.rhs, b.addi(s, k), quads, mask)) for s in starts
            ]
            for q, x in enumerate(pack.transpose_registers(b, loaded)):
                x = vector.bitcast(bytes_, x)
                if self.group == 4:
                    b.vstore(x, self.rhs, self.place(target, b.addi(k, 4 * q)))
                    continue
                for half in range(2):
                    lanes = [4 * c + 2 * half + e for c in range(width) for e in range(2)]
                    b.vstore(b.shuffle(x, x, lanes), self.rhs, self.place(target, b.addi(k, 4 * q + 2 * half)))

        b.for_(0, full, quads, rows)
        b.if_(b.cmpi("sgt", tail, 0), lambda: rows(full, b.tail_mask(tail, quads)))

    def interleaved(self, source: Index, target: Index, cols: Index, depth: Index) -> None:
        """Columns with unit stride along n: the rows of a group, lane by lane."""
        b, width = self.b, self.width
        last = b.subi(depth, 1)

        def groups(mask: ir.Value | None) -> None:
            def one(k: Index) -> None:
                # Rows past the last one repeat it: they meet zeros.
                at = [b.addi(source, b.muli(b.mini(b.addi(k, e), last), self.rhs_k)) for e in range(self.group)]
                x = [b.vload(self.operands.rhs, start, width, mask) for start in at]
                while len(x) > 1:
                    half, size = len(x) // 2, self.group // len(x)
                    lanes = [
                        side * width * size + c * size + e
                        for c in range(width)
                        for side in range(2)
                        for e in range(size)
                    ]
                    x = [b.shuffle(x[2 * i], x[2 * i + 1], lanes) for i in range(half)]
                b.vstore(x[0], self.rhs, self.place(target, k))

            b.for_(0, depth, self.group, one)

        b.if_(b.cmpi("eq", cols, width), lambda: groups(None), lambda: groups(b.mask_below(cols, width)))

    def gathered(self, source: Index, target: Index, cols: Index, depth: Index) -> None:
        """Columns of any strides, element by element."""
        b, group = self.b, self.group

        def one(k: Index, c: Index) -> None:
            x = b.load(self.operands.rhs, b.sum_(source, b.muli(k, self.rhs_k), b.muli(c, self.rhs_col)))
            at = self.place(target, b.muli(b.divi(k, group), group))
            b.store(x, self.rhs, b.sum_(at, b.muli(c, group), b.remi(k, group)))

        b.for_(0, depth, 1, lambda k: b.for_(0, cols, 1, lambda c: one(k, c)))
