# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Plans the loops around the roots of a fusion: parallel over threads outside, vector lanes inside.

A nest walks the index space of its main root. Roots that live on fewer dims (the mean beside a layer norm) are
stored where their own dims are bound, outside of the remaining loops.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from torch_mlir import ir

from kiln.dialects import affine
from kiln.lowering import paths
from kiln.lowering.cpu.isa import target
from kiln.lowering.cpu.tile import planning
from kiln.lowering.cpu.tile.cuts import MORE_CODE, MOST_PIECES, Cut, choose_cuts, code_of
from kiln.lowering.cpu.tile.evaluator import Evaluator
from kiln.lowering.cpu.tile.kernel import Kernel
from kiln.lowering.cpu.tile.row_functions import cost_behind, function_dim
from kiln.lowering.cpu.tile.row_stage import ROWS, block_dim
from kiln.lowering.cpu.tile.splitting import SPLIT, split_dims
from kiln.lowering.cpu.tile.turns import turning_dim
from kiln.lowering.tile.access import Accesses, Indices
from kiln.lowering.tile.body import FusionBody
from kiln.lowering.tile.merging import Merged, merge_groups, merged_dims
from kiln.lowering.tile.pieces import Group, cut_group, whole_groups


@dataclass
class Root:
    """A result of the fusion: position among the results, value, and its index at a point of the nest."""

    position: int
    value: ir.Value
    indices: Indices


@dataclass
class Nest:
    """The loops of some roots, outermost first: `outer`, then by the kind of the lane

    - no reduction, or the lane indexes reductions (columns): lane, then `inner`;
    - the reductions run along the lane (rows): `inner`, then lane.

    split_lane: threads share blocks of lanes of all iterations of `outer`, instead of these.
    reductions: what the roots need reduced, inner ones first, at which index.
    tile: (dim, tile dim): a dim that some operand or result is contiguous in, walked in tiles inside of the lane loop,
        where it is transposed a tile at a time (stage.py); where reductions are rows, a dim of rows that is walked in
        blocks, for which an operand is transposed (row_stage.py).
    cuts: dims of `outer` or `inner` whose loops are one for each piece (cuts.py).
    turns: a short dim that is written out inside of a block of lanes (turns.py).
    functions: what is computed from reductions of a block of rows is computed in vectors (row_functions.py).
    """

    roots: list[Root]
    outer: list[int]
    inner: list[int]
    lane: int | None
    rows: bool
    split_lane: bool
    reductions: list[tuple[ir.Value, Indices]]
    tile: tuple[int, int] | None = None
    cuts: Sequence[Cut] = ()
    turns: int | None = None
    functions: bool = False


_TAKEN = paths.group("cpu cuts", "pieces in one nest")


def nest_groups(kernel: Kernel) -> list[Group]:
    """The nests of a fusion's loops: results that share one, in pieces if some of a concatenation can share one, too.

    Pieces of at least a vector: shorter ones are written from within blocks of lanes (turns.py).
    """
    found: list[Group] = []
    for group in whole_groups(kernel.body):
        pieces = cut_group(kernel.body, kernel.layouts, group, target().vector_bytes, MOST_PIECES)
        is_shared = any(len(piece.stored) > len(group.stored) for piece in pieces)
        if is_shared and sum(_code(kernel, piece) for piece in pieces) <= MORE_CODE * _code(kernel, group):
            _TAKEN("pieces in one nest")
            found += pieces
        else:
            found.append(group)
    return found


def _code(kernel: Kernel, group: Group) -> int:
    e = kernel.evaluator()
    dims = [e.loops.new(extent) for extent in group.extents]
    return code_of(e, [(root.value, root.indices) for root in _roots(e, group, dims)])


