# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Attention on Hopper by warps with different jobs (Shah et al., FlashAttention-3, arXiv:2407.08608).

One warp copies blocks into shared memory; two groups of four warps have 64 queries each, and multiply and take powers
at their own pace, so that one's powers run under the other's products. Triton makes no such kernel of Triton IR, so it
has two forms: the `tt.func`'s body says what is computed, which is what runs as loops on a CPU, and
`specialized_ttgir.py` writes, from the same `kiln.specialized` attribute, the text for Triton's later stages.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from math import e, log2, prod
from typing import Any

from torch_mlir import ir
from torch_mlir.dialects import arith

from kiln.dialects import tt
from kiln.lowering.gpu.builder import Builder, Index
from kiln.lowering.gpu.dot.attention import LOWEST
from kiln.lowering.gpu.dot.operands import Described, split_batch

HALF = 64
"""Queries of one group of warps: the rows of its product instruction."""
LEAST = 2.0**-126
"""In place of a sum of weights that all are zero: others are near one, or more."""
_LINE, _MOST = 64, 128
"""Elements of a line of shared memory; sums of a query that fit into registers beside its scores."""


def padded_size(size: int) -> int | None:
    """Elements of heads of this size in shared memory: whole lines, whose rest tensor maps fill with zeros, and do not
    store. None for heads that are too large, or leave half of it empty.
    """
    wide = next((n for n in (_LINE, _MOST) if size <= n), None)
    return wide if wide is not None and size > wide // 2 else None


@dataclass(frozen=True)
class Place:
    """An argument that is a descriptor: its number; the rest is as in `Described`, with -1 for None."""

    arg: int
    leading: tuple[int, ...]
    start: tuple[int, ...]

    @classmethod
    def of(cls, arg: int, described: Described) -> "Place":
        """Where a described tensor lies: the kernel's argument `arg`, with -1 for a dim that is not fixed."""
        return cls(arg, tuple(-1 if x is None else x for x in described.leading), described.start)


