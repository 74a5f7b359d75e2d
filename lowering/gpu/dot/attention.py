# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Attention in one pass over the keys: scores never reach memory (Dao, FlashAttention-2, arXiv:2307.08691)."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import e, log2

from torch_mlir import ir
from torch_mlir.dialects import arith

from kiln.dialects import tt
from kiln.dialects.schedules.gpu import FlashSchedule
from kiln.lowering.gpu.builder import Builder, Condition, Index
from kiln.lowering.gpu.dot.operands import (
    Described,
    DescribedMatrix,
    Epilogue,
    Line,
    Matrix,
    dot_offset,
    line,
    split_batch,
)
from kiln.lowering.gpu.dot.schedule import pow2

_LEAST = 16
"""The least side of a tile that tensor cores take."""
_MINUS_INFINITY = float("-inf")
LOWEST = -3.4028234663852886e38
"""The largest score of no keys, finite: of minus infinity, which scores may be, no difference may be taken."""
"""A score that is finite in f32."""


@dataclass(frozen=True)
class ScoreMask:
    """What is added to the scores of a head (a float type), or which of them count (i8: those that are not 0)."""

    matrix: Matrix
    strides: tuple[Index, ...]
    boolean: bool


@dataclass(frozen=True)
class AttentionProblem:
    """result[*b, h, s, :] = softmax over t of (q[*b, h, s] . k[*b, g, t] * scale + mask[*b, h, s, t]) @ v[*b, g, t]
    with g = h // (heads / kv_heads).

    query [s, qk_size], key [t, qk_size] and value [t, v_size] are the matrices of the first head; the strides after
    them are those of [*batch, heads]. `causal` removes keys t > s. A row whose scores all are -inf, as those of removed
    keys, gives zeros. With `fill`, keys that the mask removes have this score, and a row of -inf gives NaN. Sums and
    softmax are in f32; probabilities are rounded to the operands' type before they meet the values.
    """

    batch: tuple[Index, ...]
    heads: Index
    kv_heads: Index
    queries: Index
    keys: Index
    qk_size: int
    v_size: int
    query: Matrix
    key: Matrix | Described
    value: Matrix | Described
    query_strides: tuple[Index, ...]
    key_strides: tuple[Index, ...]
    value_strides: tuple[Index, ...]
    scale: float
    causal: bool
    mask: ScoreMask | None = None
    fill: float | None = None
    precision: str = "ieee"

    @property
    def unit(self) -> float:
        """What differences of scores are multiplied by to be in units of log2. The scores are so already, except where
        a mask is added, whose least number must not become -inf.
        """
        added = self.mask is not None and not self.mask.boolean
        return log2(e) if added else 1.0


def emit_attention(
    b: Builder, p: AttentionProblem, schedule: FlashSchedule, program: Index, epilogue: Epilogue
) -> None:
    """One program: a block of queries of one head. Of causal heads, the longest rows are started first.

    The schedule's `masks` tells how blocks of keys are masked that end behind the last key or the last query:

    - "behind" (the default): in a loop of their own behind the others';
    - "ahead": one by one ahead of the loop; where it is causal and `queries <= keys` are known;
    - "branch": in the one loop, where a branch decides; where a descriptor or full blocks let all keys be loaded;
    - "all": as all others are, in one loop.

    With `across_heads`, blocks of all heads that have the same number follow each other; else those of a head.
    """
    blocks = b.ceildivi(p.queries, schedule.block_m)
    if schedule.across_heads:
        count = p.heads
        for size in p.batch:
            count = b.muli(count, size)
        position, block = b.remi(program, count), b.divi(program, count)
    else:
        position, block = b.divi(program, blocks), b.remi(program, blocks)
    head = split_batch(b, position, [*p.batch, p.heads])
    if p.causal:
        block = b.subi(b.subi(blocks, 1), block)
    rows = line(b, b.muli(block, schedule.block_m), schedule.block_m, 0, p.queries)
    columns = line(b, 0, max(pow2(p.v_size), _LEAST), 1, p.v_size)
    epilogue.apply(b, head, rows, columns, [_Rows(b, p, schedule, head, rows, columns).attend()])


