# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Fusions of kinds "scan" and "recurrence": one pass over the scanned dim.

Where memory is contiguous along another dim, the scanned dim is walked in order with lanes along that one; dims that
memory walks as one are one. Along memory a vector of elements becomes its own running result in log2(lanes) steps, each
of which combines it with itself shifted (Hillis and Steele, "Data parallel algorithms", 1986); what came before is
combined with all of it. From vector to vector only one operation depends on the one before. Sums and products of floats
carry that in f64, as PyTorch does: a sum of f32 alone would lose digits with the length of the row. Threads share the
other dims, and blocks of lanes.

Measured with f32 on one core with AVX-512, against one element after the other: 512 rows of 1000 288 -> 102 us, a row
of 200000 122 -> 42 us, with a fifth to a hundredth of the error (PyTorch: 434 and 179 us).
"""

from collections.abc import Callable
from dataclasses import dataclass

from torch_mlir import ir
from torch_mlir.dialects import arith

from kiln.dialects import affine, kiln
from kiln.lowering import paths
from kiln.lowering.cpu.builder import Builder, Index
from kiln.lowering.cpu.tile import planning
from kiln.lowering.cpu.tile.evaluator import Evaluator
from kiln.lowering.cpu.tile.kernel import Kernel
from kiln.lowering.cpu.tile.scopes import Lane
from kiln.lowering.emitters import emits
from kiln.lowering.tile.access import Accesses, Indices
from kiln.lowering.tile.merging import merge_groups, merged_dims
from kiln.lowering.tile.scans import Scan, Values, scan_of

_TAKEN = paths.group("cpu scan", "along memory", "across memory", "one by one", "recurrence")


@emits(kiln.RecurrenceOp, target="cpu")
@emits(kiln.ScanOp, target="cpu")
def emit_scan_fusion(kernel: Kernel) -> None:
    """Write the kernel of a fusion around one scan, whose operands may be computed on the way."""
    e, b = kernel.evaluator(), kernel.b
    scan = scan_of(kernel.body, "on the CPU")
    if scan.start is None:
        _TAKEN("recurrence")
    point, scanned, others, lane = _plan(e, scan)
    length = affine.constant_of(e.loops.extents[scanned])
    span = planning.lane_width(e, scanned, 1)
    is_along = lane == scanned and span > 2 and (scan.start is not None or length is not None)
    _TAKEN("along memory" if is_along else "across memory" if lane not in (None, scanned) else "one by one")
    walk = _Walk(e, scan_of(kernel.body, "on the CPU", segments=True) if is_along else scan, point, scanned)
    if lane is None or lane == scanned:
        outer, inside = others, (lambda: walk.along(span, length)) if is_along else walk.in_order
    else:
        # What is carried in f64 takes two registers a vector.
        width = planning.lane_width(e, lane, 2 if scan.start is not None else 4)
        blocks = e.loops.new(e.loops.simplify(ir.AffineExpr.get_ceil_div(e.loops.extents[lane], width)))
        outer = [*(d for d in others if d != lane), blocks.position]
        inside = _in_lanes(walk, lane, width, blocks)
    units: ir.AffineExpr = ir.AffineConstantExpr.get(1)
    for d in outer:
        units = units * e.loops.extents[d]
    lo, hi = b.split(kernel.tid, kernel.nt, e.index(e.loops.simplify(units)))

    def unit(i: Index) -> None:
        with e.inside_flat(i, outer):
            inside()

    b.for_(lo, hi, 1, unit)
    kernel.work = e.loops.extents[scanned] * 4
    for d in others:
        kernel.work = kernel.work * e.loops.extents[d]


def _plan(e: Evaluator, scan: Scan) -> tuple[Indices, int, list[int], int | None]:
    """The indices of an element, the dim that is scanned, the other loops, and which of all the lanes are along."""
    body = e.body
    dims = [e.loops.new(size) for size in body.dims(scan.op.results[0])]
    scanned = dims[scan.dim].position
    others = [d.position for d in dims if d.position != scanned]
    groups = merge_groups(_accesses(e, scan, tuple(dims)), others, e.loops, [0] * len(others))
    merged = merged_dims(groups, e.loops)
    found = dict(zip(others, merged.exprs, strict=True))
    point = tuple(found.get(d.position, d) for d in dims)
    candidates = [*merged.dims[: scan.dim], scanned, *merged.dims[scan.dim :]]
    return point, scanned, merged.dims, planning.choose_lane(_accesses(e, scan, point), candidates, e.loops)


def _accesses(e: Evaluator, scan: Scan, point: Indices) -> Accesses:
    accesses = Accesses(e.body, e.loops, e.layouts)
    around = frozenset(d for x in point for d in affine.dims_in(x))
    for k in scan.needed:
        accesses.visit(scan.op.operands[k], point, around)
    for root, k in scan.roots:
        accesses.store(e.layouts[len(e.body.tensors) + root], scan.op.results[k], point, around)
    return accesses


def _in_lanes(walk: "_Walk", lane: int, width: int, blocks: ir.AffineDimExpr) -> Callable[[], None]:
    e, b = walk.e, walk.e.b

    def inside() -> None:
        extent, first = e.index(e.loops.extents[lane]), b.muli(e.index(blocks), width)

        def block(mask: ir.Value | None = None) -> None:
            with e.inside({lane: first}), e.lanes(Lane(lane, width, mask)):
                walk.in_order()

        whole = affine.constant_of(e.loops.extents[lane])
        if whole is not None and whole % width == 0:
            block()
            return
        left = b.subi(extent, first)
        b.if_(b.cmpi("sge", left, width), block, lambda: block(b.mask_below(left, width)))

    return inside


@dataclass
class _Walk:
    """One run along the scanned dim, at the lanes and loops that are open."""

    e: Evaluator
    scan: Scan
    point: Indices
    scanned: int

    @property
    def b(self) -> Builder:
        return self.e.b

    def total_type(self, k: int) -> ir.Type:
        """What is carried: thousands of roundings of one running sum add up where all terms are alike, so a sum or
        product of floats is in f64, as in PyTorch.
        """
        is_simple = self.scan.start is not None
        return self.b.f64 if is_simple and self.scan.is_float else self.scan.computed[k]

    def start(self, type_: ir.Type) -> ir.Value:
        assert self.scan.start is not None
        is_float = self.scan.is_float
        return self.b.float_(float(self.scan.start), type_) if is_float else self.b.int_(self.scan.start, type_)

    def elements(self, as_vectors: bool) -> Values:
        """The operands' elements, in the types in which they are combined."""
        found: Values = {}
        for k in self.scan.needed:
            x = self.e.eval(self.scan.op.operands[k], self.point)
            found[k] = self.cast(self.e.splat(x) if as_vectors else x, self.scan.computed[k])
        return found

    def cast(self, x: ir.Value, element: ir.Type) -> ir.Value:
        return self.b.cast_float(x, element) if isinstance(element, ir.FloatType) else x

    def store(self, totals: Values) -> None:
        for root, k in self.scan.roots:
            value = self.cast(totals[k], self.scan.elements[k])
            self.e.store(len(self.e.body.tensors) + root, self.point, value)

    def in_order(self) -> None:
        """Element after element."""
        e, b, scan = self.e, self.b, self.scan
        extent = e.index(e.loops.extents[self.scanned])
        lane = e.lane if e.lane.dim is not None else None

        def step(i: Index, carried: list[ir.Value]) -> list[ir.Value]:
            with e.inside({self.scanned: i}):
                new = {k: self.cast(x, self.total_type(k)) for k, x in self.elements(lane is not None).items()}
                totals = scan.combine(e, dict(zip(scan.carried, carried, strict=True)), new) if carried else new
                self.store(totals)
                return [totals[k] for k in scan.carried]

        if scan.start is not None:
            type_ = self.total_type(0)
            b.for_(0, extent, 1, step, [self.start(type_ if lane is None else b.vec(lane.width, type_))])
            return

        def first() -> None:
            b.for_(1, extent, 1, step, step(0, []))

        b.if_(b.cmpi("sgt", extent, 0), first)

    def along(self, span: int, length: int | None) -> None:
        """The row in vectors along the scanned dim; ``length``: its size, if it is known."""
        e, b, scan = self.e, self.b, self.scan
        extent = e.index(e.loops.extents[self.scanned])
        whole = b.round_down(extent, span)
        identity = b.broadcast(self.start(scan.computed[0]), span) if scan.start is not None else None

        def block(i: Index, carried: list[ir.Value], mask: ir.Value | None = None) -> list[ir.Value]:
            with e.inside({self.scanned: i}), e.lanes(Lane(self.scanned, span, mask)):
                x = self.elements(True)
                if mask is not None and identity is not None:
                    x[0] = arith.select(mask, x[0], identity)
                x = self.prefixes(x, span, identity)
                before = dict(zip(scan.carried, carried, strict=True)) if carried else None
                if before is None:
                    self.store(x)
                else:
                    left = {k: b.broadcast(self.cast(v, scan.computed[k]), span) for k, v in before.items()}
                    self.store(scan.combine(e, left, x))
                last = {k: self.cast(b.extract(x[k], span - 1), self.total_type(k)) for k in scan.carried}
                totals = last if before is None else scan.combine(e, before, last)
                return [totals[k] for k in scan.carried]

        lower: Index = 0
        if scan.start is not None:
            total = [self.start(self.total_type(0))]
        elif length is not None and length >= span:
            lower, total = span, block(0, [])
        else:
            total = list[ir.Value]()
        if total:
            total = b.for_(lower, whole, span, block, total)
        left = b.subi(extent, whole)
        b.if_(b.cmpi("sgt", left, 0), lambda: block(whole, total, b.mask_below(left, span)))

    def prefixes(self, x: Values, span: int, identity: ir.Value | None) -> Values:
        """The running results of a vector by itself, of all operands that are read."""
        b, scan = self.b, self.scan
        shift = 1
        while shift < span:
            lanes = [*range(shift), *range(span, 2 * span - shift)]
            if identity is not None:
                x = scan.combine(self.e, {0: b.shuffle(identity, x[0], lanes)}, x)
            else:
                combined = scan.combine(self.e, {k: b.shuffle(v, v, lanes) for k, v in x.items()}, x)
                taken = b.constant(_from_lane(b, shift, span), b.vec(span, b.i1))
                x = {k: arith.select(taken, combined[k], v) for k, v in x.items()}
            shift *= 2
        return x


def _from_lane(b: Builder, first: int, width: int) -> ir.Attribute:
    true, false = ir.BoolAttr.get(True), ir.BoolAttr.get(False)
    return ir.DenseElementsAttr.get([true if i >= first else false for i in range(width)], b.vec(width, b.i1))
