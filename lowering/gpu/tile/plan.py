# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The tiles of some roots of a fusion: which loops lie along a tile's axes, which ones the grid walks, what is stored.

Planning needs no code; `lowering/gpu/tile/nest.py` writes it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import inf, prod

from torch_mlir import ir

from kiln.dialects import affine
from kiln.dialects.schedules.gpu import NestSchedule
from kiln.errors import UnsupportedError
from kiln.lowering import paths
from kiln.lowering.gpu import schedule as rules
from kiln.lowering.gpu.dot.machine import Machine
from kiln.lowering.gpu.rules import LoopRules, rules_for
from kiln.lowering.gpu.tile.reduction import UNROLLED, along, matches
from kiln.lowering.gpu.tile.spread import thread_elements
from kiln.lowering.tile.access import Access, Accesses, Indices, Loops
from kiln.lowering.tile.body import FusionBody, invert, output_map
from kiln.lowering.tile.merging import merge_groups, merged_dims, partial_coefficients, repeats, walks_runs
from kiln.lowering.tile.pieces import Group

_TAKEN = paths.group(
    "gpu loops",
    *("flat", "flat, few elements a thread", "transposed", "gathers", "rows in registers", "rows in blocks"),
    *("columns in registers", "columns in blocks", "strips of columns", "sizes at run time"),
)


@dataclass
class Root:
    """A result: position, value, its index at a point of the nest, and indices that must be 0 for it to be stored."""

    position: int
    value: ir.Value
    indices: Indices
    absent: list[ir.AffineExpr]


@dataclass
class Nest:
    """outer: dims with one position a program. tiles: dims along the first axes of the tile. row: dim of the rows.

    exprs of the rows (`row_exprs`) are the reduced loops, of extents `row_extents`, over the row's dim.
    """

    loops: Loops
    roots: list[Root]
    outer: list[int]
    tiles: list[int]
    row: int | None
    row_extents: tuple[ir.AffineExpr, ...]
    row_exprs: tuple[ir.AffineExpr, ...]
    schedule: NestSchedule

    def programs(self) -> ir.AffineExpr:
        """How many programs walk the nest."""
        total: ir.AffineExpr = ir.AffineConstantExpr.get(1)
        for d in self.outer:
            total = total * self.loops.extents[d]
        for d, size in zip(self.tiles, self.schedule.tile, strict=True):
            total = total * ir.AffineExpr.get_ceil_div(self.loops.extents[d], size)
        return self.loops.simplify(total)


@dataclass
class _RowAccesses(Accesses):
    """Accesses in which the reductions over the row's loops have the row's own indices."""

    row_extents: tuple[ir.AffineExpr, ...] = ()
    row_exprs: tuple[ir.AffineExpr, ...] = ()
    along: list[tuple[ir.Value, Indices]] = field(default_factory=list[tuple[ir.Value, Indices]])

    def _visit_generic(self, op: ir.OpView, value: ir.Value, indices: Indices, around: frozenset[int]) -> None:
        reduction = self.body.reduction(op.results[0])
        if reduction is not None and self.row_exprs:
            extents = self.body.loop_extents(op)
            over = [extents[d] for d in reduction.dims]
            if matches(over, self.row_extents):
                point = invert(output_map(op), indices)
                for d, x in zip(reduction.dims, along(over, self.row_exprs), strict=True):
                    point[d] = x
                self.along.append((value, indices))
                self.visit_operands(op, point, around)
                return
        super()._visit_generic(op, value, indices, around)


def plan_nest(
    body: FusionBody,
    layouts: Sequence[ir.AffineMap],
    group: Group,
    schedule: NestSchedule | None = None,
    chip: Machine | None = None,
) -> Nest:
    """Choose the loops of a group of roots; `schedule` (from an attribute) overrides sizes.

    chip: the GPU; by default the one that the rules were measured on.
    """
    return _Planner(body, layouts, group, chip).plan(schedule)


