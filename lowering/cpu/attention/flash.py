# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Attention in one pass over the keys: scores of a block of keys never leave the first-level cache.

After Dao et al., "FlashAttention" (2022), with the online softmax of Milakov and Gimelshein (2018). A task is
one head and a block of its queries. For each block of keys: transpose the keys into scratch; for each strip
of query rows: scores by register tiles, softmax against the running maximum, rescale and extend the strip of
the output. Exponentials are base 2, with log2(e) folded into the scale.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

from torch_mlir import ir
from torch_mlir.dialects import arith
from torch_mlir.dialects import math as math_dialect

from kiln.dialects.schedules.cpu import AttentionSchedule, FlashSchedule
from kiln.lowering.cpu.attention.loading import Loading, unit
from kiln.lowering.cpu.attention.problem import AttentionBuffers, AttentionProblem, attention_layout
from kiln.lowering.cpu.builder import Builder, Index
from kiln.lowering.cpu.contraction import Grid, Operand, Place, multiply_step, sum_products
from kiln.lowering.cpu.contraction.vectors import VectorUnit, float_unit, sum_lanes
from kiln.lowering.cpu.matmul.partition import offset_of, run_epilogue, unflatten
from kiln.lowering.cpu.matmul.problem import Epilogue, KernelContext, known

LOG2E = math.log2(math.e)
_LOWEST = -3.4028234663852886e38  # of the finite f32


