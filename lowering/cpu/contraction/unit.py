# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""`MatrixUnit`: instructions that multiply tiles, as data and four methods.

A unit adds to a tile of sums [rows, columns] the product of a left tile [rows, depth] and a right one [depth, columns].
`group` steps of k lie next to each other in memory, in the left tile (row-major) and in the right one, whose rows hold
`columns` such groups ("VNNI order": [depth / group, columns, group]).

To add a unit: derive a class, give it the four methods, and make an instance, in one file of this package.
"""

from dataclasses import dataclass
from typing import NamedTuple

from torch_mlir import ir

from kiln.lowering.cpu.builder import Builder, Index

__all__ = ["MatrixUnit", "Place", "Tile"]


class Place(NamedTuple):
    """Where a tile, or another matrix with neighbouring columns, lies.

    buffer: a 1-D memref. at: the element with which its first row begins. stride: elements from row to row.
    mask: lanes of a vector that are there, None for all. missing: steps of k at its end that are not there.
    """

    buffer: ir.Value
    at: Index
    stride: Index = 0
    mask: ir.Value | None = None
    missing: Index = 0

    def block(self, b: Builder, row: Index, column: Index) -> "Place":
        """The part of a matrix from an element on."""
        return self._replace(at=b.sum_(self.at, b.muli(row, self.stride), column))


_BITS = {"f64": 64, "f32": 32, "bf16": 16, "i8": 8}

Tile = int | ir.Value
"""A tile in registers: the number of a register that instructions change, or a value that loops carry."""


@dataclass(frozen=True, kw_only=True)
class MatrixUnit:
    """Instructions that multiply tiles.

    operands, sums: element types in memory and of the sums ("bf16", "i8", "f32", "i32").
    rows, columns: of a tile of sums. depth: steps of k of an instruction. group: of these, neighbours in memory.
    registers: that hold tiles.
    terms: which parts of both operands are multiplied at each step of k, left and right, in an order in which little
    changes from one to the next. An operand that is no sum of parts has one.
    """

    operands: str
    sums: str
    rows: int
    columns: int
    depth: int
    group: int
    registers: int
    terms: tuple[tuple[int, int], ...] = ((0, 0),)

    def begin(self, b: Builder) -> None:
        """Emitted before the first tile of a kernel, and behind calls of other functions."""

    def end(self, b: Builder) -> None:
        """Emitted behind the last tile of a kernel."""

    @property
    def is_numbered(self) -> bool:
        """Whether tiles are registers by number, not values that loops carry."""
        return True

    def zero(self, b: Builder, register: int) -> Tile:
        """A tile of sums that are zero."""
        raise NotImplementedError

    def load(self, b: Builder, register: int, place: Place, side: str) -> Tile:
        """The tile at a place; side: "sums", "left" or "right"."""
        raise NotImplementedError

    def multiply_accumulate(self, b: Builder, sums: Tile, left: Tile, right: Tile) -> Tile:
        """The sums and the product of two tiles. A unit with numbered registers changes that of the sums."""
        raise NotImplementedError

    def bits(self, side: str) -> int:
        """Of an element of an operand ("left" or "right") in scratch memory."""
        return _BITS[self.operands] if self.terms == ((0, 0),) else 16

    def store(self, b: Builder, tile: Tile, place: Place) -> None:
        """Writes a tile of sums."""
        raise NotImplementedError
