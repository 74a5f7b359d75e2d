# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Loops that are split where a reshape has merged dims of an operand that memory does not walk as one.

`x.permute(...).reshape(...)` reads its operand at quotients and remainders of the result's dims. Lanes along such a dim
lie on no line, while along one of the operand's own dims they do. A dim that is split into those is walked by as many
loops.
"""

from collections.abc import Sequence
from itertools import pairwise

from torch_mlir import ir

from kiln.dialects import affine
from kiln.lowering import paths
from kiln.lowering.tile.access import Accesses, Loops

__all__ = ["SPLIT", "split_dims"]

SPLIT = paths.group("cpu merged dims", "walked apart", "as one")


def split_dims(accesses: Accesses, dims: Sequence[int], loops: Loops) -> tuple[list[int], list[ir.AffineExpr]] | None:
    """`dims`, some of which are split, and the old ones in terms of the new; None where none is."""
    found: dict[int, set[int]] = {}
    for access in accesses.found:
        _divisors(access.offset, found)
    new_dims: list[int] = []
    exprs: list[ir.AffineExpr] = []
    for d in dims:
        extent = affine.constant_of(loops.extents[d])
        borders = sorted({1, extent or 1, *(n for n in found.get(d, ()) if n < (extent or 1))})
        if extent is None or len(borders) <= 2 or any(high % low for low, high in pairwise(borders)):
            new_dims.append(d)
            exprs.append(ir.AffineDimExpr.get(d))
            continue
        total: ir.AffineExpr = ir.AffineConstantExpr.get(0)
        for low, high in reversed(list(pairwise(borders))):
            fresh = loops.new(ir.AffineConstantExpr.get(high // low))
            new_dims.append(fresh.position)
            total = total + fresh * low
        exprs.append(loops.simplify(total))
    return (new_dims, exprs) if len(new_dims) > len(dims) else None


def _divisors(expr: ir.AffineExpr, found: dict[int, set[int]]) -> tuple[int, int] | None:
    """Collects by dim what its quotients and remainders divide by; a quotient of one dim as (dim, divisor)."""
    expr = expr.maybe_downcast()
    if isinstance(expr, ir.AffineDimExpr):
        return expr.position, 1
    if not isinstance(expr, ir.AffineBinaryExpr):
        return None
    unit = _divisors(expr.lhs, found)
    by = affine.constant_of(expr.rhs)
    if by is None:
        _divisors(expr.rhs, found)
        return None
    if unit is None or not isinstance(expr, (ir.AffineFloorDivExpr, ir.AffineModExpr)):
        return None
    d, before = unit
    found.setdefault(d, set()).add(before * by)
    return (d, before * by) if isinstance(expr, ir.AffineFloorDivExpr) else unit