class Attention(Loading):
    """One thread's share; sums and, in scratch, operands in f32 (attention/pairs.py: operands in bf16).

    words: the scratch memory as elements of what is multiplied, `per` of them an element of `layout`. unit: multiplies
    these; along_head: vectors along the head.
    """

    unit: VectorUnit
    along_head: VectorUnit
    words: ir.Value
    per: int

    def __init__(
        self,
        b: Builder,
        problem: AttentionProblem,
        schedule: AttentionSchedule,
        operands: AttentionBuffers,
        epilogue: Epilogue,
        ctx: KernelContext,
    ):
        self.b, self.p, self.operands, self.epilogue, self.ctx = b, problem, operands, epilogue, ctx
        self.lay = attention_layout(problem, schedule)
        self.mr, self.nv, self.width = schedule.mr, schedule.nv, schedule.width
        self.dot_scores = isinstance(schedule, FlashSchedule) and schedule.dot_scores
        self.vector = b.vec(self.width, b.f32)
        self.scratch = b.view(ctx.scratch, ctx.scratch_offset, self.lay["elements"], b.f32)
        self.queries, self.keys = known(problem.queries), known(problem.keys)
        self.v_in_place = problem.dtype == "f32" and problem.v_size % self.width == 0 and unit(problem.v_strides)
        self.low = b.float_(-math.inf, b.f32)
        self.unit = float_unit("f32", self.width)
        self.along_head = float_unit("f32", self.width, along_k=True)
        self.words, self.per = self.scratch, 1

    # -- tasks ------------------------------------------------------------------------------------

    def emit(self) -> None:
        """Emit this thread's share: blocks of queries of one head, taken in turn."""
        b, sizes = self.b, [*self.p.batch, self.p.heads]
        blocks = b.ceildivi(self.queries, self.lay["rows"])
        total = blocks
        for size in sizes:
            total = b.muli(total, known(size))

        def task(index: Index) -> None:
            q0 = b.muli(b.remi(index, blocks), self.lay["rows"])
            where = unflatten(b, b.divi(index, blocks), sizes)
            self.task(where[:-1], where[-1], q0, b.mini(b.subi(self.queries, q0), self.lay["rows"]))

        if self.p.causal:  # later queries see more keys: deal the blocks out in turn
            b.for_(self.ctx.tid, total, self.ctx.nt, task)
        else:
            lo, hi = b.split(self.ctx.tid, self.ctx.nt, total)
            b.for_(lo, hi, 1, task)

    def task(self, batch: list[Index], head: Index, q0: Index, rows: Index) -> None:
        """Emit one block of queries of one head; q0: its first query, rows: how many."""
        b, p, lay = self.b, self.p, self.lay
        kv_head = head
        if p.kv_heads is not p.heads:
            kv_head = b.divi(head, b.divi(known(p.heads), known(p.kv_heads)))
        q_at = offset_of(b, self.operands.q_offset, [*batch, head, q0], p.q_strides[:-1])
        k_at = offset_of(b, self.operands.k_offset, [*batch, kv_head], p.k_strides[:-2])
        v_at = offset_of(b, self.operands.v_offset, [*batch, kv_head], p.v_strides[:-2])
        padded = b.muli(b.ceildivi(rows, self.mr), self.mr)
        self.load_queries(q_at, rows, padded)
        zero, low = b.zero(self.vector), b.broadcast(self.low, self.width)
        b.for_(0, b.muli(padded, lay["v_padded"]), self.width, lambda i: self.store(zero, b.addi(lay["out"], i)))

        def start(i: Index) -> None:
            self.store(low, b.addi(lay["top"], i))
            self.store(zero, b.addi(lay["sum"], i))

        b.for_(0, lay["rows"] // self.mr * self.width, self.width, start)
        end = b.mini(self.keys, b.addi(q0, rows)) if p.causal else self.keys
        mask_at: Index = 0
        if p.mask_dtype is not None:
            mask_at = offset_of(b, self.operands.mask_offset, [*batch, head, q0], p.mask_strides[:-1])

        def key_block(k0: Index) -> None:
            whole = isinstance(end, int) and end % lay["keys"] == 0
            count = lay["keys"] if whole else b.mini(b.subi(end, k0), lay["keys"])
            self.key_block(q0, rows, k0, count, k_at, v_at, mask_at)

        b.for_(0, end, lay["keys"], key_block)
        self.finish(batch, head, q0, rows)

    def key_block(
        self, q0: Index, rows: Index, k0: Index, count: Index, k_at: Index, v_at: Index, mask_at: Index
    ) -> None:
        """Emit the update of sums and maxima by one block of keys; k_at, v_at, mask_at: element offsets."""
        b, p = self.b, self.p
        first = b.addi(k_at, b.muli(k0, known(p.k_strides[-2])))
        if not self.dot_scores:
            self.load_keys(first, count)
        values = self.load_values(b.addi(v_at, b.muli(k0, known(p.v_strides[-2]))), count)

        begin: Index = 0
        if p.causal:  # strips whose rows all come before the first key of the block see nothing of it
            begin = b.round_down(b.maxi(b.subi(k0, q0), 0), self.mr)

        def strip(i: Index) -> None:
            state = b.muli(b.divi(i, self.mr), self.width)
            self.scores_in_place(i, first, count) if self.dot_scores else self.scores(i, count)
            at = b.addi(mask_at, b.muli(k0, known(p.mask_strides[-1]))) if p.mask_dtype else 0
            limit = b.addi(b.subi(b.addi(q0, i), k0), 1)  # keys that row i may see, if causal
            b.for_(0, self.mr, 1, lambda r: self.softmax_row(i, r, state, rows, count, limit, at))
            self.rescale(state)
            self.accumulate(i, count, values)

        b.for_(begin, rows, self.mr, strip)

    # -- one strip of mr query rows ----------------------------------------------------------------

    def scores(self, i: Index, count: Index) -> None:
        """p[r, j] = q[i + r] . k[j], for whole tiles of keys (past `count` something finite or stale)."""
        b, lay, nr = self.b, self.lay, self.nv * self.width

        def tile(j: Index, vectors: int) -> None:
            acc = self.score_products(i, j, [b.zero(self.vector)] * (self.mr * vectors), vectors)
            for r in range(self.mr):
                for v in range(vectors):
                    at = b.sum_(lay["p"], j, r * lay["p_stride"] + v * self.width)
                    self.store(acc[r * vectors + v], at)

        full = lay["keys"] // nr * nr
        b.for_(0, b.mini(count, full), nr, lambda j: tile(j, self.nv))
        if full < lay["keys"]:
            rest = (lay["keys"] - full) // self.width
            b.if_(b.cmpi("sgt", count, full), lambda: tile(full, rest))

    def score_products(self, i: Index, j: Index, acc: list[ir.Value], vectors: int) -> list[Any]:
        """Adds q[i + r] . k[j + n] to a tile of sums."""
        b = self.b
        keys = b.addi(self.per * self.lay["k"], b.muli(j, self.per))
        right = self.vectors(self.words, keys, self.lay["keys"])
        return self.products(self.unit, self.query_rows(i), right, self.p.qk_size, acc)

    def products(
        self, unit: VectorUnit, left: Sequence[Index], right: Operand, steps: Index, acc: list[ir.Value]
    ) -> list[Any]:
        """acc[r, v] += the sum over `steps` of the element of the row at left[r], in `words`, times right(v)."""
        b, grid = self.b, Grid(self.mr, len(acc) // self.mr)
        return sum_products(b, unit, grid, acc, lambda _, r, k: Place(self.words, b.addi(left[r], k)), right, steps)

    def vectors(self, buffer: ir.Value, start: Index, row: Index) -> Operand:
        """Vectors of columns from `start` on, rows or groups of rows side by side, `row` elements a step of k."""
        b = self.b
        return lambda _, v, k: Place(buffer, b.sum_(start, b.muli(k, row), v * self.width * self.per))

    def scores_in_place(self, i: Index, first: Index, count: Index) -> None:
        """The same by dot products along the head size, four keys at a time; keys past the last repeat it."""
        b, lay, group = self.b, self.lay, min(4, self.width)
        row = known(self.p.k_strides[-2])
        q_at = self.query_rows(i)

        def tile(j: Index) -> None:
            last = b.subi(count, 1)
            k_at = [b.addi(first, b.muli(b.mini(b.addi(j, n), last), row)) for n in range(group)]
            acc = [b.zero(self.vector)] * (self.mr * group)
            acc = self.dot_products(q_at, k_at, acc)
            for r in range(self.mr):
                sums = sum_lanes(b, acc[r * group : (r + 1) * group])
                b.vstore(sums, self.scratch, b.sum_(lay["p"], j, r * lay["p_stride"]))

        b.for_(0, count, group, tile)

    @property
    def q_row(self) -> int:
        """Elements of `words` from one query to the next."""
        return self.lay["q_stride"]

    def query_rows(self, i: Index) -> list[Index]:
        """Where the queries of a strip lie in `words`."""
        b = self.b
        return [b.sum_(self.per * self.lay["q"], b.muli(i, self.q_row), r * self.q_row) for r in range(self.mr)]

    def dot_products(self, q_at: list[Index], k_at: list[Index], acc: list[ir.Value]) -> list[Any]:
        """Adds the products of the queries in scratch at `q_at` and the keys at `k_at`, lanes along the head."""
        b, unit, grid = self.b, self.along_head, Grid(self.mr, len(k_at))
        for e in range(0, self.p.qk_size, unit.depth):
            mask = b.mask_below(self.p.qk_size - e, unit.depth)

            def queries(_: int, r: int, k: Index) -> Place:
                return Place(self.words, b.addi(q_at[r], k))

            def keys(_: int, n: int, k: Index, mask: ir.Value | None = mask) -> Place:
                return Place(self.operands.k, b.addi(k_at[n], k), mask=mask)

            acc = multiply_step(b, unit, grid, acc, queries, keys, e)  # pyright: ignore[reportAssignmentType] - as many sums as it takes
        return acc

    def softmax_row(
        self, i: Index, r: Index, state: Index, rows: Index, count: Index, limit: Index, mask_at: Index
    ) -> None:
        """p[r] = 2^(scores - new maximum), and the row's entries of top, drop and part."""
        b, p, lay, width = self.b, self.p, self.lay, self.width
        at = b.addi(lay["p"], b.muli(r, lay["p_stride"]))
        visible = b.mini(count, b.addi(limit, r)) if p.causal else count
        low = b.broadcast(self.low, width)
        factor = b.float_(p.scale * LOG2E, self.vector)
        if p.mask_dtype is not None:  # padding rows read the last row's mask
            row = b.mini(b.addi(i, r), b.subi(rows, 1))
            mask_at = b.addi(mask_at, b.muli(row, known(p.mask_strides[-2])))
        everything = isinstance(visible, int) and visible >= lay["keys"]
        lanes = self.lanes() if not everything else None
        bound = b.broadcast(self.int32(visible), width) if not everything else None

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
        self.keep_powers(powers, at)
        b.store(new, self.scratch, b.sum_(lay["top"], state, r))
        b.store(b.subf(old, safe), self.scratch, b.addi(lay["drop"], r))
        b.store(b.reduce("add", self.tree(b.addf, powers)), self.scratch, b.addi(lay["part"], r))

    def keep_powers(self, powers: list[ir.Value], at: Index) -> None:
        """A row's exponentials to scratch, where `accumulate` finds them."""
        for n, x in enumerate(powers):
            self.store(x, self.b.addi(at, n * self.width))

    def masked(self, x: ir.Value, mask_at: Index, j: int, count: Index) -> ir.Value:
        """The scores of keys j ... with the mask applied; keys past `count` are not read."""
        b, width = self.b, self.width
        stride = known(self.p.mask_strides[-1])
        at = b.addi(mask_at, b.muli(j, stride))
        low = b.broadcast(self.low, width)
        lowest = b.float_(_LOWEST, self.vector)
        fill = -math.inf if self.p.fill is None else self.p.fill
        removed = low if fill == -math.inf else b.float_(max(fill * LOG2E, _LOWEST), self.vector)
        whole = b.cmpi("sge", count, j + width)

        def apply(lanes: ir.Value | None) -> list[ir.Value]:
            assert self.operands.mask is not None
            m = b.gather(self.operands.mask, at, stride, width, lanes)
            if self.p.mask_dtype == "i8":
                return [b.select(arith.cmpi(arith.CmpIPredicate.ne, m, b.zero(m.type)), x, removed)]
            m = b.cast_float(m, b.f32)
            y = b.fma(m, b.float_(LOG2E, self.vector), x)
            # The lowest finite mask stays finite: a row of such keys alone is their mean.
            lost = arith.andi(b.cmpf("olt", y, lowest), b.cmpf("ogt", m, low))
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

    def accumulate(self, i: Index, count: Index, values: tuple[ir.Value, Index, Index]) -> None:
        """out[i + r] = out[i + r] * drop[r] + p[r] @ v."""
        b, lay = self.b, self.lay
        base = b.addi(lay["out"], b.muli(i, lay["v_padded"]))

        def tile(j: Index, vectors: int) -> None:
            at = [b.sum_(base, j, r * lay["v_padded"] + v * self.width) for r in range(self.mr) for v in range(vectors)]
            acc: list[ir.Value] = []
            for r in range(self.mr):
                factor = b.broadcast(b.load(self.scratch, lay["drop"] + r), self.width)
                acc += [b.mulf(self.load(x), factor) for x in at[r * vectors : (r + 1) * vectors]]
            acc = self.value_products(values, j, count, acc, vectors)
            for x, index in zip(acc, at, strict=True):
                self.store(x, index)

        nr = self.nv * self.width
        full = lay["v_padded"] // nr * nr
        b.for_(0, full, nr, lambda j: tile(j, self.nv))
        if full < lay["v_padded"]:
            tile(full, (lay["v_padded"] - full) // self.width)

    def value_products(
        self, values: tuple[ir.Value, Index, Index], j: Index, count: Index, acc: list[ir.Value], vectors: int
    ) -> list[Any]:
        """Adds p[r] @ v[:, j ...] to a tile of the output."""
        b, lay = self.b, self.lay
        buffer, start, row = values
        left = [self.per * (lay["p"] + r * lay["p_stride"]) for r in range(self.mr)]
        return self.products(self.unit, left, self.vectors(buffer, b.addi(start, j), row), count, acc)

    def finish(self, batch: list[Index], head: Index, q0: Index, rows: Index) -> None:
        """Divides by the sums (a row without keys stays zero, or is NaN with ``fill``) and calls the epilogue."""
        b, lay = self.b, self.lay

        def row(i: Index) -> None:
            state = b.addi(b.muli(b.divi(i, self.mr), self.width), b.remi(i, self.mr))
            total = b.load(self.scratch, b.addi(lay["sum"], state))
            one = b.float_(1.0, b.f32)
            if self.p.fill is None:
                total = b.select(b.cmpf("oeq", total, b.float_(0.0, b.f32)), one, total)
            inverse = b.broadcast(b.divf(one, total), self.width)
            base = b.addi(lay["out"], b.muli(i, lay["v_padded"]))
            for j in range(0, lay["v_padded"], self.width):
                self.store(b.mulf(self.load(b.addi(base, j)), inverse), b.addi(base, j))

        b.for_(0, rows, 1, row)
        where, extent = (q0, 0), (rows, self.p.v_size)
        out = (self.scratch, lay["out"], lay["v_padded"])
        run_epilogue(b, self.epilogue, [*batch, head], where, extent, *out, self.width)

    # -- small parts -------------------------------------------------------------------------------

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

    def lanes(self) -> ir.Value:
        """vector<width x i32> 0, 1, 2, ..."""
        type_ = self.b.vec(self.width, self.b.i32)
        lanes = [ir.IntegerAttr.get(self.b.i32, n) for n in range(self.width)]
        return self.b.constant(ir.DenseElementsAttr.get(lanes, type_), type_)

    def int32(self, x: Index) -> ir.Value:
        """A position as i32, for comparisons of lanes."""
        return self.b.int_(x, self.b.i32) if isinstance(x, int) else arith.index_cast(self.b.i32, x)

    @staticmethod
    def tree(combine: Callable[[ir.Value, ir.Value], ir.Value], values: list[ir.Value]) -> ir.Value:
        """The values combined in pairs: log2(n) deep, where a chain would be n."""
        while len(values) > 1:
            pairs = [combine(x, y) for x, y in zip(values[::2], values[1::2], strict=False)]
            values = pairs + ([values[-1]] if len(values) % 2 else [])
        return values[0]
