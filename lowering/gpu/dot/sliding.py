# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Depthwise convolutions whose windows move by one position: each lane computes several neighbouring results of a
channel, so that an element of the image is loaded and converted once for all of them, and so is a weight.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from torch_mlir import ir

from kiln.dialects import tt
from kiln.dialects.schedules.gpu import SlidingConvSchedule
from kiln.lowering.gpu.builder import Builder, Condition, Index
from kiln.lowering.gpu.dot.conv import ConvProblem
from kiln.lowering.gpu.dot.conv_window import WRITTEN_OUT
from kiln.lowering.gpu.dot.epilogue import ConvolutionEpilogue
from kiln.lowering.gpu.dot.operands import Line, dot_offset, line, split_batch, tile_position

__all__ = ["emit_sliding"]


def emit_sliding(
    b: Builder, p: ConvProblem, schedule: SlidingConvSchedule, program: Index, epilogue: ConvolutionEpilogue
) -> None:
    """One program: `block_m` tiles of `rows` x `columns` positions by `block_n` channels."""
    height, width = schedule.rows, schedule.columns
    down, across = (b.ceildivi(n, k) for n, k in zip(p.result_size, (height, width), strict=True))
    tiles = b.muli(p.batch, b.muli(down, across))
    _, i, j = tile_position(
        b, program, b.ceildivi(tiles, schedule.block_m), -(-p.groups // schedule.block_n), schedule.group_m
    )
    t = line(b, b.muli(i, schedule.block_m), schedule.block_m, 0, tiles)
    channels = line(b, b.muli(j, schedule.block_n), schedule.block_n, 1, p.groups)
    image, y, x = split_batch(b, t.clamped(b, tiles), [p.batch, down, across])
    corner = b.muli(y, height), b.muli(x, width)
    sums = _Windows(b, p, schedule, image, corner, channels).sums()
    for k, total in enumerate(sums):
        position = b.addi(corner[0], k // width), b.addi(corner[1], k % width)
        exists = t.mask
        for at, size, step in zip(position, p.result_size, (height, width), strict=True):
            if not (isinstance(size, int) and size % step == 0):
                exists = b.andc(exists, b.cmpi("slt", at, size))
        if exists is not False:
            epilogue.apply_at(b, (image, *position), exists, channels, total)


@dataclass
class _Windows:
    """The windows of a program's tiles. corner: the first result position of each, down and across."""

    b: Builder
    p: ConvProblem
    schedule: SlidingConvSchedule
    image: Index
    corner: tuple[Index, Index]
    channels: Line

    def __post_init__(self) -> None:
        b, p = self.b, self.p
        self.shape = self.schedule.block_m, self.schedule.block_n
        self.top, self.left = (b.subi(at, k) for at, k in zip(self.corner, p.padding, strict=True))
        first = dot_offset(b, (self.image, self.top, self.left), (p.x_strides[0], *p.x_strides[2:]))
        self.offset = b.addi(first, b.muli(self.channels.index, p.x_strides[1]))

    def sums(self) -> list[ir.Value]:
        """The sums of each position of a tile, row by row. Large windows are a loop over their rows."""
        b, p = self.b, self.p
        zero = b.constant(0.0, tt.with_shape(list(self.shape), p.sums))
        sums = [zero] * (self.schedule.rows * self.schedule.columns)
        if self.schedule.rows == 1 and p.taps > WRITTEN_OUT:
            return b.for_(0, p.kernel[0], 1, lambda row, carried: self._add(row, {0: row}, carried), sums)
        for row in range(self.schedule.rows - 1 + p.kernel[0]):
            taps = {k: row - k for k in range(self.schedule.rows) if 0 <= row - k < p.kernel[0]}
            sums = self._add(row, taps, sums)
        return sums

    def _add(self, row: Index, taps: Mapping[int, Index], sums: Sequence[ir.Value]) -> list[ir.Value]:
        """Adds what a row of the image gives. taps: rows of the tile that it is part of -> the window's row."""
        width, found = self.schedule.columns, list(sums)
        elements = [self._element(row, k) for k in range(width - 1 + self.p.kernel[1])]
        for tile_row, window_row in taps.items():
            for k in range(self.p.kernel[1]):
                weight = self._weight(window_row, k)
                for column in range(width):
                    at = tile_row * width + column
                    found[at] = self.b.addf(found[at], self.b.mulf(elements[column + k], weight))
        return found

    def _element(self, row: Index, column: int) -> ir.Value:
        b, p = self.b, self.p
        inside: Condition = self.channels.mask
        places = (b.addi(self.top, row), p.size[0], 0), (b.addi(self.left, column), p.size[1], 1)
        for at, size, dim in places:
            if dim == 0 or not self._is_inside(column):
                inside = b.andc(inside, b.andc(b.cmpi("sge", at, 0), b.cmpi("slt", at, size)))
        offset = b.sum_(self.offset, b.muli(row, p.x_strides[2]), b.muli(column, p.x_strides[3]))
        loaded = b.load(b.broadcast(b.addptr(p.x, offset), self.shape), inside, other=0)
        return b.cast_float(loaded, p.sums)

    def _is_inside(self, column: int) -> bool:
        """Whether a column under the windows of a tile lies in the image, whatever the tile."""
        size, width = self.p.result_size[1], self.schedule.columns
        divides = isinstance(size, int) and size % width == 0
        return divides and self.p.padding[1] <= column < width - 1 + self.p.kernel[1] - self.p.padding[1]

    def _weight(self, row: Index, column: int) -> ir.Value:
        b, p = self.b, self.p
        at = b.sum_(b.muli(row, p.weight_strides[2]), b.muli(column, p.weight_strides[3]))
        offset = b.addi(b.muli(self.channels.index, p.weight_strides[0]), at)
        loaded = b.load(b.addptr(p.weight, offset), self.channels.mask, other=0)
        return b.cast_float(loaded, p.sums)
