# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Depthwise convolution: each channel with a window of its own.

`Depthwise`: lanes along the channels of the input. A tile is a few pixels of a row times one vector of channels, its
sums in registers; an input pixel is loaded once for all the pixels of the tile whose windows hold it. The weights are
packed once as [kd][kh][kw][channels].

`Planar`, for planar images (NCHW, or signals [N, C, L]): lanes along the columns of a row. A few vectors of a row's
columns have their sums in registers; each weight is broadcast from where it lies. Columns of the window that fall
outside of the image are masked lanes of the load. With stride 2 every other element of two vectors is taken, with
larger strides the elements are gathered.
"""

from collections.abc import Sequence
from typing import Any

from torch_mlir import ir
from typing_extensions import override

from kiln.dialects.schedules.cpu import DepthwiseConvSchedule
from kiln.lowering.cpu.builder import Index
from kiln.lowering.cpu.contraction import Grid, Place, sum_products
from kiln.lowering.cpu.conv.kernel import ConvKernel, RowKernel
from kiln.lowering.cpu.conv.problem import ConvProblem
from kiln.lowering.cpu.conv.weights import Pack, order_of
from kiln.lowering.cpu.conv.window import Span, Valid, Window, row_count
from kiln.lowering.cpu.problem import in_vectors, known

__all__ = ["Depthwise", "Planar"]


class Depthwise(RowKernel):
    """The weights are packed into scratch, unless they are already.

    task: image and row of the result, and its channels from one to another.
    """

    task: tuple[Index, Index, Index, Index]

    @staticmethod
    @override
    def layout(p: ConvProblem, s: DepthwiseConvSchedule) -> dict[str, int]:
        return {"bytes": 0 if p.packed else order_of(p, s).words * p.sum_bytes}

    def __init__(self, *arguments: Any):
        super().__init__(*arguments)
        b, p, s, ctx = self.b, self.p, self.s, self.ctx
        self.order = order_of(p, s)
        self.stride = self.order.lanes
        self.weights, self.panel = self.operands.weight, self.operands.weight_offset
        if not p.packed:
            self.weights, self.panel = b.view(ctx.scratch, 0, self.order.words, self.sum_type), 0
            self.packing = Pack(b, p, self.order, self.width, self.operands.weight, self.weights)
        self.find_runs()

    def emit(self) -> None:
        """This thread's share of (row, channels of a task)."""
        b, p = self.b, self.p
        if not p.packed:
            self.packing.pack(self.operands.weight_offset, p.groups)

        def task(image: Index, row: Index, span: Index) -> None:
            first = b.muli(span, self.s.span)
            self.task = image, row, first, b.mini(b.addi(first, self.s.span), p.groups)
            self.row(Window(b, p, self.image_at(image, 0), row), 0, known(p.column.results))

        self.ctx.share(b, (p.images, row_count(b, p), -(-p.groups // self.s.span)), task)

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

        in_vectors(b, first, last, self.width, vector)

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


class Planar(ConvKernel):
    """`span` rows of an image and channel are a task."""

    def emit(self) -> None:
        """This thread's share of (image, channel, rows of a task)."""
        b, p = self.b, self.p
        rows = row_count(b, p)

        def task(image: Index, channel: Index, part: Index) -> None:
            first = b.muli(part, self.s.span)
            last = b.mini(b.addi(first, self.s.span), rows)
            b.for_(first, last, 1, lambda row: self.row(image, channel, row))

        self.ctx.share(b, (p.images, p.groups, b.ceildivi(rows, self.s.span)), task)

    def row(self, image: Index, channel: Index, row: Index) -> None:
        """Emit one row of one channel of the result."""
        b, p = self.b, self.p
        weight = b.addi(self.operands.weight_offset, b.muli(channel, known(p.weight_strides[0])))
        window = Window(b, p, self.image_at(image, channel), row)
        columns = known(p.column.results)
        with self.epilogue.columns(b, image, row, channel) as store:

            def vectors(start: Index, count: int, whole: bool) -> None:
                acc = [b.zero(self.vector)] * count
                acc = window.fold(lambda line, y, a: self.products(y, start, line, weight, a), acc)
                for v, value in enumerate(acc):
                    column = b.addi(start, v * self.width)
                    if whole:
                        store(column, self.width, value, None)
                        continue
                    left = b.subi(columns, column)
                    mask = b.mask_below(b.maxi(left, 0), self.width)
                    b.if_(b.cmpi("sgt", left, 0), lambda c=column, x=value, m=mask: store(c, self.width, x, m))

            step = self.s.nv * self.width
            full = b.round_down(columns, step)
            b.for_(0, full, step, lambda start: vectors(start, self.s.nv, True))
            tail = b.subi(columns, full)
            count = -(-tail // self.width) if isinstance(tail, int) else self.s.nv
            if count:
                vectors(full, count, False)

    def products(self, y: Sequence[Index], start: Index, line: Index, weights: Index, acc: list[ir.Value]) -> list[Any]:
        """Adds the products of one row of the window, which meets the image at `line`, for columns from `start` on."""
        b, p = self.b, self.p
        factors = b.sum_(weights, *(b.muli(i, known(axis.weight_stride)) for axis, i in zip(p.lines, y, strict=True)))

        def pixels(_: int, v: int, z: Index) -> ir.Value:
            column = b.muli(b.addi(start, v * self.width), p.column.stride)
            return self.columns(line, b.addi(column, b.subi(b.muli(z, p.column.dilation), p.column.padding)))

        def weight(_: int, n: int, z: Index) -> ir.Value:
            at = b.addi(factors, b.muli(z, known(p.column.weight_stride)))
            return self.unit.everywhere(b, Place(self.operands.weight, at))

        return sum_products(b, self.unit, Grid(len(acc), 1), pixels, weight, p.column.kernel, acc, unrolled=True)

    def columns(self, line: Index, first: Index) -> ir.Value:
        """The elements at columns first + lane * stride of a row of the image; 0 outside of it."""
        b, step, size = self.b, self.p.column.stride, known(self.p.column.size)
        x, width = self.operands.x, self.width

        def piece(at: Index, stride: int) -> ir.Value:
            # Lanes [low, high) are columns of the image.
            low = b.ceildivi(b.maxi(b.subi(0, at), 0), stride)
            high = b.ceildivi(b.maxi(b.subi(size, at), 0), stride)
            offset = b.addi(line, b.muli(at, self.x_column))
            lanes = b.gather(x, offset, b.muli(stride, self.x_column), width, b.mask_between(low, high, width))
            return b.cast_float(lanes, self.sum_type)

        if step == 2 and self.x_column == 1:
            even = [2 * i for i in range(width)]
            return b.shuffle(piece(first, 1), piece(b.addi(first, width), 1), even)
        return piece(first, step)