@dataclass(frozen=True)
class Specialized:
    """result[*batch, h, s] = softmax over t of (query[*batch, h, s] . key[*batch, g, t] * scale) @ value[*batch, g, t]
    with g = h // (heads / kv_heads); all rows have `size` elements of type `element` (bf16 or f16), zeros behind those
    of the tensors among them.

    scale is positive. `causal` removes keys t > s. zeros: what a row gives whose scores all are -inf, else NaN.
    block_n: keys of a step; num_stages: blocks of keys, and of values, in shared memory. Programs walk through the
    blocks of `heads_together` heads (a divisor of all) side by side, through the longest rows first where it is causal.
    pingpong: the groups take turns in starting their products.
    """

    batch: tuple[int, ...]
    heads: int
    kv_heads: int
    queries: int
    keys: int
    size: int
    element: str
    scale: float
    causal: bool
    zeros: bool
    block_n: int
    num_stages: int
    heads_together: int
    pingpong: bool
    query: Place
    key: Place
    value: Place
    result: Place

    @classmethod
    def from_dict(cls, given: dict[str, Any]) -> "Specialized":
        """The inverse of `asdict`, also behind an attribute, which has lists."""
        values: dict[str, Any] = {
            name: Place(given[name]["arg"], tuple(given[name]["leading"]), tuple(given[name]["start"]))
            for name in ("query", "key", "value", "result")
        }
        values |= {"batch": tuple(given["batch"])}
        return cls(**{**given, **values})

    def to_dict(self) -> dict[str, Any]:
        """The problem as plain values, which `from_dict` takes."""
        return asdict(self)

    @property
    def blocks(self) -> int:
        """Blocks of queries of one head."""
        return -(-self.queries // (2 * HALF))

    @property
    def tiles(self) -> int:
        """How many tiles of queries there are, over batches and heads."""
        return prod(self.batch) * self.heads * self.blocks

    @property
    def key_blocks(self) -> int:
        """How many blocks of keys a tile goes through."""
        return -(-self.keys // self.block_n)

    @property
    def factor(self) -> float:
        """What scores are multiplied by: they are powers of two."""
        return self.scale * log2(e)


def emit_specialized(b: Builder, p: Specialized, described: Sequence[Described], program: Index, programs: int) -> None:
    """One program: every `programs`-th tile of 2 x 64 queries. described: query, key, value, result.

    Keys are walked from the last block to the first, so that only the first step has a mask.
    """
    query, key, value, result = described

    def tile(number: Index) -> None:
        head, block = _position(b, p, number)
        *outer, inner = split_batch(b, head, [*p.batch, p.heads])
        kv = [*outer, b.divi(inner, p.heads // p.kv_heads)]
        count: Index = p.key_blocks
        if p.causal:
            reach = b.addi(b.muli(block, 2 * HALF), 2 * HALF)
            count = b.mini(count, b.ceildivi(reach, p.block_n))
        for half in range(2):
            row = b.addi(b.muli(block, 2 * HALF), half * HALF)
            q = query.at([*outer, inner]).load(b, row, 0)
            carried = [
                b.constant(0.0, tt.with_shape([HALF, p.size], b.f32)),
                b.constant(LOWEST, tt.with_shape([HALF, 1], b.f32)),
                b.constant(0.0, tt.with_shape([HALF, 1], b.f32)),
            ]

            def step(
                i: Index, carried: Sequence[ir.Value], is_first: bool, q: ir.Value = q, row: Index = row
            ) -> list[ir.Value]:
                start = b.muli(b.subi(b.subi(count, 1), i), p.block_n)
                keys, values = (x.at(kv).load(b, start, 0) for x in (key, value))
                return _step(b, p, q, keys, values, (row, start), carried, is_first)

            carried = step(0, carried, True)
            sums, _, total = b.for_(1, count, 1, lambda i, c, step=step: step(i, c, False), carried)
            if p.zeros:
                total = b.maxf(total, LEAST)
            out = b.cast_float(b.mulf(sums, b.divf(1.0, total)), tt.element_of(q.type))
            place = result.at([*outer, inner])
            at = [b.addi(i, first) for i, first in zip((*place.indices, row, 0), place.start, strict=True)]
            b.descriptor_store(place.descriptor, out, [x if isinstance(x, int) else b.cast_int(x, b.i32) for x in at])

    b.for_(program, p.tiles, programs, tile)


def _position(b: Builder, p: Specialized, number: Index) -> tuple[Index, Index]:
    """The head, of those of all batches, and the block of queries of a tile."""
    group = p.heads_together * p.blocks
    within = b.remi(number, group)
    head = b.addi(b.muli(b.divi(number, group), p.heads_together), b.remi(within, p.heads_together))
    block = b.divi(within, p.heads_together)
    return head, b.subi(p.blocks - 1, block) if p.causal else block


def _step(
    b: Builder,
    p: Specialized,
    q: ir.Value,
    keys: ir.Value,
    values: ir.Value,
    start: tuple[Index, Index],
    carried: Sequence[ir.Value],
    is_first: bool,
) -> list[ir.Value]:
    """One block of keys. start: of its queries, of its keys."""
    sums, top, total = carried
    scores = b.dot(q, b.trans(keys), b.constant(0.0, tt.with_shape([HALF, p.block_n], b.f32)))
    if is_first and (p.causal or p.keys % p.block_n):
        column = b.addi(start[1], b.lanes(p.block_n, 1, 2))
        kept = b.cmpi("slt", column, p.keys) if p.keys % p.block_n else True
        if p.causal:
            kept = b.andc(kept, b.cmpi("sle", column, b.addi(start[0], b.lanes(HALF, 0, 2))))
        scores = b.select(kept, scores, float("-inf"))
    highest = b.expand_dims(b.reduce([scores], 1, lambda x, y: arith.maxnumf(x, y))[0], 1)
    new_top = b.maxf(top, b.mulf(highest, p.factor))
    weights = b.math("exp2", b.subf(b.mulf(scores, p.factor), new_top))
    shrink = b.math("exp2", b.subf(top, new_top))
    row_sum = b.expand_dims(b.reduce([weights], 1, lambda x, y: arith.addf(x, y))[0], 1)
    total = b.addf(b.mulf(total, shrink), row_sum)
    weights = b.cast_float(weights, tt.element_of(values.type))
    return [b.dot(weights, values, b.mulf(sums, shrink)), new_top, total]
