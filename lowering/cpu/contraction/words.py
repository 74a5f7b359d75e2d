# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Operands of matrix units as words: steps of k that lie next to each other (one float, pairs of bf16, fours of i8).

`Words` reads the lines of an operand (rows of a left one, columns of a right one) from memory; `pack` copies them to
scratch. Both are for vectors of as many words as a tile of the unit has columns.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from torch_mlir import ir
from torch_mlir.dialects import arith, llvm

from kiln.lowering.cpu.builder import Builder, Condition, Index
from kiln.lowering.cpu.contraction.bf16 import from_memory
from kiln.lowering.cpu.contraction.pack import transpose_registers
from kiln.lowering.cpu.contraction.unit import MatrixUnit

__all__ = ["LANES", "Lines", "Words", "pack"]

LANES = 16


@dataclass(frozen=True)
class Lines:
    """An operand in memory: step k of line i is element `start + i * stride + k * k_stride`, whatever the start."""

    buffer: ir.Value
    stride: Index
    k_stride: Index


class Words:
    """Words of the lines of an operand as a unit wants them: `unit.group` neighbours along k, in vectors of
    `unit.columns` words. A word of one float is itself, in the type of the sums; of bf16 (or i8 as bf16) and i8 words
    are integers of as many bits.
    """

    parts = 1
    """Words that stand for one group of steps of k."""

    def __init__(self, b: Builder, lines: Lines, unit: MatrixUnit, side: str = "right"):
        self.b, self.lines, self.group, self.lanes = b, lines, unit.group, unit.columns
        self.operands = unit.operands
        self.is_widened = unit.operands == "i8" and unit.bits(side) == 16
        word = ir.IntegerType.get_signless(unit.group * unit.bits(side))
        if unit.group == 1:
            word = {"f32": b.f32, "f64": b.f64}[unit.operands]
        self.vector = b.vec(self.lanes, word)

    def along(self, at: Index, count: Index | None = None) -> list[ir.Value]:
        """Words of a line, in each part. at: the first element. count: elements before the line's end; None: all."""
        b, lanes = self.b, self.lanes * self.group
        mask = None if count is None else b.mask_below(count, lanes)
        return [self.words(self.element(b.gather(self.lines.buffer, at, self.lines.k_stride, lanes, mask)))]

    def across(self, at: Index, lines: Index, count: Index | None = None) -> list[ir.Value]:
        """One word of each of some lines, in each part. lines: how many there are. count: steps of k before the end."""
        x = [self.neighbours(at, e, lines, count) for e in range(self.group)]
        while len(x) > 1:
            size, columns = self.group // len(x), range(self.lanes)
            lanes = [side * self.lanes * size + c * size + e for c in columns for side in range(2) for e in range(size)]
            x = [self.b.shuffle(x[i], x[i + 1], lanes) for i in range(0, len(x), 2)]
        return [self.words(x[0])]

    def neighbours(self, at: Index, e: int, lines: Index, count: Index | None) -> ir.Value:
        """Step e behind `at` of some lines; zeros for those that are none, and behind the last step."""
        b = self.b
        if count is not None:
            lines = b.select_index(b.cmpi("slt", e, count), lines, 0)
        start = b.addi(at, b.muli(self.lines.k_stride, e))
        x = b.gather(self.lines.buffer, start, self.lines.stride, self.lanes, b.mask_below(lines, self.lanes))
        return self.element(x)

    def element(self, x: ir.Value) -> ir.Value:
        """Elements from memory as those that are multiplied."""
        if self.operands == "i8":
            lanes = ir.VectorType(x.type).shape[0]
            return arith.extsi(self.b.vec(lanes, self.b.i16), x) if self.is_widened else x
        return from_memory(self.b, x) if self.operands == "bf16" else self.b.cast_float(x, self.vector.element_type)

    def words(self, x: ir.Value) -> ir.Value:
        """A vector of elements as words of the unit."""
        return x if self.group == 1 else llvm.bitcast(self.vector, x)

    # What is seen of the numbers on the way is carried by loops and branches (contraction/parts.py).

    def for_(self, low: Index, high: Index, step: Index, body: Callable[[Index], None]) -> None:
        """Emit a loop that carries nothing."""
        self.b.for_(low, high, step, lambda i: body(i) and None)

    def if_(self, condition: Condition, body: Callable[[], None]) -> None:
        """Emit a branch that carries nothing."""
        self.b.if_(condition, body)

    def begin(self) -> None:
        """Emitted before the first word."""

    def end(self) -> None:
        """Emitted behind the last word."""


Place = Callable[[int, Index], tuple[ir.Value, Index]]
"""place(part, i): the buffer of words and where line i begins."""


