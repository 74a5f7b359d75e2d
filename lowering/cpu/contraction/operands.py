# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Where the tiles of an operand of a product come from: memory as it is, panels packed before, or scratch.

A provider is prepared for a piece of k of a block (`prepare`), then says for runs of tiles where they lie (`each`).
Lines are rows of the left operand and columns of the right one.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from torch_mlir import ir
from torch_mlir.dialects import arith
from typing_extensions import override

from kiln.lowering.cpu.builder import Builder, Index
from kiln.lowering.cpu.contraction.parts import Range
from kiln.lowering.cpu.contraction.sums import Operand
from kiln.lowering.cpu.contraction.unit import MatrixUnit, Place
from kiln.lowering.cpu.contraction.words import LANES, Words, pack

__all__ = ["InPanels", "InPlace", "InScratch", "Provider", "Run", "Scratch", "once"]

Run = Callable[[Index, int, Callable[[Index], Operand]], None]
"""run(i, count, tiles): `count` tiles of lines i ...; tiles(at): where they lie from step `at` on."""


class Provider(Protocol):
    """An operand of a product."""

    def begin(self) -> None:
        """Emitted before the pieces of k of a block."""

    def prepare(self, start: Index, lines: Index, depth: Index) -> None:
        """Emitted before a piece of k: `depth` steps of `lines` lines, which begin at `start` in memory."""

    def chunk(self, i: Index, lines: Index, at: Index, depth: Index) -> None:
        """Emitted before the products of lines i ..., `lines` at most, in steps at ... of the piece."""

    def each(self, lines: Index, run: Run) -> None:
        """Runs of tiles that hold all lines."""


def once(b: Builder, cells: ir.Value, cell: int, key: Index, make: Callable[[], None]) -> None:
    """Makes what a block needs in scratch, unless a block before has left it there: `cells[cell]` holds the key of what
    is there, where it begins in memory; -1: nothing.
    """
    start = arith.index_cast(b.i64, b.value(key))

    def again() -> None:
        make()
        b.store(start, cells, cell)

    b.if_(arith.cmpi(arith.CmpIPredicate.ne, b.load(cells, cell), start), again)


def _runs(b: Builder, low: Index, lines: Index, unit: int, count: int, run: Callable[[Index, int], None]) -> None:
    """run(i, tiles) for `count` tiles of `unit` lines together, then for one at a time."""
    full = b.addi(low, b.round_down(b.subi(lines, low), count * unit))
    b.for_(low, full, count * unit, lambda i: run(i, count))
    if count > 1:
        b.for_(full, lines, unit, lambda i: run(i, 1))


@dataclass(frozen=True)
class Scratch:
    """Words in scratch: that of step k (in groups) of line i, in a part, at part * `part` + i * `line` + k * `step`.

    pitch: between rows of a tile.
    """

    buffer: ir.Value
    part: int
    line: int
    step: int
    pitch: int

    def at(self, part: int, i: Index, b: Builder) -> Index:
        """The element offset of line `i` of a part."""
        return b.addi(b.muli(i, self.line), part * self.part)


