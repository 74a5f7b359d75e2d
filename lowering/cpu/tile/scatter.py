# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Fusions of kind "scatter_nd": elements go where computed indices say.

Threads share a dim of the result, never what is written: each writes to its own slice alone, so nothing is atomic, and
elements are combined in the order of the loops, for any number of threads. Where indices tell no such dim, each thread
walks all elements and keeps those of its slice. What the result holds before that is in its memory when the kernel
starts (`in_place`, see `reuse-buffers`), or zeros, which each thread writes to its slice.

Lanes go along a dim that no index depends on, where memory is contiguous in the result (rows of features). Without
such a dim, values and indices are computed in vectors and written one by one, as lanes may go to one place.

A thread that walks all elements but writes some lists these first (scatter_lists.py).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from torch_mlir import ir
from torch_mlir.dialects import arith, vector

from kiln.dialects import affine, kiln
from kiln.errors import UnsupportedError
from kiln.lowering import paths
from kiln.lowering.cpu.builder import Builder, Condition, Index
from kiln.lowering.cpu.isa import target
from kiln.lowering.cpu.tile import planning
from kiln.lowering.cpu.tile.evaluator import Evaluator
from kiln.lowering.cpu.tile.kernel import Kernel
from kiln.lowering.cpu.tile.scatter_lists import write_listed
from kiln.lowering.cpu.tile.scopes import Lane
from kiln.lowering.emitters import emits
from kiln.lowering.tile.access import Accesses, Indices, compose_one
from kiln.lowering.tile.merging import merge_groups, merged_dims
from kiln.lowering.tile.scatters import named_dims, scatter_of, target_index

_TAKEN = paths.group(
    "cpu scatter",
    *("rows", "vectors, one by one", "scattered vectors", "one by one"),
    "threads by index",
    "listed",
    "onto zeros",
)

_COMBINE: dict[str, tuple[Callable[..., ir.Value], Callable[..., ir.Value]]] = {
    "sum": (arith.addf, arith.addi),
    "amax": (arith.maximumf, arith.maxsi),
    "amin": (arith.minimumf, arith.minsi),
}
"""Of floats, of integers."""


Slice = tuple[Index, Index]
"""The part [low, high) of the shared dim that one thread writes."""


@emits(kiln.ScatterNdOp, target="cpu")
def emit_scatter(kernel: Kernel) -> None:
    """Write the kernel of a fusion around one kiln.scatter_nd, whose values and indices may be computed on the way."""
    e, b = kernel.evaluator(), kernel.b
    op = scatter_of(kernel.body)
    from_zero = ir.BoolAttr(op.operation.attributes["from_zero"]).value
    if not from_zero and e.body.argument_position(op.operands[0]) is None:
        raise UnsupportedError("kiln.scatter_nd", str(op.location), "what is written to is computed in the kernel")
    walk = _plan(e, op)
    slice_ = b.split(kernel.tid, kernel.nt, e.index(walk.size))
    if from_zero:
        _TAKEN("onto zeros")
        _zero(walk, slice_)
    walk.emit(slice_)
    kernel.work = ir.AffineConstantExpr.get(4 + sum(e.body.own_cost(o) for o in e.body.operations))
    for size in e.body.dims(op.operands[1]):
        kernel.work = kernel.work * size


