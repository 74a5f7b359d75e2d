# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Fusions of kind "scatter_nd": elements go where computed indices say, with atomics where they are combined.

The kernel walks what is written as one loop nest; values and indices are computed on the way.  What the result holds
before that is in its memory when the kernel starts: the first operand's elements, which it takes the place of
(`in_place`, see `reuse-buffers`), or zeros (`kiln.zero`).
"""

from typing import Any

from torch_mlir import ir
from torch_mlir.dialects import arith

from kiln.dialects import affine, kiln
from kiln.dialects.schedules.gpu import ScatterSchedule
from kiln.errors import UnsupportedError
from kiln.lowering import paths
from kiln.lowering.emitters import emits
from kiln.lowering.gpu import schedule as rules
from kiln.lowering.gpu.builder import Builder, Condition, Index, is_float
from kiln.lowering.gpu.dot.fusions import DEFAULTS, DotOptions
from kiln.lowering.gpu.dot.machine import machine
from kiln.lowering.gpu.tile.evaluator import Evaluator
from kiln.lowering.gpu.tile.scopes import Axis
from kiln.lowering.tile.access import Accesses, Loops
from kiln.lowering.tile.body import FusionBody
from kiln.lowering.tile.merging import merge_groups, merged_dims
from kiln.lowering.tile.scatters import scatter_of, target_index

__all__ = ["emit_scatter", "plan_scatter"]

_TAKEN = paths.group(
    "gpu scatter",
    *(
        "store",
        "sum of floats",
        "sum of integers",
        "extreme of floats",
        "extreme of integers",
        "onto zeros",
        "in place",
    ),
)


def plan_scatter(body: FusionBody, _: object = None, options: DotOptions = DEFAULTS) -> ScatterSchedule:
    """Elements of a program, warps."""
    elements: int | None = 1
    for size in body.dims(scatter_of(body).operands[1]):
        known = affine.constant_of(size)
        elements = None if known is None or elements is None else elements * known
    chosen = rules.choose_pointwise(elements, chip=machine(options.arch))
    return ScatterSchedule(block=chosen.tile[0], num_warps=chosen.num_warps)


@emits(kiln.ScatterNdOp, target="gpu", plan=plan_scatter, schedules=ScatterSchedule)
def emit_scatter(kernel: Any, schedule: ScatterSchedule | None) -> None:
    """Add the kernel of a fusion around one kiln.scatter_nd, whose values and indices may be computed on the way."""
    body: FusionBody = kernel.body
    op = scatter_of(body)
    schedule = schedule or plan_scatter(body)
    if ir.BoolAttr(op.operation.attributes["from_zero"]).value:
        kernel.zero.add(body.mine[0])
        _TAKEN("onto zeros")
    elif body.argument_position(op.operands[0]) is None:
        raise UnsupportedError("kiln.scatter_nd", str(op.location), "what is written to is computed in the kernel")
    else:
        _TAKEN("in place")
    loops = Loops()
    point, flat = _one_loop(body, kernel.layouts, op, loops)
    block = schedule.block

    def emit(program: Index) -> None:
        e = kernel.evaluator()
        e.loops = loops
        e.axes = [Axis(block)]
        e.bind_axis(0, flat, e.b.muli(program, block))
        _write(e, op, point)

    programs = loops.simplify(ir.AffineExpr.get_ceil_div(loops.extents[flat], block))
    kernel.section(programs, emit, schedule.num_warps)


def _one_loop(
    body: FusionBody, layouts: list[ir.AffineMap], op: ir.OpView, loops: Loops
) -> tuple[list[ir.AffineExpr], int]:
    """The index of what is written over one loop, and that loop: dims that memory walks as one are merged first."""
    dims = [loops.new(size) for size in body.dims(op.operands[1])]
    positions = [d.position for d in dims]
    found = Accesses(body, loops, layouts)
    around = frozenset(positions)
    for value in list(op.operands)[1:]:
        found.visit(value, tuple(dims), around)
    layout = layouts[len(body.tensors) + body.mine[0]]
    found.store(layout, op.results[0], target_index(op, list(dims)), around)
    point: list[ir.AffineExpr] = list(dims)
    for groups in (merge_groups(found, positions, loops, [0] * len(positions)), None):
        merged = merged_dims(groups if groups is not None else [positions], loops)
        table = dict(zip(positions, merged.exprs, strict=True))
        point = [loops.simplify(affine.substitute(x, table)) for x in point]
        positions = merged.dims
    return point, positions[0] if positions else loops.new(ir.AffineConstantExpr.get(1)).position


def _write(e: Evaluator, op: ir.OpView, point: list[ir.AffineExpr]) -> None:
    b = e.b
    value = e.eval(op.operands[1], tuple(point))
    at: list[Any] = list(target_index(op, point))
    for d, index in zip(ir.DenseI64ArrayAttr(op.operation.attributes["dims"]), list(op.operands)[2:], strict=True):
        at[d] = b.cast_int(e.eval(index, tuple(point)), b.index)
    number = len(e.body.tensors) + e.body.mine[0]
    pointers = b.addptr(e.pointers[number], e.apply(e.layouts[number].results[0], at))
    # One write for each element of the block, also where they all go to one place with one value.
    pointers = b.broadcast(pointers, e.tile_shape())
    mask = e.mask_for(pointers)
    shaped = [mask] if isinstance(mask, ir.Value) else []
    pointers, value, *rest = b.together(pointers, value, *shaped)
    _combine(b, ir.StringAttr(op.operation.attributes["reduce"]).value, pointers, value, rest[0] if rest else mask)


def _combine(b: Builder, reduce: str, pointers: ir.Value, value: ir.Value, mask: Condition) -> None:
    """One write per element: a store, or an atomic op."""
    from kiln.dialects import tt

    element = tt.element_of(value.type)
    kind = "sum of" if reduce == "sum" else "extreme of"
    _TAKEN("store" if reduce == "none" else f"{kind} {'floats' if is_float(element) else 'integers'}")
    if reduce == "none":
        if element == b.i1:
            value = arith.extui(tt.with_element(value.type, b.i8), value)
        b.store(pointers, value, mask)
    elif reduce == "sum":
        b.atomic_rmw("fadd" if is_float(element) else "add", pointers, value, mask)
    elif not is_float(element):
        b.atomic_rmw("max" if reduce == "amax" else "min", pointers, value, mask)
    else:
        _extreme(b, reduce, pointers, value, mask)


def _extreme(b: Builder, reduce: str, pointers: ir.Value, value: ir.Value, mask: Condition) -> None:
    """The larger (smaller) of floats by their bits: these are ordered as integers where the sign bit is 0, and the
    other way round as unsigned ones where it is 1.  A NaN is the last in that order, and memory has no other one.
    """
    from kiln.dialects import tt

    width = tt.element_of(value.type).width
    integer = ir.IntegerType.get_signless(width)
    exponent = {32: 0x7FC00000, 64: 0x7FF8000000000000}[width]
    nan = exponent if reduce == "amax" else exponent | 1 << (width - 1)
    bits = b.bitcast(value, integer)
    bits = b.select(b.cmpf("uno", value, value), b.constant(nan, bits.type), bits)
    where = b.bitcast(pointers, tt.ptr(integer))
    below = b.cmpi("slt", bits, 0)
    above = b.cmpi("sge", bits, 0)
    signed, unsigned = ("max", "umin") if reduce == "amax" else ("min", "umax")
    b.atomic_rmw(signed, where, bits, b.andc(mask, above))
    b.atomic_rmw(unsigned, where, bits, b.andc(mask, below))
