# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Packed weights: in which order each kernel reads them (`order_of`), and the copy of a block to scratch (`Pack`).

The order of a constant weight, which is packed before the kernel runs, is the same as an affine map (`packed_layout`).
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import Any, NamedTuple

from torch_mlir import ir

from kiln.dialects.schedules.cpu import (
    AmxConvSchedule,
    ConvSchedule,
    DepthwiseConvSchedule,
    DirectConvSchedule,
    VnniBf16ColumnsConvSchedule,
    VnniBf16ConvSchedule,
)
from kiln.lowering.cpu.builder import Builder, Index
from kiln.lowering.cpu.contraction.bf16 import as_integers, interleave
from kiln.lowering.cpu.contraction.pack import transpose_registers
from kiln.lowering.cpu.contraction.sizes import LINE, round_up
from kiln.lowering.cpu.conv.problem import ConvProblem
from kiln.lowering.cpu.conv.tiles_plan import BLOCK, ROWS, depth_of
from kiln.lowering.cpu.matmul.problem import Size, known

__all__ = ["Order", "Pack", "order_of", "packed_layout"]


@dataclass(frozen=True)
class Order:
    """The order of the weights of a block of `lanes` outputs: `words` of `group` neighbours each.

    place(m, o, c, y, z): the word, and the place in it, of output o of the block, channel c, row y of the window (of
    all planes) and column z, in the arithmetic of a Builder or of `_Maps`. pair: the dim whose neighbours are a word,
    "c" or "z". mixed: dims of which a word may hold any indices. gaps: words may hold nothing, and are zero.
    """

    lanes: int
    words: int
    place: Callable[[Any, Any, Any, Any, Any], tuple[Any, Any]]
    group: int = 1
    pair: str | None = None
    mixed: str = ""
    gaps: bool = False


class _Maps:
    """Arithmetic of affine expressions."""

    addi = staticmethod(ir.AffineExpr.get_add)
    muli = staticmethod(ir.AffineExpr.get_mul)
    divi = staticmethod(ir.AffineExpr.get_floor_div)
    remi = staticmethod(ir.AffineExpr.get_mod)