@dataclass
class Walk:
    """The loops over what is written.

    point: the index of an element of `src`. outer: the loops around the lane, in order. shared: the dim of the result
    that threads share; loop: the loop that walks it, None where an index tells it. rows: no index depends on the lane.
    """

    e: Evaluator
    op: ir.OpView
    point: list[ir.AffineExpr]
    outer: list[int]
    lane: int | None
    shared: int
    loop: int | None
    rows: bool
    _reserved: dict[str, list[ir.AffineExpr]] = field(default_factory=dict[str, list[ir.AffineExpr]])

    @property
    def b(self) -> Builder:
        """Emits the kernel's ops."""
        return self.e.b

    @property
    def size(self) -> ir.AffineExpr:
        """Of the dim that threads share."""
        return self.e.loops.simplify(self.e.body.dims(self.op.results[0])[self.shared])

    @property
    def number(self) -> int:
        """The result's buffer."""
        return len(self.e.body.tensors) + self.e.body.mine[0]

    def emit(self, slice_: Slice) -> None:
        """All that a thread writes to its slice [low, high) of the shared dim."""
        if self.loop is None:
            _TAKEN("threads by index")
        bounds = {} if self.loop is None else {self.loop: slice_}
        dims = [*self.outer, *([self.lane] if self.lane is not None else [])]
        if self.loop is not None or self.rows or self.reduce == "none" or not dims:
            in_loops(self.e, self.outer, bounds, lambda: self._inside(slice_))
            return
        _TAKEN("listed")
        b, (low, high) = self.b, slice_
        size = self.e.index(self.size)
        is_alone = b.andc(b.cmpi("sle", low, 0), b.cmpi("sge", high, size))

        def alone() -> None:
            with self.e.inside({}):
                in_loops(self.e, self.outer, {}, lambda: self._inside(None))

        def among_others() -> None:
            with self.e.inside({}):
                in_loops(self.e, dims[:-1], {}, lambda: write_listed(self, dims[-1], slice_))

        b.if_(is_alone, alone, among_others)

    def _inside(self, slice_: Slice | None) -> None:
        e = self.e
        if self.lane is None:
            _TAKEN("one by one")
            at = self.at()
            self._if(self.is_mine(at, slice_), lambda: self._write_one(at))
        elif self.rows:
            _TAKEN("rows")
            at = self.at()
            width = planning.lane_width(e, self.lane, 2)
            self._if(self.is_mine(at, slice_), lambda: _in_lanes(e, self.lane, width, lambda: self._write_row(at)))
        else:
            _TAKEN("scattered vectors" if self.reduce == "none" else "vectors, one by one")
            width = planning.lane_width(e, self.lane, 1)
            _in_lanes(e, self.lane, width, lambda: self._write_lanes(slice_))

    @property
    def reduce(self) -> str:
        """How what is written is combined with what is there: "none", "sum", "amax" or "amin"."""
        return ir.StringAttr(self.op.operation.attributes["reduce"]).value

    def _if(self, condition: Condition, then: Callable[[], None]) -> None:
        def inside() -> None:
            with self.e.inside({}):
                then()

        self.b.if_(condition, inside)

    def at(self) -> list[Any]:
        """Where the element goes: expressions, and along the dims that indices tell, values."""
        at: list[Any] = list(target_index(self.op, self.point))
        for d, index in zip(named_dims(self.op), list(self.op.operands)[2:], strict=True):
            at[d] = self.b.to_index(self.e.eval(index, tuple(self.point)))
        return at

    def is_mine(self, at: Sequence[Any], slice_: Slice | None) -> Condition:
        """Whether an element, or which of the lanes, goes to this thread's slice (None: all do)."""
        if self.loop is not None or slice_ is None:
            return True
        b, low, high = self.b, *slice_
        row, first, size = b.together(at[self.shared], b.value(low), b.value(b.subi(high, low)))
        return b.cmpi("ult", arith.subi(row, first), size)

    def value(self) -> ir.Value:
        """What is written."""
        value = self.e.eval(self.op.operands[1], tuple(self.point))
        return self.e.stored(value)

    def _combined(self, old: ir.Value, new: ir.Value) -> ir.Value:
        of_floats, of_integers = _COMBINE[self.reduce]
        element = ir.VectorType(new.type).element_type if isinstance(new.type, ir.VectorType) else new.type
        return of_floats(old, new) if isinstance(element, ir.FloatType) else of_integers(old, new)

    def write_at(self, offset: Index, value: ir.Value) -> None:
        """Write a scalar, or combine it with what is there."""
        buffer = self.e.buffers[self.number]
        new = value if self.reduce == "none" else self._combined(self.b.load(buffer, offset), value)
        self.b.store(new, buffer, offset)

    def _write_one(self, at: Sequence[Any]) -> None:
        self.write_at(self.e.apply(self.e.layouts[self.number].results[0], at), self.value())

    def _write_row(self, at: Sequence[Any]) -> None:
        e, b, lane = self.e, self.b, self.e.lane
        buffer = e.buffers[self.number]
        line = e.line(e.layouts[self.number], at)
        assert line is not None
        value = e.splat(self.value())
        if self.reduce != "none":
            value = self._combined(b.vload(buffer, line[0], lane.width, lane.mask), value)
        b.vstore(value, buffer, line[0], lane.mask)

    def _write_lanes(self, slice_: Slice | None) -> None:
        b = self.b
        offsets, value, mask = self.lanes(slice_)
        if self.reduce == "none":
            every = mask if mask is not None else b.mask_of([True] * self.e.lane.width)
            vector.ScatterOp(None, self.e.buffers[self.number], [b.value(0)], offsets, every, value)
            return
        kept = self.keep(offsets, value, mask)

        def one(i: Index) -> None:
            offset = b.load(kept[0], i)
            b.if_(mask is None or b.cmpi("sge", offset, 0), lambda: self.write_at(offset, b.load(kept[1], i)))

        b.for_(0, self.e.lane.width, 1, one)

    def lanes(self, slice_: Slice | None) -> tuple[ir.Value, ir.Value, ir.Value | None]:
        """Where the lanes' elements go, what they are, and which of them this thread writes (None: all)."""
        e, b, lane = self.e, self.b, self.e.lane
        at = self.at()
        value = e.splat(self.value())
        offsets = e.splat(b.value(e.apply(e.layouts[self.number].results[0], at)))
        mine = self.is_mine(at, slice_)
        mask = lane.mask if mine is True else e.splat(b.condition(mine))
        if mask is not None and mask is not lane.mask and lane.mask is not None:
            mask = arith.andi(mask, lane.mask)
        return offsets, value, mask

    def keep(self, offsets: ir.Value, value: ir.Value, mask: ir.Value | None) -> list[ir.Value]:
        """Scratch memory with the lanes' offsets, -1 for those that are not written, and with their values."""
        b = self.b
        if mask is not None:
            offsets = arith.select(mask, offsets, b.int_(-1, offsets.type))
        kept = self.scratch("lanes", self.e.lane.width)
        b.vstore(offsets, kept[0], 0)
        b.vstore(value, kept[1], 0)
        return kept

    def scratch(self, name: str, count: int) -> list[ir.Value]:
        """Scratch memory for so many offsets, and for their values."""
        types = [self.b.index_type, ir.RankedTensorType(self.op.operands[1].type).element_type]
        size = ir.AffineConstantExpr.get(count)
        if name not in self._reserved:
            self._reserved[name] = [self.e.scratch.reserve(size, t) for t in types]
        return [self.e.scratch.view(self.e, at, size, t) for at, t in zip(self._reserved[name], types, strict=True)]


