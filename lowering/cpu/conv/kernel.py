# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""What kernels of convolutions in vectors begin with, and the walk along a row where lanes are channels."""

from collections.abc import Callable, Sequence
from typing import Any

from torch_mlir import ir

from kiln.lowering.cpu.builder import Builder, Index
from kiln.lowering.cpu.contraction import Grid, Place, multiply_step
from kiln.lowering.cpu.contraction.vectors import float_unit
from kiln.lowering.cpu.conv.problem import ConvBuffers, ConvEpilogue, ConvProblem
from kiln.lowering.cpu.conv.window import Phase, Run, Span, Valid, Window, everywhere, find_phases, tile_runs
from kiln.lowering.cpu.problem import KernelContext, element_type, known
from kiln.lowering.ir_builder import Condition

__all__ = ["ConvKernel", "RowKernel"]


class ConvKernel:
    """One thread's share of a convolution, in vectors of `width` sums."""

    def __init__(
        self, b: Builder, p: ConvProblem, s: Any, operands: ConvBuffers, epilogue: ConvEpilogue, ctx: KernelContext
    ):
        self.b, self.p, self.s, self.operands, self.epilogue, self.ctx = b, p, s, operands, epilogue, ctx
        self.sum_type, self.width = element_type(p.sum_dtype), s.width
        self.vector = b.vec(self.width, self.sum_type)
        self.unit = float_unit(p.sum_dtype, self.width)
        self.x_image, self.x_channel, self.x_column = (known(x) for x in (*p.x_strides, p.column.x_stride))

    @staticmethod
    def layout(p: ConvProblem, s: Any) -> dict[str, int]:
        """Areas of scratch, and their total `bytes`."""
        return {"bytes": 0}

    def emit(self) -> None:
        """Emits the loops of this thread's share."""
        raise NotImplementedError

    def image_at(self, image: Index, channel: Index) -> Index:
        """Where a channel of an image begins in memory."""
        b = self.b
        return b.sum_(self.operands.x_offset, b.muli(image, self.x_image), b.muli(channel, self.x_channel))


