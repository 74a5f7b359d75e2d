# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Attention in one pass over the keys: scores of a block of keys never leave the first-level cache.

After Dao et al., "FlashAttention" (2022), with the online softmax of Milakov and Gimelshein (2018). A task is
one head and a block of its queries. For each block of keys: transpose the keys into scratch; for each strip
of query rows: scores by register tiles, softmax against the running maximum, rescale and extend the strip of
the output. Exponentials are base 2, with log2(e) folded into the scale.

The matrix unit says what is multiplied: f32, pairs of bf16 or tiles of them (AMX). Queries lie in scratch in rows, keys
and values as words along what is summed (contraction/words.py). For units of bf16 exponentials are rounded to bf16 for
the product with the values, as PyTorch's kernel rounds them; maximum, sum and output are f32.
"""

from collections.abc import Callable

from torch_mlir import ir

from kiln.dialects.schedules.cpu import AmxFlashSchedule, AttentionSchedule, FlashSchedule
from kiln.lowering import paths
from kiln.lowering.cpu.attention.problem import AttentionBuffers, AttentionProblem
from kiln.lowering.cpu.attention.softmax import Softmax
from kiln.lowering.cpu.bf16 import has_pairs
from kiln.lowering.cpu.builder import Builder, Index
from kiln.lowering.cpu.contraction import Grid, MatrixUnit, Operand, Place, Tile, load_sums, store_sums, sum_products
from kiln.lowering.cpu.contraction.amx import AMX_BF16
from kiln.lowering.cpu.contraction.operands import RowsInPlace
from kiln.lowering.cpu.contraction.vectors import float_unit, fold
from kiln.lowering.cpu.contraction.words import Lines, Words, pack
from kiln.lowering.cpu.isa import target
from kiln.lowering.cpu.matmul.partition import run_epilogue
from kiln.lowering.cpu.matmul.problem import Epilogue
from kiln.lowering.cpu.problem import KernelContext, known, offset_of
from kiln.lowering.cpu.sizes import LINE, apart, round_up

__all__ = ["emit_attention"]

_TAKEN = paths.group(
    "cpu attention",
    *("vectors", "pairs", "tiles", "mask", "causal"),
    needs={"pairs": "avx512bf16", "tiles": "amx-bf16"},
)


def emit_attention(
    b: Builder,
    problem: AttentionProblem,
    schedule: AttentionSchedule,
    operands: AttentionBuffers,
    epilogue: Epilogue,
    ctx: KernelContext,
) -> None:
    """Emits one thread's share of attention at the current insertion point.

    `epilogue` gets rows of the result: index [*batch, head, query], columns of the value size, f32. The thread's
    scratch must hold `attention_scratch_bytes(problem, schedule)` bytes, 64-byte aligned.
    """
    pairs = has_pairs(problem.dtype, schedule.width, target())
    tiles = isinstance(schedule, AmxFlashSchedule)
    _TAKEN("tiles" if tiles else "pairs" if pairs else "vectors")
    _TAKEN.those({"mask": operands.mask is not None, "causal": problem.causal})
    unit = AMX_BF16 if tiles else float_unit("f32", schedule.width, pairs=pairs)
    Attention(b, problem, schedule, operands, epilogue, ctx, unit).emit()


class Attention(Softmax):
    """One thread's share. unit: multiplies; f32 sums of f32 or bf16."""

    def __init__(
        self, b: Builder, p: AttentionProblem, s: AttentionSchedule, operands: AttentionBuffers, epilogue: Epilogue,
        ctx: KernelContext, unit: MatrixUnit,
    ):  # fmt: skip
        super().__init__(b, p, s, operands, ctx, unit)
        self.epilogue, self.ctx, self.mr, self.nv = epilogue, ctx, s.mr, s.nv
        self.queries, self.keys = known(p.queries), known(p.keys)
        self.dot_scores = isinstance(s, FlashSchedule) and s.dot_scores
        whole = p.dtype == "f32" and p.v_size % self.width == 0
        self.v_in_place = p.v_strides[-1] == 1 and (self.dot_scores or whole and not self.pairs)
        self.q_row = apart(round_up(p.qk_size, self.per * self.width), LINE * self.per // 4)

    # -- tasks ------------------------------------------------------------------------------------

    def emit(self) -> None:
        """Emit this thread's share: blocks of queries of one head, taken in turn."""
        b, p, rows = self.b, self.p, self.lay["rows"]

        def task(*index: Index) -> None:
            *batch, head, block = index
            q0 = b.muli(block, rows)
            self.task(batch, head, q0, b.mini(b.subi(self.queries, q0), rows))

        self.unit.begin(b)
        sizes = (*p.batch, p.heads, b.ceildivi(self.queries, rows))
        self.ctx.share(b, sizes, task, in_turn=p.causal)  # later queries see more keys
        self.unit.end(b)

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
        queries = Lines(self.operands.q, known(p.q_strides[-2]), known(p.q_strides[-1]))
        pitch = self.q_row // self.per
        self.pack(queries, q_at, rows, p.qk_size, lay["q"], pitch, turned=False, height=padded)  # repeats the last one
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
        b, p, lay = self.b, self.p, self.lay
        first = b.addi(k_at, b.muli(k0, known(p.k_strides[-2])))
        if not self.dot_scores:
            keys = Lines(self.operands.k, known(p.k_strides[-2]), known(p.k_strides[-1]))
            self.pack(keys, first, count, p.qk_size, lay["k"], lay["keys"], turned=True)
        values = b.addi(v_at, b.muli(k0, known(p.v_strides[-2])))
        if not self.v_in_place:
            columns = Lines(self.operands.v, known(p.v_strides[-1]), known(p.v_strides[-2]))
            self.pack(columns, values, p.v_size, count, lay["v"], lay["v_padded"], turned=True)

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

    def pack(
        self, lines: Lines, start: Index, count: Index, depth: Index, to: int, pitch: int, *, turned: bool,
        height: Index | None = None,
    ) -> None:  # fmt: skip
        """`count` lines of `depth` steps, from element `start` on, to scratch as words from `to` on: as rows of words
        `pitch` apart, or (`turned`) as a row of one word of each for each word along what is summed.
        """

        def place(_: int, i: Index) -> tuple[ir.Value, Index]:
            return self.packed, self.b.addi(self.b.muli(i, 1 if turned else pitch), to)

        words = Words(self.b, lines, self.unit)
        pack(words, start, count, depth, place, pitch, turned=turned, height=height)

    # -- one strip of mr query rows ----------------------------------------------------------------

    def scores(self, i: Index, count: Index) -> None:
        """p[r, j] = q[i + r] . k[j], for whole tiles of keys (past `count` something finite or stale)."""
        b, lay = self.b, self.lay
        depth = round_up(self.p.qk_size, self.unit.depth)
        left = self.query_rows(i)

        def tile(j: Index, vectors: int) -> None:
            right = self.vectors(b.addi(lay["k"], j), lay["keys"])
            unit, grid = self.unit, self.grid(vectors)
            sums = sum_products(b, unit, grid, left, right, depth, unrolled=unit.is_numbered)
            store_sums(b, unit, grid, sums, self.sums(lay["p"], j, lay["p_stride"]))

        self.columns(lay["keys"], count, tile)

    def grid(self, vectors: int) -> Grid:
        """Tiles of sums of a strip, `vectors` of them beside each other."""
        return Grid(self.mr // self.unit.rows, vectors)

    def sums(self, start: Index, j: Index, stride: int) -> Callable[[int, int], Place]:
        """Where tiles of sums lie: from column j on, in rows `stride` apart, the first of which is at `start`."""
        high, wide = self.unit.rows * stride, self.width
        return lambda r, v: Place(self.scratch, self.b.sum_(start, j, r * high + v * wide), stride)

    def rows(self, start: Index, stride: int) -> Operand:
        """Rows in `words`, from `start` on, as left tiles; the next one `stride` elements on."""
        return lambda _, r, k: Place(self.words, self.b.sum_(start, k, r * self.unit.rows * stride), stride)

    def query_rows(self, i: Index) -> Operand:
        """The queries of a strip."""
        return self.rows(self.b.addi(self.per * self.lay["q"], self.b.muli(i, self.q_row)), self.q_row)

    def vectors(self, start: Index, row: int) -> Operand:
        """Words of columns from `start` of `packed` on as right tiles, `row` of them a step."""
        b, per = self.b, self.per
        start = b.muli(start, per)
        return lambda _, v, k: Place(self.words, b.sum_(start, b.muli(k, row), v * self.width * per), row * per)

    def columns(self, size: int, count: Index, tile: Callable[[Index, int], None]) -> None:
        """tile(first column, vectors) for those of `size` columns that begin before `count`."""
        b, nr = self.b, self.nv * self.width
        full = size // nr * nr
        b.for_(0, b.mini(count, full), nr, lambda j: tile(j, self.nv))
        if full < size:
            b.if_(b.cmpi("sgt", count, full), lambda: tile(full, (size - full) // self.width))

    def scores_in_place(self, i: Index, first: Index, count: Index) -> None:
        """The same by dot products along the head size, four keys at a time; keys past the last repeat it."""
        b, lay, group = self.b, self.lay, min(4, self.width)
        unit = float_unit("f32", self.width, pairs=self.pairs, along_k=True)
        keys = RowsInPlace(b, unit, Lines(self.operands.k, known(self.p.k_strides[-2]), 1), group, exact=False)
        keys.prepare(first, count, self.p.qk_size)
        queries = self.query_rows(i)

        def run(j: Index, wide: int, tiles: Operand) -> None:
            grid, size = Grid(self.mr, wide), self.p.qk_size
            sums = sum_products(b, unit, grid, queries, tiles, size, filled=False, unrolled=True)
            for r, x in enumerate(fold(b, sums, wide)):
                b.vstore(x, self.scratch, b.sum_(lay["p"], j, r * lay["p_stride"]))

        keys.each(count, run)

    def accumulate(self, i: Index, count: Index, values: Index) -> None:
        """out[i + r] = out[i + r] * drop[r] + p[r] @ v; values: where they begin in memory."""
        b, lay, width, size = self.b, self.lay, self.width, self.lay["v_padded"]
        base = b.addi(lay["out"], b.muli(i, size))

        def factor(r: Index) -> ir.Value:
            return b.broadcast(b.load(self.scratch, b.addi(lay["drop"], r)), width)

        def rescale(r: Index) -> None:
            by = factor(r)
            for j in range(0, size, width):
                at = b.sum_(base, b.muli(r, size), j)
                self.store(b.mulf(self.load(at), by), at)

        if self.unit.is_numbered:  # registers of tiles do not scale
            b.for_(0, self.mr, 1, rescale)
        left = self.rows(self.per * lay["p"], self.per * lay["p_stride"])

        def tile(j: Index, vectors: int) -> None:
            unit, grid, at = self.unit, self.grid(vectors), self.sums(base, j, size)
            right = self.vectors(b.addi(lay["v"], j), size)
            if self.v_in_place:
                unit = float_unit("f32", width, pairs=self.pairs, in_rows=True)
                right = self.value_rows(values, j, count)
            if unit.is_numbered:
                start = load_sums(b, unit, grid, at)
            else:
                start = list[Tile]()
                for r in range(grid.high):  # a row's factor where it is wanted: all of them need too many registers
                    by = factor(r)
                    start += [b.mulf(self.load(at(r, v).at), by) for v in range(grid.wide)]
            store_sums(b, unit, grid, sum_products(b, unit, grid, left, right, count, start), at)

        self.columns(size, size, tile)

    def value_rows(self, values: Index, j: Index, count: Index) -> Operand:
        """Columns j ... of the values in memory."""
        b, p, row = self.b, self.p, known(self.p.v_strides[-2])
        last = b.subi(count, 1)

        def rows(_: int, v: int, k: Index) -> Place:
            column = b.addi(j, v * self.width)
            whole = p.v_size % self.width == 0
            mask = None if whole else b.mask_below(b.subi(p.v_size, column), self.width)
            at, stride = b.sum_(values, b.muli(k, row), column), row
            if self.pairs:  # the key behind an odd last one is that one again; its exponential is 0
                stride = b.subi(b.sum_(values, b.muli(b.mini(b.addi(k, 1), last), row), column), at)
            return Place(self.operands.v, at, stride, mask)

        return rows

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
        out = Place(self.scratch, lay["out"], lay["v_padded"])
        run_epilogue(b, self.epilogue, [*batch, head], where, extent, out, self.width)