def _plan(e: Evaluator, op: ir.OpView) -> Walk:
    """Which dim threads share, which dims are one loop, where the lanes are."""
    body = e.body
    dims = [e.loops.new(size) for size in body.dims(op.operands[1])]
    positions = [d.position for d in dims]
    shared, loop = _shared(e, op, positions)
    found = _accesses(e, op, list(dims))
    groups = merge_groups(found, positions, e.loops, [d == loop for d in positions])
    merged = merged_dims(groups, e.loops)
    table = dict(zip(positions, merged.exprs, strict=True))
    point = [e.loops.simplify(affine.substitute(x, table)) for x in dims]
    found = _accesses(e, op, point)
    candidates = [d for d in merged.dims if d != loop]
    told = _told(e, op, point)
    free = [d for d in candidates if d not in told and _is_contiguous(e, op, point, d)]
    lane = free[-1] if free else planning.choose_lane(found, candidates, e.loops) if _pays(e, op) else None
    outer = [d for d in merged.dims if d not in (lane, loop)]
    return Walk(e, op, point, outer if loop is None else [loop, *outer], lane, shared, loop, bool(free))


def _pays(e: Evaluator, op: ir.OpView) -> bool:
    """Whether values and indices are worth being computed in vectors where they are written one by one."""
    is_put = ir.StringAttr(op.operation.attributes["reduce"]).value == "none"
    return is_put or sum(e.body.own_cost(o) for o in e.body.operations) > target().rules.loops.scatter_cost


def _shared(e: Evaluator, op: ir.OpView, positions: Sequence[int]) -> tuple[int, int | None]:
    """The dim of the result that threads share, and the loop that walks it: the longest of those that no index tells,
    but for the last one, which is for the lanes. Without one the first that an index tells.
    """
    named = named_dims(op)
    rank = ir.RankedTensorType(op.results[0].type).rank
    free = [d for d in range(rank) if d not in named]
    loops = dict(zip(free, ir.DenseI64ArrayAttr(op.operation.attributes["loops"]), strict=True))
    inner = len(positions) - 1
    known = {d: affine.constant_of(e.loops.extents[positions[k]]) or 0 for d, k in loops.items() if k != inner}
    longest = max(known, key=lambda d: known[d], default=None)
    if longest is None or known[longest] < target().rules.loops.scatter_shared:
        return named[0], None
    return longest, positions[loops[longest]]