class RowKernel(ConvKernel):
    """Tiles of `mr` pixels of a row, in all phases (window.py).

    Tiles at the left and right border have code of their own that leaves out the products with padding. Where sizes are
    not known, tiles are whole, and single pixels are left where a row is too short for tiles at its borders, or where
    the padding that they find depends on its length.
    """

    phase: Phase
    origin: Index
    """Columns of the result from where a part of a row begins to its first column in the phase."""
    runs: list[tuple[Phase, list[Run] | None]]

    def find_runs(self) -> None:
        """The tiles of a row."""
        self.mr = self.s.mr
        self.runs = [(phase, tile_runs(self.p, phase, self.mr)) for phase in find_phases(self.p)]

    def tile(self, count: int, meets: Valid | Span, window: Window, column: Index, base: Index) -> None:
        """The sums of `count` pixels from `column` of the phase on, the part of whose row begins with column `base`."""
        raise NotImplementedError

    def row(self, window: Window, start: Index, stop: Index) -> None:
        """Columns [start, stop) of a row, from the first column of a tile of each phase on where its size is known."""
        b = self.b
        for phase, runs in self.runs:
            self.phase, self.origin = phase, 0
            first, last = start, stop
            if phase.period > 1:
                above = phase.remainder - phase.period + 1
                first, last = (b.divi(b.maxi(b.subi(x, above), 0), phase.period) for x in (start, stop))
                self.origin = b.subi(b.addi(b.muli(first, phase.period), phase.remainder), start)
            if runs is None:
                self.pixels(window, first, last)
            for run in runs or ():

                def tile(column: Index, run: Run = run, base: Index = first) -> None:
                    self.tile(run.count, run.valid, window, column, base)

                b.for_(b.maxi(run.first, first), b.mini(run.last, last), self.mr, tile)

    def pixels(self, window: Window, start: Index, stop: Index) -> None:
        """Columns [start, stop) of a phase of a row of a size that is not known: a tile at each border whose padding is
        known, whole tiles between them, and single pixels where a row is too short for these. Tiles overlap the ones
        before them rather than leave pixels: an epilogue must not read what another one has written.
        """
        b, p, mr, phase = self.b, self.p, self.mr, self.phase
        low, high = phase.interior(b, p.column, known(p.column.results) if phase.period == 1 else stop)
        low, high = b.mini(b.maxi(low, start), stop), b.maxi(b.mini(high, stop), start)
        begin, end = self.edges(window, start, stop, high)
        whole = b.cmpi("sge", b.subi(high, low), mr)
        high = b.select_index(whole, high, low)

        def tile(t: Index) -> None:
            self.tile(mr, everywhere(mr, phase.count), window, b.mini(t, b.subi(high, mr)), start)

        def pixel(column: Index) -> None:
            self.tile(1, phase.inside(b, p.column, column), window, column, start)

        b.for_(b.maxi(low, begin), b.mini(high, end), mr, tile)
        b.for_(begin, low, 1, pixel)
        b.for_(b.maxi(high, begin), end, 1, pixel)

    def edges(self, window: Window, start: Index, stop: Index, high: Index) -> tuple[Index, Index]:
        """The tiles at the borders of a row, where columns [start, stop) reach them and tiles have room: of `mr`
        pixels, or in a row that is no longer than two tiles of half as many, of these.

        high: the end of the columns whose window ends inside of the input. Returns the columns that are left.
        """
        b, p, mr, phase, half = self.b, self.p, self.mr, self.phase, -(-self.mr // 2)
        begin, end, columns = start, stop, known(p.column.results)
        if p.transposed or p.column.padding == 0 or mr == 1:
            return begin, end
        counts: list[tuple[int, Condition]] = [(mr, True)]
        if phase.stride == 1:  # with strides, there is no tile at the right border for the other half
            counts = [(half, b.cmpi("sle", columns, 2 * half)), (mr, b.cmpi("sgt", columns, 2 * half))]
        for count, is_size in counts:
            if phase.left:
                has_room = b.cmpi("sge", high, max(count, phase.left + 1))
                fits = b.andc(is_size, b.andc(b.cmpi("eq", start, 0), has_room))
                b.if_(fits, lambda n=count: self.tile(n, phase.left_tile(n), window, 0, start))
                begin = b.select_index(fits, count, begin)
            right = phase.right_tile(count, p.column.padding)
            if right is not None:
                column = b.subi(columns, count)
                has_room = b.cmpi("sge", column, b.maxi(start, phase.left))
                is_border = b.cmpi("eq", high, b.subi(columns, p.column.padding))
                fits = b.andc(is_size, b.andc(b.cmpi("eq", stop, columns), b.andc(is_border, has_room)))
                b.if_(fits, lambda n=count, v=right, at=column: self.tile(n, v, window, at, start))
                end = b.select_index(fits, column, end)
        return begin, end

    def at(self, column: Index) -> Index:
        """The distance in the input of what a column of the phase meets first, padding and all, from its row."""
        return self.b.muli(self.b.addi(self.b.muli(column, self.phase.stride), self.phase.offset), self.x_column)

    def add_row(
        self,
        grid: Grid,
        meets: Valid | Span,
        acc: Sequence[ir.Value],
        pixel: Callable[[Index], Place | ir.Value],
        factors: Callable[[int, Index], Place],
    ) -> list[ir.Value]:
        """Adds the products of one row of the window.

        pixel(offset): the left operand at a column of the input, `offset` behind the tile's first. factors(v, z): the
        right operand for the z-th column of the window that the phase meets.
        """
        b, phase, nv = self.b, self.phase, grid.wide

        def column(z: Index, low: int, high: int, acc: Sequence[ir.Value]) -> list[Any]:
            first, last, far = low * nv, high * nv, b.muli(z, phase.apart)
            some = multiply_step(
                b,
                self.unit,
                Grid(high - low, nv),
                acc[first:last],
                lambda _, r, k: pixel(b.addi(far, (low + r) * phase.stride)),
                lambda _, v, k: factors(v, z),
            )
            return [*acc[:first], *some, *acc[last:]]

        if isinstance(meets, Span):
            return b.for_(*meets, 1, lambda z, a: column(z, 0, grid.high, a), list(acc))
        for z, (low, high) in enumerate(meets):
            if low < high:
                acc = column(z, low, high, acc)
        return list(acc)
