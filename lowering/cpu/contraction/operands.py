# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Where the tiles of an operand of a product come from: memory as it is, panels packed before, or scratch.

A provider is prepared for a piece of k of a block (`prepare`), then says for runs of tiles where they lie (`each`).
Lines are rows of the left operand and columns of the right one.
"""

from collections.abc import Callable
from dataclasses import dataclass

from torch_mlir import ir
from torch_mlir.dialects import arith
from typing_extensions import override

from kiln.lowering.cpu.builder import Builder, Index
from kiln.lowering.cpu.contraction.integers import OFFSET, IntegerUnit
from kiln.lowering.cpu.contraction.parts import FloatWords, Range
from kiln.lowering.cpu.contraction.sums import Grid, Operand, sum_products
from kiln.lowering.cpu.contraction.unit import MatrixUnit, Place
from kiln.lowering.cpu.contraction.words import Lines, Words, pack

__all__ = [
    "ColumnsInPlace",
    "InPanels",
    "InScratch",
    "Provider",
    "RowsInPlace",
    "Run",
    "Scratch",
    "TilesInPlace",
    "in_runs",
    "sum_rows",
]

_MOST_LINES = 1 << 24
"""More lines than a block has, whose rows and columns are some thousands at most (lowering/cpu/choices)."""

Run = Callable[[Index, int, Operand], None]
"""run(i, count, tiles): `count` tiles of lines i ..., and where they lie, by steps of the piece."""


class Provider:
    """An operand of a product, in memory as `lines`. count: tiles of a run.

    filled: zeros fill k up to a multiple of the unit's depth. cell: memory and the element of it that says what was
    made of the operand, by where that begins in memory and how many lines it has (-1: nothing); None: a piece is not
    all of k, or nothing is made. seen: what is seen of the numbers that are packed. and_then: made of each piece, given
    its lines and steps.
    """

    filled = True
    makes = False
    seen: Range | None = None

    def __init__(
        self, b: Builder, unit: MatrixUnit, lines: Lines, count: int, cell: tuple[ir.Value, int] | None = None
    ):
        self.b, self.unit, self.lines, self.count, self.cell = b, unit, lines, count, cell
        self.and_then: Callable[[Index, Index], None] | None = None
        self.start: Index = 0

    def begin(self) -> None:
        """Emitted before the pieces of k of a block."""

    def prepare(self, start: Index, lines: Index, depth: Index) -> None:
        """Emitted before a piece of k: `depth` steps of `lines` lines, which begin at `start` in memory."""
        b, self.start = self.b, start
        if not self.makes and self.and_then is None:
            return

        def make() -> None:
            self.make(lines, depth)
            if self.and_then is not None:
                self.and_then(lines, depth)

        if self.cell is None:
            make()
            return
        # Blocks that begin at one place may have more or fewer lines: rows that are one row, or windows that overlap.
        (cells, n), key = self.cell, b.addi(b.muli(start, _MOST_LINES), lines)
        key = arith.index_cast(b.i64, b.value(key))

        def again() -> None:  # a block before has not left it there
            make()
            b.store(key, cells, n)

        b.if_(arith.cmpi(arith.CmpIPredicate.ne, b.load(cells, n), key), again)

    def make(self, lines: Index, depth: Index) -> None:
        """What a piece of k needs in scratch."""

    def chunk(self, i: Index, lines: Index, at: Index, depth: Index) -> None:
        """Emitted before the products of lines i ..., `lines` at most, in steps at ... of the piece."""

    def each(self, lines: Index, run: Run) -> None:
        """Runs of tiles that hold all lines."""
        raise NotImplementedError


def in_runs(b: Builder, lines: Index, size: int, count: int, run: Callable[[Index, int], None]) -> None:
    """run(i, tiles) for `count` tiles of `size` lines together, then for one at a time."""
    full = b.round_down(lines, count * size)
    b.for_(0, full, count * size, lambda i: run(i, count))
    if count > 1:
        b.for_(full, lines, size, lambda i: run(i, 1))


@dataclass(frozen=True)
class Scratch:
    """An area of scratch: that of words that are packed, and its elements as tiles are loaded.

    The word of step k (in groups) of line i, in a part, is at part * `part` + i * `line` + k * `panel`. Of `panel`
    lines words of one step are neighbours.
    """

    words: ir.Value
    tiles: ir.Value
    part: int
    line: int
    panel: int = 1

    @property
    def pitch(self) -> int:
        """Words between rows of a tile: lines, or of panels, steps."""
        return self.line if self.panel == 1 else self.panel

    def at(self, b: Builder, part: int, i: Index) -> Index:
        """The offset of line `i` of a part, in words."""
        inside = b.remi(i, self.panel)
        return b.sum_(b.muli(b.subi(i, inside), self.line), inside, part * self.part)


class InPanels(Provider):
    """An operand in words, as `scratch` has them: a constant one, packed before the first call.

    side: "left" or "right". exact: single tiles behind the last whole run.
    """

    in_scratch = False
    strips = False
    begun: Index = 0
    """The first step of the piece that is in scratch."""

    def __init__(
        self, b: Builder, unit: MatrixUnit, lines: Lines, scratch: Scratch, count: int, *, side: str = "right",
        exact: bool = False, cell: tuple[ir.Value, int] | None = None,
    ):  # fmt: skip
        super().__init__(b, unit, lines, count, cell)
        self.scratch, self.exact, self.size = scratch, exact, unit.rows if side == "left" else unit.columns

    @override
    def each(self, lines: Index, run: Run) -> None:
        b, s, group, origin = self.b, self.scratch, self.unit.group, 0 if self.in_scratch else self.start

        def tiles(i: Index, count: int) -> None:
            first = origin if self.strips else b.addi(origin, b.muli(i, s.line * group))

            def place(part: int, n: int, k: Index) -> Place:
                deep, line = b.muli(b.subi(k, self.begun), s.panel), s.at(b, part, n * self.size)
                return Place(s.tiles, b.sum_(first, deep, b.muli(line, group)), s.pitch * group)

            run(i, count, place)

        if self.exact:
            in_runs(b, b.muli(b.ceildivi(lines, self.size), self.size), self.size, self.count, tiles)
        else:
            b.for_(0, lines, self.count * self.size, lambda i: tiles(i, self.count))


class InScratch(InPanels):
    """An operand that is packed: all of a piece, unless it is there already, or (`strips`) one run of tiles at a time,
    some steps of k of it. turned: lines are neighbours in scratch, as those of a right operand have to be.
    """

    in_scratch = True

    def __init__(
        self, b: Builder, unit: MatrixUnit, words: Words, scratch: Scratch, count: int, *, side: str,
        turned: bool = False, exact: bool = False, strips: bool = False, cell: tuple[ir.Value, int] | None = None,
    ):  # fmt: skip
        cell = None if strips else cell
        super().__init__(b, unit, words.lines, scratch, count, side=side, exact=exact, cell=cell)
        self.words, self.turned = words, turned
        self.seen = words.range if isinstance(words, FloatWords) else None
        self.makes, self.strips = not strips, strips
        self.is_padded = side == "left" and not unit.is_numbered  # whole runs hold numbers, so that none is slow

    @override
    def begin(self) -> None:
        if self.seen is not None and self.cell is None:
            self.seen.reset()

    @override
    def make(self, lines: Index, depth: Index) -> None:
        if self.seen is not None and self.cell is not None:
            self.seen.reset()
        self.pack(self.start, lines, depth)

    @override
    def chunk(self, i: Index, lines: Index, at: Index, depth: Index) -> None:
        if self.strips:
            b, source, self.begun = self.b, self.lines, at
            start = b.sum_(self.start, b.muli(i, source.stride), b.muli(at, source.k_stride))
            self.pack(start, b.mini(lines, self.count * self.size), depth)

    def pack(self, start: Index, lines: Index, depth: Index) -> None:
        """Emit the copy of `lines` lines of `depth` steps, from element `start` on, into the scratch area."""
        b, scratch, height = self.b, self.scratch, lines
        if self.is_padded:
            height = b.muli(b.ceildivi(lines, self.count), self.count)

        def place(part: int, i: Index) -> tuple[ir.Value, Index]:
            return scratch.words, scratch.at(b, part, i)

        pack(self.words, start, lines, depth, place, scratch.pitch, turned=self.turned, height=height)


class TilesInPlace(Provider):
    """Rows of the left operand with unit stride along k, a known multiple of the unit's depth, read where they lie, in
    tiles of some rows.

    Tiles are read whole: the rows of an incomplete last one are copied to `scratch`.
    """

    makes = True

    def __init__(self, b: Builder, unit: MatrixUnit, words: Words, scratch: Scratch, count: int):
        super().__init__(b, unit, words.lines, count)
        self.last = InScratch(b, unit, words, scratch, 1, side="left")

    @override
    def make(self, lines: Index, depth: Index) -> None:
        b = self.b
        tail = b.remi(lines, self.unit.rows)
        begin = b.addi(self.start, b.muli(b.subi(lines, tail), self.lines.stride))
        b.if_(b.cmpi("sgt", tail, 0), lambda: self.last.prepare(begin, tail, depth))

    @override
    def each(self, lines: Index, run: Run) -> None:
        b, source, size = self.b, self.lines, self.unit.rows
        complete = b.round_down(lines, size)

        def tiles(i: Index, count: int) -> None:
            def place(_: int, n: int, k: Index) -> Place:
                row = b.addi(b.muli(i, source.stride), b.muli(source.stride, n * size))
                return Place(source.buffer, b.sum_(self.start, row, k), source.stride)

            run(i, count, place)

        in_runs(b, complete, size, self.count, tiles)
        b.if_(
            b.cmpi("slt", complete, lines),
            lambda: self.last.each(size, lambda _, count, tiles: run(complete, count, tiles)),
        )


class RowsInPlace(Provider):
    """Lines of an operand, one a tile, read where they lie along k: rows, or columns of a unit with `along_k`.

    exact: where their number is known, the last run has as many tiles as there are. Else its lines past the end are
    the last one again: their sums land in padding that nothing reads. Columns whose lanes are folded are always as many
    together.
    """

    filled = False

    def __init__(self, b: Builder, unit: MatrixUnit, lines: Lines, count: int, *, exact: bool = True):
        super().__init__(b, unit, lines, count)
        self.exact = exact

    @override
    def each(self, lines: Index, run: Run) -> None:
        b, source, count = self.b, self.lines, self.count
        last = None if self.exact and isinstance(lines, int) else b.subi(lines, 1)

        def tiles(i: Index, number: int) -> None:
            # One base and known distances make cheap addresses.
            first = b.addi(self.start, b.muli(i, source.stride))
            starts = [b.addi(first, b.muli(r, source.stride)) for r in range(number)]
            if last is not None:
                numbers = [b.mini(b.addi(i, r), last) for r in range(number)]
                starts = [b.addi(self.start, b.muli(x, source.stride)) for x in numbers]

            def place(_: int, r: int, k: Index) -> Place:
                return Place(source.buffer, b.addi(starts[r], b.muli(k, source.k_stride)), source.k_stride)

            run(i, number, place)

        if last is None:
            assert isinstance(lines, int)
            full = lines // count * count
            b.for_(0, full, count, lambda i: tiles(i, count))
            if lines > full:
                tiles(full, lines - full)
        else:
            b.for_(0, lines, count, lambda i: tiles(i, count))


class ColumnsInPlace(Provider):
    """Columns of the right operand with unit stride, of a unit of vectors that reads them in rows (`in_rows`)."""

    filled = False

    @override
    def each(self, lines: Index, run: Run) -> None:
        b, width, source = self.b, self.unit.columns, self.lines

        def columns(j: Index) -> None:
            left, first = b.subi(lines, j), b.addi(self.start, j)

            def tile(masks: list[ir.Value | None]) -> None:
                def place(_: int, v: int, k: Index) -> Place:
                    here = b.sum_(first, b.muli(k, source.k_stride), v * width)
                    return Place(source.buffer, here, source.k_stride, masks[v])

                run(j, self.count, place)

            def masked() -> None:
                tile([b.mask_below(b.maxi(b.subi(left, v * width), 0), width) for v in range(self.count)])

            whole = b.cmpi("sge", left, self.count * width)
            b.if_(whole, lambda: tile([None] * self.count), masked)

        b.for_(0, lines, self.count * width, columns)


def sum_rows(b: Builder, unit: IntegerUnit, rows: Provider, count: Index, depth: Index, sums: ir.Value) -> None:
    """Stores, for each of `count` rows of a left operand, what shifting the right one adds to its sums of `depth` steps
    of k, negated.
    """
    unit = unit.along_rows()
    one = unit.ones(b)

    def ones(part: int, n: int, k: Index) -> ir.Value:
        return one

    def run(i: Index, high: int, tiles: Operand) -> None:
        for r, total in enumerate(sum_products(b, unit, Grid(high, 1), tiles, ones, depth, filled=False)):
            assert isinstance(total, ir.Value)
            b.store(arith.muli(b.reduce("add", total), b.int_(-OFFSET, b.i32)), sums, b.addi(i, r))

    rows.each(count, run)
