# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Writes the loops of a planned nest."""

import math
from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise

from torch_mlir import ir

from kiln.dialects import affine
from kiln.lowering import paths
from kiln.lowering.cpu.builder import Builder, Index
from kiln.lowering.cpu.isa import target
from kiln.lowering.cpu.tile import planning
from kiln.lowering.cpu.tile.cuts import Cut, choose_cut, emit_pieces, is_known, known_borders
from kiln.lowering.cpu.tile.evaluator import Evaluator
from kiln.lowering.cpu.tile.nest import Nest, Root
from kiln.lowering.cpu.tile.row_functions import ReducedRows
from kiln.lowering.cpu.tile.row_stage import RowStage
from kiln.lowering.cpu.tile.scopes import Lane
from kiln.lowering.cpu.tile.stage import Stage
from kiln.lowering.cpu.tile.turns import store_in_turns
from kiln.lowering.tile.access import Indices, memory_type

_TAKEN = paths.group(
    "cpu loops",
    *("a row at a time", "columns of reductions", "flat", "without vectors", "transposed tiles", "lanes among threads"),
    *("narrow blocks at the end", "cut at concatenations", "turns written out"),
    *("lanes cut at concatenations", "transposed rows", "functions of rows"),
    *("cut at unknown borders", "lanes cut at unknown borders"),
)


