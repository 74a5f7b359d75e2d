# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Attention of bf16 in pairs (AVX512-BF16): scores pair elements of the head, sums of values pair keys.

Queries, transposed keys and values lie in scratch as bf16, two rows of the latter interleaved. Exponentials are rounded
to bf16 for the product with the values, as PyTorch's kernel rounds them; maximum, sum and output are f32.
"""

from typing import Any

from torch_mlir import ir
from typing_extensions import override

from kiln.lowering.cpu.attention.flash import Attention
from kiln.lowering.cpu.attention.loading import unit
from kiln.lowering.cpu.attention.problem import AttentionProblem
from kiln.lowering.cpu.builder import Index
from kiln.lowering.cpu.contraction import Place
from kiln.lowering.cpu.contraction.bf16 import narrow
from kiln.lowering.cpu.contraction.vectors import float_unit
from kiln.lowering.cpu.contraction.words import Lines, Words, pack
from kiln.lowering.cpu.matmul.problem import Size, known

__all__ = ["PairedAttention"]


class PairedAttention(Attention):
    """The kernel with operands in bf16. Its areas of scratch are those of f32, half used."""

    p: AttentionProblem

    def __init__(self, *arguments: Any, **keywords: Any):
        super().__init__(*arguments, **keywords)
        b, count = self.b, self.lay["elements"]
        self.bf16 = ir.BF16Type.get()
        self.halves = b.view(self.ctx.scratch, self.ctx.scratch_offset, 2 * count, self.bf16)
        self.pairs = b.view(self.ctx.scratch, self.ctx.scratch_offset, count, b.i32)
        self.words, self.per = self.halves, 2
        self.unit = float_unit("f32", self.width, pairs=True)
        self.along_head = float_unit("f32", self.width, pairs=True, along_k=True)
        self.v_in_place = False

    # -- packing -----------------------------------------------------------------------------------

    def rows16(self, source: ir.Value, at: Index, strides: tuple[Size, ...], j: int, cols: int, lanes: int) -> ir.Value:
        """Columns j ... of the row at `at`; zeros past the last one."""
        b, column = self.b, known(strides[-1])
        mask = b.mask_below(cols - j, lanes)
        return b.gather(source, b.addi(at, b.muli(column, j)), column, lanes, mask)

    @override
    def load_queries(self, at: Index, rows: Index, padded: Index) -> None:
        b, lay, p = self.b, self.lay, self.p
        row, lanes = known(p.q_strides[-2]), 2 * self.width

        def copy(i: Index) -> None:
            first = b.addi(at, b.muli(b.mini(i, b.subi(rows, 1)), row))
            for j in range(0, p.qk_size, lanes):
                x = self.rows16(self.operands.q, first, p.q_strides, j, p.qk_size, lanes)
                b.vstore(x, self.halves, b.sum_(2 * lay["q"], b.muli(i, self.q_row), j))

        b.for_(0, padded, 1, copy)

    @property
    @override
    def q_row(self) -> int:
        """Stride of a query in scratch: whole vectors of 32, and a line more."""
        return -(-self.p.qk_size // (2 * self.width)) * 2 * self.width + 2 * self.width

    def load_keys(self, first: Index, count: Index) -> None:
        """Pairs of the elements of a head, a row of all keys for each."""
        b, p, keys = self.b, self.p, self.lay["keys"]
        words = Words(b, Lines(self.operands.k, known(p.k_strides[-2]), known(p.k_strides[-1])), self.unit)
        pack(words, first, count, p.qk_size, lambda _, i: (self.pairs, b.addi(i, self.lay["k"])), keys, turned=True)

    @override
    def load_values(self, first: Index, count: Index) -> tuple[ir.Value, Index, Index]:
        """Pairs of keys, a row of all elements of a value for each."""
        b, p, lay = self.b, self.p, self.lay
        row = known(p.v_strides[-2])
        if self.dot_scores and unit(p.v_strides):
            return self.operands.v, first, row
        words = Words(b, Lines(self.operands.v, known(p.v_strides[-1]), row), self.unit)
        size, start = lay["v_padded"], lay["v"]
        pack(words, first, p.v_size, count, lambda _, j: (self.pairs, b.addi(j, start)), size, turned=True)
        return self.pairs, lay["v"], lay["v_padded"]

    # -- products ----------------------------------------------------------------------------------

    def keep_powers(self, powers: list[ir.Value], at: Index) -> None:
        """Over the first half of the row's scores, which have been read."""
        b = self.b
        for n, x in enumerate(powers):
            b.vstore(narrow(b, x), self.halves, b.addi(b.muli(at, 2), n * self.width))

    @override
    def value_products(
        self, values: tuple[ir.Value, Index, Index], j: Index, count: Index, acc: list[ir.Value], vectors: int
    ) -> list[Any]:
        b, p = self.b, self.p
        buffer, start, row = values
        if buffer != self.operands.v:
            return super().value_products((self.halves, b.muli(b.addi(start, j), 2), row), 0, count, acc, vectors)
        last = b.subi(count, 1)

        def rows(_: int, v: int, k: Index) -> Place:
            column = b.addi(j, v * self.width)
            whole = p.v_size % self.width == 0
            mask = None if whole else b.mask_below(b.subi(p.v_size, column), self.width)
            # The key behind an odd last one is that one again; its exponential is 0.
            at, other = (b.sum_(start, b.muli(key, row), column) for key in (k, b.mini(b.addi(k, 1), last)))
            return Place(buffer, at, b.subi(other, at), mask)

        left = [2 * (self.lay["p"] + r * self.lay["p_stride"]) for r in range(self.mr)]
        unit = float_unit("f32", self.width, pairs=True, in_rows=True)
        return self.products(unit, left, rows, count, acc)