class InScratch(Provider):
    """An operand that is packed: all of a piece, unless it is there already, or (`strips`) one run of tiles at a time,
    some steps of k of it.

    turned: it is the right operand. count: tiles of a run. exact: single tiles behind the last whole run. cell: the
    cells, and which of them says what is packed; None: the piece is not all of k.
    """

    def __init__(
        self, b: Builder, unit: MatrixUnit, words: Words, scratch: Scratch, count: int, *, turned: bool,
        exact: bool = False, strips: bool = False, cell: tuple[ir.Value, int] | None = None, seen: Range | None = None,
    ):  # fmt: skip
        self.b, self.unit, self.words, self.scratch, self.count, self.turned = b, unit, words, scratch, count, turned
        self.exact, self.strips, self.cell, self.seen = exact, strips, cell, seen
        self.start: Index = 0

    @override
    def begin(self) -> None:
        if self.seen is not None and self.cell is None:
            self.seen.reset()

    @override
    def prepare(self, start: Index, lines: Index, depth: Index) -> None:
        self.start = start
        if self.strips:
            return
        if self.cell is None:
            self.pack(start, lines, depth)
            return

        def make() -> None:
            if self.seen is not None:
                self.seen.reset()
            self.pack(start, lines, depth)

        once(self.b, *self.cell, start, make)

    @override
    def chunk(self, i: Index, lines: Index, at: Index, depth: Index) -> None:
        if self.strips:
            b, source = self.b, self.words.lines
            start = b.sum_(self.start, b.muli(i, source.stride), b.muli(at, source.k_stride))
            self.pack(start, b.mini(lines, self.count * LANES), depth)

    def pack(self, start: Index, lines: Index, depth: Index) -> None:
        """Emit the copy of `lines` lines of `depth` elements, from element `start` on, into the scratch area."""
        scratch = self.scratch

        def place(part: int, i: Index) -> tuple[ir.Value, Index]:
            return scratch.buffer, scratch.at(part, i, self.b)

        pack(self.words, start, lines, depth, place, scratch.pitch, turned=self.turned)

    @override
    def each(self, lines: Index, run: Run) -> None:
        b, s = self.b, self.scratch

        def tiles(i: Index, count: int) -> None:
            first = 0 if self.strips else b.muli(i, s.line)

            def from_step(at: Index) -> Operand:
                def place(part: int, n: int, k: Index) -> Place:
                    deep = b.divi(k if self.strips else b.addi(at, k), self.unit.group)
                    where = b.sum_(first, b.muli(deep, s.step), part * s.part + n * LANES * s.line)
                    return Place(s.buffer, where, s.pitch)

                return place

            run(i, count, from_step)

        if self.exact:
            complete = b.muli(b.ceildivi(lines, LANES), LANES)
            _runs(b, 0, complete, LANES, self.count, tiles)
        else:
            b.for_(0, lines, self.count * LANES, lambda i: tiles(i, self.count))


class InPlace(Provider):
    """Rows of the left operand with unit stride along k, a known multiple of the unit's depth, read where they lie.

    Tiles are read whole: the rows of an incomplete last one are copied to `scratch`.
    """

    def __init__(self, b: Builder, unit: MatrixUnit, words: Words, scratch: Scratch, count: int):
        self.b, self.unit, self.words, self.count = b, unit, words, count
        self.last = InScratch(b, unit, words, scratch, 1, turned=False)
        self.start: Index = 0

    @override
    def prepare(self, start: Index, lines: Index, depth: Index) -> None:
        b = self.b
        self.start = start
        tail = b.remi(lines, LANES)
        begin = b.addi(start, b.muli(b.subi(lines, tail), self.words.lines.stride))
        b.if_(b.cmpi("sgt", tail, 0), lambda: self.last.prepare(begin, tail, depth))

    @override
    def each(self, lines: Index, run: Run) -> None:
        b, source = self.b, self.words.lines
        complete = b.round_down(lines, LANES)

        def tiles(i: Index, count: int) -> None:
            def from_step(at: Index) -> Operand:
                def place(part: int, n: int, k: Index) -> Place:
                    row = b.addi(b.muli(i, source.stride), b.muli(source.stride, n * LANES))
                    return Place(source.buffer, b.sum_(self.start, row, at, k), source.stride)

                return place

            run(i, count, from_step)

        _runs(b, 0, complete, LANES, self.count, tiles)

        def copied(i: Index, count: int, place: Any) -> None:
            run(complete, count, place)

        b.if_(b.cmpi("slt", complete, lines), lambda: self.last.each(LANES, copied))


class InPanels(Provider):
    """A constant right operand, packed before the first call: [panel][k / group][column][group], `count` tiles of
    columns a panel, column j of the operand at j * stride.
    """

    def __init__(self, b: Builder, unit: MatrixUnit, buffer: ir.Value, stride: Index, count: int):
        self.b, self.unit, self.buffer, self.stride, self.count = b, unit, buffer, stride, count
        self.start: Index = 0

    @override
    def prepare(self, start: Index, lines: Index, depth: Index) -> None:
        self.start = start

    @override
    def each(self, lines: Index, run: Run) -> None:
        b, width, group = self.b, self.count * LANES, self.unit.group

        def tiles(j: Index) -> None:
            first = b.addi(self.start, b.muli(j, self.stride))

            def from_step(at: Index) -> Operand:
                def place(part: int, n: int, k: Index) -> Place:
                    at_k = b.muli(b.addi(at, k), width)
                    return Place(self.buffer, b.sum_(first, at_k, n * LANES * group), width * group)

                return place

            run(j, self.count, from_step)

        b.for_(0, lines, width, tiles)
