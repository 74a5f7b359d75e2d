# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""f32 as the exact sum of three bf16, and operands of AMX that are made of such parts.

The upper half of a float's bits is a bf16 with its first 8 significant bits. What is left, x - high, is exact and has
16 at most, of which the same step takes 8, so that high + middle + low = x for 24. Products of parts are exact in f32;
of the nine of x * y six are taken, and the others are below 2^-21 of x * y (2^-24 on the average, as rounding a product
to f32 is). See Henry, Tang and Heinecke, "Leveraging the bfloat16 Artificial Intelligence Datatype For Higher-Precision
Computations" (2019).

That holds for zero and for 2^-100 <= |x| < infinity: below, parts may be subnormal numbers, which AMX takes as zero,
and infinity less infinity is no number. `Range` is what packing sees of its operand, to say so.
"""

from collections.abc import Callable

from torch_mlir import ir
from torch_mlir.dialects import arith, vector

from kiln.lowering.cpu.builder import Builder, Index
from kiln.lowering.cpu.contraction import pack

__all__ = ["LANES", "PARTS", "Range", "pack_pairs", "pack_rows", "pack_turned"]

LANES = 16
PARTS = 3

_STEP = 2 * LANES  # steps of k in a row of a tile
_UPPER = -(1 << 16)
_LEAST = (127 - 100) << 23  # the bits of 2^-100
_INFINITY = 0xFF << 23

Place = Callable[[int], tuple[ir.Value, Index]]
"""Where the tile rows of a part begin: buffer and element."""


class Range:
    """The least number but zero, and the largest, of what was packed, by magnitude; kept in 128 bytes of scratch."""

    def __init__(self, b: Builder, scratch: ir.Value, offset: Index):
        self.b, self.bits = b, b.vec(LANES, b.i32)
        self.cells = b.view(scratch, offset, 2 * LANES, b.i32)

    def reset(self) -> None:
        for i, x in enumerate((-1, 0)):
            self.b.vstore(self.b.int_(x, self.bits), self.cells, i * LANES)

    def load(self) -> list[ir.Value]:
        return [self.b.vload(self.cells, i * LANES, LANES) for i in range(2)]

    def store(self, seen: list[ir.Value]) -> None:
        for i, x in enumerate(seen):
            self.b.vstore(x, self.cells, i * LANES)

    def see(self, seen: list[ir.Value], x: ir.Value) -> list[ir.Value]:
        """`seen` and a vector of f32; a zero counts as the largest integer among the least."""
        magnitude = arith.andi(vector.bitcast(self.bits, x), self.b.int_(0x7FFFFFFF, self.bits))
        least = arith.minui(seen[0], arith.addi(magnitude, self.b.int_(-1, self.bits)))
        return [least, arith.maxui(seen[1], magnitude)]

    def is_beyond(self) -> ir.Value:
        """Whether there was a number that the sum of its parts is not."""
        b = self.b
        least, most = (b.reduce(kind, x) for kind, x in zip(("minui", "maxui"), self.load(), strict=True))
        below = arith.cmpi(arith.CmpIPredicate.ult, least, b.int_(_LEAST - 1, b.i32))
        return arith.ori(below, arith.cmpi(arith.CmpIPredicate.uge, most, b.int_(_INFINITY, b.i32)))


def _parts(b: Builder, x: ir.Value) -> list[ir.Value]:
    """The three parts of 16 f32, in the upper halves of i32 (the lower ones are zero)."""
    bits = b.vec(LANES, b.i32)

    def upper(x: ir.Value) -> ir.Value:
        return arith.andi(vector.bitcast(bits, x), b.int_(_UPPER, bits))

    high = upper(x)
    rest = arith.subf(x, vector.bitcast(x.type, high))
    middle = upper(rest)
    return [high, middle, vector.bitcast(bits, arith.subf(rest, vector.bitcast(x.type, middle)))]


def _beside(b: Builder, first: ir.Value, second: ir.Value) -> ir.Value:
    """The upper halves of 16 i32, then of 16 others: 32 bf16 one after the other, as i32."""
    halves = b.vec(2 * LANES, b.i16)
    x, y = (vector.bitcast(halves, v) for v in (first, second))
    return vector.bitcast(first.type, b.shuffle(x, y, range(1, 4 * LANES, 2)))


def _masks(b: Builder, count: Index) -> list[ir.Value | None]:
    """For the two vectors of a step of which `count` elements are there."""
    return [b.mask_below(b.mini(b.maxi(b.subi(count, at), 0), LANES), LANES) for at in (0, LANES)]


def _step(
    b: Builder, source: ir.Value, at: Index, masks: list[ir.Value | None], seen: list[ir.Value], range_: Range
) -> tuple[list[ir.Value], list[ir.Value]]:
    """The parts of 32 neighbours, each as 16 pairs in i32, and what was seen."""
    x, y = (b.vload(source, b.addi(at, i * LANES), LANES, mask) for i, mask in enumerate(masks))
    seen = range_.see(range_.see(seen, x), y)
    return [_beside(b, p, q) for p, q in zip(_parts(b, x), _parts(b, y), strict=True)], seen


def _steps(
    b: Builder, depth: Index, seen: list[ir.Value], body: Callable[[Index, list, list[ir.Value]], list[ir.Value]]
) -> list[ir.Value]:
    """`body(k, masks, seen)` for every 32 steps of k and what is left."""
    full = b.round_down(depth, _STEP)
    tail = b.subi(depth, full)
    seen = b.for_(0, full, _STEP, lambda k, seen: body(k, [None, None], seen), seen)
    types = [x.type for x in seen]
    return b.if_(b.cmpi("sgt", tail, 0), lambda: body(full, _masks(b, tail), seen), lambda: seen, types)


def pack_rows(
    b: Builder,
    source: ir.Value,
    start: Index,
    row_stride: Index,
    size: tuple[Index, Index],
    padded: Index,
    place: Place,
    pitch: int,
    range_: Range,
) -> None:
    """Rows of `size` (rows, steps of k) with unit stride, as rows of bf16, `pitch` pairs apart, of each part.

    Rows up to `padded` repeat the last one; k is filled up with zeros to whole tiles.
    """
    rows, depth = size
    targets = [place(p) for p in range(PARTS)]

    def row(i: Index, seen: list[ir.Value]) -> list[ir.Value]:
        here = b.addi(start, b.muli(b.mini(i, b.subi(rows, 1)), row_stride))

        def step(k: Index, masks: list, seen: list[ir.Value]) -> list[ir.Value]:
            parts, seen = _step(b, source, b.addi(here, k), masks, seen, range_)
            for (buffer, at), x in zip(targets, parts, strict=True):
                b.vstore(x, buffer, b.sum_(at, b.muli(i, pitch), b.divi(k, 2)))
            return seen

        return _steps(b, depth, seen, step)

    range_.store(b.for_(0, padded, 1, row, range_.load()))


def pack_turned(
    b: Builder,
    source: ir.Value,
    start: Index,
    row_stride: Index,
    size: tuple[Index, Index],
    place: Place,
    area: ir.Value,
    range_: Range,
) -> None:
    """Up to 16 rows of `size` (rows, steps of k) with unit stride, as columns: of each part 16 pairs for every two
    steps of k. area: 3 x 16 x 16 i32 of scratch."""
    rows, depth = size
    targets = [place(p) for p in range(PARTS)]

    def step(k: Index, masks: list, seen: list[ir.Value]) -> list[ir.Value]:
        def row(i: Index, seen: list[ir.Value]) -> list[ir.Value]:
            here = b.sum_(start, b.muli(b.mini(i, b.subi(rows, 1)), row_stride), k)
            parts, seen = _step(b, source, here, masks, seen, range_)
            for p, x in enumerate(parts):
                b.vstore(x, area, b.addi(b.muli(i, LANES), p * LANES * LANES))
            return seen

        seen = b.for_(0, LANES, 1, row, seen)
        for p, (buffer, at) in enumerate(targets):
            loaded = [b.vload(area, (p * LANES + i) * LANES, LANES) for i in range(LANES)]
            for q, x in enumerate(pack.transpose_registers(b, loaded)):
                b.vstore(x, buffer, b.sum_(at, b.muli(b.divi(k, 2), LANES), q * LANES))
        return seen

    range_.store(_steps(b, depth, range_.load(), step))


def pack_pairs(
    b: Builder,
    source: ir.Value,
    start: Index,
    k_stride: Index,
    size: tuple[Index, Index],
    place: Place,
    range_: Range,
) -> None:
    """Up to 16 columns of `size` (steps of k, columns) that are neighbours: of each part 16 pairs for two steps."""
    depth, cols = size
    bits = b.vec(LANES, b.i32)
    half = b.int_(16, bits)
    targets = [place(p) for p in range(PARTS)]
    mask = b.mask_below(cols, LANES)

    def store(k: Index, words: list[ir.Value]) -> None:
        for (buffer, at), x in zip(targets, words, strict=True):
            b.vstore(x, buffer, b.addi(at, b.muli(b.divi(k, 2), LANES)))

    def pair(k: Index, seen: list[ir.Value], odd: bool = False) -> list[ir.Value]:
        at = b.addi(start, b.muli(k, k_stride))
        x = b.vload(source, at, LANES, mask)
        words = [arith.shrui(p, half) for p in _parts(b, x)]
        seen = range_.see(seen, x)
        if not odd:
            y = b.vload(source, b.addi(at, k_stride), LANES, mask)
            words = [arith.ori(w, p) for w, p in zip(words, _parts(b, y), strict=True)]
            seen = range_.see(seen, y)
        store(k, words)
        return seen

    even = b.round_down(depth, 2)
    seen = b.for_(0, even, 2, pair, range_.load())
    types = [bits, bits]
    range_.store(b.if_(b.cmpi("ne", even, depth), lambda: pair(even, seen, True), lambda: seen, types))
    done = b.muli(b.ceildivi(depth, 2), 2)
    needed = b.muli(b.ceildivi(depth, _STEP), _STEP)
    b.for_(done, needed, 2, lambda k: store(k, [b.zero(bits)] * PARTS))