def plan_nest(e: Evaluator, group: Group, by_rows: bool = False) -> Nest:
    """Choose the loops of a group of roots.

    by_rows: the last dim is the lane, unless a reduction's result is indexed by it; all dims before it are outer loops.
    """
    body = e.body
    dims = [e.loops.new(extent).position for extent in group.extents]
    accesses = _collect(e, group, [ir.AffineDimExpr.get(d) for d in dims])
    reduced = _reduced(accesses, dims)
    if by_rows:
        return _rows_nest(e, group, dims, accesses)
    groups = merge_groups(accesses, dims, e.loops, [d in reduced for d in dims])
    partial = [{x for x in s.mapping if x is not None} for s in group.stored[1:]]
    for g in list(groups):
        # A root on some of the dims only needs these by themselves.
        members = {dims.index(d) for d in g}
        if len(g) > 1 and any(members & p and not members <= p for p in partial):
            at = groups.index(g)
            groups[at : at + 1] = [[d] for d in g]
    merged = _split(e, group, accesses, merged_dims(groups, e.loops))
    if merged.dims != dims:
        accesses = _collect(e, group, merged.exprs)
        reduced = _reduced(accesses, merged.dims)
    tiled = () if accesses.reduced else merged.dims
    lanes = planning.choose_lanes(accesses, merged.dims, e.loops, tiled)
    lane = lanes.dim
    turns = None
    if lane is not None and not accesses.reduced:
        turns = turning_dim(accesses, lane, merged.dims, e.loops)
    roots = _roots(e, group, merged.exprs)
    rows = lane is not None and bool(accesses.reduced) and lane not in reduced
    outer = [d for d in merged.dims if d in reduced and d not in (lane, turns)]
    inner = [d for d in merged.dims if d not in reduced and d != lane]
    uniform = bool(accesses.reduced) and (rows or lane is None)
    reductions = _reductions(body, accesses, merged.dims)
    tile: tuple[int, int] | None = None
    if uniform:
        along = accesses.inner if lane is None else accesses.inner | {lane}
        tile = _block(e, block_dim(accesses.found, outer, along, e.loops))
    elif lanes.tile is not None:
        lines = target().rules.loops.tile_lines
        tile = lanes.tile, e.loops.new(ir.AffineExpr.get_ceil_div(e.loops.extents[lanes.tile], lines)).position
    functions = lane is None and bool(accesses.reduced) and not inner and _wants_vectors(body, group)
    if functions:
        dim = function_dim(accesses, [d for d in outer if tile is None or d == tile[0]], e.loops)
        functions = dim is not None
        tile = tile or _block(e, dim)
    if tile is not None:
        outer[outer.index(tile[0])] = tile[1]
    cuts: list[Cut] = []
    if tile is None or not uniform:
        cuts = choose_cuts(e, [(r.value, r.indices) for r in roots], [], [*outer, *inner])
    pieces = next((len(borders) - 1 for d, borders in cuts if d in outer), 1)
    split = not uniform and _few_units(e, outer, pieces)
    return Nest(roots, outer, inner, lane, rows, split, reductions, tile, cuts, turns, functions)


def _split(e: Evaluator, group: Group, accesses: Accesses, merged: Merged) -> Merged:
    """`merged`, or loops over parts of its dims where lanes along a part cost no more; `accesses` are those before."""
    if accesses.reduced or accesses.opaque or any(None in s.mapping for s in group.stored) or not merged.dims:
        return merged
    whole = _collect(e, group, merged.exprs)
    split = split_dims(whole, merged.dims, e.loops)
    if split is None:
        return merged

    def at(dims: Sequence[int], values: Sequence[ir.AffineExpr], exprs: Sequence[ir.AffineExpr]) -> list[ir.AffineExpr]:
        given = dict(zip(dims, values, strict=True))
        return [e.loops.simplify(affine.substitute(x, given)) for x in exprs]

    exprs = at(merged.dims, split[1], merged.exprs)
    groups = merge_groups(_collect(e, group, exprs), split[0], e.loops, [0] * len(split[0]))
    again = merged_dims(groups, e.loops)
    found = Merged(again.dims, at(split[0], again.exprs, exprs))
    parts = _collect(e, group, found.exprs)
    costs = [planning.choose_lanes(a, m.dims, e.loops, m.dims).cost for a, m in ((whole, merged), (parts, found))]
    is_cheaper = costs[1] <= costs[0]
    SPLIT("walked apart" if is_cheaper else "as one")
    return found if is_cheaper else merged