def order_of(p: ConvProblem, s: ConvSchedule) -> Order:
    """The order in which a kernel that packs weights reads them.

    [kd][kh][c][kw][lanes], with pairs of channels or columns as elements of it; depthwise, all channels are lanes.
    amx_bf16: [block of the sum][tap][tile of 16 outputs][pair][16 outputs][2], see tiles_plan.py.
    """
    if isinstance(s, AmxConvSchedule):
        return _tiles_order(p, s)
    pair = "c" if isinstance(s, VnniBf16ConvSchedule) else "z" if isinstance(s, VnniBf16ColumnsConvSchedule) else None
    channels, columns = p.channels // (1 + (pair == "c")), p.kernel[1] // (1 + (pair == "z"))
    if isinstance(s, DepthwiseConvSchedule):
        lanes = round_up(p.groups, max(s.width, LINE // p.sum_bytes))
    else:
        assert isinstance(s, DirectConvSchedule), "others read weights where they lie"
        lanes = s.nv * s.width

    def place(m: Any, o: Any, c: Any, y: Any, z: Any) -> tuple[Any, Any]:
        part = 0
        if pair == "c":
            c, part = m.divi(c, 2), m.remi(c, 2)
        elif pair == "z":
            z, part = m.divi(z, 2), m.remi(z, 2)
        row = m.addi(m.muli(y, channels), c)
        return m.addi(m.muli(m.addi(m.muli(row, columns), z), lanes), o), part

    return Order(lanes, p.window_rows * channels * columns * lanes, place, 2 if pair else 1, pair)


def _tiles_order(p: ConvProblem, s: AmxConvSchedule) -> Order:
    depth, tiles = depth_of(p, s.order), s.nv
    taps = len(depth.taps)

    def place(m: Any, o: Any, c: Any, y: Any, z: Any) -> tuple[Any, Any]:
        if s.order == "channels":
            element, tap = c, m.addi(m.muli(y, p.kernel[1]), z)
        elif s.order == "columns":
            element, tap = m.addi(m.muli(c, depth.span), z), y
        else:
            element, tap = m.addi(m.muli(z, p.channels), c), y
        tile = m.addi(m.muli(m.addi(m.muli(m.divi(element, BLOCK), taps), tap), tiles), m.divi(o, ROWS))
        word = m.addi(m.muli(tile, ROWS), m.divi(m.remi(element, BLOCK), 2))
        return m.addi(m.muli(word, ROWS), m.remi(o, ROWS)), m.remi(element, 2)

    pair = {"channels": "c", "columns": "z"}.get(s.order)
    gaps = s.order != "channels" or p.channels % BLOCK != 0
    mixed = "cz" if s.order == "windows" else ""
    return Order(tiles * ROWS, depth.elements * tiles * ROWS // 2, place, 2, pair, mixed, gaps)


def packed_layout(p: ConvProblem, schedule: ConvSchedule, rank: int) -> tuple[ir.AffineMap, int]:
    """Map from the index of a weight of rank 3 to 5 to the element's offset, and how many elements there are.

    [group][block] in the kernel's order; lanes that are no channel are padding, whose value does not matter as long as
    it is finite. Row-major for kernels that read weights where they lie. Of a transposed convolution's weight the dims
    are [C, O / groups, ...].
    """
    dims = [ir.AffineDimExpr.get(i) for i in range(rank)]
    o, c, kw = dims[0], dims[1], dims[-1]
    kh: ir.AffineExpr = ir.AffineConstantExpr.get(0)
    # A window of one element may be that of a problem with fewer dims.
    for i, dim in enumerate(dims[2:-1]):
        kh = kh * p.lines[i].kernel + dim if i and p.window_rows > 1 else dim
    if not isinstance(schedule, (AmxConvSchedule, DepthwiseConvSchedule, DirectConvSchedule)):
        address = ((o * p.channels + c) * p.window_rows + kh) * p.kernel[1] + kw
        return ir.AffineMap.get(rank, 0, [address]), p.groups * p.outputs * p.steps
    order = order_of(p, schedule)
    floor, mod = ir.AffineExpr.get_floor_div, ir.AffineExpr.get_mod
    if isinstance(schedule, DepthwiseConvSchedule):  # one block
        return ir.AffineMap.get(rank, 0, [order.place(_Maps, o, c * 0, kh, kw)[0]]), order.words
    if p.transposed:
        group, inner, c = floor(o, p.channels), c, mod(o, p.channels)
    else:
        group, inner = floor(o, p.outputs), mod(o, p.outputs)
    blocks = -(-p.outputs // order.lanes)
    block = group * blocks + floor(inner, order.lanes)
    word, part = order.place(_Maps, mod(inner, order.lanes), c, kh, kw)
    address = (block * order.words + word) * order.group + part
    return ir.AffineMap.get(rank, 0, [address]), p.groups * blocks * order.words * order.group


class _Dim(NamedTuple):
    """A dim of the weights of an output: "c", "z", or "y" with the rows of the window that an index of it counts."""

    name: str
    size: int
    stride: Size
    rows: int = 1


_Word = Sequence[Index | None]
"""The offsets in memory of the elements of a word; None: there is no such element."""


class Pack:
    """Packs blocks of weights into scratch, from 0 of `target` on.

    Some indices of the innermost dims are written out (`_chunks`), so that it is known which elements are a word; loops
    walk the others. Words of `width` outputs are put in order in registers and transposed; of outputs that are
    neighbours, and where no elements are, they are gathered.
    """

    def __init__(self, b: Builder, p: ConvProblem, order: Order, width: int, weight: ir.Value, target: ir.Value):
        self.b, self.p, self.order, self.width, self.weight, self.target = b, p, order, width, weight, target
        self.unit, self.dims = width * order.group, _dims(p)
        mixed = [d for d in self.dims if d.name in order.mixed]
        has_gaps = any(d.stride != prod(inner.size for inner in mixed[:i]) for i, d in enumerate(mixed))
        self.is_near = p.weight_strides[0] != 1 and self.dims[0].stride == 1 and not has_gaps
        self.chunks = _chunks(self.dims, order, self.unit if self.is_near else 1)

    def pack(self, start: Index, count: Index) -> None:
        """The block of `count` outputs, the first of which begins at `start`. Lanes that are none repeat the last one,
        or are zero: nothing reads what is computed from them.
        """
        b, order = self.b, self.order
        if order.gaps:
            zero = b.zero(b.vec(self.width, b.i32))
            b.for_(0, order.words, self.width, lambda i: b.vstore(zero, self.target, i))
        b.for_(0, order.lanes, self.width, lambda lane: self.strip(start, count, lane))

    def strip(self, start: Index, count: Index, lane: Index) -> None:
        """`width` outputs from `lane` on."""
        b, last, stride = self.b, self.b.subi(count, 1), known(self.p.weight_strides[0])
        if isinstance(count, int) and count % self.width == 0:
            start = b.addi(start, b.muli(lane, stride))
            rows = [b.addi(start, b.muli(i, stride)) for i in range(self.width)]
        else:
            rows = [b.addi(start, b.muli(b.mini(b.addi(lane, i), last), stride)) for i in range(self.width)]
        mask = None if self.is_near else b.mask_below(b.maxi(b.subi(count, lane), 0), self.width)

        def chunk(at: dict[str, Index], base: Index, sizes: list[int]) -> None:
            first, _ = self.order.place(b, lane, *at.values())
            words = self.words(sizes)
            if not self.is_near:
                for to, word in words.items():
                    b.vstore(self.gathered(word, b.addi(rows[0], base), mask), self.target, b.addi(first, to))
                return
            for square in self.squares(words):
                made = transpose_registers(b, self.loaded([words[to] for to in square], rows, base))
                for to, x in zip(square, made, strict=False):
                    b.vstore(x, self.target, b.addi(first, to))

        self.walk(len(self.dims), {"c": 0, "y": 0, "z": 0}, 0, [], chunk)

    def walk(
        self, dims: int, at: dict[str, Index], base: Index, sizes: list[int],
        body: Callable[[dict[str, Index], Index, list[int]], None],
    ) -> None:  # fmt: skip
        """body(index, its offset in memory, number of indices in each dim) for the chunks of the first `dims` dims."""
        if not dims:
            body(at, base, sizes)
            return
        b, dim, chunk = self.b, self.dims[dims - 1], self.chunks[dims - 1]

        def some(i: Index, size: int = chunk) -> None:
            here = {**at, dim.name: b.addi(at[dim.name], b.muli(i, dim.rows))}
            self.walk(dims - 1, here, b.addi(base, b.muli(i, known(dim.stride))), [size, *sizes], body)

        full = dim.size // chunk * chunk
        b.for_(0, full, chunk, some)
        if full < dim.size:
            some(full, dim.size - full)

    def words(self, sizes: list[int]) -> dict[int, list[Index | None]]:
        """The words of a chunk, by their distance from its first one."""
        b, words = self.b, dict[int, list[Index | None]]()
        for index in product(*map(range, reversed(sizes))):
            at, offset = {"c": 0, "y": 0, "z": 0}, 0
            for dim, i in zip(reversed(self.dims), index, strict=True):
                at[dim.name] += i * dim.rows
                offset = b.addi(offset, b.muli(i, known(dim.stride)))
            to, part = self.order.place(b, 0, *at.values())
            words.setdefault(to, [None] * self.order.group)[part] = offset
        return words

    def gathered(self, word: _Word, row: Index, mask: ir.Value | None) -> ir.Value:
        """One word of some outputs, the first of which begins at `row`."""
        b, stride = self.b, known(self.p.weight_strides[0])
        element = ir.MemRefType(self.weight.type).element_type
        zero = b.zero(b.vec(self.width, element))
        x = [zero if e is None else b.gather(self.weight, b.addi(row, e), stride, self.width, mask) for e in word]
        return self.word(x[0] if len(x) == 1 else interleave(b, *x))

    def word(self, x: ir.Value) -> ir.Value:
        """Elements as words in scratch."""
        if self.order.group > 1:
            return as_integers(self.b, x)
        return self.b.cast_float(x, ir.MemRefType(self.target.type).element_type)

    def squares(self, words: dict[int, list[Index | None]]) -> Iterator[list[int]]:
        """Places of words that are transposed together: their elements lie in two vectors of an output, or one."""
        square: list[int] = []
        for to in words:
            if len(square) == self.width or not _vectors([words[i] for i in (*square, to)], self.unit):
                yield square
                square = []
            square.append(to)
        yield square

    def loaded(self, words: Sequence[_Word], rows: list[Index], base: Index) -> list[ir.Value]:
        """Vectors of the words of each output."""
        b, unit, starts = self.b, self.unit, _vectors(words, self.unit)
        offsets = [x if isinstance(x, int) else None for word in words for x in word]
        lanes = [
            unit if x is None else next(n * unit + x - s for n, s in enumerate(starts) if s <= x < s + unit)
            for x in offsets
        ]
        lanes += range(len(lanes), unit)
        ends = [1 + max(x for x in offsets if x is not None and s <= x < s + unit) - s for s in starts]

        def row(at: Index) -> ir.Value:
            x = [
                b.vload(self.weight, b.addi(at, s), unit, b.mask_between(0, end, unit))
                for s, end in zip(starts, ends, strict=True)
            ]
            if lanes == list(range(unit)):
                return self.word(x[0])
            return self.word(b.shuffle(x[0], x[1] if len(x) > 1 else b.zero(x[0].type), lanes))

        return [row(b.addi(at, base)) for at in rows]


def _vectors(words: Sequence[_Word], unit: int) -> list[int]:
    """Where vectors of `unit` elements begin that hold all of some words; none where two are not enough, with a vector
    of zeros where there is no element.
    """
    starts: list[int] = []
    for x in sorted(x for word in words for x in word if isinstance(x, int)):
        if not starts or x >= starts[-1] + unit:
            starts.append(x)
    return starts if len(starts) + any(None in word for word in words) <= 2 else []


def _dims(p: ConvProblem) -> list[_Dim]:
    """Those with more than one index, from the one whose indices are nearest in memory, if that is known."""
    rows = [prod(axis.kernel for axis in p.lines[i + 1 :]) for i in range(len(p.lines))]
    dims = [_Dim("c", p.channels, p.weight_strides[1]), _Dim("z", p.kernel[1], p.weight_strides[3])]
    dims += [_Dim("y", axis.kernel, axis.weight_stride, n) for axis, n in zip(p.lines, rows, strict=True)]
    dims = [d for d in dims if d.size > 1] or [dims[0]._replace(stride=1)]
    if all(isinstance(d.stride, int) for d in dims):
        dims.sort(key=lambda d: known(d.stride))  # type: ignore[operator] - all are ints
    return dims


def _chunks(dims: Sequence[_Dim], order: Order, most: int) -> list[int]:
    """How many indices of each dim are written out: of those without gaps up to `most` elements, and what a word needs.
    Of dims whose indices a word or a block of a sum pairs, a power of two.
    """
    chunks: list[int] = []
    for d in dims:
        elements = prod(chunks)
        fits = max(1, most // elements) if d.stride == elements else 1
        least = d.size if d.name in order.mixed else 2 if d.name == order.pair else 1
        chunks.append(min(d.size, max(least, fits if d.name == "y" or d.size <= fits else 1 << fits.bit_length() - 1)))
    return chunks