class NestEmitter:
    """Writes the loops of a nest; each of `nt` threads does the share of its `tid`."""

    def __init__(self, e: Evaluator, nest: Nest, tid: Index, nt: Index):
        self.e, self.nest, self.tid, self.nt = e, nest, tid, nt
        shared = _shared_dims(e, nest)
        self.levels: list[tuple[str, list[int]]] = [("outer", shared)]
        lane = [("lane", [nest.lane])] if nest.lane is not None else []
        inner = [("inner", nest.inner)] if nest.inner else []
        if len(shared) < len(nest.outer):
            self.levels.append(("inner", [d for d in nest.outer if d not in shared]))
        self.levels += [*inner, *lane] if nest.rows else [*lane, *inner]
        self.stage: Stage | RowStage | None = None
        if nest.tile is not None and nest.reductions:
            self.levels.insert(1, ("tile", [nest.tile[0]]))
            self.stage = RowStage(*nest.tile, frozenset(nest.outer))
        elif nest.tile is not None:
            self.levels.append(("tile", [nest.tile[0]]))
            self.stage = Stage(*nest.tile, target().rules.loops.tile_lines)
        self.width = 1
        self.share: tuple[Index, Index] = 0, 0  # blocks of lanes of this thread, where threads share them
        self.narrow: int | None = None  # lanes of the blocks behind the last whole one; None: one masked block
        if nest.lane is not None:
            cost = max(e.body.element_cost(root.value) for root in nest.roots)
            columns = bool(e.body.has_reductions) and not nest.rows
            rules = target().rules.loops
            is_cheap = cost <= rules.unrolled_cost // 2
            wide = 4 if columns or is_cheap else (2 if cost <= 2 * rules.unrolled_cost else 1)
            is_stream = is_cheap and not e.body.has_reductions and nest.tile is None
            if nest.turns is not None or is_stream and _bytes(e) >= rules.streamed_bytes:
                wide = 1
            self.width = planning.lane_width(e, nest.lane, wide, 4 if columns else 2)
            known = isinstance(e.loops.extents[nest.lane], ir.AffineConstantExpr)
            _TAKEN("a row at a time" if nest.rows else "columns of reductions" if columns else "flat")
            if columns and not known:
                _TAKEN("narrow blocks at the end")
                self.narrow = planning.lane_width(e, nest.lane, 1)

    def emit(self) -> None:
        """The whole nest at the current insertion point."""
        taken = {
            "without vectors": self.nest.lane is None,
            "transposed tiles": isinstance(self.stage, Stage),
            "lanes among threads": self.nest.split_lane,
            "functions of rows": self.nest.functions,
            "cut at concatenations": self.nest.cuts,
            "cut at unknown borders": not all(map(is_known, self.nest.cuts)),
            "turns written out": self.nest.turns is not None,
        }
        _TAKEN.those(taken)
        self._level(0)
        if isinstance(self.stage, RowStage) and self.stage.is_used:
            _TAKEN("transposed rows")

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
                self._once(root, level, lambda root=root: self._store_root(root))

    def _once(self, root: Root, level: int, store: Callable[[], None]) -> None:
        """`store` by one thread, that with the first block of lanes: those that share blocks all run what is outside of
        the lane's loop, and of a result that takes its operand's memory the second thread would read what the first has
        written.
        """
        lane = self.nest.lane
        if not self.nest.split_lane or lane is None or any(lane in affine.dims_in(x) for x in root.indices):
            store()
            return
        is_within = level > self.levels.index(("lane", [lane]))
        b, (low, high) = self.e.b, self.share

        def alone() -> None:
            with self.e.inside({}):
                store()

        is_first = b.cmpi("eq", self.e.values[lane] if is_within else low, 0)
        b.if_(is_first if is_within else b.andc(is_first, b.cmpi("slt", low, high)), alone)

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
        cut = self._cut(dims)
        units: ir.AffineExpr = ir.AffineConstantExpr.get(1)
        for d in dims:
            if cut is None or d != cut[0]:
                units = units * e.loops.extents[d]

        def share(count: Index, pieces: dict[int, tuple[Index, Index]]) -> None:
            def unit(i: Index) -> None:
                with e.inside_flat(i, dims, pieces):
                    self._level(k + 1)

            if self.nest.split_lane and self.nest.lane is not None:
                self._split_lanes(count, unit)
            else:
                b.for_(*b.split(self.tid, self.nt, count), 1, unit)

        if cut is None:
            share(e.index(units), {})
        else:
            emit_pieces(e, cut, lambda first, n: share(b.muli(e.index(units), n), {cut[0]: (first, n)}))

    def _cut(self, dims: Sequence[int]) -> Cut | None:
        """That of `dims` which is cut, and where."""
        return next((cut for cut in self.nest.cuts if cut[0] in dims), None)

    def _split_lanes(self, units: Index, unit: Callable[[Index], None]) -> None:
        """Threads get equal shares of the blocks of lanes of all units; the first and the last unit may be shared."""
        e, b = self.e, self.e.b
        assert self.nest.lane is not None
        blocks = b.ceildivi(e.index(e.loops.extents[self.nest.lane]), self.width)
        low, high = b.split(self.tid, self.nt, b.muli(units, blocks))
        if blocks == 1:
            self.share = 0, 1
            b.for_(low, high, 1, unit)
            return

        def part(i: Index) -> None:
            before = b.muli(i, blocks)
            self.share = b.maxi(b.subi(low, before), 0), b.mini(b.subi(high, before), blocks)
            unit(i)

        if units == 1:
            part(0)
        else:
            size = b.maxi(blocks, 1)  # of no lanes there are no blocks
            b.for_(b.divi(low, size), b.ceildivi(high, size), 1, part)

    def _sequential(self, dims: Sequence[int], leaf: Callable[[], None]) -> None:
        if not dims:
            leaf()
            return

        def body(i: Index) -> None:
            with self.e.inside({dims[0]: i}):
                self._sequential(dims[1:], leaf)

        b, cut = self.e.b, self._cut(dims[:1])
        if cut is None:
            b.for_(0, self.e.index(self.e.loops.extents[dims[0]]), 1, body)
        else:
            emit_pieces(
                self.e, cut, lambda first, n: body(first) if n == 1 else b.for_(first, b.addi(first, n), 1, body)
            )

    def _tile(self, k: int) -> None:
        assert self.nest.tile is not None
        e, b = self.e, self.e.b
        dim, tile = self.nest.tile
        assert self.stage is not None
        size = self.stage.size
        first = b.muli(e.values[tile], size)
        self.stage.depth = len(e.scopes) - 1
        extent = e.index(e.loops.extents[dim])
        reduced = ReducedRows(e, self.nest.reductions, dim, size) if self.nest.functions else None

        def body(i: Index) -> None:
            with e.inside({dim: i}):
                e.stage = self.stage
                if reduced is not None:
                    reduced.keep(b.subi(i, first))
                else:
                    self._level(k + 1)
                e.stage = None

        b.for_(first, b.mini(b.addi(first, size), extent), 1, body)
        if isinstance(self.stage, Stage):
            self.stage.flush(e)
        if reduced is not None:
            mask = b.mask_below(b.subi(extent, first), size)
            with e.inside({dim: first}), e.lanes(Lane(dim, size, mask)):
                reduced.load()
                self._level(k + 1)
                reduced.forget()

    def _lane(self, lane: int, k: int) -> None:
        e, b, width = self.e, self.e.b, self.width
        extent = e.index(e.loops.extents[lane])
        whole = b.round_down(extent, width)
        lower: Index = 0
        upper: Index = whole
        rest = b.cmpi("slt", whole, extent)
        if self.nest.split_lane:
            low, high = self.share
            lower, upper = b.muli(low, width), b.mini(b.muli(high, width), whole)
            is_last = b.cmpi("eq", high, b.ceildivi(extent, width))
            rest = b.andc(rest, b.andc(is_last, b.cmpi("slt", low, high)))

        def block(i: Index, mask: ir.Value | None = None, width: int = width, aligned: bool = True) -> None:
            with e.inside({lane: i}), e.lanes(Lane(lane, width, mask, aligned, e.loops.extents[lane])):
                self._level(k + 1)

        cut = None
        if self.nest.turns is None and not self.nest.reductions:
            cut = choose_cut(e, [(r.value, r.indices) for r in self.nest.roots], [], [lane])
        borders = known_borders(cut, width)
        is_unknown = cut is not None and not is_known(cut) and self.stage is None and not self.nest.split_lane
        if borders or is_unknown:
            _TAKEN("lanes cut at unknown borders" if is_unknown else "lanes cut at concatenations")
        if cut is not None and is_unknown:
            emit_pieces(e, cut, lambda first, n: _piece_of_lanes(b, first, n, width, partial(block, aligned=False)))
            return
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