class _Planner:
    def __init__(
        self, body: FusionBody, layouts: Sequence[ir.AffineMap], group: Group, chip: Machine | None = None
    ) -> None:
        self.body, self.layouts, self.group, self.chip = body, layouts, group.stored, chip
        self.loops = Loops()
        self.main = group.extents
        self.dims = [self.loops.new(extent).position for extent in self.main]
        self.exprs: list[ir.AffineExpr] = [ir.AffineDimExpr.get(d) for d in self.dims]
        self.row_extents: tuple[ir.AffineExpr, ...] = ()
        self.row_exprs: tuple[ir.AffineExpr, ...] = ()

    def plan(self, schedule: NestSchedule | None) -> Nest:
        first = self._accesses()
        kept, _ = self._find_row(first)
        accesses = self._accesses()
        outer, row = self._merge(accesses, self._in_memory_order(kept))
        accesses = self._accesses()
        if row is not None:
            return self._row_nest(accesses, outer, row, schedule)
        return self._pointwise_nest(accesses, outer, schedule)

    # -- what is touched ---------------------------------------------------------------------------------------

    def _accesses(self) -> _RowAccesses:
        found = _RowAccesses(
            self.body, self.loops, self.layouts, row_extents=self.row_extents, row_exprs=self.row_exprs
        )
        for root in self._roots():
            around = frozenset(d for x in root.indices for d in affine.dims_in(x))
            found.visit(root.value, root.indices, around)
            found.store(self.layouts[len(self.body.tensors) + root.position], root.value, root.indices, around)
        return found

    def _roots(self) -> list[Root]:
        zero = ir.AffineConstantExpr.get(0)
        one = ir.AffineConstantExpr.get(1)
        roots: list[Root] = []
        row_dims = {d for x in self.row_exprs for d in affine.dims_in(x)}
        for stored in self.group:
            mapping = stored.mapping
            at = [self.loops.simplify(x + start) for x, start in zip(self.exprs, stored.start, strict=True)]
            indices = tuple(zero if k is None else at[k] for k in mapping)
            on_row = any(affine.dims_in(x) & row_dims for x in indices)
            absent = [
                self.exprs[k]
                for k, size in enumerate(self.main)
                if k not in mapping and size != one and (on_row or not affine.dims_in(self.exprs[k]) & row_dims)
            ]
            roots.append(Root(stored.position, stored.value, indices, absent))
        return roots

    def _find_row(self, accesses: _RowAccesses) -> tuple[list[int], list[int]]:
        """The main root's dims (positions) outside of the rows, and those along them; sets the row's loops."""
        everything = list(range(len(self.dims)))
        reduced = [
            (v, x) for v, x in accesses.reduced if not {d for i in x for d in affine.dims_in(i)} - set(self.dims)
        ]
        if not reduced:
            return everything, []
        used = {d for _, x in reduced for i in x for d in affine.dims_in(i)}
        one = ir.AffineConstantExpr.get(1)
        # Loops of one step have the index 0, so that they seem to be in no index.
        kept = [k for k in everything if self.dims[k] in used or self.main[k] == one]
        inner = [k for k in everything if k not in kept]
        main = max(reduced, key=lambda r: self._length(r[0]))
        over = tuple(x for x in self._over(main[0]) if x != one)
        if inner and matches([self.main[k] for k in inner], over):
            self.row_extents, self.row_exprs = over, tuple(self.exprs[k] for k in inner)
            return kept, inner
        if not over:
            return everything, []
        fresh = [self.loops.new(x) for x in over]
        if inner and "in_place" in self.body.fusion.operation.attributes:
            # Each element would read a row that other programs are writing.
            place = str(self.body.fusion.location)
            raise UnsupportedError("linalg.generic", place, "reduced loops that are not the result's, in place")
        if inner or (self._length(main[0]) <= UNROLLED and not self._is_run(main, fresh)):
            return everything, []  # in order, for each element
        self.row_extents, self.row_exprs = over, tuple(fresh)
        return kept, []

    def _over(self, value: ir.Value) -> list[ir.AffineExpr]:
        """Extents of the loops that the reduction of `value` reduces."""
        reduction = self.body.reduction(value)
        assert reduction is not None
        extents = self.body.loop_extents(reduction.op)
        return [extents[d] for d in reduction.dims]

    def _length(self, value: ir.Value) -> float:
        """Elements that each result of a reduction combines; infinite where that is not known."""
        known = [affine.constant_of(x) for x in self._over(value)]
        return prod(inf if n is None else n for n in known)

    def _is_run(self, reduced: tuple[ir.Value, Indices], loops: list[ir.AffineDimExpr]) -> bool:
        """Whether the reduction's one loop walks elements in a row that no other result reads, not a window."""
        value, indices = reduced
        reduction = self.body.reduction(value)
        assert reduction is not None
        if len(loops) != 1:
            return False
        found = Accesses(self.body, self.loops, self.layouts)
        point = invert(output_map(reduction.op), indices)
        for d, x in zip(reduction.dims, along(self._over(value), loops), strict=True):
            point[d] = x
        found.visit_operands(reduction.op, point, frozenset())
        extent = self.loops.extents[loops[0].position]
        for a in found.found:
            linear = affine.linear_coefficients(a.offset)
            if linear is None or not contiguous_dims(a.offset, [loops[0].position]):
                return False
            others = [c for d, c in linear[1].items() if d != loops[0].position]
            if any(affine.constant_of(c) is not None and c.value < extent.value for c in others):
                return False
        return bool(found.found)

    def _in_memory_order(self, kept: list[int]) -> list[int]:
        """The dims (positions) by the steps with which the main root is stored, the largest first: neighbouring
        elements of a program are neighbours in memory also where that is not the order of the dims (channels last).
        """
        linear = affine.linear_coefficients(accesses_of(self, self.group[0].position))
        if linear is None:
            return kept
        steps = [affine.constant_of(linear[1].get(self.dims[k], ir.AffineConstantExpr.get(0))) for k in kept]
        known = [x for x in steps if x]
        if len(known) < sum(x != 0 for x in steps):
            return kept  # a stride that is known at run time only
        # Dims of one element have no step; they stay in front.
        order = sorted(range(len(kept)), key=lambda i: -(steps[i] or inf))
        return [kept[i] for i in order]

    def _row_in_memory_order(self, accesses: _RowAccesses, row: list[int]) -> list[int]:
        """A row's dims by the steps with which what it is read from walks them: of a group of channels of an image
        with channels last, the channels are the innermost. Which order elements are combined in is not fixed.
        """
        if len(row) < 2:
            return row
        for a in accesses.found:
            linear = affine.linear_coefficients(a.offset)
            steps = [] if linear is None else [affine.constant_of(linear[1][d]) for d in row if d in linear[1]]
            if len(steps) == len(row) and all(steps):
                return [row[i] for i in sorted(range(len(row)), key=lambda i: -(steps[i] or 0))]
        return row

    # -- merging -----------------------------------------------------------------------------------------------

    def _merge(self, accesses: _RowAccesses, kept: list[int]) -> tuple[list[int], int | None]:
        """Merge loops that memory walks as one; returns the dims outside of the rows and the row's one dim."""
        row = self._row_in_memory_order(accesses, [d for x in self.row_exprs for d in affine.dims_in(x)])
        outer = [self.dims[k] for k in kept]
        partial = [{x for x in stored.mapping if x is not None} for stored in self.group[1:]]
        groups = merge_groups(accesses, outer, self.loops, [0] * len(outer))
        for g in list(groups):
            # A root on some of the dims only needs these by themselves.
            members = {self.dims.index(d) for d in g}
            if len(g) > 1 and any(members & p and not members <= p for p in partial):
                at = groups.index(g)
                groups[at : at + 1] = [[d] for d in g]
        merged = merged_dims(groups, self.loops)
        replaced = dict(zip(outer, merged.exprs, strict=True))
        one: int | None = None
        if row:
            groups = merge_groups(accesses, row, self.loops, [0] * len(row))
            parts = merged_dims(groups, self.loops)
            flat = merged_dims([parts.dims], self.loops)
            one = flat.dims[0]
            table = dict(zip(parts.dims, flat.exprs, strict=True))
            replaced |= {d: affine.substitute(x, table) for d, x in zip(row, parts.exprs, strict=True)}
        self._replace(replaced)
        return merged.dims, one

    def _replace(self, table: dict[int, ir.AffineExpr]) -> None:
        self.exprs = [self.loops.simplify(affine.substitute(x, table)) for x in self.exprs]
        self.row_exprs = tuple(self.loops.simplify(affine.substitute(x, table)) for x in self.row_exprs)

    def _flatten(self, dims: list[int]) -> int:
        """One dim for several."""
        if len(dims) == 1:
            return dims[0]
        if not dims:
            return self.loops.new(ir.AffineConstantExpr.get(1)).position
        flat = merged_dims([dims], self.loops)
        self._replace(dict(zip(dims, flat.exprs, strict=True)))
        return flat.dims[0]

    # -- choices -----------------------------------------------------------------------------------------------

    def _pointwise_nest(self, accesses: _RowAccesses, dims: list[int], schedule: NestSchedule | None) -> Nest:
        pair = self._transposed(accesses, dims)
        if pair is not None:
            outer = [d for d in dims if d not in pair]
            sizes = (self._known(pair[0]), self._known(pair[1]))
            _TAKEN("transposed")
            return self._nest(outer, list(pair), None, schedule or rules.choose_transpose(sizes))
        each = thread_elements(self.body, self.layouts, accesses, dims[-1]) if dims else None
        flat = self._flatten(dims)
        _TAKEN("gathers" if self._gathers() else "flat" if each is None else "flat, few elements a thread")
        chosen = schedule or rules.choose_pointwise(self._known(flat), self._gathers(), self.chip, each)
        return self._nest([], [flat], None, chosen)

    def _gathers(self) -> bool:
        """Whether elements are loaded from where other elements say."""
        generics = [op for op in self.body.operations if op.operation.name == "linalg.generic"]
        return any(inner.operation.name == "tensor.extract" for op in generics for inner in op.regions[0].blocks[0])

    def _transposed(self, accesses: _RowAccesses, dims: list[int]) -> tuple[int, int] | None:
        """(dim that a read is contiguous in, dim that the writes are contiguous in), where these differ and matter."""
        stored = accesses_of(self, self.group[0].position)
        writes = contiguous_dims(stored, dims)
        if len(dims) < 2 or len(writes) != 1:
            return None
        write = writes[0]
        for a in accesses.found:
            reads = contiguous_dims(a.offset, dims)
            used = affine.dims_in(a.offset)
            across = len(reads) == 1 and reads[0] != write and write in used
            if across and all(self.loops.count(d) >= 8 for d in (write, reads[0])):
                return reads[0], write
        return None

    def _row_nest(self, accesses: _RowAccesses, outer: list[int], row: int, schedule: NestSchedule | None) -> Nest:
        along = sum(self._volume(a) for a in accesses.found if walks_runs(a.offset, row))
        last = [d for d in outer if any(contiguous_dims(a.offset, [d]) for a in accesses.found)]
        across = sum(
            self._volume(a)
            for a in accesses.found
            if row in affine.dims_in(a.offset) and any(contiguous_dims(a.offset, [d]) for d in outer)
        )
        on_row = [a for a in accesses.found if row in affine.dims_in(a.offset)]
        reread = any(row in affine.dims_in(i) for r in self._roots() for i in r.indices)
        reread |= len({self.body.level(v) for v, _ in accesses.along}) > 1
        contiguous = along >= across or not last
        strip = None if contiguous else self._strip(accesses, outer, row)
        programs = [d for d in outer if d != strip] if strip is not None else []
        flat = strip if strip is not None else self._flatten(outer)
        shape = rules.RowShape(
            rows=self._known(flat),
            length=self._known(row),
            likely=self.body.shapes.hint(self.loops.extents[row]),
            contiguous=contiguous,
            inputs=len({a.offset for a in on_row}),
            reread=reread,
        )
        schedule = schedule or rules.choose_row(shape, self.chip)
        _TAKEN(f"{'rows' if contiguous else 'columns'} in {'registers' if schedule.persistent else 'blocks'}")
        if strip is not None:
            _TAKEN("strips of columns")
        if shape.rows is None or shape.length is None:
            _TAKEN("sizes at run time")
        return self._nest(programs, [flat], row, schedule)

    def _strip(self, accesses: _RowAccesses, outer: list[int], row: int) -> int | None:
        """The dim that a strip of columns lies along, where it is long enough to be the only one in a program."""
        weights = {
            d: sum(
                a.bytes for a in accesses.found if row in affine.dims_in(a.offset) and contiguous_dims(a.offset, [d])
            )
            for d in outer
        }
        best = max(outer, key=lambda d: weights[d])
        return best if self.loops.count(best) >= rules_for(LoopRules).least_strip else None

    def _volume(self, access: Access) -> int:
        """Bytes that an access touches in all: what a norm's rows have in common is little beside what they hold, and
        so is one element for each image and channel, which all pixels of a row read.
        """
        used = affine.dims_in(access.offset)
        return access.bytes * prod(-(-self.loops.count(d) // repeats(access.offset, d)) for d in used)

    def _known(self, dim: int) -> int | None:
        return affine.constant_of(self.loops.extents[dim])

    def _nest(self, outer: list[int], tiles: list[int], row: int | None, schedule: NestSchedule) -> Nest:
        if len(schedule.tile) != len(tiles):
            found = f"a schedule with a tile of {len(schedule.tile)} dims for {len(tiles)}"
            raise UnsupportedError("kiln.fusion", str(self.body.fusion.location), found)
        return Nest(self.loops, self._roots(), outer, tiles, row, self.row_extents, self.row_exprs, schedule)


def accesses_of(planner: _Planner, main: int) -> ir.AffineExpr:
    """The offset at which the main root is stored."""
    from kiln.lowering.tile.access import compose_one

    root = next(r for r in planner._roots() if r.position == main)
    return compose_one(planner.layouts[len(planner.body.tensors) + main], root.indices, planner.loops)


def contiguous_dims(offset: ir.AffineExpr, dims: Sequence[int]) -> list[int]:
    """Dims along which neighbours are neighbours in memory."""
    one = ir.AffineConstantExpr.get(1)
    linear = affine.linear_coefficients(offset)
    found = linear[1] if linear is not None else partial_coefficients(offset)
    return [d for d in dims if d in found and found[d] == one]
