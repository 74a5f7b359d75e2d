# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Fusions of kinds "scan" and "recurrence": running results along one axis of the tile, with `tt.scan` on each block.

Blocks of a long row are walked in order; what they are combined to is carried from one to the next.
"""

from collections.abc import Sequence
from typing import Any

from torch_mlir import ir

from kiln.dialects import affine, kiln, tt
from kiln.dialects.schedules.gpu import ScanSchedule
from kiln.lowering import paths
from kiln.lowering.emitters import emits
from kiln.lowering.gpu import schedule as rules
from kiln.lowering.gpu.builder import Index, is_float
from kiln.lowering.gpu.rules import LoopRules, rules_for
from kiln.lowering.gpu.tile.evaluator import Evaluator
from kiln.lowering.gpu.tile.scopes import Axis
from kiln.lowering.tile.access import Loops
from kiln.lowering.tile.body import FusionBody
from kiln.lowering.tile.scans import Scan, Values, scan_of

_TAKEN = paths.group("gpu scan", "one block", "several blocks", "several rows a program", "across memory", "recurrence")


def plan_scan(body: FusionBody, *_: object) -> ScanSchedule:
    """Rows per program, elements of a row per step, warps."""
    scan = _scan(body)
    at = scan.dim
    sizes = [affine.constant_of(d) for d in body.dims(scan.op.results[0])]
    length = sizes[at]
    limits = rules_for(LoopRules)
    step = limits.scan_block if length is None else min(limits.scan_block, rules.pow2(length))
    rows: int | None = 1
    for k, n in enumerate(sizes):
        rows = None if n is None or rows is None else rows * (1 if k == at else n)
    along = at == len(sizes) - 1
    tile = max(1, (limits.block if along else 2 * limits.block) // step)
    if not along:
        least, most = limits.across_scan
        tile, step = max(tile, least), min(step, most)
    if rows is not None:
        tile = min(tile, rules.pow2(rows))
    return ScanSchedule(rows=tile, row=step, num_warps=rules.warps_for(tile * step))


@emits(kiln.RecurrenceOp, target="gpu", plan=plan_scan, schedules=ScanSchedule)
@emits(kiln.ScanOp, target="gpu", plan=plan_scan, schedules=ScanSchedule)
def emit_scan(kernel: Any, schedule: ScanSchedule | None) -> None:
    """Add the kernel of a fusion around one scan, whose operands may be computed on the way."""
    body: FusionBody = kernel.body
    scan = _scan(body)
    schedule = schedule or plan_scan(body)
    loops = Loops()
    dims = [loops.new(size) for size in body.dims(scan.op.results[0])]
    rows: ir.AffineExpr = ir.AffineConstantExpr.get(1)
    for k, d in enumerate(dims):
        if k != scan.dim:
            rows = rows * loops.extents[d.position]
    tile = schedule.rows
    length = affine.constant_of(loops.extents[dims[scan.dim].position])
    _TAKEN("one block" if length is not None and length <= schedule.row else "several blocks")
    if tile > 1:
        _TAKEN("several rows a program")
    if scan.dim < len(dims) - 1:
        _TAKEN("across memory")
    if scan.start is None:
        _TAKEN("recurrence")

    def emit(program: Index) -> None:
        e = Evaluator(kernel.b, body, kernel.pointers, kernel.layouts, kernel.symbols, kernel.backend)
        e.loops = loops
        _emit(e, scan, [d.position for d in dims], rows, tile, schedule.row, program)

    programs = affine.simplify(ir.AffineExpr.get_ceil_div(rows, tile))
    kernel.section(programs, emit, schedule.num_warps)


def _scan(body: FusionBody) -> Scan:
    return scan_of(body, "on the GPU", segments=True)


def _emit(e: Evaluator, scan: Scan, dims: list[int], rows: ir.AffineExpr, tile: int, step: int, program: Index) -> None:
    b, at = e.b, scan.dim
    e.axes = [*([Axis(tile)] if tile > 1 else []), Axis(step)]
    axis = len(e.axes) - 1
    flat = e.loops.new(rows).position
    if tile > 1:
        position = e.bind_axis(0, flat, b.muli(program, tile))
    else:
        position = program
    others = [d for k, d in enumerate(dims) if k != at]
    e.values.update(e.unflatten(position, others))
    for d in others:
        e.axis_of[d] = 0
    point = tuple(ir.AffineDimExpr.get(d) for d in dims)
    shape = [tile, 1] if tile > 1 else []

    def block(first: Index, carried: list[ir.Value]) -> list[ir.Value]:
        with e.inside({}):
            e.bind_axis(axis, dims[at], first)
            x = _elements(e, scan, point, e.axes[axis].mask)
            prefix = _by_operand(scan, b.scan(list(x.values()), axis, _combiner(e, scan)))
            before = _by_operand(scan, carried) if carried else None
            whole: Values | None = None
            if scan.start is not None:
                found = b.reduce(list(x.values()), axis, _combiner(e, scan))
                whole = _by_operand(scan, [b.expand_dims(v, axis) if shape else v for v in found])
            total = prefix if before is None else scan.combine(e, before, prefix)
            for root, k in scan.roots:
                e.store(len(e.body.tensors) + root, point, _narrow(e, total[k], scan.elements[k]))
            if whole is not None and before is not None:
                return list(scan.combine(e, before, whole).values())
            return [_last(e, total[k], axis, step, bool(shape)) for k in scan.carried]

    extent = e.index(e.loops.extents[dims[at]])
    if scan.start is not None:
        b.for_(0, extent, step, block, [b.broadcast(b.constant(scan.start, _computed(e, scan, 0)), shape)])
        return

    def first() -> None:
        carried = block(0, [])
        if not isinstance(extent, int) or extent > step:
            b.for_(step, extent, step, block, carried)

    b.if_(b.cmpi("sgt", extent, 0), first)  # an empty row has no first element to begin with


def _computed(e: Evaluator, scan: Scan, k: int) -> ir.Type:
    """In which elements are combined; running sums of short integers, which wrap at the end, in 32 bits."""
    element = scan.computed[k]
    return e.b.i32 if scan.start is not None and not is_float(element) and element.width < 32 else element


def _elements(e: Evaluator, scan: Scan, point: Sequence[ir.AffineExpr], mask: ir.Value | None) -> Values:
    """A block of the operands; past the end of the row there is what changes no sum."""
    b, found = e.b, Values()
    for k in scan.needed:
        x, element = e.eval(scan.op.operands[k], tuple(point)), _computed(e, scan, k)
        x = b.cast_float(x, element) if is_float(element) else b.cast_int(x, element)
        if mask is not None and scan.start is not None:
            x = b.select(mask, x, b.constant(scan.start, element))
        found[k] = b.broadcast(x, e.tile_shape())
    return found


def _combiner(e: Evaluator, scan: Scan) -> Any:
    def combine(*values: ir.Value) -> list[ir.Value]:
        count = len(scan.needed)
        left, right = (_by_operand(scan, part) for part in (values[:count], values[count:]))
        return list(scan.combine(e, left, right).values())

    return combine


def _by_operand(scan: Scan, values: Sequence[ir.Value]) -> Values:
    return dict(zip(scan.needed, values, strict=True))


def _last(e: Evaluator, x: ir.Value, axis: int, step: int, keeps_rows: bool) -> ir.Value:
    """The last position of a block, as the sum of it and zeros: which order a reduction has is not known."""
    b = e.b
    zero = b.constant(0, tt.element_of(x.type))
    is_last = b.cmpi("eq", e.lanes(axis), step - 1)
    (found,) = b.reduce([b.broadcast(b.select(is_last, x, zero), e.tile_shape())], axis, _add(e))
    return b.expand_dims(found, axis) if keeps_rows else found


def _add(e: Evaluator) -> Any:
    def add(x: ir.Value, y: ir.Value) -> ir.Value:
        name = "arith.addf" if is_float(x.type) else "arith.addi"
        return ir.Operation.create(name, results=[x.type], operands=[x, y]).result

    return add


def _narrow(e: Evaluator, x: ir.Value, element: ir.Type) -> ir.Value:
    return e.b.cast_float(x, element) if is_float(element) else e.b.cast_int(x, element)
