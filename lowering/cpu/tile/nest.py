# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""The loops around the roots of a fusion: parallel over threads outside, vector lanes inside.

A nest walks the index space of its main root. Roots that live on fewer dims (the mean beside a layer norm) are
stored where their own dims are bound, outside of the remaining loops.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from torch_mlir import ir

from kiln.dialects import affine
from kiln.lowering import paths
from kiln.lowering.cpu.builder import Index
from kiln.lowering.cpu.tile import planning
from kiln.lowering.cpu.tile.cuts import Cut, choose_cut, lane_borders
from kiln.lowering.cpu.tile.evaluator import Evaluator
from kiln.lowering.cpu.tile.scopes import Lane
from kiln.lowering.cpu.tile.stage import Stage
from kiln.lowering.cpu.tile.turns import store_in_turns, turning_dim
from kiln.lowering.tile.access import Accesses, Indices, memory_type
from kiln.lowering.tile.body import FusionBody
from kiln.lowering.tile.merging import merge_groups, merged_dims

CHEAP = 24
"""Cost of an element (see OP_COST) around which two vectors are worked on at once, to overlap their latencies; four
if it is cheaper by half, one if it is dearer by more than twice, to keep within the registers."""
STREAMED = 32 << 20
"""Bytes of a kernel's tensors from which cheap elements come from memory, and go there: as one stream of loads and one
of stores, which several vectors at once only disturb (x * x of 64 MiB: 1.18 of a loop in C with four, 0.99 with one;
from the caches the same)."""
TILE = 64
"""Iterations of a dim that are walked for one block of lanes before the next (see Nest.tile)."""
PARALLEL_UNITS = 64
"""Outer iterations that are enough to share among threads; with fewer the vector loop is split instead."""

PIECE_UNITS = 8
"""The same of each piece of a loop that is cut. Not measured."""


