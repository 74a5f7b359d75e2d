# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Which results of a fusion one nest of loops can compute."""

from collections.abc import Sequence

from torch_mlir import ir

from kiln.lowering.tile.body import FusionBody

__all__ = ["group_roots"]


def group_roots(body: FusionBody) -> list[list[tuple[int, ir.Value, list[int | None]]]]:
    """Roots that can share a nest: each with the main root's dim for each of its own dims (None: index 0).

    The main root is first: one of most dims, and among these of fewest with one element, so that a statistic of each
    row joins the row's elements.
    """
    one = ir.AffineConstantExpr.get(1)
    order = sorted(body.mine, key=lambda i: (-len(dims := body.dims(body.roots[i])), dims.count(one), i))
    groups: list[list[tuple[int, ir.Value, list[int | None]]]] = []
    for i in order:
        value = body.roots[i]
        dims = body.dims(value)
        for group in groups:
            main = body.dims(group[0][1])
            mapping = _embed(dims, main)
            if mapping is not None:
                group.append((i, value, mapping))
                break
        else:
            groups.append([(i, value, list(range(len(dims))))])
    return groups


def _embed(dims: Sequence[ir.AffineExpr], main: Sequence[ir.AffineExpr]) -> list[int | None] | None:
    """Match `dims` to a subsequence of `main` (equal sizes, from the left); size 1 may match nothing."""
    one = ir.AffineConstantExpr.get(1)
    mapping: list[int | None] = []
    k = 0
    for position, d in enumerate(dims):
        if position < len(main) and len(dims) == len(main):
            # Same rank: positions correspond (a kept reduced dim has size 1).
            if d == main[position]:
                mapping.append(position)
            elif d == one:
                mapping.append(None)
            else:
                return None
            continue
        while k < len(main) and main[k] != d:
            k += 1
        if k == len(main):
            if d != one:
                return None
            mapping.append(None)
            k = (mapping[-2] + 1) if len(mapping) > 1 and mapping[-2] is not None else 0
            continue
        mapping.append(k)
        k += 1
    return mapping
