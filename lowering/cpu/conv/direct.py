# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Direct convolution: register tiles of pixels times vectors of output channels.

For each block of output channels a thread packs the block's weights as [kd][kh][c][kw][lanes], and then walks its rows
of the result: an element of the input, broadcast, times the vectors of weights at its place in the window. Padding
costs nothing: rows of the window outside of the input are not visited, and tiles at the left and right border have code
of their own that leaves out the products with padding. Sums of a row lie in scratch, where the epilogue finds them.
Long sums are cut in pieces that start from zero and are added, as in the matrix product (matmul/blocked.py).
"""

from collections.abc import Callable, Sequence
from typing import Any

from torch_mlir import ir

from kiln.dialects.schedules.cpu import DirectConvSchedule
from kiln.lowering.cpu.builder import Index
from kiln.lowering.cpu.contraction import Grid, Place, multiply_step
from kiln.lowering.cpu.contraction.sizes import LINE, round_up
from kiln.lowering.cpu.contraction.vectors import VectorUnit, float_unit
from kiln.lowering.cpu.conv.borders import Run, Valid, everywhere, interior, tile_runs
from kiln.lowering.cpu.conv.finish import Finishing
from kiln.lowering.cpu.conv.kernel import ConvKernel
from kiln.lowering.cpu.conv.pack import pack_strip
from kiln.lowering.cpu.conv.problem import ConvProblem
from kiln.lowering.cpu.conv.window import Window, axis_range, row_count
from kiln.lowering.cpu.matmul.problem import known

_UNROLLED = 12  # products in one row of a window up to here are written out: three channels of an image, 3x3


def direct_layout(p: ConvProblem, s: DirectConvSchedule) -> dict[str, int]:
    """Scratch areas in elements of the sum dtype, and the total `bytes`.

    The packed weights of a block at 0, the sums of a row at `sums`; for a planar result the same again with lanes along
    columns at `turned`, `pitch` elements a channel.
    """
    lanes = s.nv * s.width
    line = LINE // p.sum_bytes
    sums = 0 if p.packed else round_up(p.steps * lanes, line)
    phases = p.stride[1] if p.transposed else 1  # of which each has as many tiles
    pitch = round_up(s.mr * s.tiles * phases, s.width)
    turned = sums + round_up(pitch * lanes, line)
    # A page apart, rows of 1024 columns would fall into the same cache sets.
    pitch += line
    elements = turned + (pitch * lanes if p.planar else 0)
    return {"sums": sums, "turned": turned, "pitch": pitch, "elements": elements, "bytes": elements * p.sum_bytes}


class Direct(ConvKernel, Finishing):
    """Products of single elements, in the sum type (pairs.py: of two at a time)."""

    unit: VectorUnit

    def __init__(self, *arguments: Any):
        super().__init__(*arguments)
        b, p, s, ctx = self.b, self.p, self.s, self.ctx
        self.unit = float_unit(p.sum_dtype, self.width)
        self.mr, self.nv, self.tiles = s.mr, s.nv, s.tiles
        self.lanes = self.nv * self.width
        self.layout = direct_layout(p, s)
        self.scratch = b.view(ctx.scratch, ctx.scratch_offset, self.layout["elements"], self.sum_type)
        self.sums = self.layout["sums"]
        self.runs = None if p.transposed else tile_runs(p, self.mr)
        self.weights = self.operands.weight if p.packed else self.scratch
        self.panel: Index = 0

    def emit(self) -> None:
        """This thread's share of (block of channels, row, part of the row), blocks outermost: each is packed once."""
        b, p = self.b, self.p
        blocks_of_group = -(-p.outputs // self.lanes)
        columns = known(p.columns)
        parts = b.ceildivi(columns, self.span)
        rows = row_count(b, p)
        units = b.muli(b.muli(known(p.images), rows), parts)
        low, high = b.split(self.ctx.tid, self.ctx.nt, b.muli(units, p.groups * blocks_of_group))

        def block(index: Index) -> None:
            group, inner = b.divi(index, blocks_of_group), b.remi(index, blocks_of_group)
            first = b.muli(inner, self.lanes)
            count: Index = self.lanes
            if p.outputs % self.lanes:
                count = b.mini(b.subi(p.outputs, first), self.lanes)
            channel = b.addi(b.muli(group, p.outputs), first)
            if p.packed:
                self.panel = b.addi(self.operands.weight_offset, b.muli(index, p.steps * self.lanes))
            else:
                self.pack(channel, count)
            begin = b.muli(index, units)

            def unit(u: Index) -> None:
                line, part = b.divi(u, parts), b.remi(u, parts)
                self.part(group, channel, count, b.divi(line, rows), b.remi(line, rows), part, parts)

            b.for_(b.maxi(b.subi(low, begin), 0), b.mini(b.subi(high, begin), units), 1, unit)

        if isinstance(units, int) and units == 0:
            return
        safe = b.maxi(units, 1)
        b.for_(b.divi(low, safe), b.ceildivi(high, safe), 1, block)

    def pack(self, channel: Index, count: Index) -> None:
        """The weights of a block of output channels: [kd][kh][c][kw][lanes]."""
        b, p = self.b, self.p
        start = self.first_weight(channel)
        window = p.kernel[1] * self.lanes
        rows = [axis.kernel for axis in p.lines]

        def place(i: Sequence[Index], lane: Index) -> Index:
            y: Index = 0
            for size, at in zip(rows, i[1:-1], strict=True):
                y = b.addi(b.muli(y, size), at)
            return b.sum_(b.muli(b.addi(b.muli(y, p.channels), i[0]), window), b.muli(i[-1], self.lanes), lane)

        def strip(lane: Index) -> None:
            first = b.mini(lane, b.subi(count, 1))
            pack_strip(
                b,
                self.operands.weight,
                b.addi(start, b.muli(first, known(p.weight_strides[0]))),
                p.weight_strides[0],
                b.maxi(b.subi(count, lane), 1),
                (p.channels, *rows, p.kernel[1]),
                (p.weight_strides[1], *(axis.weight_stride for axis in p.lines), p.weight_strides[3]),
                self.scratch,
                lambda i: place(i, lane),
                self.width,
                spare=self.sums,
            )

        b.for_(0, self.lanes, self.width, strip)

    def first_weight(self, channel: Index) -> Index:
        """Where the weights of an output channel begin."""
        b = self.b
        return b.addi(self.operands.weight_offset, b.muli(channel, known(self.p.weight_strides[0])))

    def part(
        self, group: Index, channel: Index, count: Index, image: Index, row: Index, part: Index, parts: Index
    ) -> None:
        """A part of one row of the result: sums into scratch, then the epilogue."""
        b, p = self.b, self.p
        x = b.sum_(
            self.operands.x_offset,
            b.muli(image, self.x_image),
            b.muli(b.muli(group, p.channels), self.x_channel),
        )
        window = Window(b, p, x, row)
        columns = known(p.columns)
        if self.known:
            start = b.muli(part, self.span)
            stop = b.mini(b.addi(start, self.span), columns)
            self.known_row(window, b.muli(part, self.tiles))
        else:
            start, stop = b.divi(b.muli(part, columns), parts), b.divi(b.muli(b.addi(part, 1), columns), parts)
            self.row(window, start, stop)
        self.finish(image, row, channel, count, start, b.subi(stop, start))

    @property
    def span(self) -> int:
        """Columns of the result in a part of a row."""
        return self.mr * self.tiles

    @property
    def known(self) -> bool:
        """Whether the tiles of a row are known."""
        return self.runs is not None

    def known_row(self, window: Window, begin: Index) -> None:
        """The tiles of a part of a row, from `begin` on."""
        for run in self.runs or ():
            self.run(run, window, begin)

    def run(self, run: Run, window: Window, begin: Index) -> None:
        """The tiles of a run that are in the part of the row that begins with tile `begin`."""
        b = self.b
        single = isinstance(begin, int) and begin == 0 and run.last <= self.tiles
        low = run.first if single else b.maxi(run.first, begin)
        high = run.last if single else b.mini(run.last, b.addi(begin, self.tiles))
        start = b.muli(begin, self.mr)

        def tile(t: Index) -> None:
            column = b.muli(t, self.mr)
            self.tile(run.count, run.valid, self.at(column), window, b.subi(column, start))

        b.for_(low, high, 1, tile)

    def at(self, column: Index) -> Index:
        """The distance of a column's window from that of column 0, padding and all, in the input."""
        return self.b.muli(self.b.subi(self.b.muli(column, self.p.stride[1]), self.p.padding[1]), self.x_column)

    def row(self, window: Window, start: Index, stop: Index) -> None:
        """Columns [start, stop) of a row of a size that is not known: whole tiles inside, single pixels at borders."""
        b, p = self.b, self.p
        low, high = interior(b, p)
        self.pixels(window, low, high, start, stop, lambda column: axis_range(b, p.column_axis, column))

    def pixels(
        self,
        window: Window,
        low: Index,
        high: Index,
        start: Index,
        stop: Index,
        inside: Callable[[Index], tuple[Index, Index]],
    ) -> None:
        """Columns [start, stop), of which [low, high) find no padding; `inside` gives the window columns of one.

        The last whole tile overlaps the one before it, so that less than a tile is left only where there is no more.
        """
        b, mr = self.b, self.mr
        low, high = b.mini(b.maxi(low, start), stop), b.maxi(b.mini(high, stop), start)
        whole = b.cmpi("sge", b.subi(high, low), mr)
        high = b.select_index(whole, high, low)

        def tile(t: Index) -> None:
            column = b.mini(t, b.subi(high, mr))
            self.tile(mr, everywhere(mr, self.window), self.at(column), window, b.subi(column, start))

        def pixel(column: Index) -> None:
            self.tile(1, None, self.at(column), window, b.subi(column, start), inside(column))

        b.for_(low, high, mr, tile)
        b.for_(start, low, 1, pixel)
        b.for_(high, stop, 1, pixel)

    @property
    def window(self) -> int:
        """Columns of the window that a pixel meets."""
        return self.p.kernel[1]

    def place(self, at: Index, r: int = 0) -> Index:
        """Where the sums of a part's pixel at + r are, in scratch."""
        return self.b.addi(self.b.addi(self.sums, self.b.muli(at, self.lanes)), r * self.lanes)

    def tap(self, z: Index) -> Index:
        """The column of the window that is the z-th to meet a pixel."""
        return z

    def offset(self, z: Index, r: int) -> Index:
        """The distance, in columns of the input, of what a tile's pixel r meets at the z-th column of the window."""
        return self.b.addi(self.b.muli(z, self.p.dilation[1]), r * self.p.stride[1])

    def tile(
        self,
        count: int,
        valid: Valid | None,
        x: Index,
        window: Window,
        at: Index,
        columns: tuple[Index, Index] | None = None,
    ) -> None:
        """Sums of `count` pixels into scratch, from `at` on; x: where the first one's window begins in its row.

        valid: the pixels that each window column has input for; None for one pixel with the window's `columns` given
        as a range known at run time.
        """
        b, p = self.b, self.p
        zeros = [b.zero(self.vector)] * (count * self.nv)
        places = [b.addi(self.place(at, r), v * self.width) for r in range(count) for v in range(self.nv)]
        piece = self.s.piece

        def sums(line: Index, y: Sequence[Index], low: Index, high: Index, acc: list[ir.Value]) -> list[ir.Value]:
            weights = b.addi(self.panel, b.muli(window.flat(y), p.channels * p.kernel[1] * self.lanes))
            if p.channels * p.kernel[1] <= _UNROLLED:
                for c in range(p.channels):
                    acc = self.step(count, valid, columns, line, weights, c, acc)
                return acc
            return b.for_(low, high, 1, lambda c, a: self.step(count, valid, columns, line, weights, c, a), acc)

        if p.steps <= piece:
            acc = window.fold(lambda line, y, a: sums(line, y, 0, p.channels, a), zeros, x)
            for value, place in zip(acc, places, strict=True):
                b.vstore(value, self.scratch, place)
            return
        for place in places:
            b.vstore(zeros[0], self.scratch, place)
        depth = max(1, piece // p.kernel[1])
        depth = -(-p.channels // -(-p.channels // depth))

        def chunk(line: Index, y: Sequence[Index], low: Index) -> None:
            acc = sums(line, y, low, b.mini(b.addi(low, depth), p.channels), zeros)
            for value, place in zip(acc, places, strict=True):
                b.vstore(b.addf(b.vload(self.scratch, place, self.width), value), self.scratch, place)

        def row(line: Index, y: Sequence[Index], acc: list[ir.Value]) -> list[ir.Value]:
            b.for_(0, p.channels, depth, lambda low: chunk(line, y, low))
            return acc

        window.fold(row, shift=x)

    def step(
        self,
        count: int,
        valid: Valid | None,
        columns: tuple[Index, Index] | None,
        line: Index,
        weights: Index,
        c: Index,
        acc: Sequence[ir.Value],
    ) -> list[ir.Value]:
        """Adds the products of one input channel in one row of the window."""
        b, p = self.b, self.p
        line = b.addi(line, b.muli(c, self.x_channel))
        weights = b.addi(weights, b.muli(c, p.kernel[1] * self.lanes))

        def column(z: Index, low: int, high: int, acc: Sequence[ir.Value]) -> list[Any]:
            at = b.addi(weights, b.muli(self.tap(z), self.lanes))
            first, last = low * self.nv, high * self.nv
            tile = multiply_step(
                b,
                self.unit,
                Grid(high - low, self.nv),
                acc[first:last],
                lambda _, r, k: Place(self.operands.x, b.addi(line, b.muli(self.offset(z, low + r), self.x_column))),
                lambda _, v, k: self.factors(b.addi(at, v * self.width)),
            )
            return [*acc[:first], *tile, *acc[last:]]

        if valid is None:
            assert columns is not None
            return b.for_(*columns, 1, lambda z, a: column(z, 0, count, a), list(acc))
        for z, (low, high) in enumerate(valid):
            if low < high:
                acc = column(z, low, high, acc)
        return list(acc)

    def factors(self, at: Index) -> Place:
        """Where a vector of weights lies."""
        return Place(self.weights, at)
