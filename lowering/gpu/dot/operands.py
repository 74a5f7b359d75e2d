# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""What the kernels of this folder are asked to do: matrices in memory, positions in a tile, what follows the sums."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from torch_mlir import ir

from kiln.dialects import tt
from kiln.lowering.gpu.builder import Builder, Condition, Index


@dataclass(frozen=True)
class Matrix:
    """A matrix in memory: a pointer to element [0, 0] and the strides of its rows and columns, in elements."""

    pointer: ir.Value
    row_stride: Index
    column_stride: Index

    @property
    def transposed(self) -> "Matrix":
        """The same memory with rows and columns exchanged."""
        return Matrix(self.pointer, self.column_stride, self.row_stride)

    def moved(self, b: Builder, offset: Index) -> "Matrix":
        """The matrix whose element [0, 0] is `offset` elements behind this one's."""
        return Matrix(b.addptr(self.pointer, offset), self.row_stride, self.column_stride)

    def pointers(self, b: Builder, rows: Index, columns: Index) -> ir.Value:
        """Addresses of the elements at rows (a block [R, 1]) and columns (a block [1, C])."""
        found = b.addptr(self.pointer, b.addi(b.muli(rows, self.row_stride), b.muli(columns, self.column_stride)))
        # A stride of 0 leaves out an axis.
        sides = [tt.shape_of(x.type) for x in (rows, columns, found) if isinstance(x, ir.Value)]
        return b.broadcast(found, [max(sizes) for sizes in zip(*(side for side in sides if side), strict=True)])


@dataclass(frozen=True)
class Line:
    """Positions along one axis of a tile: a block of indices [R, 1] or [1, C] (or a scalar), and which of them exist.

    start: the first position. mask: True where all exist.
    """

    start: Index
    index: Index
    mask: Condition

    def clamped(self, b: Builder, size: Index) -> Index:
        """The indices, those past the end replaced by the last: any element may be read where it is not used."""
        return self.index if self.mask is True else b.mini(self.index, b.subi(size, 1))


def line(b: Builder, start: Index, length: int, axis: int, size: Index, tile: int | None = None) -> Line:
    """`length` positions from `start` of an axis of `size`, as axis 0 or 1 of a tile.

    tile: positions of the whole tile, which starts at a multiple of it; `length` unless given. A whole piece of a tile
    may lie past the end, so no mask is needed only where the tile divides the axis.
    """
    index = b.addi(start, b.lanes(length, axis, 2))
    if isinstance(size, int) and size % (tile or length) == 0:
        return Line(start, index, True)
    return Line(start, index, b.cmpi("slt", index, size))


class Epilogue(Protocol):
    """The fused ops after the sums."""

    def apply(self, b: Builder, batch: Sequence[Index], rows: Line, columns: Line, sums: Sequence[ir.Value]) -> None:
        """Store every result of the fusion for one tile [R, C], given the sums of each product; positions that don't
        exist are not touched.
        """
        ...


def apply_in_pieces(
    b: Builder,
    epilogue: Epilogue,
    batch: Sequence[Index],
    rows: Line,
    columns: tuple[Index, Index],
    sums: Sequence[ir.Value],
    pieces: int,
) -> None:
    """The epilogue of a tile in pieces of columns one after another: fewer registers are live at once, and less shared
    memory. columns: where the tile's begin, and how many there are in the result.
    """
    start, size = columns
    tile = tt.shape_of(sums[0].type)[1]
    width = tile // pieces
    for number, piece in enumerate(zip(*(_split(b, total, pieces) for total in sums), strict=True)):
        epilogue.apply(b, batch, rows, line(b, b.addi(start, number * width), width, 1, size, tile), piece)


def _split(b: Builder, sums: ir.Value, pieces: int) -> list[ir.Value]:
    """`pieces` (a power of two) blocks of neighbouring columns."""
    if pieces == 1:
        return [sums]
    rows, columns = tt.shape_of(sums.type)
    halves = b.trans(b.reshape(sums, [rows, 2, columns // 2]), (0, 2, 1))
    type_ = tt.with_shape([rows, columns // 2], tt.element_of(sums.type))
    low, high = tt.SplitOp.create([halves], [type_, type_]).results
    return [*_split(b, low, pieces // 2), *_split(b, high, pieces // 2)]


def tile_position(b: Builder, program: Index, rows: Index, columns: Index, group: int) -> tuple[Index, Index, Index]:
    """(batch, row of tiles, column of tiles) of a program; `rows` and `columns` count tiles.

    Programs that follow each other walk through `group` rows before they go on to the next column, so that those which
    run together share operands in the second-level cache.
    """
    area = b.muli(rows, columns)
    batch, rest = b.divi(program, area), b.remi(program, area)
    if isinstance(rows, int) and rows == 1:
        return batch, 0, rest
    if isinstance(columns, int) and columns == 1:
        return batch, rest, 0
    span = b.muli(columns, group)
    first = b.muli(b.divi(rest, span), group)
    height = b.mini(b.subi(rows, first), group)
    if isinstance(rows, int) and rows % group == 0:
        height = group
    within = b.remi(rest, span)
    return batch, b.addi(first, b.remi(within, height)), b.divi(within, height)


@dataclass(frozen=True)
class Described:
    """Matrices behind one descriptor, whose dims are some leading dims of the operand and a matrix's two.

    leading: per leading dim of the operand the dim of the descriptor that it is; None where all its matrices are one.
    start: the index of the first element of the first matrix.
    """

    descriptor: ir.Value
    leading: tuple[int | None, ...] = ()
    start: tuple[int, ...] = (0, 0)

    def at(self, indices: Sequence[Index]) -> "DescribedMatrix":
        """The matrix at these indices of the leading dims."""
        own = [i for i, dim in zip(indices, self.leading, strict=True) if dim is not None]
        return DescribedMatrix(self.descriptor, tuple(own), self.start)


@dataclass(frozen=True)
class DescribedMatrix:
    """One matrix behind a descriptor; see `Described`."""

    descriptor: ir.Value
    indices: tuple[Index, ...]
    start: tuple[int, ...]

    def load(self, b: Builder, row: Index, column: Index) -> ir.Value:
        """The block [R, C] there; what lies past the matrix's ends is zero."""
        # Indices are 32 bits wide, also in a kernel that counts with 64.
        places = [b.addi(i, first) for i, first in zip((*self.indices, row, column), self.start, strict=True)]
        narrow = [x if isinstance(x, int) else b.cast_int(x, b.i32) for x in places]
        return b.descriptor_load(self.descriptor, narrow, rank=2)


def split_batch(b: Builder, position: Index, sizes: Sequence[Index]) -> list[Index]:
    """Indices of batch dims of these sizes at a row-major position."""
    found: list[Index] = []
    for size in reversed(sizes[1:]):
        found.insert(0, b.remi(position, size))
        position = b.divi(position, size)
    return [position, *found] if sizes else []


def dot_offset(b: Builder, indices: Sequence[Index], strides: Sequence[Index]) -> Index:
    """Sum of index times stride."""
    return b.sum_(*(b.muli(i, s) for i, s in zip(indices, strides, strict=True)))
