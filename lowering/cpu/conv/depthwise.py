# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Depthwise convolution: each channel with a window of its own; lanes along the channels of the input.

A tile is a few pixels of a row times one vector of channels, its sums in registers; an input pixel is loaded once for
all the pixels of the tile whose windows hold it. The weights are packed once as [kd][kh][kw][channels].
"""

from collections.abc import Sequence
from typing import Any

from torch_mlir import ir
from typing_extensions import override

from kiln.dialects.schedules.cpu import DepthwiseConvSchedule
from kiln.lowering.cpu.builder import Index
from kiln.lowering.cpu.contraction import Grid, Place
from kiln.lowering.cpu.conv.borders import Span, Valid
from kiln.lowering.cpu.conv.kernel import RowKernel
from kiln.lowering.cpu.conv.problem import ConvProblem
from kiln.lowering.cpu.conv.weights import Pack, order_of
from kiln.lowering.cpu.conv.window import Window, row_count
from kiln.lowering.cpu.matmul.problem import known


def depthwise_layout(p: ConvProblem, s: DepthwiseConvSchedule) -> dict[str, int]:
    """Scratch: the packed weights; total `bytes`."""
    return {"bytes": 0 if p.packed else order_of(p, s).words * p.sum_bytes}


class Depthwise(RowKernel):
    """The weights are packed into scratch, unless they are already."""

    def __init__(self, *arguments: Any):
        super().__init__(*arguments)
        b, p, s, ctx = self.b, self.p, self.s, self.ctx
        self.order = order_of(p, s)
        self.stride = self.order.lanes
        self.weights, self.panel = self.operands.weight, self.operands.weight_offset
        if not p.packed:
            self.weights, self.panel = b.view(ctx.scratch, ctx.scratch_offset, self.order.words, self.sum_type), 0
            self.packing = Pack(b, p, self.order, self.width, self.operands.weight, self.weights)
        self.find_runs()

    def emit(self) -> None:
        """This thread's share of (row, channels of a task)."""
        b, p = self.b, self.p
        if not p.packed:
            self.packing.pack(self.operands.weight_offset, p.groups)
        spans = -(-p.groups // self.s.span)
        rows = row_count(b, p)
        total = b.muli(b.muli(known(p.images), rows), spans)
        low, high = b.split(self.ctx.tid, self.ctx.nt, total)

        def task(t: Index) -> None:
            line, span = b.divi(t, spans), b.remi(t, spans)
            first = b.muli(span, self.s.span)
            self.some(b.divi(line, rows), b.remi(line, rows), first, b.mini(b.addi(first, self.s.span), p.groups))

        b.for_(low, high, 1, task)

    def some(self, image: Index, row: Index, first: Index, last: Index) -> None:
        """Channels [first, last) of one row of the result."""
        b, p = self.b, self.p
        self.task = image, row, first, last
        window = Window(b, p, self.image_at(image, 0), row)
        self.row(window, 0, known(p.column.results))

    @override
    def tile(self, count: int, meets: Valid | Span, window: Window, column: Index, base: Index) -> None:
        b = self.b
        image, row, first, last = self.task
        x = self.at(column)

        def vector(c: Index, mask: ir.Value | None) -> None:
            def products(line: Index, y: Sequence[Index], acc: list[ir.Value]) -> list[ir.Value]:
                return self.products(count, meets, window.flat(y), c, line, mask, acc)

            acc = window.fold(products, [b.zero(self.vector)] * count, x)
            with self.epilogue.channels(b, image, row, c, self.width, mask) as pixel:
                for r, value in enumerate(acc):
                    pixel(b.addi(column, r), value)

        self.vectors(first, last, vector)

    def products(
        self,
        count: int,
        meets: Valid | Span,
        y: Index,
        c: Index,
        line: Index,
        mask: ir.Value | None,
        acc: list[ir.Value],
    ) -> list[ir.Value]:
        """Adds the products of row y of the window, which meets the image at `line`, for the channels from c on."""
        b = self.b
        line = b.addi(line, b.muli(c, self.x_channel))
        weights = b.sum_(self.panel, b.muli(y, self.p.column.kernel * self.stride), c)
        loaded: dict[int, ir.Value] = {}

        def pixel(offset: Index) -> ir.Value:
            if isinstance(offset, int) and offset in loaded:
                return loaded[offset]
            at = b.addi(line, b.muli(offset, self.x_column))
            x = b.cast_float(b.gather(self.operands.x, at, self.x_channel, self.width, mask), self.sum_type)
            return loaded.setdefault(offset, x) if isinstance(offset, int) else x

        def factors(v: int, z: Index) -> Place:
            return Place(self.weights, b.addi(weights, b.muli(z, self.stride)))

        return self.add_row(Grid(count, 1), meets, acc, pixel, factors)
