# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Packed weights: in which order each kernel reads them (`order_of`), and the copy of a block to scratch (`Pack`).

The order of a constant weight, which is packed before the kernel runs, is the same as an affine map (`packed_layout`).
"""

from collections.abc import Callable, Iterable, Sequence
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
from kiln.lowering.cpu.bf16 import as_integers, as_pairs, interleave
from kiln.lowering.cpu.builder import Builder, Index
from kiln.lowering.cpu.conv.problem import ConvProblem
from kiln.lowering.cpu.conv.tiles_plan import BLOCK, ROWS, depth_of
from kiln.lowering.cpu.problem import Size, known
from kiln.lowering.cpu.sizes import LINE, round_up
from kiln.lowering.cpu.transpose import transpose_registers

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
    channels, columns = p.channels // (1 + (pair == "c")), p.column.kernel // (1 + (pair == "z"))
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
            element, tap = c, m.addi(m.muli(y, p.column.kernel), z)
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
        address = ((o * p.channels + c) * p.window_rows + kh) * p.column.kernel + kw
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
    walk the others. Vectors of neighbours of `width` outputs are transposed in registers, and words are shuffled from
    the results. Where outputs are neighbours themselves, their elements are gathered.
    """

    def __init__(self, b: Builder, p: ConvProblem, order: Order, width: int, weight: ir.Value, target: ir.Value):
        self.b, self.p, self.order, self.width, self.weight, self.target = b, p, order, width, weight, target
        self.dims, self.stride, self.unit = _dims(p), known(p.weight_strides[0]), width * order.group
        strides = [d.stride for d in self.dims]
        self.is_near = self.stride != 1 and strides[0] == 1 and all(isinstance(x, int) for x in strides)
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
        b, last, stride = self.b, self.b.subi(count, 1), self.stride
        if isinstance(count, int) and count % self.width == 0:
            start = b.addi(start, b.muli(lane, stride))
            rows = [b.addi(start, b.muli(i, stride)) for i in range(self.width)]
        else:
            rows = [b.addi(start, b.muli(b.mini(b.addi(lane, i), last), stride)) for i in range(self.width)]
        mask = None if self.is_near else b.mask_below(b.maxi(b.subi(count, lane), 0), self.width)

        def chunk(at: dict[str, Index], base: Index, sizes: list[int]) -> None:
            first, _ = self.order.place(b, lane, *at.values())
            words, here = self.words(sizes), [b.addi(row, base) for row in rows]
            made = self.transposed(words.values(), here) if self.is_near else {}
            for to, word in words.items():
                elements = [made[x] if x in made else self.gathered(here[0], x, mask) for x in word]
                b.vstore(self.word(*elements), self.target, b.addi(first, to))

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

    def transposed(self, words: Iterable[_Word], rows: Sequence[Index]) -> dict[Index | None, ir.Value]:
        """The elements of words by their offset; rows: where the outputs begin."""
        b, unit, group = self.b, self.unit, self.order.group
        left = sorted(x for word in words for x in word if isinstance(x, int))
        made: dict[Index | None, ir.Value] = {}
        while left:
            start = left[0]
            here = [x - start for x in left if x < start + unit]
            mask = b.mask_between(0, here[-1] + 1, unit)
            loaded = [b.vload(self.weight, b.addi(row, start), unit, mask) for row in rows]
            if group == 1:
                columns = transpose_registers(b, [self.widened(x) for x in loaded])
                made |= {start + x: columns[x] for x in here}
            else:
                columns = [as_pairs(b, x) for x in transpose_registers(b, [as_integers(b, x) for x in loaded])]
                made |= {start + x: b.shuffle(columns[x // 2], columns[x // 2], range(x % 2, unit, 2)) for x in here}
            left = left[len(here) :]
        return made

    def gathered(self, row: Index, offset: Index | None, mask: ir.Value | None) -> ir.Value:
        """An element of some outputs, the first of which begins at `row`."""
        b = self.b
        if offset is None:
            return b.zero(b.vec(self.width, ir.MemRefType(self.weight.type).element_type))
        return b.gather(self.weight, b.addi(row, offset), self.stride, self.width, mask)

    def word(self, first: ir.Value, second: ir.Value | None = None) -> ir.Value:
        """A word of some outputs, as in scratch, of its elements."""
        return self.widened(first) if second is None else as_integers(self.b, interleave(self.b, first, second))

    def widened(self, x: ir.Value) -> ir.Value:
        """Elements in the type of the sums."""
        return self.b.cast_float(x, ir.MemRefType(self.target.type).element_type)


def _dims(p: ConvProblem) -> list[_Dim]:
    """Those with more than one index, from the one whose indices are nearest in memory, if that is known."""
    rows = [prod(axis.kernel for axis in p.lines[i + 1 :]) for i in range(len(p.lines))]
    dims = [_Dim("c", p.channels, p.weight_strides[1]), _Dim("z", p.column.kernel, p.column.weight_stride)]
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
