# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Copies of a part of the image for tiles: padded, and with the pixels that one tap reads next to each other.

A copy has a plane for each block of 32 elements of the sum. A plane has, for each remainder of rows and columns of the
padded image modulo the strides (a *phase*), rows of positions of 32 elements. So whatever the stride, padding and
dilation, the positions that a tap reads for consecutive columns of the result are neighbours, and so is, behind the
last column of a row, the first one of the next: 16 of them are a tile.
"""

from collections.abc import Callable

from torch_mlir import ir

from kiln.dialects.schedules.cpu import AmxConvSchedule
from kiln.lowering.cpu.builder import Builder, Index
from kiln.lowering.cpu.contraction.amx import AMX_BF16
from kiln.lowering.cpu.contraction.words import Lines, Words, pack
from kiln.lowering.cpu.conv.problem import ConvProblem
from kiln.lowering.cpu.conv.tiles_plan import BLOCK, Copy, is_flat
from kiln.lowering.cpu.conv.window import Phase
from kiln.lowering.cpu.problem import known

__all__ = ["CopyImage"]

_PITCH = BLOCK // 2  # words from position to position


class CopyImage:
    """Copies what a unit of work reads; `target` is a buffer of bf16, `pairs` the same as i32."""

    def __init__(
        self, b: Builder, p: ConvProblem, s: AmxConvSchedule, sizes: Copy, x: ir.Value, target: ir.Value,
        pairs: ir.Value,
    ):  # fmt: skip
        self.b, self.p, self.s, self.sizes, self.x, self.target, self.pairs = b, p, s, sizes, x, target, pairs
        self.depth = sizes.depth
        strides = p.x_strides[1], p.row.x_stride, p.column.x_stride
        self.x_channel, self.x_row, self.x_column = (known(n) for n in strides)

    def copy(self, x: Index, band: Index, target: Index) -> None:
        """The copy of one unit. x: where the image, with the first channel of the group, begins."""
        b = self.b
        if self.depth.order != "channels":
            self.rows(band, lambda row, phase, at: self.windows(b.addi(x, row), b.addi(target, at)), target, None)
            return

        def block(i: Index, channels: int = BLOCK) -> None:
            source = b.addi(x, b.muli(b.muli(i, BLOCK), self.x_channel))
            plane = b.addi(target, b.muli(i, self.sizes.plane))
            if is_flat(self.p):
                first = b.muli(band, self.s.rows)
                count = b.mini(b.subi(known(self.p.column.results), first), self.s.rows)
                self.line(b.addi(source, b.muli(first, self.x_column)), plane, (0, count), count, channels)
                return

            def row(source_row: Index, phase: int, at: Index) -> None:
                column = self.p.column
                assert isinstance(column.size, int)
                first = Phase(1, column.stride, self.sizes.phases[phase][1] - column.padding, 1)
                ((low, high),) = first.valid(column.size, 0, self.sizes.pitch)
                start = b.sum_(source, source_row, b.muli(first.offset, self.x_column))
                self.line(start, b.addi(plane, at), (low, high), self.sizes.pitch, channels)

            self.rows(band, row, plane, i)

        full, rest = divmod(self.p.channels, BLOCK)
        b.for_(0, full, 1, block)
        if rest:
            block(full, rest)

    def rows(self, band: Index, row: Callable[[Index, int, Index], None], target: Index, block: Index | None) -> None:
        """row(distance of a row of the image, phase, where its copy goes) for each row of the copy inside of the image;
        the others become zero: in one plane, or, where `block` is None, in all.
        """
        b, p = self.b, self.p
        first = b.muli(b.muli(band, self.s.rows), p.row.stride)
        for number, (phase, _) in enumerate(self.sizes.phases):

            def one(r: Index, number: int = number, phase: int = phase) -> None:
                h = b.sum_(first, b.muli(r, p.row.stride), phase - p.row.padding)
                at = b.addi(b.muli(r, self.sizes.pitch * BLOCK), number * self.sizes.phase)

                def nothing() -> None:
                    for plane in range(self.depth.blocks) if block is None else (0,):
                        start = b.sum_(target, at, plane * self.sizes.plane)
                        self.clear(start, 0, self.sizes.pitch)

                inside = b.andc(b.cmpi("sge", h, 0), b.cmpi("slt", h, known(p.row.size)))
                b.if_(inside, lambda: row(b.muli(h, self.x_row), number, at), nothing)

            b.for_(0, self.sizes.rows, 1, one)

    def clear(self, target: Index, low: Index, high: Index) -> None:
        """Zeros at positions [low, high)."""
        b = self.b
        zero = b.zero(b.vec(BLOCK, ir.BF16Type.get()))
        b.for_(low, high, 1, lambda q: b.vstore(zero, self.target, b.addi(target, b.muli(q, BLOCK))))

    def line(self, x: Index, target: Index, inside: tuple[int, Index], count: Index, channels: int) -> None:
        """One row of one phase, `channels` channels; x: the image at position 0, where that is outside of it or not.

        The last positions that are written may lie beyond the row, where what comes next has still to be written.
        """
        b, (low, high) = self.b, inside
        step = b.muli(self.x_column, self.p.column.stride)
        words = Words(b, Lines(self.x, step, self.x_channel), AMX_BF16)
        first = b.addi(b.divi(target, 2), low * _PITCH)
        pack(
            words, b.addi(x, b.muli(step, low)), b.subi(high, low), channels,
            lambda _, q: (self.pairs, b.addi(first, b.muli(q, _PITCH))), _PITCH, turned=False,
        )  # fmt: skip
        self.clear(target, 0, low)
        self.clear(target, high, count)

    def windows(self, x: Index, target: Index) -> None:
        """One row of the image, for few channels: the columns of the window of each column of the result."""
        b, p, pitch = self.b, self.p, self.sizes.pitch
        width, stride, padding = p.column.size, p.column.stride, p.column.padding
        assert isinstance(width, int)
        low = min(pitch, -(-padding // stride))
        high = max(low, min(pitch, (width - p.column.kernel + padding) // stride + 1))

        def at_border(q: Index) -> None:
            first = b.subi(padding, b.muli(q, stride))
            begin = b.mini(b.maxi(first, 0), p.column.kernel)
            self.window(x, target, q, begin, b.maxi(b.mini(b.addi(first, width), p.column.kernel), begin))

        b.for_(0, low, 1, at_border)
        b.for_(low, high, 1, lambda q: self.window(x, target, q, 0, p.column.kernel))
        b.for_(high, pitch, 1, at_border)

    def window(self, x: Index, target: Index, q: Index, low: Index, high: Index) -> None:
        """The elements of one window's row, of which columns [low, high) lie inside of the image."""
        b, p, plane = self.b, self.p, self.sizes.plane
        column = b.subi(b.muli(q, p.column.stride), p.column.padding)
        x = b.addi(x, b.muli(column, self.x_column))
        target = b.addi(target, b.muli(q, BLOCK))
        span = self.depth.span or BLOCK
        for i in range(self.depth.blocks * BLOCK // span):
            block, place = divmod(i * span, BLOCK)
            if self.depth.order == "windows":
                source = b.addi(x, i * BLOCK)
                begin, end = (b.maxi(b.subi(b.muli(e, p.channels), i * BLOCK), 0) for e in (low, high))
            else:
                source = b.addi(x, b.muli(i, self.x_channel))
                begin, end = (low, high) if i < p.channels else (0, 0)
            value = b.vload(self.x, source, span, b.mask_between(begin, end, span))
            b.vstore(value, self.target, b.addi(target, block * plane + place))