def _piece_of_lanes(b: Builder, first: Index, count: Index, width: int, block: Callable[..., None]) -> None:
    """Blocks of `width` lanes from `first` on, the last one masked."""
    whole = b.round_down(count, width)
    last = b.addi(first, whole)
    b.for_(first, last, width, block)
    b.if_(b.cmpi("slt", whole, count), lambda: block(last, b.mask_below(b.subi(count, whole), width)))


def _shared_dims(e: Evaluator, nest: Nest) -> list[int]:
    """The outer loops that threads share as one, which takes divisions in each iteration: as many as have enough
    iterations. Of those that are cut the first is among them, where pieces are shared one by one; others rather not:
    there a guess of what is known at run time only is enough.
    """
    if nest.reductions:
        return nest.outer
    cuts = [cut for cut in nest.cuts if cut[0] in nest.outer]
    first, others = [d for d, _ in cuts[:1]], [d for d, _ in cuts[1:]]
    enough = target().rules.loops.parallel_units * (len(cuts[0][1]) - 1 if cuts else 1)
    shared: list[int] = []
    units = guess = 1
    for d in [*first, *(d for d in nest.outer if d not in (*first, *others)), *others]:
        if (guess if d in others else units) >= enough:
            break
        shared.append(d)
        units *= affine.constant_of(e.loops.extents[d]) or 1
        guess *= e.loops.count(d)
    return [d for d in nest.outer if d in shared]


def _bytes(e: Evaluator) -> int:
    """Bytes of the kernel's operands and results, as far as their sizes are known."""
    total = 0
    for value in [*e.body.tensors, *e.body.roots]:
        type_ = ir.RankedTensorType(value.type)
        width = getattr(memory_type(type_.element_type), "width", 64)
        if type_.has_static_shape:
            total += math.prod(type_.shape) * width // 8
    return total
