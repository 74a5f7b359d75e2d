# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Which memory the operands of a fusion are in, and which of it dies there."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from torch_mlir import ir

from kiln.lowering.tile.overwrite import Overwriting

__all__ = ["OperandMemory"]


@dataclass
class OperandMemory:
    """Memory that a fusion reads, and which of it dies there. Sets of operands are numbers: operand i is bit i.

    roots: of each tensor operand. operands: those in each piece of memory. dying, first_dying: those in what dies, and
    the first one of each such piece.
    """

    roots: list[ir.Value | None]
    operands: dict[ir.Value, int]
    dying: int = 0
    first_dying: int = 0
    unmoved: int | None = None
    overwriting: Overwriting | None = None

    @classmethod
    def of(cls, roots: list[ir.Value | None], dying: Iterable[ir.Value]) -> "OperandMemory":
        """What is read from these roots, of which some die."""
        operands: dict[ir.Value, int] = {}
        for i, root in enumerate(roots):
            if root is not None:
                operands[root] = operands.get(root, 0) | 1 << i
        found = cls(roots, operands)
        for root in dying:
            found.dying |= operands[root]
            found.first_dying |= operands[root] & -operands[root]
        return found

    def remove(self, root: ir.Value) -> None:
        """Note that a piece is taken."""
        kept = ~self.operands.get(root, 0)
        self.dying, self.first_dying = self.dying & kept, self.first_dying & kept

    def candidates(self, allowed: int, target: ir.Value | None) -> Iterator[tuple[ir.Value, list[int]]]:
        """Pieces that a result may be written to, with the operands in each: `target`, then what dies, in order."""
        if target is not None:
            mine = self.operands.get(target, 0)
            if mine & allowed == mine:
                yield target, _bits(mine)
        left = self.dying & allowed
        while left:
            root = self.roots[(left & -left).bit_length() - 1]
            assert root is not None
            mine = self.operands[root]
            left &= ~mine
            if mine & allowed == mine:
                yield root, _bits(mine)

    def once_unmoved(self, is_unmoved: Callable[[int], bool]) -> int:
        """The operands that start where their memory does, asked once."""
        if self.unmoved is None:
            self.unmoved = sum(1 << i for i in range(len(self.roots)) if is_unmoved(i))
        return self.unmoved


def _bits(number: int) -> list[int]:
    """Positions of the bits that are 1, in order."""
    found: list[int] = []
    while number:
        found.append((number & -number).bit_length() - 1)
        number &= number - 1
    return found