def _accesses(e: Evaluator, op: ir.OpView, point: Sequence[ir.AffineExpr]) -> Accesses:
    found = Accesses(e.body, e.loops, e.layouts)
    around = frozenset(d for x in point for d in affine.dims_in(x))
    for value in list(op.operands)[1:]:
        found.visit(value, tuple(point), around)
    found.store(e.layouts[len(e.body.tensors) + e.body.mine[0]], op.results[0], target_index(op, point), around)
    return found


def _told(e: Evaluator, op: ir.OpView, point: Sequence[ir.AffineExpr]) -> set[int]:
    """The loops that indices depend on."""
    found = Accesses(e.body, e.loops, e.layouts)
    for value in list(op.operands)[2:]:
        found.visit(value, tuple(point), frozenset())
    return found.opaque | {d for a in found.found for d in affine.dims_in(a.offset)}


def _is_contiguous(e: Evaluator, op: ir.OpView, point: Sequence[ir.AffineExpr], loop: int) -> bool:
    """Whether neighbours of a loop are neighbours in the result."""
    layout = e.layouts[len(e.body.tensors) + e.body.mine[0]]
    offset = compose_one(layout, target_index(op, point), e.loops)
    linear = affine.linear_coefficients(offset)
    one = ir.AffineConstantExpr.get(1)
    return linear is not None and loop in linear[1] and linear[1][loop] == one


def _zero(walk: Walk, slice_: Slice) -> None:
    """Zeros in this thread's slice of the result."""
    e, number = walk.e, walk.number
    dims = [e.loops.new(size) for size in e.body.dims(walk.op.results[0])]
    positions = [d.position for d in dims]
    found = Accesses(e.body, e.loops, e.layouts)
    found.store(e.layouts[number], walk.op.results[0], tuple(dims), frozenset(positions))
    groups = merge_groups(found, positions, e.loops, [k == walk.shared for k in range(len(dims))])
    merged = merged_dims(groups, e.loops)
    table = dict(zip(positions, merged.exprs, strict=True))
    point: Indices = tuple(e.loops.simplify(affine.substitute(x, table)) for x in dims)
    shared = positions[walk.shared]
    others = [d for d in merged.dims if d != shared]
    lane = planning.choose_lane(found, others, e.loops) if others else None
    zero = e.b.zero(e.buffers[number].type.element_type)

    def store() -> None:
        e.store(number, point, zero)

    def inside() -> None:
        if lane is None:
            store()
        else:
            _in_lanes(e, lane, planning.lane_width(e, lane, 4), store)

    in_loops(e, [shared, *(d for d in others if d != lane)], {shared: slice_}, inside)


def in_loops(
    e: Evaluator, dims: Sequence[int], bounds: dict[int, tuple[Index, Index]], inside: Callable[[], None]
) -> None:
    """Loops one inside of the other; `bounds` are those of a loop that does not run over its whole extent."""
    if not dims:
        inside()
        return
    extent = e.index(e.loops.extents[dims[0]])
    low, high = bounds.get(dims[0], (0, extent))

    def body(i: Index) -> None:
        with e.inside({dims[0]: i}):
            in_loops(e, dims[1:], bounds, inside)

    e.b.for_(low, e.b.mini(high, extent) if dims[0] in bounds else high, 1, body)


def _in_lanes(e: Evaluator, lane: int | None, width: int, inside: Callable[[], None]) -> None:
    """Blocks of lanes, the last one masked."""
    assert lane is not None
    b = e.b
    extent = e.index(e.loops.extents[lane])
    whole = b.round_down(extent, width)

    def block(i: Index, mask: ir.Value | None = None) -> None:
        with e.inside({lane: i}), e.lanes(Lane(lane, width, mask)):
            inside()

    b.for_(0, whole, width, block)
    left = b.subi(extent, whole)
    b.if_(b.cmpi("sgt", left, 0), lambda: block(whole, b.mask_below(left, width)))
