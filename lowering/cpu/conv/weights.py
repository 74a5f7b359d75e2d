# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Packed weights: in which order each kernel reads them (`order_of`), and the copy of a block to scratch (`Pack`).

The order of a constant weight, which is packed before the kernel runs, is the same as an affine map (`packed_layout`).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, NamedTuple

from torch_mlir import ir
from torch_mlir.dialects import arith, vector

from kiln.dialects.schedules.cpu import (
    AmxConvSchedule,
    ConvSchedule,
    DepthwiseConvSchedule,
    DirectConvSchedule,
    VnniBf16ColumnsConvSchedule,
    VnniBf16ConvSchedule,
)
from kiln.lowering.cpu.builder import Builder, Index
from kiln.lowering.cpu.contraction.bf16 import as_integers
from kiln.lowering.cpu.contraction.pack import transpose_registers
from kiln.lowering.cpu.contraction.sizes import LINE, round_up
from kiln.lowering.cpu.conv.problem import ConvProblem
from kiln.lowering.cpu.conv.tiles_plan import BLOCK, ROWS, depth_of
from kiln.lowering.cpu.matmul.problem import Size, known

__all__ = ["Order", "Pack", "order_of", "packed_layout", "staging_words"]

_STAGED = 288
"""Weights of an output that are transposed at once: 32 channels of a window of 3 x 3. In f32, 16 lanes of them take
18 KiB of a first-level cache, which has 32 KiB or more."""


