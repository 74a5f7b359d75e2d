# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Convolution of bf16 by tiles (AMX): 32 pixels by 32 outputs are the sums of four tile registers.

A unit of work is some rows of the result (or some pixels, where the window is one element). What it reads of the image
is copied once, so that every tap of the window reads 16 consecutive positions as a tile, over the ends of rows as well
(tiles_image.py); where the window is one element and channels are neighbours, tiles are read where they are. For each
block of outputs its weights are packed (weights.py), and the sums of some rows are taken, over all taps and
channels, and stored in scratch, where the epilogue finds them row by row (finish.py). Sums at positions between the
rows are of no use: two in 16 for a row of 14 pixels and a window of 3.
"""

from typing import Any

from typing_extensions import override

from kiln.dialects.schedules.cpu import AmxConvSchedule
from kiln.lowering.cpu.builder import Index
from kiln.lowering.cpu.contraction import Grid, Place, store_sums, sum_products
from kiln.lowering.cpu.contraction.amx import AMX_BF16
from kiln.lowering.cpu.contraction.operands import in_runs
from kiln.lowering.cpu.conv.finish import BlockKernel, block_layout
from kiln.lowering.cpu.conv.problem import ConvProblem
from kiln.lowering.cpu.conv.tiles_image import CopyImage
from kiln.lowering.cpu.conv.tiles_plan import BLOCK, ROWS, copy_of, is_flat
from kiln.lowering.cpu.conv.weights import order_of
from kiln.lowering.cpu.problem import element_type, known
from kiln.lowering.cpu.sizes import round_up

__all__ = ["Tiles"]

_WORDS = ROWS * BLOCK // 2  # of a tile of weights
_HEAD = ROWS  # pixels before the first: a last tile may begin there


class Tiles(BlockKernel):
    """One thread's share."""

    @staticmethod
    @override
    def layout(p: ConvProblem, s: AmxConvSchedule) -> dict[str, int]:
        """See `block_layout`; the sums are those of a chunk."""
        flat = is_flat(p)
        copy = copy_of(p, s.order, s.rows)
        line = copy.pitch
        pixels = round_up(s.rows if flat else s.chunk * line, 2 * ROWS) + 2 * ROWS
        image = 0 if s.in_place else s.units * copy.size // 2
        return block_layout(p, order_of(p, s), _HEAD + pixels, round_up(line, ROWS), image)

    def __init__(self, *arguments: Any):
        super().__init__(*arguments)
        b, p, s, operands, ctx = self.b, self.p, self.s, self.operands, self.ctx
        self.prepare(self.layout(p, s), order_of(p, s))
        self.sums = self.areas["sums"] + _HEAD * self.lanes
        self.copy = copy_of(p, s.order, s.rows)
        self.flat = is_flat(p)
        bf16 = element_type("bf16")
        if s.in_place:
            self.image = operands.x
        else:
            at = self.areas["image"] * p.sum_bytes
            count = s.units * self.copy.size
            self.image, image_pairs = b.view(ctx.scratch, at, count, bf16), b.view(ctx.scratch, at, count // 2, b.i32)
            self.copies = CopyImage(b, p, s, self.copy, operands.x, self.image, image_pairs)
        self.taps: list[int] = []
        for y, z in self.copy.depth.taps:
            h, w = y * p.row.dilation, z * p.column.dilation if s.order == "channels" else 0
            phase = self.copy.phases.index((h % p.row.stride, w % p.column.stride)) * self.copy.phase
            row, column = h // p.row.stride, w // p.column.stride
            self.taps.append(phase + (row * self.copy.pitch + column) * BLOCK)

    def emit(self) -> None:
        """This thread's share; a unit is some rows of an image (pixels, where they are a line)."""
        b, p, s, slot = self.b, self.p, self.s, self.copy.size
        of_image = b.ceildivi(known(p.column.results) if self.flat else known(p.row.results), s.rows)

        def origin(u: Index, group: Index) -> Index:
            return self.image_at(b.divi(u, of_image), b.muli(group, p.channels))

        def copy(group: Index, start: Index, stop: Index) -> None:
            def one(u: Index) -> None:
                self.copies.copy(origin(u, group), b.remi(u, of_image), b.muli(b.subi(u, start), slot))

            if not s.in_place:
                b.for_(start, stop, 1, one)

        def unit(u: Index, group: Index, channel: Index, count: Index, start: Index) -> None:
            x = origin(u, group) if s.in_place else b.muli(b.subi(u, start), slot)
            self.some(b.divi(u, of_image), b.remi(u, of_image), x, channel, count)

        AMX_BF16.begin(b)
        self.share(b.muli(known(p.images), of_image), s.units, s.share == "units", unit, copy)
        AMX_BF16.end(b)

    def some(self, image: Index, band: Index, x: Index, channel: Index, count: Index) -> None:
        """The sums of a unit, and the epilogue on them. x: where its copy, or the image, begins."""
        b, p, s = self.b, self.p, self.s
        first = b.muli(band, s.rows)
        lines = b.mini(b.subi(known(p.column.results) if self.flat else known(p.row.results), first), s.rows)
        if self.flat:
            self.products(x, first if s.in_place else 0, lines)
            self.finish(image, 0, channel, count, first, lines)
            return
        pitch, home = self.copy.pitch, self.sums

        def chunk(r: Index) -> None:
            rows = b.mini(b.subi(lines, r), s.chunk)
            self.products(x, b.muli(r, pitch), b.subi(b.muli(rows, pitch), self.copy.extra))

            def row(n: Index) -> None:
                self.sums = b.addi(home, b.muli(n, pitch * self.lanes))
                self.finish(image, b.sum_(first, r, n), channel, count, 0, known(p.column.results))
                self.sums = home

            b.for_(0, rows, 1, row)

        b.for_(0, lines, s.chunk, chunk)

    def products(self, x: Index, first: Index, count: Index) -> None:
        """Sums of `count` positions from `first` on into scratch."""
        whole = self.b.muli(self.b.ceildivi(count, ROWS), ROWS)
        in_runs(self.b, whole, ROWS, 2, lambda at, rows: self.tiles(x, first, at, rows))

    def tiles(self, x: Index, first: Index, at: Index, rows: int) -> None:
        """Sums of 16 or 32 positions, `at` and more behind the first one."""
        b, nv, s = self.b, self.nv, self.s
        starts = [b.addi(first, b.addi(at, r * ROWS)) for r in range(rows)]
        if s.in_place:  # the last tile begins earlier instead of ending beyond the image
            starts = [b.mini(start, known(self.p.column.results) - ROWS) for start in starts]  # type: ignore[operator] - the image is of a known size
            step, plane = known(self.p.column.x_stride), BLOCK
        else:
            step, plane = BLOCK, self.copy.plane
        left = [b.addi(x, b.muli(start, step)) for start in starts]
        taps = len(self.taps)

        def pixels(tap: int, r: int, k: Index) -> Place:
            source = b.muli(b.divi(k, BLOCK), plane)
            return Place(self.image, b.sum_(left[r], source, self.taps[tap]), step)

        def weights(tap: int, v: int, k: Index) -> Place:
            word = b.addi(self.panel, b.muli(b.divi(k, BLOCK), taps * nv * _WORDS))
            word = b.addi(word, (tap * nv + v) * _WORDS)
            return Place(self.weights, b.muli(word, self.per_word), ROWS * self.per_word)

        def sums(r: int, v: int) -> Place:
            place = b.muli(b.subi(starts[r], first), self.lanes)
            return Place(self.scratch, b.sum_(place, self.sums, v * self.width), self.lanes)

        grid = Grid(rows, nv)
        terms = [(tap, tap) for tap in range(taps)]
        found = sum_products(b, AMX_BF16, grid, pixels, weights, self.copy.depth.blocks * BLOCK, terms=terms)
        store_sums(b, AMX_BF16, grid, found, sums)
