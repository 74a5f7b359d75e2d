# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Groups that share loops: one nest computes what several did."""

from collections.abc import Sequence
from dataclasses import replace

from torch_mlir import ir

from kiln.dialects import affine
from kiln.passes.fusion.groups import Group, Grouping

__all__ = ["is_one", "loops_of", "merge_loops", "share_loops"]

MOST_OPS = 64
"""Ops that loops are shared by: more do not fit into the registers."""


def share_loops(grouping: Grouping, a: Group, b: Group, values: Sequence[ir.Value]) -> bool:
    """Whether one nest can compute both groups, which then read one of `values` once instead of twice."""
    if a.named is not None or b.named is not None or a.parts or b.parts or a.space != b.space:
        return False
    kinds = {a.reduced, b.reduced}
    if len(kinds) > 1:
        reduced = next(r for r in kinds if r is not None)
        kept = len(a.space) - len(reduced)
        if None not in kinds or not kept or min(reduced) < kept:
            return False
    if len(a.ops) + len(b.ops) > MOST_OPS:
        return False
    return any(_indices_of(grouping, a, value) & _indices_of(grouping, b, value) for value in values)


def _indices_of(grouping: Grouping, group: Group, value: ir.Value) -> set[tuple[ir.AffineExpr, ...]]:
    """Indices at which the group's loops read `value`."""

    def find() -> set[tuple[ir.AffineExpr, ...]]:
        readers = grouping.graph.readers.get(value, ())
        reads = [r for r in readers if grouping.of[r.consumer] is group and not r.whole]
        return set(grouping.indices(group, reads) or ())

    return group.once(("indices", value), find)


def merge_loops(grouping: Grouping, a: Group, b: Group) -> Group:
    """One group that computes both in the same loops. `share_loops` must hold, and no path lead between them."""
    ops = sorted([*a.ops, *b.ops], key=lambda o: grouping.graph.position[o])
    reduced = a.reduced if a.reduced is not None else b.reduced
    again = a.recomputed + b.recomputed
    guarded, scopes = a.guarded | b.guarded, a.scopes | b.scopes
    points = a.points | b.points
    merged = replace(a, ops=ops, points=points, reduced=reduced, recomputed=again, guarded=guarded, scopes=scopes)
    for op in ops:
        grouping.of[op] = merged
    return merged


def is_one(extent: ir.AffineExpr) -> bool:
    """Whether a loop goes round once."""
    return affine.constant_of(extent) == 1


def loops_of(dims: frozenset[int], space: Sequence[ir.AffineExpr]) -> frozenset[int]:
    """Those of `dims` that go round more than once."""
    return frozenset(d for d in dims if not is_one(space[d]))