@dataclass(frozen=True)
class Order:
    """The order of the weights of a block of `lanes` outputs: `words` of `group` neighbours each.

    place(m, o, c, y, z): the word, and the place in it, of output o of the block, channel c, row y of the window (of
    all planes) and column z, in the arithmetic of a Builder or of `_Maps`. pair: the dim whose neighbours are a word,
    "c" or "z"; None: those of no dim. gaps: words may hold nothing, and are zero.
    """

    lanes: int
    words: int
    place: Callable[[Any, Any, Any, Any, Any], tuple[Any, Any]]
    group: int = 1
    pair: str | None = None
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
    return Order(tiles * ROWS, depth.elements * tiles * ROWS // 2, place, 2, pair, gaps)


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


class Pack:
    """Packs blocks of weights into scratch: at 0 of `target` are the words of one, at `staging` those on their way.

    Weights of an output that lie without gaps are read a vector at a time and transposed in registers; where they are
    more than a vector, of several dims, they go through `staging`, so that the loop that puts them in order is short.
    Others, and outputs that are neighbours, are gathered, vectors of `width` outputs.
    """

    def __init__(
        self, b: Builder, p: ConvProblem, order: Order, width: int, weight: ir.Value, target: ir.Value, staging: int
    ):
        self.b, self.p, self.order, self.width, self.weight = b, p, order, width, weight
        self.target, self.staging = target, staging
        self.unit = width * order.group
        self.outer, self.run, self.chunk = _loops(p, order, self.unit)
        size = {"c": p.channels, "z": p.kernel[1], None: 1}[order.pair]
        self.pair = order.pair if size % 2 == 0 and order.pair in [d.name for d in self.run or self.outer] else None
        is_line = len(self.run) == 1 and (order.group == 1 or self.run[0].name == self.pair)
        is_square = order.group == 1 and self.chunk * prod(d.size for d in self.run[1:]) <= width
        self.is_copied = bool(self.run) and (is_line or is_square)

    def pack(self, start: Index, count: Index) -> None:
        """The block of `count` outputs, the first of which begins at `start`. Lanes that are none repeat the last one,
        or are zero: nothing reads what is computed from them.
        """
        b, order = self.b, self.order
        if order.gaps or order.group > 1 and not self.pair:
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
        mask = b.mask_below(b.maxi(b.subi(count, lane), 0), self.width) if not self.run else None

        def some(index: dict[_Dim, Index], at: Index = 0) -> None:
            if self.run:
                base = b.sum_(*(b.muli(i, known(d.stride)) for d, i in index.items()))
                outermost = self.run[0]
                whole: Index = self.chunk
                if outermost.size % self.chunk:
                    whole = b.mini(b.subi(outermost.size, at), self.chunk)
                base = b.addi(base, b.muli(at, known(outermost.stride)))
                self.transpose(rows, base, b.muli(whole, known(outermost.stride)), lane, {**index, outermost: at})
                if not self.is_copied:
                    loops = [(d, whole if d is outermost else d.size) for d in self.run]
                    self.loop(loops, {}, lambda i: self.word(lane, index, i, at, rows[0], mask))
            else:
                self.word(lane, {}, index, 0, rows[0], mask)

        def chunks(index: dict[_Dim, Index]) -> None:
            if self.run:
                b.for_(0, self.run[0].size, self.chunk, lambda at: some(index, at))
            else:
                some(index)

        self.loop([(d, d.size) for d in self.outer], {}, chunks)

    def loop(
        self, dims: Sequence[tuple[_Dim, Index]], index: dict[_Dim, Index], body: Callable[[dict[_Dim, Index]], None]
    ) -> None:
        """body(index) for all indices of some dims; of that of pairs, for the first ones of pairs."""
        if not dims:
            body(index)
            return
        (dim, size), *rest = dims
        step = 2 if dim.name == self.pair else 1
        self.b.for_(0, size, step, lambda i: self.loop(rest, {**index, dim: i}, body))

    def transpose(self, rows: list[Index], base: Index, count: Index, lane: Index, index: dict[_Dim, Index]) -> None:
        """`count` weights of each row from `base` on as vectors of words along the outputs, to target or staging."""
        b, order = self.b, self.order

        zeros: dict[_Dim, Index] = dict.fromkeys(index, 0)
        origin = self.place(0, zeros)[0]
        element = ir.MemRefType(self.target.type).element_type

        def behind(n: int) -> Index:
            """Words from that of a square's first weight to that of its n-th: orders are linear within a square."""
            if not self.is_copied:
                return n // order.group * self.width
            here, rest = dict(zeros), n
            for dim in reversed(self.run[1:]):
                rest, here[dim] = divmod(rest, dim.size)
            here[self.run[0]] = rest
            return b.subi(self.place(0, here)[0], origin)

        def square(q: Index, left: Index | None = None) -> None:
            mask = None if left is None else b.mask_below(left, self.unit)
            at = b.addi(base, q)
            loaded = [b.vload(self.weight, b.addi(row, at), self.unit, mask) for row in rows]
            words = [as_integers(b, x) if order.group > 1 else b.cast_float(x, element) for x in loaded]
            if self.is_copied:
                to, _ = self.place(lane, {**index, self.run[0]: b.addi(index[self.run[0]], q)})
            else:
                to = b.addi(b.muli(b.divi(q, order.group), self.width), self.staging)
            for n, x in enumerate(transpose_registers(b, words)):
                n *= order.group
                there = not self.is_copied or left is None or b.cmpi("slt", n, left)
                b.if_(there, lambda x=x, n=n: b.vstore(x, self.target, b.addi(to, behind(n))))

        full = b.round_down(count, self.unit)
        tail = b.subi(count, full)
        b.for_(0, full, self.unit, square)
        b.if_(b.cmpi("sgt", tail, 0), lambda: square(full, tail))

    def place(self, lane: Index, index: dict[_Dim, Index]) -> tuple[Index, Index]:
        """The word of a weight of outputs from `lane` on, and its place in the word."""
        at: dict[str, Index] = {"c": 0, "y": 0, "z": 0}
        for dim, i in index.items():
            at[dim.name] = self.b.addi(at[dim.name], self.b.muli(i, dim.rows))
        return self.order.place(self.b, lane, *at.values())

    def word(
        self, lane: Index, outer: dict[_Dim, Index], index: dict[_Dim, Index], chunk: Index, row: Index,
        mask: ir.Value | None,
    ) -> None:  # fmt: skip
        """One word of some outputs; `index`: within the run, whose first dim begins with `chunk`."""
        b = self.b
        q = b.sum_(*(b.muli(i, known(d.stride)) for d, i in index.items()))
        here = {
            d: b.addi(i, chunk) if self.run and d is self.run[0] else i for d, i in (*outer.items(), *index.items())
        }
        to, part = self.place(lane, here)
        stride = next((known(d.stride) for d in index if d.name == self.pair), 0)
        if self.order.group == 1 or self.run and self.pair == self.run[-1].name:
            x = self.element(row, q, mask) if self.order.group == 1 else self.staged(q)
        elif self.pair:
            low, high = self.element(row, q, mask), self.element(row, b.addi(q, stride), mask)
            x = arith.ori(low, arith.shli(high, b.int_(16, high.type)))
        else:
            x = arith.shli(self.element(row, q, mask), self.shift(part))
            x = arith.ori(x, b.vload(self.target, to, self.width))
        b.vstore(x, self.target, to)

    def staged(self, q: Index) -> ir.Value:
        """The word of weight q of the run."""
        b = self.b
        at = b.addi(b.muli(b.divi(q, self.order.group), self.width), self.staging)
        return b.vload(self.target, at, self.width)

    def shift(self, part: Index) -> ir.Value:
        """The bits before a place in a word."""
        b = self.b
        bits = b.muli(part, 16)
        one = b.int_(bits, b.i32) if isinstance(bits, int) else arith.index_cast(b.i32, bits)
        return b.broadcast(one, self.width)

    def element(self, row: Index, q: Index, mask: ir.Value | None) -> ir.Value:
        """Weight q of some outputs: a number, or, of words of several, the low bits of an integer."""
        b, group = self.b, self.order.group
        if self.run:
            x = self.staged(q)
            if group == 1:
                return x
            return arith.andi(arith.shrui(x, self.shift(b.remi(q, group))), b.int_(0xFFFF, x.type))
        x = b.gather(self.weight, b.addi(row, q), known(self.p.weight_strides[0]), self.width, mask)
        if group == 1:
            return b.cast_float(x, ir.MemRefType(self.target.type).element_type)
        return arith.extui(b.vec(self.width, b.i32), vector.bitcast(b.vec(self.width, b.i16), x))


def _loops(p: ConvProblem, order: Order, unit: int) -> tuple[list[_Dim], list[_Dim], int]:
    """Dims that are walked one by one, and those of a run, which lie without gaps, with how many indices of its first
    dim are transposed at once; no run where lanes are gathered. unit: weights of a vector of words.
    """
    rows = [prod(axis.kernel for axis in p.lines[i + 1 :]) for i in range(len(p.lines))]
    dims = [_Dim("c", p.channels, p.weight_strides[1]), _Dim("z", p.kernel[1], p.weight_strides[3])]
    dims += [_Dim("y", axis.kernel, axis.weight_stride, n) for axis, n in zip(p.lines, rows, strict=True)]
    dims = [d for d in dims if d.size > 1] or [dims[0]._replace(stride=1)]
    if p.weight_strides[0] == 1 or not all(isinstance(d.stride, int) for d in dims):
        return dims, [], 1
    dims.sort(key=lambda d: -known(d.stride))  # type: ignore[operator] - all are ints
    first, inner, count = len(dims), 1, 1
    while first and dims[first - 1].stride == count and count <= _STAGED:
        first, inner = first - 1, count
        count *= dims[first].size
    outer, run = dims[:first], dims[first:]
    if not run:
        return dims, [], 1
    chunk = max(1, _STAGED // inner)
    for whole in (unit, order.group):
        chunk = chunk // whole * whole or chunk
    if run[0].name == order.pair:
        chunk = max(chunk, order.group)
    return outer, run, min(chunk, run[0].size)


def staging_words(p: ConvProblem, order: Order, width: int) -> int:
    """Words of scratch for the weights on their way to a block."""
    _, run, chunk = _loops(p, order, width * order.group)
    return round_up(chunk * prod(d.size for d in run[1:]), width * order.group) // order.group * width if run else 0