class _Rows:
    """The loop over keys for one block of queries."""

    def __init__(
        self, b: Builder, p: AttentionProblem, schedule: FlashSchedule, head: Sequence[Index], rows: Line, columns: Line
    ):
        self.b, self.p, self.rows, self.columns = b, p, rows, columns
        self.block, self.stages = schedule.block_n, schedule.num_stages
        self.masks = schedule.masks
        self.head = list(head)
        group = self.head[-1] if p.heads == p.kv_heads else b.divi(self.head[-1], b.divi(p.heads, p.kv_heads))
        kv = [*self.head[:-1], group]
        self.key = _head(b, p.key, kv, p.key_strides)
        self.value = _head(b, p.value, kv, p.value_strides)
        self.width = max(pow2(p.qk_size), _LEAST)
        query = p.query.moved(b, dot_offset(b, self.head, p.query_strides))
        inner = line(b, 0, self.width, 1, p.qk_size)
        self.q = b.load(query.pointers(b, rows.clamped(b, p.queries), inner.index), inner.mask, other=0)
        self.mask = None if p.mask is None else p.mask.matrix.moved(b, dot_offset(b, self.head, p.mask.strides))

    def attend(self) -> ir.Value:
        """softmax(scores) @ value for the rows, f32."""
        b, p = self.b, self.p
        height = tt.shape_of(self.q.type)[0]
        width = max(pow2(p.v_size), _LEAST)
        carried = [
            b.constant(0.0, tt.with_shape([height, width], b.f32)),
            b.constant(LOWEST, tt.with_shape([height, 1], b.f32)),
            b.constant(0.0, tt.with_shape([height, 1], b.f32)),
        ]
        ragged = not isinstance(p.keys, int) or p.keys % self.block != 0
        whole = b.muli(b.divi(p.keys, self.block), self.block)
        end = p.keys
        if p.causal:
            below = b.muli(b.divi(self.rows.start, self.block), self.block)
            whole = b.mini(whole, below)
            end = b.mini(b.addi(self.rows.start, height), end)
        stages = {"tt.num_stages": f"{self.stages} : i32"}
        masks = self._masks(ragged)
        if masks == "ahead":
            for i in range(max(1, height // self.block)):
                carried = self._step(b.addi(whole, i * self.block), carried, True)
        if masks in ("all", "branch"):

            def body(start: Index, values: Sequence[ir.Value]) -> list[ir.Value]:
                return self._step(start, values, True if masks == "all" else b.cmpi("sge", start, whole))

            carried = b.for_(0, end, self.block, body, carried, stages)
        else:
            carried = b.for_(0, whole, self.block, lambda t, c: self._step(t, c, False), carried, stages)
        if masks == "behind":
            carried = b.for_(whole, end, self.block, lambda t, c: self._step(t, c, True), carried, stages)
        sums, _, total = carried
        if p.fill is None:
            # A row without keys has sums of zero.
            total = b.select(b.cmpf("oeq", total, 0.0), 1.0, total)
        return b.mulf(sums, b.divf(1.0, total))

    def _step(self, start: Index, carried: Sequence[ir.Value], masked: Condition) -> list[ir.Value]:
        """One block of keys. masked: some of them do not exist, or come after a query."""
        b, p = self.b, self.p
        sums, top, total = carried
        t = b.addi(start, b.lanes(self.block, 1, 2))
        down = b.addi(start, b.lanes(self.block, 0, 2))
        ragged = masked is not False and (not isinstance(p.keys, int) or p.keys % self.block != 0)
        exists: Condition = b.cmpi("slt", t, p.keys) if ragged else True
        exists_down: Condition = b.cmpi("slt", down, p.keys) if ragged else True
        if isinstance(self.key, DescribedMatrix):
            keys = b.trans(self.key.load(b, start, 0))
        else:
            inner = line(b, 0, self.width, 0, p.qk_size)
            keys = b.load(self.key.transposed.pointers(b, inner.index, t), b.andc(inner.mask, exists), other=0)
        zeros = b.constant(0.0, tt.with_shape([tt.shape_of(self.q.type)[0], self.block], b.f32))
        factor = log2(e) / p.unit
        # Without a mask the largest score is found before scaling, which then is part of the difference below.
        late = p.scale * factor if p.mask is None and p.scale > 0 else None
        scores = b.dot(self.q, keys, zeros, p.precision)
        if late is None:
            scores = b.mulf(scores, p.scale * factor)
        if p.mask is not None and self.mask is not None:
            given = b.load(self.mask.pointers(b, self.rows.clamped(b, p.queries), t), exists, other=0)
            if p.mask.boolean:
                removed = (
                    _MINUS_INFINITY if p.fill is None or p.fill == _MINUS_INFINITY else max(p.fill * factor, LOWEST)
                )
                scores = b.select(b.cmpi("ne", given, 0), scores, removed)
            else:
                scores = b.addf(scores, b.cast_float(given, b.f32))
        if masked is not False:
            scores = self._masked(scores, t, exists, masked)
        highest = b.expand_dims(b.reduce([scores], 1, lambda x, y: arith.maxnumf(x, y))[0], 1)
        new_top = b.maxf(top, highest if late is None else b.mulf(highest, late))
        weights = self._power(scores if late is None else b.mulf(scores, late), new_top)
        shrink = self._power(top, new_top)
        total = b.addf(
            b.mulf(total, shrink), b.expand_dims(b.reduce([weights], 1, lambda x, y: arith.addf(x, y))[0], 1)
        )
        if isinstance(self.value, DescribedMatrix):
            values = self.value.load(b, start, 0)
        else:
            kept = b.andc(exists_down, self.columns.mask)
            values = b.load(self.value.pointers(b, down, self.columns.index), kept, other=0)
        weights = b.cast_float(weights, tt.element_of(values.type))
        return [b.dot(weights, values, b.mulf(sums, shrink), p.precision), new_top, total]

    def _masks(self, ragged: bool) -> str:
        """What the schedule says of masks, as far as it holds for these sizes; "none" where none is needed."""
        p = self.p
        if not (p.causal or ragged):
            return "none"
        known = isinstance(p.queries, int) and isinstance(p.keys, int) and p.queries <= p.keys
        if self.masks == "ahead" and not (p.causal and known):
            return "behind"  # blocks without keys would be walked
        if self.masks == "branch" and ragged and not isinstance(self.key, DescribedMatrix):
            return "behind"  # the loads need the mask as well
        return self.masks

    def _masked(self, scores: ir.Value, t: Index, exists: Condition, masked: Condition) -> ir.Value:
        """Scores of keys that do not exist, or come after a query, are minus infinity where `masked` holds."""
        b, p = self.b, self.p

        def select() -> ir.Value:
            kept = b.andc(exists, b.cmpi("sle", t, self.rows.index)) if p.causal else exists
            return scores if kept is True else b.select(kept, scores, _MINUS_INFINITY)

        if masked is True:
            return select()
        return b.if_(masked, lambda: [select()], lambda: [scores], [scores.type])[0]

    def _power(self, scores: ir.Value, base: ir.Value) -> ir.Value:
        """e to the difference of two scores."""
        difference = self.b.subf(scores, base)
        return self.b.math("exp2", difference if self.p.unit == 1.0 else self.b.mulf(difference, self.p.unit))


def _head(
    b: Builder, rows: Matrix | Described, indices: Sequence[Index], strides: Sequence[Index]
) -> Matrix | DescribedMatrix:
    return rows.at(indices) if isinstance(rows, Described) else rows.moved(b, dot_offset(b, indices, strides))
