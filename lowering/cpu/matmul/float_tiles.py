# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Matmul of f32 in three parts of bf16, by tiles of AMX.

The input in parts stays in the second-level cache, strips of 32 columns of the rhs are split some steps of k at a time,
meet all rows, and are forgotten. Sums of 32 steps of k are added to f32 at once, so that the error is less than that of
a chain of f32 additions. Where an operand has an infinity, no number at all, or one below 2^-100, a block is the
library's.
"""

from torch_mlir.dialects import arith
from typing_extensions import override

from kiln.lowering.cpu.builder import Index
from kiln.lowering.cpu.contraction import Place
from kiln.lowering.cpu.contraction.parts import FloatWords, Range
from kiln.lowering.cpu.contraction.words import Lines, Words
from kiln.lowering.cpu.matmul.tiles import Tiles
from kiln.lowering.cpu.matmul.vendor import call_gemm

__all__ = ["FloatTiles"]


class FloatTiles(Tiles):
    """The kernel for f32 in parts, which watches what it splits."""

    @override
    def words(self, lines: Lines, side: str) -> Words:
        return FloatWords(self.b, lines, self.unit, Range(self.b, self.ctx.scratch, self.at(f"{side}_range")))

    @override
    def mend(self, batch: list[Index], origin: tuple[Index, Index], size: tuple[Index, Index], sums: Place) -> None:
        b = self.b

        def by_library() -> None:
            call_gemm(b, self.problem, self.operands, batch, origin, size, sums)
            self.unit.begin(b)  # what the library does with tiles is its own matter

        b.if_(arith.ori(*(side.seen.is_beyond() for side in (self.left, self.right) if side.seen)), by_library)