def pack(
    words: Words, start: Index, lines: Index, depth: Index, place: Place, pitch: int, *, turned: bool,
    height: Index | None = None,
) -> None:  # fmt: skip
    """Copies `depth` steps of k of `lines` lines to scratch, in each part; zeros fill k up to a vector of words.

    height: lines to write of a left operand; those past the last one repeat it, or are zero.

    turned: False for a left operand, whose lines are rows of words in scratch. True for a right one: vectors of one
    word of each of some lines, `pitch` apart from word to word; a place is asked for lines a multiple of their number.

    What memory has in the other order is transposed in registers. Whole vectors of lines are written.
    """
    height = lines if height is None else height
    b, source, group, lanes = words.b, words.lines, words.group, words.lanes
    is_near = isinstance(source.stride, int) and source.stride in (1, 2)  # vectors of lines are one load or two
    is_along = isinstance(source.k_stride, int) and source.k_stride == 1 or not turned and not is_near
    words.begin()
    read = _along if is_along else _across
    unrolled = words.parts == 1 if is_along else words.parts * group <= 2
    unit = group if turned and not is_along else lanes * group
    full = b.round_down(depth, unit)
    tail = b.subi(depth, full)
    end, clamped = b.subi(lines, 1) if is_along else lines, height is not lines or turned and is_along

    def some(i: Index) -> None:
        vector = read(words, start, i, end, clamped, lanes if turned and unrolled else 0)

        def copy(k: Index, left: Index | None = None) -> None:
            step = b.muli(b.divi(k, group), pitch if turned else 1)
            to = [(buffer, b.addi(at, step)) for buffer, at in (place(part, i) for part in range(words.parts))]
            if is_along != turned:
                _store(b, vector(0, k, left), to)
            else:
                _transposed(words, lambda r: vector(r, k, left), to, pitch, unrolled)

        words.for_(0, full, unit, copy)
        words.if_(b.cmpi("sgt", tail, 0), lambda: copy(full, tail))
        if turned and not is_along:
            _fill(words, depth, [place(part, i) for part in range(words.parts)], pitch)

    words.for_(0, height, 1 if is_along and not turned else lanes, some)
    words.end()


_Read = Callable[[Index, Index, Index | None], list[ir.Value]]
"""read(r, k, left): the r-th vector of a square of words from step k on, of which `left` steps are there."""


def _along(words: Words, start: Index, i: Index, last: Index, clamped: bool, known: int) -> _Read:
    """Vectors of words of line i + r; clamped: of the last line for those behind it. known: of so many lines it is
    computed once where they begin.
    """
    b, source = words.b, words.lines

    def row(r: Index) -> Index:
        number = b.mini(b.addi(i, r), last) if clamped else i
        return b.addi(start, b.muli(number, source.stride))

    rows = [row(r) for r in range(known)]

    def read(r: Index, k: Index, left: Index | None) -> list[ir.Value]:
        at = rows[r] if isinstance(r, int) and rows else row(r)
        return words.along(b.addi(at, b.muli(k, source.k_stride)), left)

    return read


def _across(words: Words, start: Index, i: Index, lines: Index, clamped: bool, known: int) -> _Read:
    """Vectors of the r-th word of lines i ...; clamped: there may be none of these."""
    b, source = words.b, words.lines
    here = b.mini(b.subi(lines, i), words.lanes)
    here = b.maxi(here, 0) if clamped else here
    first = b.addi(start, b.muli(i, source.stride))

    def read(r: Index, k: Index, left: Index | None) -> list[ir.Value]:
        steps = b.muli(r, words.group)
        there = None if left is None else b.maxi(b.subi(left, steps), 0)
        return words.across(b.addi(first, b.muli(b.addi(k, steps), source.k_stride)), here, there)

    return read


def _store(b: Builder, vectors: list[ir.Value], to: Sequence[tuple[ir.Value, Index]]) -> None:
    for x, (buffer, at) in zip(vectors, to, strict=True):
        b.vstore(x, buffer, at)


def _transposed(
    words: Words, vector: Callable[[Index], list[ir.Value]], to: Sequence[tuple[ir.Value, Index]], pitch: int,
    unrolled: bool = False,
) -> None:  # fmt: skip
    """Vectors of words, transposed in registers, `pitch` apart; from where they go, if they are made in a loop, whose
    code is short.
    """
    b = words.b
    if unrolled:
        made = [vector(r) for r in range(words.lanes)]
    else:

        def stage(r: Index) -> None:
            _store(b, vector(r), [(x, b.addi(at, b.muli(r, pitch))) for x, at in to])

        words.for_(0, words.lanes, 1, stage)
        made = [[b.vload(x, b.addi(at, r * pitch), words.lanes) for x, at in to] for r in range(words.lanes)]
    for part, (buffer, at) in enumerate(to):
        for q, x in enumerate(transpose_registers(b, [vectors[part] for vectors in made])):
            b.vstore(x, buffer, b.addi(at, q * pitch))


def _fill(words: Words, depth: Index, places: Sequence[tuple[ir.Value, Index]], pitch: int) -> None:
    """Zeros for the groups of steps that the last 16 have too many."""
    b = words.b
    end = b.muli(b.ceildivi(depth, words.lanes * words.group), words.lanes)
    zeros = [b.zero(words.vector)] * len(places)
    b.for_(
        b.ceildivi(depth, words.group), end, 1,
        lambda q: _store(b, zeros, [(x, b.addi(at, b.muli(q, pitch))) for x, at in places]),
    )  # fmt: skip
