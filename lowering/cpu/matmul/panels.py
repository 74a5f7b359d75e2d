# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Copies of the rhs in scratch, in panels of `nr` columns with groups of steps of k next to each other."""

from torch_mlir import ir

from kiln.lowering.cpu.builder import Index
from kiln.lowering.cpu.contraction.words import Lines, Words, pack
from kiln.lowering.cpu.matmul.blocks import Blocks

__all__ = ["Panels"]


class Panels(Blocks):
    """Blocks that pack their rhs into words of `unit.group` steps of k."""

    rhs_words: ir.Value
    """The area of the packed rhs, as words."""

    def pack_panels(self, rhs: Index, cols: Index, depth: Index, column: int) -> None:
        """Packs the rhs block: words [cols / nr][k / group][nr]. column: words of scratch for a column of a panel."""
        b, nr = self.b, self.nr
        words = Words(b, Lines(self.operands.rhs, self.rhs_col, self.rhs_k), self.unit)

        def place(_: int, j: Index) -> tuple[ir.Value, Index]:
            inside = b.remi(j, nr)
            return self.rhs_words, b.addi(b.muli(b.subi(j, inside), column), inside)

        pack(words, rhs, cols, depth, place, nr, turned=True)