_TAKEN = paths.group(
    "cpu loops",
    *("a row at a time", "columns of reductions", "flat", "without vectors", "transposed tiles", "lanes among threads"),
    *("narrow blocks at the end", "cut at concatenations", "turns written out"),
    "lanes cut at concatenations",
)


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

    split_lane: threads share the lane's blocks instead of the iterations of `outer`.
    reductions: what the roots need reduced, inner ones first, at which index.
    tile: (dim, tile dim): a dim that some operand is contiguous in, walked in tiles inside of the lane loop, where the
        operand is transposed a tile at a time (stage.py).
    cut: a dim of `outer` or `inner` whose loop is one for each piece (cuts.py).
    turns: a short dim that is written out inside of a block of lanes (turns.py).
    """

    roots: list[Root]
    outer: list[int]
    inner: list[int]
    lane: int | None
    rows: bool
    split_lane: bool
    reductions: list[tuple[ir.Value, Indices]]
    tile: tuple[int, int] | None = None
    cut: Cut | None = None
    turns: int | None = None


def plan_nest(e: Evaluator, group: list[tuple[int, ir.Value, list[int | None]]], by_rows: bool = False) -> Nest:
    """Choose the loops of a group of roots.

    by_rows: the last dim is the lane, unless a reduction's result is indexed by it; all dims before it are outer loops.
    """
    body = e.body
    main = body.dims(group[0][1])
    dims = [e.loops.new(extent).position for extent in main]
    accesses = _collect(e, group, [ir.AffineDimExpr.get(d) for d in dims])
    reduced = _reduced(accesses, dims)
    if by_rows:
        return _rows_nest(e, group, dims, accesses)
    groups = merge_groups(accesses, dims, e.loops, [d in reduced for d in dims])
    partial = [set(x for x in m if x is not None) for _, _, m in group[1:]]
    for g in list(groups):
        # A root on some of the dims only needs these by themselves.
        members = {dims.index(d) for d in g}
        if len(g) > 1 and any(members & p and not members <= p for p in partial):
            at = groups.index(g)
            groups[at : at + 1] = [[d] for d in g]
    merged = merged_dims(groups, e.loops)
    if merged.dims != dims:
        accesses = _collect(e, group, merged.exprs)
        reduced = _reduced(accesses, merged.dims)
    lane = planning.choose_lane(accesses, merged.dims, e.loops) if merged.dims else None
    turns = None
    if lane is not None and not accesses.reduced:
        turns = turning_dim(accesses, lane, merged.dims, e.loops)
    roots = _roots(group, merged.exprs)
    rows = lane is not None and bool(accesses.reduced) and lane not in reduced
    outer = [d for d in merged.dims if d in reduced and d not in (lane, turns)]
    inner = [d for d in merged.dims if d not in reduced and d != lane]
    uniform = bool(accesses.reduced) and (rows or lane is None)
    reductions = _reductions(body, accesses, merged.dims)
    tile = None if accesses.reduced or lane is None else _tile(e, accesses, outer, lane)
    if tile is not None:
        outer[outer.index(tile[0])] = tile[1]
    cut = None if tile is not None else choose_cut(e, [(r.value, r.indices) for r in roots], [], [*outer, *inner])
    pieces = len(cut[1]) - 1 if cut is not None and cut[0] in outer else 1
    split = not uniform and _few_units(e, outer, pieces)
    return Nest(roots, outer, inner, lane, rows, split, reductions, tile, cut, turns)


def _rows_nest(
    e: Evaluator, group: list[tuple[int, ir.Value, list[int | None]]], dims: list[int], accesses: Accesses
) -> Nest:
    # Where a row is one number, the main root has no dim but those of the rows: none at all for a single row.
    of_rows = {d for _, at in accesses.reduced for x in at for d in affine.dims_in(x)}
    lane = None if not dims or dims[-1] in of_rows else dims[-1]
    outer = [d for d in dims if d != lane]
    roots = _roots(group, [ir.AffineDimExpr.get(d) for d in dims])
    return Nest(roots, outer, [], lane, lane is not None, False, _reductions(e.body, accesses, dims))


def _roots(group: list[tuple[int, ir.Value, list[int | None]]], exprs: Sequence[ir.AffineExpr]) -> list[Root]:
    zero = ir.AffineConstantExpr.get(0)
    return [Root(i, value, tuple(zero if x is None else exprs[x] for x in mapping)) for i, value, mapping in group]


def _reductions(body: FusionBody, accesses: Accesses, dims: Sequence[int]) -> list[tuple[ir.Value, Indices]]:
    """What the roots need reduced at indices over `dims`, inner ones first."""
    found = [(v, x) for v, x in accesses.reduced if {d for i in x for d in affine.dims_in(i)} <= set(dims)]
    return sorted(found, key=lambda r: body.level(r[0]))


def _tile(e: Evaluator, accesses: Accesses, outer: list[int], lane: int) -> tuple[int, int] | None:
    """An outer dim that an operand is contiguous in while the lane strides over it, and a new dim for its tiles."""
    one = ir.AffineConstantExpr.get(1)
    for d in outer:
        for a in accesses.found:
            linear = affine.linear_coefficients(a.offset)
            if linear is None or not {d, lane} <= linear[1].keys():
                continue
            if linear[1][d] != one or linear[1][lane] == one:
                continue
            if e.loops.count(d) > TILE // 4:
                return d, e.loops.new(ir.AffineExpr.get_ceil_div(e.loops.extents[d], TILE)).position
    return None


def _few_units(e: Evaluator, outer: list[int], pieces: int) -> bool:
    """Whether the outer loops are known to have too few iterations to share, in all or in each of their pieces."""
    units = 1
    for d in outer:
        extent = e.loops.extents[d]
        if not isinstance(extent, ir.AffineConstantExpr):
            return False
        units *= extent.value
    return units < PARALLEL_UNITS or (pieces > 1 and units < PIECE_UNITS * pieces)


def _collect(
    e: Evaluator, group: list[tuple[int, ir.Value, list[int | None]]], exprs: Sequence[ir.AffineExpr]
) -> Accesses:
    accesses = Accesses(e.body, e.loops, e.layouts)
    zero = ir.AffineConstantExpr.get(0)
    for i, value, mapping in group:
        indices = tuple(zero if x is None else exprs[x] for x in mapping)
        around = frozenset(d for x in indices for d in affine.dims_in(x))
        accesses.visit(value, indices, around)
        accesses.store(e.layouts[len(e.body.tensors) + i], value, indices, around)
    return accesses


def _reduced(accesses: Accesses, dims: Sequence[int]) -> set[int]:
    """Dims that index a reduction's result; all of them if there is no reduction."""
    if not accesses.reduced:
        return set(dims)
    return {d for _, indices in accesses.reduced for e in indices for d in affine.dims_in(e)} & set(dims)


