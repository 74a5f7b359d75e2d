# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Operands of matrix units as words: steps of k that lie next to each other (one float, pairs of bf16, fours of i8).

`Words` reads the lines of an operand (rows of a left one, columns of a right one) from memory; `pack` copies them to
scratch. Both are for vectors of as many words as a tile of the unit has columns.
"""

from collections.abc import Callable
from dataclasses import dataclass

from torch_mlir import ir
from torch_mlir.dialects import arith, llvm

from kiln.lowering.cpu.bf16 import from_memory
from kiln.lowering.cpu.builder import Builder, Index
from kiln.lowering.cpu.contraction.unit import MatrixUnit
from kiln.lowering.cpu.problem import element_type
from kiln.lowering.cpu.transpose import transpose_registers

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
        word = unit.operands if unit.group == 1 else f"i{unit.group * unit.bits(side)}"
        self.vector = b.vec(self.lanes, element_type(word))

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
    vectors = lanes if is_along == turned else 1  # of a square that is transposed, or one that lies as in scratch
    unit = group if turned and not is_along else lanes * group
    full = b.round_down(depth, unit)
    tail = b.subi(depth, full)
    clamped = height is not lines or turned and is_along

    def some(i: Index) -> None:
        places = [place(part, i) for part in range(words.parts)]
        read = (
            _along(words, start, i, lines, vectors, clamped) if is_along else _across(words, start, i, lines, clamped)
        )

        def copy(k: Index, left: Index | None = None) -> None:
            step = b.muli(b.divi(k, group), pitch if turned else 1)
            rows = [read(r, k, left) for r in range(vectors)]
            for (buffer, at), made in zip(places, zip(*rows, strict=True), strict=True):
                for q, x in enumerate(made if vectors == 1 else transpose_registers(b, made)):
                    b.vstore(x, buffer, b.sum_(at, step, q * pitch))

        def clear(q: Index) -> None:
            for buffer, at in places:
                b.vstore(b.zero(words.vector), buffer, b.addi(at, b.muli(q, pitch)))

        b.for_(0, full, unit, copy)
        b.if_(b.cmpi("sgt", tail, 0), lambda: copy(full, tail))
        if turned and not is_along:  # the groups of steps that the last vector of words has too many
            b.for_(b.ceildivi(depth, group), b.muli(b.ceildivi(depth, lanes * group), lanes), 1, clear)

    b.for_(0, height, 1 if is_along and not turned else lanes, some)


_Read = Callable[[int, Index, Index | None], list[ir.Value]]
"""read(r, k, left): the r-th vector of words from step k on, of which `left` steps are there, in each part."""


def _along(words: Words, start: Index, i: Index, lines: Index, count: int, clamped: bool) -> _Read:
    """Vectors of words of each of `count` lines from i on; clamped: of the last line for those behind it."""
    b, source, last = words.b, words.lines, words.b.subi(lines, 1)
    numbers = [b.mini(b.addi(i, r), last) if clamped else b.addi(i, r) for r in range(count)]
    rows = [b.addi(start, b.muli(number, source.stride)) for number in numbers]
    return lambda r, k, left: words.along(b.addi(rows[r], b.muli(k, source.k_stride)), left)


def _across(words: Words, start: Index, i: Index, lines: Index, clamped: bool) -> _Read:
    """Vectors of the r-th word of lines i ...; clamped: there may be none of these."""
    b, source = words.b, words.lines
    here = b.mini(b.subi(lines, i), words.lanes)
    here = b.maxi(here, 0) if clamped else here
    first = b.addi(start, b.muli(i, source.stride))

    def read(r: int, k: Index, left: Index | None) -> list[ir.Value]:
        steps = r * words.group
        there = None if left is None else b.maxi(b.subi(left, steps), 0)
        return words.across(b.addi(first, b.muli(b.addi(k, steps), source.k_stride)), here, there)

    return read
