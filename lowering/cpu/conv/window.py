# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Which elements of the window meet the image: rows (and planes) in loops, columns in tiles of a row of the result."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import gcd
from sys import maxsize
from typing import NamedTuple

from torch_mlir import ir

from kiln.lowering.cpu.builder import Builder, Index
from kiln.lowering.cpu.conv.problem import Axis, ConvProblem
from kiln.lowering.cpu.problem import known, volume

__all__ = ["Phase", "Run", "Span", "Valid", "Window", "everywhere", "find_phases", "row_count", "tile_runs"]

Valid = tuple[tuple[int, int], ...]
"""For each column of the window the range of a tile's pixels that have input for it."""


class Span(NamedTuple):
    """The columns of the window, by their number, that have input for one pixel."""

    low: Index
    high: Index


@dataclass(frozen=True)
class Phase:
    """Columns j = period * i + remainder of the result, i = 0, 1, ...: the t-th of `count` columns of the window that
    they meet is first + t * step, at column i * stride + offset + t * apart of the input.

    All columns of a convolution are one phase; a transposed one has a phase for each remainder modulo its stride, which
    is a dense convolution of stride 1 by some columns of the window.
    """

    count: int
    stride: int
    offset: int
    apart: int
    period: int = 1
    remainder: int = 0
    first: int = 0
    step: int = 1

    def reach(self, t: int) -> int:
        """The column of the input, for i = 0."""
        return self.offset + t * self.apart

    @property
    def reaches(self) -> list[int]:
        """Those of all columns of the window."""
        return [self.reach(t) for t in range(self.count)] or [0]

    def valid(self, width: int, start: int, count: int) -> Valid:
        """The pixels of a tile, relative to its start, for which each column of the window lies inside of the input."""
        valid = [
            (max(0, -(x // self.stride) - start), min(count, (width - 1 - x) // self.stride + 1 - start))
            for x in map(self.reach, range(self.count))
        ]
        return tuple((low, high) if low < high else (0, 0) for low, high in valid)

    @property
    def is_forward(self) -> bool:
        """Whether later columns of the window meet later ones of the input: those of a transposed convolution, of any
        stride, meet earlier ones, from behind the image on, with padding or without.
        """
        return self.apart > 0

    @property
    def left(self) -> int:
        """The first columns, which find padding at the left border."""
        return max(0, -(min(self.reaches) // self.stride))

    def left_tile(self, count: int) -> Valid:
        """What `valid` is for the first tile of a row that finds no padding at the right border."""
        return self.valid(maxsize, 0, count)

    def right_tile(self, count: int, padding: int) -> Valid | None:
        """What `valid` is for the last tile of a row of stride 1, `padding` of whose columns find padding at the right
        border, and none of whose columns find padding at the left one; None where the stride is another.
        """
        if self.stride > 1:
            return None
        start = -min(0, *self.reaches)
        return self.valid(start + count - padding + max(self.reaches), start, count)

    def interior(self, b: Builder, axis: Axis, last: Index) -> tuple[Index, Index]:
        """Columns [low, high) of the phase, at most `last`, whose whole window lies inside of the input."""
        if not self.count or self.is_forward and axis.padding == 0:
            return 0, last
        low = b.mini(self.left, last)
        high = b.ceildivi(b.maxi(b.subi(known(axis.size), max(self.reaches)), 0), self.stride)
        return low, b.maxi(b.mini(high, last), low)

    def inside(self, b: Builder, axis: Axis, i: Index) -> Span:
        """The columns of the window that lie inside of the input for a column of the phase."""
        if not self.count or self.is_forward and axis.padding == 0:
            return Span(0, self.count)
        at = b.addi(b.muli(i, self.stride), self.offset)
        before, behind = b.subi(0, at), b.subi(known(axis.size), at)
        if self.apart < 0:
            before, behind = b.subi(1, behind), b.subi(1, before)
        low, high = (b.ceildivi(b.maxi(x, 0), abs(self.apart)) for x in (before, behind))
        return Span(low, b.mini(high, self.count))


def taps(axis: Axis) -> tuple[int, int]:
    """(step, back) of a transposed convolution: which elements of the window meet one position of the result.

    Position i gets x[h] * weight[y] where h * stride + y * dilation = i + padding: every `step`-th element of the
    window from one that depends on i on, each with the input `back` positions before that of the last one.
    """
    common = gcd(axis.stride, axis.dilation)
    return axis.stride // common, axis.dilation // common


def phase_of(axis: Axis) -> Phase:
    """The one phase of a dim of a convolution that is not transposed."""
    return Phase(axis.kernel, axis.stride, -axis.padding, axis.dilation)


def find_phases(p: ConvProblem) -> list[Phase]:
    """The phases of a row; some of a transposed convolution may meet no column of the window."""
    axis = p.column
    if not p.transposed:
        return [phase_of(axis)]
    step, back = taps(axis)
    phases: list[Phase] = []
    for remainder in range(axis.stride):
        at = remainder + axis.padding
        first = next((z for z in range(min(step, axis.kernel)) if (at - z * axis.dilation) % axis.stride == 0), None)
        count = 0 if first is None else -(-(axis.kernel - first) // step)
        offset = 0 if first is None else (at - first * axis.dilation) // axis.stride
        phases.append(Phase(count, 1, offset, -back, axis.stride, remainder, first or 0, step))
    return phases


@dataclass(frozen=True)
class Run:
    """Columns [first, last) of a phase whose tiles, of `count` pixels, one piece of code computes: of equal padding."""

    first: int
    last: int
    count: int
    valid: Valid


def everywhere(count: int, window: int) -> Valid:
    """The ranges of a tile without padding."""
    return ((0, count),) * window


def tile_runs(p: ConvProblem, phase: Phase, mr: int) -> list[Run] | None:
    """The tiles of mr columns of a phase (the last one may be smaller) of a row of known size; None where it is not
    known. Those inside, which find no padding, are one run.
    """
    if not isinstance(p.column.results, int) or not isinstance(p.column.size, int):
        return None
    columns = max(0, -(-(p.column.results - phase.remainder) // phase.period))
    low, high = 0, columns
    if phase.count:
        low = phase.left
        high = max(0, min(columns, -((max(phase.reaches) - p.column.size) // phase.stride)))
    first, last = -(-low // mr), high // mr  # whole tiles inside
    runs: list[Run] = []
    t, tiles = 0, -(-columns // mr)
    while t < tiles:
        if first <= t < last:
            runs.append(Run(t * mr, last * mr, mr, everywhere(mr, phase.count)))
            t = last
            continue
        count = min(mr, columns - t * mr)
        valid = phase.valid(p.column.size, t * mr, count)
        if runs and runs[-1].count == count and runs[-1].valid == valid:
            runs[-1] = Run(runs[-1].first, t * mr + count, count, valid)
        else:
            runs.append(Run(t * mr, t * mr + count, count, valid))
        t += 1
    return runs


Step = Callable[[Index, Sequence[Index], list[ir.Value]], list[ir.Value] | None]


def row_count(b: Builder, p: ConvProblem) -> Index:
    """The rows of one image of the result, in all of its planes."""
    return volume(b, (axis.results for axis in p.lines))


class Window:
    """The rows of the window for row `row` (of all planes) of the result.

    x: the address of the image, with the channel, and the column for the tile that asks.
    """

    def __init__(self, b: Builder, p: ConvProblem, x: Index, row: Index):
        self.b, self.p = b, p
        self.axes: list[_Forward | _Backward] = []
        *outer, last = p.lines
        places = [row]
        if outer:
            rows = known(last.results)
            places = [b.divi(row, rows), b.remi(row, rows)]
        for axis, place in zip(p.lines, places, strict=True):
            made = (_Backward if p.transposed else _Forward)(b, axis, place)
            self.axes.append(made)
            x = b.addi(x, made.start)
        self.x = x

    def fold(self, body: Step, acc: Sequence[ir.Value] = (), shift: Index = 0) -> list[ir.Value]:
        """`acc = body(address, index in the window, acc)` for each row; the address is `shift` elements further on."""
        return self._loop(body, self.axes, self.b.addi(self.x, shift), [], acc)

    def _loop(
        self, body: Step, axes: Sequence["_Forward | _Backward"], x: Index, index: list[Index], acc: Sequence[ir.Value]
    ) -> list[ir.Value]:
        if not axes:
            return list(body(x, index, list(acc)) or ())
        axis, *rest = axes

        def inside(y: Index, acc: Sequence[ir.Value] = ()) -> list[ir.Value]:
            return self._loop(body, rest, self.b.addi(x, axis.offset(y)), [*index, y], acc)

        return self.b.for_(axis.low, axis.high, axis.step, inside, list(acc))

    def flat(self, index: Sequence[Index]) -> Index:
        """The number of a row of the window among those of all planes."""
        number: Index = 0
        for axis, y in zip(self.p.lines, index, strict=True):
            number = self.b.addi(self.b.muli(number, axis.kernel), y)
        return number


class _Forward:
    """Input i * stride - padding + y * dilation for element y of the window."""

    step = 1

    def __init__(self, b: Builder, axis: Axis, place: Index):
        self.b, self.axis = b, axis
        self.low, self.high = phase_of(axis).inside(b, axis, place)
        self.start = b.muli(b.subi(b.muli(place, axis.stride), axis.padding), known(axis.x_stride))

    def offset(self, y: Index) -> Index:
        return self.b.muli(y, self.b.muli(self.axis.dilation, known(self.axis.x_stride)))


class _Backward:
    """Input (i + padding - y * dilation) / stride for those elements y of the window for which it is whole."""

    start = 0

    def __init__(self, b: Builder, axis: Axis, place: Index):
        self.b, self.axis = b, axis
        self.step, back = taps(axis)
        common = axis.stride // self.step
        self.at = b.addi(place, axis.padding)
        behind = b.addi(b.subi(self.at, b.muli(known(axis.size), axis.stride)), 1)
        low = b.ceildivi(b.maxi(behind, 0), axis.dilation)
        # The next element whose distance from the position is a multiple of the stride.
        first = b.muli(b.divi(self.at, common), pow(back, -1, self.step)) if self.step > 1 else 0
        self.low = b.addi(low, b.remi(b.addi(first, b.muli(low, self.step - 1)), self.step))
        self.high = b.mini(b.addi(b.divi(self.at, axis.dilation), 1), axis.kernel)
        if common > 1:
            self.high = b.select_index(b.cmpi("eq", b.remi(self.at, common), 0), self.high, 0)

    def offset(self, y: Index) -> Index:
        b, axis = self.b, self.axis
        row = b.divi(b.subi(self.at, b.muli(y, axis.dilation)), axis.stride)
        return b.muli(row, known(axis.x_stride))
