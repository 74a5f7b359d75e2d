# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Loops that memory walks as one become one loop."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from torch_mlir import ir

from kiln.dialects import affine
from kiln.lowering.tile.access import Accesses, Loops

__all__ = ["Merged", "merge_groups", "merged_dims", "partial_coefficients", "repeats", "walks_runs"]


@dataclass
class Merged:
    """Loop dims after merging; `exprs` gives each original dim in terms of them."""

    dims: list[int]
    exprs: list[ir.AffineExpr]


def merge_groups(accesses: Accesses, dims: Sequence[int], loops: Loops, classes: Sequence[object]) -> list[list[int]]:
    """Runs of adjacent dims that every access walks as one: stride(d_i) = stride(d_i+1) * extent(d_i+1).

    Dims of different `classes` stay apart, as do dims used other than linearly.
    """
    coefficients: list[dict[int, ir.AffineExpr]] = []
    usable = set(dims) - accesses.opaque
    for a in accesses.found:
        used = affine.dims_in(a.offset) & usable
        if not used:
            coefficients.append({})
            continue
        linear = affine.linear_coefficients(a.offset)
        if linear is None:
            usable -= _nonlinear_dims(a.offset)
            linear = (None, partial_coefficients(a.offset))
        coefficients.append(linear[1])
    zero = ir.AffineConstantExpr.get(0)
    groups: list[list[int]] = []
    for k, d in enumerate(dims):
        previous = groups[-1][-1] if groups else None
        ok = previous is not None and classes[k] == classes[k - 1] and d in usable and previous in usable
        if ok:
            assert previous is not None
            extent = loops.extents[d]
            for c in coefficients:
                inner, outer = c.get(d, zero), c.get(previous, zero)
                if loops.simplify(outer - inner * extent) != zero:
                    ok = False
                    break
        if ok:
            groups[-1].append(d)
        else:
            groups.append([d])
    return groups


def _nonlinear_dims(expr: ir.AffineExpr) -> frozenset[int]:
    expr = expr.maybe_downcast()
    if isinstance(expr, (ir.AffineDimExpr, ir.AffineConstantExpr, ir.AffineSymbolExpr)):
        return frozenset()
    if isinstance(expr, ir.AffineAddExpr):
        return _nonlinear_dims(expr.lhs) | _nonlinear_dims(expr.rhs)
    if isinstance(expr, ir.AffineMulExpr) and not affine.dims_in(expr.rhs):
        return _nonlinear_dims(expr.lhs)
    return affine.dims_in(expr)


def partial_coefficients(expr: ir.AffineExpr) -> dict[int, ir.AffineExpr]:
    """Coefficients of the dims that occur linearly; the other dims are not merged anyway."""
    found: dict[int, ir.AffineExpr] = {}
    for e, factor in _terms(expr):
        if isinstance(e, ir.AffineDimExpr):
            found[e.position] = found[e.position] + factor if e.position in found else factor
    return found


def walks_runs(offset: ir.AffineExpr, dim: int) -> bool:
    """Whether neighbours along a dim are neighbours in memory, at least within runs: of loops that were made one, such
    as images and pixels, those of the innermost.
    """
    steps = 0
    for e, factor in _terms(offset):
        inner = e.lhs.maybe_downcast() if isinstance(e, ir.AffineModExpr) else e
        if isinstance(inner, ir.AffineDimExpr) and inner.position == dim:
            known = affine.constant_of(factor)
            if known is None:
                return False
            steps += known
    return steps == 1


def repeats(offset: ir.AffineExpr, dim: int) -> int:
    """How many neighbours along a dim read one element: the divisor, where only quotients by known numbers are used."""
    least: int | None = None
    for e, _ in _terms(offset):
        if dim not in affine.dims_in(e):
            continue
        while isinstance(e, ir.AffineModExpr):
            e = e.lhs.maybe_downcast()
        if not isinstance(e, ir.AffineFloorDivExpr) or not isinstance(e.lhs.maybe_downcast(), ir.AffineDimExpr):
            return 1
        divisor = affine.constant_of(e.rhs)
        if divisor is None:
            return 1
        least = divisor if least is None else min(least, divisor)
    return least or 1


def _terms(expr: ir.AffineExpr) -> Iterator[tuple[ir.AffineExpr, ir.AffineExpr]]:
    """The terms of a sum, each with its factor."""
    work: list[tuple[ir.AffineExpr, ir.AffineExpr]] = [(expr, ir.AffineConstantExpr.get(1))]
    while work:
        e, factor = work.pop()
        e = e.maybe_downcast()
        if isinstance(e, ir.AffineAddExpr):
            work += ((e.rhs, factor), (e.lhs, factor))
        elif isinstance(e, ir.AffineMulExpr) and not affine.dims_in(e.rhs):
            work.append((e.lhs, factor * e.rhs))
        else:
            yield e, factor


def merged_dims(groups: list[list[int]], loops: Loops) -> Merged:
    """New loop dims, one per group, and the old dims as quotients and remainders of them."""
    dims: list[int] = []
    exprs: list[ir.AffineExpr] = []
    for group in groups:
        if len(group) == 1:
            dims.append(group[0])
            exprs.append(ir.AffineDimExpr.get(group[0]))
            continue
        total: ir.AffineExpr = ir.AffineConstantExpr.get(1)
        for d in group:
            total = total * loops.extents[d]
        fresh = loops.new(total)
        dims.append(fresh.position)
        rest: ir.AffineExpr = fresh
        parts: list[ir.AffineExpr] = []
        for d in reversed(group[1:]):
            parts.append(ir.AffineExpr.get_mod(rest, loops.extents[d]))
            rest = ir.AffineExpr.get_floor_div(rest, loops.extents[d])
        exprs += [rest, *reversed(parts)]
    return Merged(dims, [loops.simplify(x) for x in exprs])
