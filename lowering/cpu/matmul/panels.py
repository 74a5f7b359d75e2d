# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Copies of the rhs in scratch, in panels of `nr` columns with groups of steps of k next to each other."""

from kiln.lowering.cpu.builder import Index
from kiln.lowering.cpu.matmul.blocks import Blocks

__all__ = ["Panels"]


class Panels(Blocks):
    """Blocks that pack their rhs, one vector of columns after the other, in the way that its strides allow."""

    def pack_panels(self, rhs: Index, cols: Index, depth: Index, column: int, step: int) -> None:
        """Packs the rhs block; columns past the last one get zeros, or repeat it.

        column: elements of scratch for each column of a panel; step: from one vector of columns to the next.
        """
        b = self.b
        if isinstance(self.rhs_col, int) and self.rhs_col == 1:
            pack = self.interleaved
        else:
            pack = self.turned if isinstance(self.rhs_k, int) and self.rhs_k == 1 else self.gathered

        def panel(j: Index) -> None:
            here = b.mini(b.subi(cols, j), self.nr)

            def strip(first: Index) -> None:  # a loop: code to pack a vector of columns is long
                source = b.addi(rhs, b.muli(b.addi(j, first), self.rhs_col))
                target = b.addi(b.muli(j, column), b.muli(b.divi(first, self.width), step))
                pack(source, target, b.mini(b.subi(here, first), self.width), depth)

            b.for_(0, here, self.width, strip)

        b.for_(0, cols, self.nr, panel)

    def interleaved(self, source: Index, target: Index, cols: Index, depth: Index) -> None:
        """Up to a vector of columns, with unit stride along n."""
        raise NotImplementedError

    def turned(self, source: Index, target: Index, cols: Index, depth: Index) -> None:
        """The same with unit stride along k."""
        raise NotImplementedError

    def gathered(self, source: Index, target: Index, cols: Index, depth: Index) -> None:
        """The same with any strides."""
        raise NotImplementedError
