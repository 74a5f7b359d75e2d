# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""f32 as the exact sum of three bf16: words of pairs of parts.

The upper half of a float's bits is a bf16 with its first 8 significant bits. What is left, x - high, is exact and has
16 at most, of which the same step takes 8, so that high + middle + low = x for 24. Products of parts are exact in f32;
of the nine of x * y six are taken, and the others are below 2^-21 of x * y (2^-24 on the average, as rounding a product
to f32 is). See Henry, Tang and Heinecke, "Leveraging the bfloat16 Artificial Intelligence Datatype For Higher-Precision
Computations" (2019).

That holds for zero and for 2^-100 <= |x| < infinity: below, parts may be subnormal numbers, which AMX takes as zero,
and infinity less infinity is no number. `Range` is what packing sees of its operand, to say so.
"""

from torch_mlir import ir
from torch_mlir.dialects import arith, vector
from typing_extensions import override

from kiln.lowering.cpu.builder import Builder, Index
from kiln.lowering.cpu.contraction.unit import MatrixUnit
from kiln.lowering.cpu.contraction.words import LANES, Lines, Words

__all__ = ["PARTS", "RANGE_BYTES", "FloatWords", "Range"]

PARTS = 3
RANGE_BYTES = 2 * 4 * LANES
_UPPER = -(1 << 16)
_LEAST = (127 - 100) << 23  # the bits of 2^-100
_INFINITY = 0xFF << 23


class Range:
    """The least number but zero, and the largest, of what was packed, by magnitude; kept in scratch."""

    def __init__(self, b: Builder, scratch: ir.Value, offset: Index):
        self.b, self.bits = b, b.vec(LANES, b.i32)
        self.cells = b.view(scratch, offset, 2 * LANES, b.i32)

    def reset(self) -> None:
        """Nothing was packed."""
        self._store(*(self.b.int_(x, self.bits) for x in (-1, 0)))

    def see(self, x: ir.Value) -> None:
        """Take note of a vector of f32; a zero counts as the largest integer among the least."""
        least, most = self._load()
        magnitude = arith.andi(vector.bitcast(self.bits, x), self.b.int_(0x7FFFFFFF, self.bits))
        least = arith.minui(least, arith.addi(magnitude, self.b.int_(-1, self.bits)))
        self._store(least, arith.maxui(most, magnitude))

    def is_beyond(self) -> ir.Value:
        """Whether there was a number that the sum of its parts is not."""
        b = self.b
        least, most = (b.reduce(kind, x) for kind, x in zip(("minui", "maxui"), self._load(), strict=True))
        below = arith.cmpi(arith.CmpIPredicate.ult, least, b.int_(_LEAST - 1, b.i32))
        return arith.ori(below, arith.cmpi(arith.CmpIPredicate.uge, most, b.int_(_INFINITY, b.i32)))

    def _load(self) -> list[ir.Value]:
        """The bits of the least and the largest number so far, of each lane."""
        return [self.b.vload(self.cells, i * LANES, LANES) for i in range(2)]

    def _store(self, *bits: ir.Value) -> None:
        for i, x in enumerate(bits):
            self.b.vstore(x, self.cells, i * LANES)


class FloatWords(Words):
    """Words of f32: of each of the three parts, pairs along k."""

    parts = PARTS

    def __init__(self, b: Builder, lines: Lines, unit: MatrixUnit, range_: Range):
        super().__init__(b, lines, unit)
        self.vector = b.vec(LANES, b.i32)
        self.range = range_

    @override
    def along(self, at: Index, count: Index | None = None) -> list[ir.Value]:
        b, lines, halves = self.b, self.lines, self.b.vec(2 * LANES, self.b.i16)

        def load(half: int) -> ir.Value:
            left = LANES if count is None else b.maxi(b.subi(count, half * LANES), 0)
            start = b.addi(at, b.muli(lines.k_stride, half * LANES))
            return b.gather(lines.buffer, start, lines.k_stride, LANES, b.mask_below(left, LANES))

        def beside(first: ir.Value, second: ir.Value) -> ir.Value:
            """The upper halves of 16 i32, then of 16 others."""
            x, y = (vector.bitcast(halves, v) for v in (first, second))
            return vector.bitcast(first.type, b.shuffle(x, y, range(1, 4 * LANES, 2)))

        return [beside(x, y) for x, y in zip(*(self.split(load(half)) for half in range(2)), strict=True)]

    @override
    def across(self, at: Index, lines: Index, count: Index | None = None) -> list[ir.Value]:
        even, odd = (self.split(self.neighbours(at, e, lines, count)) for e in range(2))
        half = self.b.int_(16, even[0].type)
        return [arith.ori(arith.shrui(x, half), y) for x, y in zip(even, odd, strict=True)]

    def split(self, x: ir.Value) -> list[ir.Value]:
        """The three parts of 16 f32, in the upper halves of i32 (the lower ones are zero)."""
        b, bits = self.b, self.b.vec(LANES, self.b.i32)
        self.range.see(x)

        def upper(x: ir.Value) -> ir.Value:
            return arith.andi(vector.bitcast(bits, x), b.int_(_UPPER, bits))

        high = upper(x)
        rest = arith.subf(x, vector.bitcast(x.type, high))
        middle = upper(rest)
        return [high, middle, vector.bitcast(bits, arith.subf(rest, vector.bitcast(x.type, middle)))]

    @override
    def element(self, x: ir.Value) -> ir.Value:
        return x
