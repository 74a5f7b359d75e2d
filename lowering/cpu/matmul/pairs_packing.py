# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Copies of the operands of a product of bf16 in scratch: rows of the lhs, and the rhs in pairs along k."""

from torch_mlir import ir
from torch_mlir.dialects import vector

from kiln.lowering.cpu.builder import Index
from kiln.lowering.cpu.contraction import pack
from kiln.lowering.cpu.contraction.bf16 import LANES, as_integers, from_memory, interleave
from kiln.lowering.cpu.matmul.panels import Panels

__all__ = ["PairsInScratch"]


class PairsInScratch(Panels):
    """Blocks with areas of scratch for both operands: `lhs` of bf16, `rhs` of pairs as i32 (see `pairs_layout`)."""

    lhs: ir.Value
    rhs: ir.Value

    def pack_lhs(self, lhs: Index, rows: Index, depth: Index) -> None:
        """Copies the lhs block to scratch, row by row."""
        b, stride = self.b, self.layout["lhs_stride"]
        strides = (self.lhs_row, self.lhs_k)

        def one(i: Index, k: Index) -> None:
            x = b.load(self.operands.lhs, b.sum_(lhs, b.muli(i, strides[0]), b.muli(k, strides[1])))
            b.store(x, self.lhs, b.addi(b.muli(i, stride), k))

        if isinstance(self.lhs_row, int) and self.lhs_row == 1:
            self.turn_lhs(lhs, rows, depth)
        else:
            b.for_(0, rows, 1, lambda i: b.for_(0, depth, 1, lambda k: one(i, k)))

    def turn_lhs(self, lhs: Index, rows: Index, depth: Index) -> None:
        """A lhs with unit stride along m: 16 steps of k by 16 rows at a time, transposed in registers as f32."""
        b, stride = self.b, self.layout["lhs_stride"]

        def strip(i: Index) -> None:
            here = b.subi(rows, i)
            mask = b.mask_below(b.mini(here, LANES), LANES)

            def columns(k: Index) -> None:
                last = b.subi(depth, 1)
                at = [b.sum_(lhs, i, b.muli(b.mini(b.addi(k, q), last), self.lhs_k)) for q in range(LANES)]
                block = [b.cast_float(b.vload(self.operands.lhs, x, LANES, mask), b.f32) for x in at]
                for r, x in enumerate(pack.transpose_registers(b, block)):
                    place = b.addi(b.muli(b.addi(i, r), stride), k)

                    def keep(x: ir.Value = x, place: Index = place) -> None:
                        b.vstore(b.cast_float(x, ir.BF16Type.get()), self.lhs, place)

                    b.if_(b.cmpi("slt", r, here), keep)

            b.for_(0, depth, LANES, columns)

        b.for_(0, rows, LANES, strip)

    def pack_rhs(self, rhs: Index, cols: Index, depth: Index) -> None:
        """Packs the rhs block as [cols / nr][k / 2][nr] pairs."""
        self.pack_panels(rhs, cols, depth, self.layout["kc"] // 2, LANES)

    def interleaved(self, source: Index, target: Index, cols: Index, depth: Index) -> None:
        """16 columns with unit stride along n."""
        b = self.b

        def rows(mask: ir.Value | None) -> None:
            def pair(k: Index, odd: bool) -> None:
                at = b.addi(source, b.muli(k, self.rhs_k))
                x = self.load(at, mask)
                y = b.zero(x.type) if odd else self.load(b.addi(at, self.rhs_k), mask)
                self.store_pairs(interleave(b, x, y), b.addi(target, b.muli(b.divi(k, 2), self.nr)))

            even = b.round_down(depth, 2)
            b.for_(0, even, 2, lambda k: pair(k, False))
            b.if_(b.cmpi("ne", even, depth), lambda: pair(even, True))

        b.if_(b.cmpi("eq", cols, LANES), lambda: rows(None), lambda: rows(b.mask_below(cols, LANES)))

    def turned(self, source: Index, target: Index, cols: Index, depth: Index) -> None:
        """16 columns with unit stride along k: 16 vectors of 16 pairs, transposed in registers."""
        b = self.b
        last = b.subi(cols, 1)
        starts = [b.addi(source, b.muli(b.mini(i, last), self.rhs_col)) for i in range(LANES)]
        full = b.round_down(depth, 2 * LANES)
        tail = b.subi(depth, full)

        def rows(k: Index, mask: ir.Value | None = None) -> None:
            loaded = [as_integers(b, self.load(b.addi(s, k), mask, 2 * LANES)) for s in starts]
            at = b.addi(target, b.muli(b.divi(k, 2), self.nr))
            for q, x in enumerate(pack.transpose_registers(b, loaded)):
                b.vstore(x, self.rhs, b.addi(at, q * self.nr))

        b.for_(0, full, 2 * LANES, rows)
        b.if_(b.cmpi("sgt", tail, 0), lambda: rows(full, b.tail_mask(tail, 2 * LANES)))

    def gathered(self, source: Index, target: Index, cols: Index, depth: Index) -> None:
        """16 columns of any strides, element by element."""
        b, element = self.b, ir.BF16Type.get()
        last = b.subi(cols, 1)
        zero = b.zero(element)
        starts = [b.addi(source, b.muli(b.mini(i, last), self.rhs_col)) for i in range(LANES)]

        def pair(k: Index) -> None:
            inside = b.cmpi("slt", b.addi(k, 1), depth)
            next_k = b.addi(k, 1)
            lanes = []
            for s in starts:
                x = self.one(b.addi(s, b.muli(k, self.rhs_k)))
                at = b.addi(s, b.muli(next_k, self.rhs_k))
                lanes += [x, *b.if_(inside, lambda a=at: [self.one(a)], lambda: [zero], [element])]
            value = vector.from_elements(b.vec(2 * LANES, element), lanes)
            self.store_pairs(value, b.addi(target, b.muli(b.divi(k, 2), self.nr)))

        b.for_(0, depth, 2, pair)

    def load(self, at: Index, mask: ir.Value | None, lanes: int = LANES) -> ir.Value:
        """Neighbours in the rhs as bf16."""
        return from_memory(self.b, self.b.vload(self.operands.rhs, at, lanes, mask))

    def one(self, at: Index) -> ir.Value:
        """An element of the rhs as bf16."""
        return self.b.cast_float(self.b.load(self.operands.rhs, at), ir.BF16Type.get())

    def store_pairs(self, x: ir.Value, at: Index) -> None:
        """Store a vector of bf16 pairs as i32 at an element offset of the packed panel."""
        self.b.vstore(as_integers(self.b, x), self.rhs, at)
