# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Fusions of kind "scan": running sums and products along one axis of the tile, with `tt.scan` on each block.

Blocks of a long row are walked in order; what they add up to is carried from one to the next.
"""

from typing import Any

from torch_mlir import ir

from kiln.dialects import affine, kiln
from kiln.dialects.schedules.gpu import ScanSchedule
from kiln.errors import UnsupportedError
from kiln.lowering import paths
from kiln.lowering.emitters import emits
from kiln.lowering.gpu import schedule as rules
from kiln.lowering.gpu.builder import Index, is_float
from kiln.lowering.gpu.tile.evaluator import Evaluator
from kiln.lowering.gpu.tile.scopes import Axis
from kiln.lowering.tile.access import Loops
from kiln.lowering.tile.body import FusionBody
from kiln.lowering.tile.combiner import SCANS

_TAKEN = paths.group("gpu scan", "one block", "several blocks", "several rows a program", "across memory")

LONGEST_BLOCK = 4096
"""Elements of a row that are scanned at once."""


def plan_scan(body: FusionBody, *_: object) -> ScanSchedule:
    """Rows per program, elements of a row per step, warps."""
    op = _scan(body)
    at = ir.IntegerAttr(op.operation.attributes["dim"]).value
    sizes = [affine.constant_of(d) for d in body.dims(op.results[0])]
    length = sizes[at]
    step = LONGEST_BLOCK if length is None else min(LONGEST_BLOCK, rules.pow2(length))
    rows: int | None = 1
    for k, n in enumerate(sizes):
        rows = None if n is None or rows is None else rows * (1 if k == at else n)
    along = at == len(sizes) - 1
    tile = max(1, (rules.BLOCK if along else 2 * rules.BLOCK) // step)
    if not along:
        tile, step = max(tile, 32), min(step, 128)
    if rows is not None:
        tile = min(tile, rules.pow2(rows))
    return ScanSchedule(rows=tile, row=step, num_warps=rules.warps_for(tile * step))


@emits(kiln.ScanOp, target="gpu", plan=plan_scan, schedules=ScanSchedule)
def emit_scan(kernel: Any, schedule: ScanSchedule | None) -> None:
    """Add the kernel of a fusion around one kiln.scan, whose operand may be computed on the way."""
    body: FusionBody = kernel.body
    op = _scan(body)
    schedule = schedule or plan_scan(body)
    loops = Loops()
    dims = [loops.new(size) for size in body.dims(op.results[0])]
    at = ir.IntegerAttr(op.operation.attributes["dim"]).value
    rows: ir.AffineExpr = ir.AffineConstantExpr.get(1)
    for k, d in enumerate(dims):
        if k != at:
            rows = rows * loops.extents[d.position]
    tile = schedule.rows
    length = affine.constant_of(loops.extents[dims[at].position])
    _TAKEN("one block" if length is not None and length <= schedule.row else "several blocks")
    if tile > 1:
        _TAKEN("several rows a program")
    if at < len(dims) - 1:
        _TAKEN("across memory")

    def emit(program: Index) -> None:
        e = Evaluator(kernel.b, body, kernel.pointers, kernel.layouts, kernel.symbols, kernel.backend)
        e.loops = loops
        _emit(e, op, [d.position for d in dims], at, rows, tile, schedule.row, program)

    programs = affine.simplify(ir.AffineExpr.get_ceil_div(rows, tile))
    kernel.section(programs, emit, schedule.num_warps)


def _scan(body: FusionBody) -> ir.OpView:
    op = next(op for op in body.operations if op.operation.name == "kiln.scan")
    kind = ir.StringAttr(op.operation.attributes["kind"]).value
    if kind not in SCANS or len(op.results) != 1 or [body.roots[i] for i in body.mine] != list(op.results):
        raise UnsupportedError("kiln.scan", str(op.location), f"a running {kind} on the GPU")
    return op


def _emit(
    e: Evaluator,
    op: ir.OpView,
    dims: list[int],
    at: int,
    rows: ir.AffineExpr,
    tile: int,
    step: int,
    program: Index,
) -> None:
    b = e.b
    element = ir.RankedTensorType(op.results[0].type).element_type
    floating = is_float(element)
    compute = b.f32 if floating and element.width < 32 else b.i32 if not floating and element.width < 32 else element
    for_floats, for_integers, start = SCANS[ir.StringAttr(op.operation.attributes["kind"]).value]
    name = for_floats if floating else for_integers

    def combine(x: ir.Value, y: ir.Value) -> ir.Value:
        x, y = b.together(x, y)
        return ir.Operation.create(name, results=[x.type], operands=[x, y]).result

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
    carry = b.constant(start, compute)

    def block(first: Index, carried: list[ir.Value]) -> list[ir.Value]:
        with e.inside({}):
            e.bind_axis(axis, dims[at], first)
            x = e.eval(op.operands[0], point)
            x = b.cast_float(x, compute) if floating else b.cast_int(x, compute)
            mask = e.axes[axis].mask
            if mask is not None:
                x = b.select(mask, x, b.constant(start, compute))
            x = b.broadcast(x, e.tile_shape())
            (prefix,) = b.scan([x], axis, combine)
            (whole,) = b.reduce([x], axis, combine)
            whole = b.expand_dims(whole, axis) if shape else whole
            total = combine(carried[0], prefix)
            e.store(len(e.body.tensors) + e.body.mine[0], point, _narrow(e, total, element))
            return [combine(carried[0], whole)]

    b.for_(0, e.index(e.loops.extents[dims[at]]), step, block, [b.broadcast(carry, shape)])


def _narrow(e: Evaluator, x: ir.Value, element: ir.Type) -> ir.Value:
    return e.b.cast_float(x, element) if is_float(element) else e.b.cast_int(x, element)