def _wants_vectors(body: FusionBody, group: Group) -> bool:
    return cost_behind(body, [s.value for s in group.stored]) >= target().rules.loops.function_cost


def _rows_nest(e: Evaluator, group: Group, dims: list[int], accesses: Accesses) -> Nest:
    # Where a row is one number, the main root has no dim but those of the rows: none at all for a single row.
    of_rows = {d for _, at in accesses.reduced for x in at for d in affine.dims_in(x)}
    lane = None if not dims or dims[-1] in of_rows else dims[-1]
    outer = [d for d in dims if d != lane]
    roots = _roots(e, group, [ir.AffineDimExpr.get(d) for d in dims])
    return Nest(roots, outer, [], lane, lane is not None, False, _reductions(e.body, accesses, dims))


def _roots(e: Evaluator, group: Group, exprs: Sequence[ir.AffineExpr]) -> list[Root]:
    """What is stored, at indices over the nest's dims, which are `exprs`."""
    zero = ir.AffineConstantExpr.get(0)
    at = [[e.loops.simplify(x + start) for x, start in zip(exprs, s.start, strict=True)] for s in group.stored]
    return [
        Root(s.position, s.value, tuple(zero if x is None else mine[x] for x in s.mapping))
        for s, mine in zip(group.stored, at, strict=True)
    ]


def _reductions(body: FusionBody, accesses: Accesses, dims: Sequence[int]) -> list[tuple[ir.Value, Indices]]:
    """What the roots need reduced at indices over `dims`, inner ones first."""
    found = [(v, x) for v, x in accesses.reduced if {d for i in x for d in affine.dims_in(i)} <= set(dims)]
    return sorted(found, key=lambda r: body.level(r[0]))


def _block(e: Evaluator, dim: int | None) -> tuple[int, int] | None:
    """The dim, and a new one for its blocks of rows."""
    if dim is None:
        return None
    return dim, e.loops.new(ir.AffineExpr.get_ceil_div(e.loops.extents[dim], ROWS)).position


def _few_units(e: Evaluator, outer: list[int], pieces: int) -> bool:
    """Whether the outer loops are known to have too few iterations to share, in all or in each of their pieces; then
    the loop of vectors is split as well.
    """
    units, rules = 1, target().rules.loops
    for d in outer:
        extent = e.loops.extents[d]
        if not isinstance(extent, ir.AffineConstantExpr):
            return False
        units *= extent.value
    return units < rules.parallel_units or (pieces > 1 and units < rules.piece_units * pieces)


def _collect(e: Evaluator, group: Group, exprs: Sequence[ir.AffineExpr]) -> Accesses:
    accesses = Accesses(e.body, e.loops, e.layouts)
    for root in _roots(e, group, exprs):
        around = frozenset(d for x in root.indices for d in affine.dims_in(x))
        accesses.visit(root.value, root.indices, around)
        accesses.store(e.layouts[len(e.body.tensors) + root.position], root.value, root.indices, around)
    return accesses


def _reduced(accesses: Accesses, dims: Sequence[int]) -> set[int]:
    """Dims that index a reduction's result; all of them if there is no reduction."""
    if not accesses.reduced:
        return set(dims)
    return {d for _, indices in accesses.reduced for e in indices for d in affine.dims_in(e)} & set(dims)


def work(e: Evaluator, nest: Nest) -> ir.AffineExpr:
    """Estimated elementary operations of a nest over the fusion's symbols."""
    space: ir.AffineExpr = ir.AffineConstantExpr.get(1)
    for d in [*nest.outer, *nest.inner, *(d for d in (nest.lane, nest.turns) if d is not None)]:
        space = space * e.loops.extents[d]
    if nest.tile is not None:
        space = space * (ROWS if nest.reductions else target().rules.loops.tile_lines)
    cost = 1 + sum(e.body.own_cost(op) for op in e.body.operations)
    if not nest.inner and not nest.rows:
        for reduction in e.body.reductions():
            extents = e.body.loop_extents(reduction.op)
            for d in reduction.dims:
                space = space * extents[d]
            break
    return space * cost