class NestEmitter:
    """Writes the loops of a nest; each of `nt` threads does the share of its `tid`."""

    def __init__(self, e: Evaluator, nest: Nest, tid: Index, nt: Index):
        self.e, self.nest, self.tid, self.nt = e, nest, tid, nt
        self.levels: list[tuple[str, list[int]]] = [("outer", nest.outer)]
        lane = [("lane", [nest.lane])] if nest.lane is not None else []
        inner = [("inner", nest.inner)] if nest.inner else []
        self.levels += [*inner, *lane] if nest.rows else [*lane, *inner]
        if nest.tile is not None:
            self.levels.append(("tile", [nest.tile[0]]))
        self.stage = Stage(*nest.tile, TILE) if nest.tile is not None else None
        self.width = 1
        self.narrow: int | None = None  # lanes of the blocks behind the last whole one; None: one masked block
        if nest.lane is not None:
            cost = max(e.body.element_cost(root.value) for root in nest.roots)
            columns = bool(e.body.has_reductions) and not nest.rows
            wide = 4 if columns or cost <= CHEAP // 2 else (2 if cost <= 2 * CHEAP else 1)
            if nest.turns is not None:
                wide = 1
            if cost <= CHEAP // 2 and not e.body.has_reductions and nest.tile is None and _bytes(e) >= STREAMED:
                wide = 1
            self.width = planning.lane_width(e, nest.lane, wide, 4 if columns else 2)
            known = isinstance(e.loops.extents[nest.lane], ir.AffineConstantExpr)
            _TAKEN("a row at a time" if nest.rows else "columns of reductions" if columns else "flat")
            if columns and not known:
                _TAKEN("narrow blocks at the end")
                self.narrow = planning.lane_width(e, nest.lane, 1)

    def emit(self) -> None:
        """The whole nest at the current insertion point."""
        for path, is_so in (
            ("without vectors", self.nest.lane is None),
            ("transposed tiles", self.nest.tile is not None),
            ("lanes among threads", self.nest.split_lane),
            ("cut at concatenations", self.nest.cut is not None),
            ("turns written out", self.nest.turns is not None),
        ):
            if is_so:
                _TAKEN(path)
        self._level(0)

    def _level(self, k: int) -> None:
        if k > 0:
            self._store(k)
        if k == len(self.levels):
            return
        kind, dims = self.levels[k]
        if kind == "outer":
            self._outer(dims, k)
        elif kind == "inner":
            self._sequential(dims, lambda: self._level(k + 1))
        elif kind == "tile":
            self._tile(k)
        else:
            self._lane(dims[0], k)

    def _store(self, level: int) -> None:
        """Store the roots whose dims are all bound once `level` levels are open.

        Reductions come first: what their loops keep in scratch is there when the roots' own loops need it.
        """
        for value, indices in self.nest.reductions:
            if self._bound_at(indices) == level:
                self.e.eval(value, indices)
        for root in self.nest.roots:
            if self._bound_at(root.indices) == level:
                self._once(root, lambda root=root: self._store_root(root))

    def _once(self, root: Root, store: Callable[[], None]) -> None:
        """`store` by one thread: those that share the lane's blocks all run what is outside of the lane's loop, and of
        a result that takes its operand's memory the second thread would read what the first has written.
        """
        lane = self.nest.lane
        if not self.nest.split_lane or lane is None or any(lane in affine.dims_in(x) for x in root.indices):
            store()
            return

        def alone() -> None:
            with self.e.inside({}):
                store()

        self.e.b.if_(self.e.b.cmpi("eq", self.tid, 0), alone)

    def _store_root(self, root: Root) -> None:
        e, turns = self.e, self.nest.turns
        position = len(e.body.tensors) + root.position
        if turns is None or not any(turns in affine.dims_in(x) for x in root.indices):
            e.store(position, root.indices, e.eval(root.value, root.indices))
            return
        values: list[ir.Value] = []
        for k in range(e.loops.count(turns)):
            at = {turns: ir.AffineConstantExpr.get(k)}
            values.append(e.eval(root.value, tuple(e.loops.simplify(affine.substitute(x, at)) for x in root.indices)))
        store_in_turns(e, position, root.indices, turns, values)

    def _bound_at(self, indices: Indices) -> int:
        """How many levels have to be open for `indices` to be known; inside of the first at least."""
        used = {d for x in indices for d in affine.dims_in(x)}
        if self.nest.turns in used:
            return len(self.levels)
        return max([1, *(k + 1 for k, (_, dims) in enumerate(self.levels) if used & set(dims))])

    def _outer(self, dims: list[int], k: int) -> None:
        e, b = self.e, self.e.b
        if self.nest.split_lane and self.nest.lane is not None:
            self._sequential(dims, lambda: self._level(k + 1))
            return
        cut, pieces = self.nest.cut, [(0, e.loops.extents[dims[0]] if dims else ir.AffineConstantExpr.get(1))]
        if cut is not None and cut[0] in dims:
            dims = [cut[0], *(d for d in dims if d != cut[0])]
            pieces = [(low, ir.AffineConstantExpr.get(high - low)) for low, high in pairwise(cut[1])]
        for first, units in pieces:
            for d in dims[1:]:
                units = units * e.loops.extents[d]

            def unit(i: Index, first: int = first) -> None:
                with e.inside_flat(i, dims):
                    if first:
                        e.values[dims[0]] = b.addi(e.values[dims[0]], first)
                    self._level(k + 1)

            b.for_(*b.split(self.tid, self.nt, e.index(units)), 1, unit)

    def _sequential(self, dims: Sequence[int], leaf: Callable[[], None]) -> None:
        if not dims:
            leaf()
            return

        def body(i: Index) -> None:
            with self.e.inside({dims[0]: i}):
                self._sequential(dims[1:], leaf)

        borders: list[Index] = [0, self.e.index(self.e.loops.extents[dims[0]])]
        if self.nest.cut is not None and self.nest.cut[0] == dims[0]:
            borders = list(self.nest.cut[1])
        for low, high in pairwise(borders):
            self.e.b.for_(low, high, 1, body)

    def _tile(self, k: int) -> None:
        assert self.nest.tile is not None
        e, b = self.e, self.e.b
        dim, tile = self.nest.tile
        first = b.muli(e.values[tile], TILE)
        assert self.stage is not None
        self.stage.depth = len(e.scopes) - 1

        def body(i: Index) -> None:
            with e.inside({dim: i}):
                e.stage = self.stage
                self._level(k + 1)
                e.stage = None

        b.for_(first, b.mini(b.addi(first, TILE), e.index(e.loops.extents[dim])), 1, body)

    def _lane(self, lane: int, k: int) -> None:
        e, b, width = self.e, self.e.b, self.width
        extent = e.index(e.loops.extents[lane])
        whole = b.round_down(extent, width)
        lower: Index = 0
        upper: Index = whole
        rest = b.cmpi("slt", whole, extent)
        if self.nest.split_lane:
            blocks = b.ceildivi(extent, width)
            lo, hi = b.split(self.tid, self.nt, blocks)
            lower, upper = b.muli(lo, width), b.mini(b.muli(hi, width), whole)
            rest = b.andc(rest, b.andc(b.cmpi("eq", hi, blocks), b.cmpi("slt", lo, hi)))

        def block(i: Index, mask: ir.Value | None = None, width: int = width) -> None:
            with e.inside({lane: i}), e.lanes(Lane(lane, width, mask)):
                self._level(k + 1)

        borders: list[Index] = []
        if self.nest.turns is None and not self.nest.reductions:
            borders = [*lane_borders(e, [(r.value, r.indices) for r in self.nest.roots], lane, width)]
        if borders:
            _TAKEN("lanes cut at concatenations")
        for low, high in pairwise([lower, *borders, upper]):
            first = low if low is lower else b.maxi(lower, low)
            b.for_(first, high if high is upper else b.mini(upper, high), width, block)
        narrow = self.narrow
        if narrow is None or narrow == width:
            b.if_(rest, lambda: block(whole, b.mask_below(b.subi(extent, whole), width)))
            return

        def behind() -> None:
            last = b.round_down(extent, narrow)
            b.for_(whole, last, narrow, lambda i: block(i, None, narrow))
            left = b.subi(extent, last)
            b.if_(b.cmpi("slt", last, extent), lambda: block(last, b.mask_below(left, narrow), narrow))

        b.if_(rest, behind)


def _bytes(e: Evaluator) -> int:
    """Bytes of the kernel's operands and results, as far as their sizes are known."""
    total = 0
    for value in [*e.body.tensors, *e.body.roots]:
        type_ = ir.RankedTensorType(value.type)
        width = getattr(memory_type(type_.element_type), "width", 64)
        if type_.has_static_shape:
            total += math.prod(type_.shape) * width // 8
    return total


def work(e: Evaluator, nest: Nest) -> ir.AffineExpr:
    """Estimated elementary operations of a nest over the fusion's symbols."""
    space: ir.AffineExpr = ir.AffineConstantExpr.get(1)
    for d in [*nest.outer, *nest.inner, *(d for d in (nest.lane, nest.turns) if d is not None)]:
        space = space * e.loops.extents[d]
    if nest.tile is not None:
        space = space * TILE
    cost = 1 + sum(e.body.own_cost(op) for op in e.body.operations)
    if not nest.inner and not nest.rows:
        for reduction in e.body.reductions():
            extents = e.body.loop_extents(reduction.op)
            for d in reduction.dims:
                space = space * extents[d]
            break
    return space * cost
