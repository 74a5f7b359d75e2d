# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Queries, keys and values on their way to scratch, in f32."""

from torch_mlir import ir

from kiln.lowering.cpu.attention.problem import AttentionBuffers, AttentionProblem
from kiln.lowering.cpu.builder import Builder, Index
from kiln.lowering.cpu.contraction import pack
from kiln.lowering.cpu.matmul.problem import Size, known

__all__ = ["Loading", "unit"]


def unit(strides: tuple[Size, ...]) -> bool:
    """Whether neighbours along the last dim are neighbours in memory."""
    return isinstance(strides[-1], int) and strides[-1] == 1


class Loading:
    """The part of an attention kernel that copies its operands (see `flash.Attention`)."""

    b: Builder
    p: AttentionProblem
    operands: AttentionBuffers
    lay: dict[str, int]
    width: int
    scratch: ir.Value
    v_in_place: bool

    def store(self, x: ir.Value, at: Index) -> None:
        """A vector to scratch."""
        self.b.vstore(x, self.scratch, at)

    def load_queries(self, at: Index, rows: Index, padded: Index) -> None:
        """The block's queries to scratch; rows up to `padded` repeat the last one."""
        p, lay = self.p, self.lay
        self.copy_rows(self.operands.q, at, p.q_strides, lay["q"], lay["q_stride"], rows, padded, p.qk_size)

    def load_keys(self, first: Index, count: Index) -> None:
        """The block's keys to scratch, transposed: one row for each element of the head."""
        b, p, lay = self.b, self.p, self.lay
        row = known(p.k_strides[-2])

        def strip(j: Index) -> None:
            source = (self.operands.k, b.addi(first, b.muli(j, row)), row)
            target = (self.scratch, b.addi(lay["k"], j), lay["keys"])
            if unit(p.k_strides):
                pack.pack_transposed(b, *source, *target, b.subi(count, j), p.qk_size, self.width)
            else:
                self.pack_columns(*source, b.addi(lay["k"], j), b.subi(count, j))

        b.for_(0, count, self.width, strip)

    def load_values(self, first: Index, count: Index) -> tuple[ir.Value, Index, Index]:
        """The block's values, where they are or in scratch: (buffer, offset, stride of a row)."""
        p, lay = self.p, self.lay
        if self.v_in_place:
            return self.operands.v, first, known(p.v_strides[-2])
        self.copy_rows(self.operands.v, first, p.v_strides, lay["v"], lay["v_padded"], count, count, p.v_size)
        return self.scratch, lay["v"], lay["v_padded"]

    def copy_rows(
        self,
        source: ir.Value,
        at: Index,
        strides: tuple[Size, ...],
        target: int,
        target_stride: int,
        rows: Index,
        padded_rows: Index,
        cols: int,
    ) -> None:
        """Rows of an operand to scratch, whatever their stride; see `pack.copy_rows`."""
        b, width, row, column = self.b, self.width, known(strides[-2]), known(strides[-1])
        if unit(strides):
            out = (self.scratch, target, target_stride)
            pack.copy_rows(b, source, at, row, *out, rows, padded_rows, cols, width)
            return

        def copy(i: Index) -> None:
            first = b.addi(at, b.muli(b.mini(i, b.subi(rows, 1)), row))
            for j in range(0, cols, width):
                mask = b.mask_below(cols - j, width)
                x = b.gather(source, b.addi(first, b.muli(column, j)), column, width, mask)
                self.store(b.cast_float(x, b.f32), b.sum_(target, b.muli(i, target_stride), j))

        b.for_(0, padded_rows, 1, copy)

    def pack_columns(self, source: ir.Value, at: Index, row: Index, target: Index, count: Index) -> None:
        """scratch[target + e * keys + lane] = source[at + lane * row + e * column] for lanes below `count`."""
        b, column = self.b, known(self.p.k_strides[-1])
        mask = b.mask_below(b.mini(count, self.width), self.width)

        def element(e: Index) -> None:
            x = b.gather(source, b.addi(at, b.muli(e, column)), row, self.width, mask)
            self.store(b.cast_float(x, b.f32), b.addi(target, b.muli(e, self.lay["keys"])))

        b.for_(0, self.p.qk_size, 1, element)
