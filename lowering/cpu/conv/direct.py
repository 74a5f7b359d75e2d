# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Direct convolution: register tiles of pixels times vectors of output channels.

For each block of output channels a thread packs the block's weights as [kd][kh][c][kw][lanes], and then walks its rows
of the result: an element of the input, broadcast, times the vectors of weights at its place in the window. Padding
costs nothing: rows of the window outside of the input are not visited, nor are its columns at the borders (kernel.py).
Sums of a row lie in scratch, where the epilogue finds them. Long sums are cut in pieces that start from zero and are
added, as in the matrix product (matmul/tiles.py).

Of a transposed convolution, a tile is a few consecutive columns of a phase (window.py): its pixels are neighbours in
the input. Their sums lie in the scratch row where the columns of the result are. Rows of the result (and planes) choose
their window's rows likewise, at run time (window.py). Nothing is scattered, and no products with zeros are taken.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from torch_mlir import ir
from typing_extensions import override

from kiln.dialects.schedules.cpu import DirectConvSchedule
from kiln.lowering.cpu.builder import Index
from kiln.lowering.cpu.contraction import Grid, Place
from kiln.lowering.cpu.contraction.vectors import float_unit
from kiln.lowering.cpu.conv.finish import BlockKernel, block_layout
from kiln.lowering.cpu.conv.kernel import RowKernel
from kiln.lowering.cpu.conv.problem import ConvProblem
from kiln.lowering.cpu.conv.weights import order_of
from kiln.lowering.cpu.conv.window import Span, Valid, Window, row_count
from kiln.lowering.cpu.problem import known, unflatten
from kiln.lowering.cpu.sizes import even_part, round_up

_UNROLLED = 12  # products in one row of a window up to here are written out: three channels of an image, 3x3


class Direct(RowKernel, BlockKernel):
    """Products of single elements, in the sum type, or of pairs of channels or columns, in bf16: the problem has these
    as its channels or columns then, and weights are counted in words of them.
    """

    @staticmethod
    @override
    def layout(p: ConvProblem, s: DirectConvSchedule) -> dict[str, int]:
        """See `block_layout`; the sums are those of a part of a row, in all phases."""
        phases = p.column.stride if p.transposed else 1  # of which each has as many tiles
        pixels = round_up(s.mr * s.tiles * phases, s.width)
        return block_layout(p, order_of(p, s), pixels, pixels)

    def __init__(self, *arguments: Any):
        super().__init__(*arguments)
        p, s = self.p, self.s
        self.prepare(self.layout(p, s), order_of(p, s))
        if self.order.pair is not None:
            self.unit = float_unit("f32", self.width, pairs=True)
        if self.order.pair == "c":
            self.p, self.x_channel = replace(p, channels=p.channels // 2), 2
        elif self.order.pair == "z":
            pairs = replace(p.column, kernel=p.column.kernel // 2, dilation=2)
            self.p = replace(p, axes=(*p.lines, pairs))
        self.find_runs()

    def emit(self) -> None:
        """This thread's share; a unit is a part of a row of an image."""
        b, p = self.b, self.p
        columns = known(p.column.results)
        parts, rows = b.ceildivi(columns, self.span), row_count(b, p)
        units = b.muli(b.muli(known(p.images), rows), parts)

        def unit(u: Index, group: Index, channel: Index, count: Index, _: Index) -> None:
            image, row, part = unflatten(b, u, (p.images, rows, parts))
            window = Window(b, p, self.image_at(image, b.muli(group, p.channels)), row)
            if isinstance(columns, int) and isinstance(p.column.size, int):
                start = b.muli(part, self.span)
                stop = b.mini(b.addi(start, self.span), columns)
            else:
                start, stop = b.split(part, parts, columns)
            self.row(window, start, stop)
            self.finish(image, row, channel, count, start, b.subi(stop, start))

        self.share(units, b.maxi(units, 1), False, unit)

    @property
    def span(self) -> int:
        """Columns of the result in a part of a row: `tiles` tiles of each phase."""
        return self.mr * self.s.tiles * self.runs[0][0].period

    def place(self, at: Index, r: int) -> Index:
        """Where the sums of a part's pixel at + r of the phase are, in scratch."""
        b, step = self.b, self.phase.period * self.lanes
        at = b.addi(b.muli(at, step), b.muli(self.origin, self.lanes))
        return b.addi(b.addi(self.sums, at), r * step)

    @override
    def tile(self, count: int, meets: Valid | Span, window: Window, column: Index, base: Index) -> None:
        b, p = self.b, self.p
        x, at = self.at(column), b.subi(column, base)
        zeros = [b.zero(self.vector)] * (count * self.nv)
        places = [b.addi(self.place(at, r), v * self.width) for r in range(count) for v in range(self.nv)]
        piece = self.s.piece

        def sums(line: Index, y: Sequence[Index], low: Index, high: Index, acc: list[ir.Value]) -> list[ir.Value]:
            weights = b.addi(self.panel, b.muli(window.flat(y), p.channels * p.column.kernel * self.lanes))
            if p.channels * p.column.kernel <= _UNROLLED:
                for c in range(p.channels):
                    acc = self.step(count, meets, line, weights, c, acc)
                return acc
            return b.for_(low, high, 1, lambda c, a: self.step(count, meets, line, weights, c, a), acc)

        if p.steps <= piece:
            acc = window.fold(lambda line, y, a: sums(line, y, 0, p.channels, a), zeros, x)
            for value, place in zip(acc, places, strict=True):
                b.vstore(value, self.scratch, place)
            return
        for place in places:
            b.vstore(zeros[0], self.scratch, place)
        depth = even_part(p.channels, max(1, piece // p.column.kernel))

        def chunk(line: Index, y: Sequence[Index], low: Index) -> None:
            acc = sums(line, y, low, b.mini(b.addi(low, depth), p.channels), zeros)
            for value, place in zip(acc, places, strict=True):
                b.vstore(b.addf(b.vload(self.scratch, place, self.width), value), self.scratch, place)

        def row(line: Index, y: Sequence[Index], acc: list[ir.Value]) -> list[ir.Value]:
            b.for_(0, p.channels, depth, lambda low: chunk(line, y, low))
            return acc

        window.fold(row, shift=x)

    def step(
        self, count: int, meets: Valid | Span, line: Index, weights: Index, c: Index, acc: Sequence[ir.Value]
    ) -> list[ir.Value]:
        """Adds the products of one input channel in one row of the window."""
        b, phase = self.b, self.phase
        line = b.addi(line, b.muli(c, self.x_channel))
        weights = b.addi(weights, b.muli(c, self.p.column.kernel * self.lanes))

        def pixel(offset: Index) -> Place:
            return Place(self.operands.x, b.addi(line, b.muli(offset, self.x_column)))

        def factors(v: int, z: Index) -> Place:
            at = b.addi(weights, b.muli(b.addi(b.muli(z, phase.step), phase.first), self.lanes))
            at = b.addi(at, v * self.width)
            return Place(self.weights, b.muli(at, self.per_word))

        return self.add_row(Grid(count, self.nv), meets, acc, pixel, factors)
