# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""The online softmax between the two products of attention: scores to exponentials, a row at a time."""

import math
from collections.abc import Callable

from torch_mlir import ir
from torch_mlir.dialects import arith
from torch_mlir.dialects import math as math_dialect

from kiln.dialects.schedules.cpu import AttentionSchedule
from kiln.lowering.cpu.attention.problem import AttentionBuffers, AttentionProblem, attention_layout
from kiln.lowering.cpu.bf16 import narrow
from kiln.lowering.cpu.builder import Builder, Index
from kiln.lowering.cpu.contraction import MatrixUnit
from kiln.lowering.cpu.problem import KernelContext, known

__all__ = ["Softmax"]

_LOG2E = math.log2(math.e)
_LOWEST = -3.4028234663852886e38  # of the finite f32


class Softmax:
    """The part of an attention kernel between its products (see `flash.Attention`), and its scratch memory.

    `scratch` is that memory as f32, `words` as the elements that are multiplied, `per` of them an element of the layout
    (`pairs`: of bf16), `packed` as words of `per` steps.
    """

    def __init__(
        self, b: Builder, p: AttentionProblem, s: AttentionSchedule, operands: AttentionBuffers, ctx: KernelContext,
        unit: MatrixUnit,
    ):  # fmt: skip
        self.b, self.p, self.operands, self.unit, self.width = b, p, operands, unit, s.width
        self.lay, self.vector, self.low = attention_layout(p, s), b.vec(s.width, b.f32), b.float_(-math.inf, b.f32)
        self.per, self.pairs, count = unit.group, unit.group == 2, self.lay["end"]
        self.scratch = self.words = self.packed = b.view(ctx.scratch, 0, count, b.f32)
        if self.pairs:
            self.words = b.view(ctx.scratch, 0, 2 * count, ir.BF16Type.get())
            self.packed = b.view(ctx.scratch, 0, count, b.i32)

    def softmax_row(
        self, i: Index, r: Index, state: Index, rows: Index, count: Index, limit: Index, mask_at: Index
    ) -> None:
        """p[r] = 2^(scores - new maximum), and the row's entries of top, drop and part."""
        b, p, lay, width = self.b, self.p, self.lay, self.width
        at = b.addi(lay["p"], b.muli(r, lay["p_stride"]))
        visible = b.mini(count, b.addi(limit, r)) if p.causal else count
        low = b.broadcast(self.low, width)
        factor = b.float_(p.scale * _LOG2E, self.vector)
        if p.mask_dtype is not None:  # padding rows read the last row's mask
            row = b.mini(b.addi(i, r), b.subi(rows, 1))
            mask_at = b.addi(mask_at, b.muli(row, known(p.mask_strides[-2])))
        everything = isinstance(visible, int) and visible >= lay["keys"]
        lanes = b.numbers(range(width), b.i32) if not everything else None
        bound = b.broadcast(b.integer_of(visible, b.i32), width) if not everything else None

        scores: list[ir.Value] = []
        for j in range(0, lay["keys"], width):
            x = b.mulf(self.load(b.addi(at, j)), factor)
            if p.mask_dtype is not None:
                x = self.masked(x, mask_at, j, count)
            if lanes is not None and bound is not None:
                here = b.addiv(lanes, b.int_(j, lanes.type)) if j else lanes
                x = b.select(arith.cmpi(arith.CmpIPredicate.slt, here, bound), x, low)
            scores.append(x)
        best = self.tree(b.fmax, scores)
        old = b.load(self.scratch, b.sum_(lay["top"], state, r))
        new = b.fmax(self.highest(best), old)
        # A row with no key so far has maximum -inf; against 0 its exponentials are 0 and not NaN.
        safe = b.select(b.cmpf("oeq", new, self.low), b.float_(0.0, b.f32), new)
        top = b.broadcast(safe, width)
        powers = [self.exp2(b.subf(x, top)) for x in scores]
        for n, x in enumerate(powers):  # bf16 over the first half of the row's scores, which have been read
            b.vstore(narrow(b, x) if self.pairs else x, self.words, b.addi(b.muli(at, self.per), n * width))
        b.store(new, self.scratch, b.sum_(lay["top"], state, r))
        b.store(b.subf(old, safe), self.scratch, b.addi(lay["drop"], r))
        b.store(b.reduce("add", self.tree(b.addf, powers)), self.scratch, b.addi(lay["part"], r))

    def masked(self, x: ir.Value, mask_at: Index, j: int, count: Index) -> ir.Value:
        """The scores of keys j ... with the mask applied; keys past `count` are not read."""
        b, width = self.b, self.width
        stride = known(self.p.mask_strides[-1])
        at = b.addi(mask_at, b.muli(j, stride))
        low = b.broadcast(self.low, width)
        lowest = b.float_(_LOWEST, self.vector)
        fill = -math.inf if self.p.fill is None else self.p.fill
        removed = low if fill == -math.inf else b.float_(max(fill * _LOG2E, _LOWEST), self.vector)
        whole = b.cmpi("sge", count, j + width)

        def apply(lanes: ir.Value | None) -> list[ir.Value]:
            assert self.operands.mask is not None
            m = b.gather(self.operands.mask, at, stride, width, lanes)
            if self.p.mask_dtype == "i8":
                return [b.select(arith.cmpi(arith.CmpIPredicate.ne, m, b.zero(m.type)), x, removed)]
            m = b.cast_float(m, b.f32)
            y = b.fma(m, b.float_(_LOG2E, self.vector), x)
            # The lowest finite mask stays finite: a row of such keys alone is their mean. A score of -inf stays, too.
            is_finite = arith.andi(b.cmpf("ogt", m, low), b.cmpf("ogt", x, low))
            lost = arith.andi(b.cmpf("olt", y, lowest), is_finite)
            return [b.select(lost, lowest, y)]

        def partly() -> list[ir.Value]:
            left = b.maxi(b.subi(count, j), 0)
            if stride == 0:  # one element, in bounds whatever the count, since the block is not empty
                return apply(None)
            return apply(b.mask_below(left, width))

        return b.if_(whole, lambda: apply(None), partly, [self.vector])[0]

    def rescale(self, state: Index) -> None:
        """drop = 2^(old maximum - new maximum) per row; sum = sum * drop + part."""
        b, lay = self.b, self.lay
        factor = self.exp2(self.load(lay["drop"]))
        self.store(factor, lay["drop"])
        at = b.addi(lay["sum"], state)
        self.store(b.fma(self.load(at), factor, self.load(lay["part"])), at)

    def store(self, x: ir.Value, at: Index) -> None:
        """A vector to the f32 scratch area."""
        self.b.vstore(x, self.scratch, at)

    def load(self, at: Index) -> ir.Value:
        """One vector of the f32 scratch area."""
        return self.b.vload(self.scratch, at, self.width)

    def exp2(self, x: ir.Value) -> ir.Value:
        """2^x, denormal results flushed: they are below the rounding of any sum they could be in."""
        return math_dialect.exp2(x, fastmath=ir.Attribute.parse("#arith.fastmath<afn>"))

    def highest(self, x: ir.Value) -> ir.Value:
        """The highest lane, by halves: LLVM takes a reduction that minds NaN for one lane after the other."""
        b, count = self.b, self.width
        while count > 1:
            count //= 2
            x = b.fmax(x, b.shuffle(x, x, [(lane + count) % (2 * count) for lane in range(self.width)]))
        return b.extract(x, 0)

    @staticmethod
    def tree(combine: Callable[[ir.Value, ir.Value], ir.Value], values: list[ir.Value]) -> ir.Value:
        """The values combined in pairs: log2(n) deep, where a chain would be n."""
        while len(values) > 1:
            pairs = [combine(x, y) for x, y in zip(values[::2], values[1::2], strict=False)]
            values = pairs + ([values[-1]] if len(values) % 2 else [])
        return values[0]
