# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Sizes of results of MLIR's own ops, and index arithmetic, for `kiln.dialects.shapes.SymbolicShapes`.

The rules of the `kiln` dialect stand beside its ops (`kiln.dialects.kiln.table`).
"""

from collections.abc import Callable, Sequence
from functools import reduce
from typing import TYPE_CHECKING, Any

from torch_mlir import ir

from kiln.dialects import affine
from kiln.dialects.kiln.base import DYNAMIC
from kiln.dialects.kiln.table import ShapeRule, Sizes, opdef, same_as_first, same_as_second

if TYPE_CHECKING:
    from kiln.dialects.shapes import SymbolicShapes


def _attr(op: ir.Operation, name: str) -> Any:
    return op.attributes[name].value


def _ints(op: ir.Operation, name: str) -> list[int]:
    return list(op.attributes[name])


def destination(shapes: "SymbolicShapes", op: ir.Operation, number: int) -> Sizes:
    """A destination-passing op: result i has the sizes of the i-th `outs`."""
    return shapes.dims(op.operands[len(op.operands) - len(op.results) + number])


def _mixed(shapes: "SymbolicShapes", static: Sequence[int], dynamic: Sequence[ir.Value]) -> Sizes:
    """A static list whose dynamic entries are the operands `dynamic`, in order."""
    rest = iter(dynamic)
    return [shapes.expr(next(rest)) if s == DYNAMIC else ir.AffineExpr.get_constant(s) for s in static]


def _tensor_empty(shapes: "SymbolicShapes", op: ir.Operation, number: int) -> Sizes:
    return _mixed(shapes, list(ir.RankedTensorType(op.results[0].type).shape), list(op.operands))


def _expand_shape(shapes: "SymbolicShapes", op: ir.Operation, number: int) -> Sizes:
    return _mixed(shapes, _ints(op, "static_output_shape"), list(op.operands)[1:])


def _collapse_shape(shapes: "SymbolicShapes", op: ir.Operation, number: int) -> Sizes:
    dims = shapes.dims(op.operands[0])
    groups = [[ir.IntegerAttr(i).value for i in group] for group in op.attributes["reassociation"]]
    one = ir.AffineExpr.get_constant(1)
    return [affine.simplify(reduce(ir.AffineExpr.get_mul, (dims[i] for i in g), one)) for g in groups]


def _extract_slice(shapes: "SymbolicShapes", op: ir.Operation, number: int) -> Sizes:
    segments = list(op.attributes["operandSegmentSizes"])
    start = segments[0] + segments[1]
    sizes = _mixed(shapes, _ints(op, "static_sizes"), list(op.operands)[start : start + segments[2]])
    rank = ir.RankedTensorType(op.results[0].type).rank
    # Rank reduction drops unit dims; which ones is clear only when it drops all of them.
    kept = [s for s in sizes or () if s is None or affine.constant_of(s) != 1]
    return sizes if sizes is not None and len(sizes) == rank else kept if len(kept) == rank else None


def _tensor_pad(shapes: "SymbolicShapes", op: ir.Operation, number: int) -> Sizes:
    segments = list(op.attributes["operandSegmentSizes"])
    operands = list(op.operands)
    low = _mixed(shapes, _ints(op, "static_low"), operands[1 : 1 + segments[1]])
    high = _mixed(shapes, _ints(op, "static_high"), operands[1 + segments[1] :])
    parts = zip(low or (), shapes.dims(operands[0]), high or (), strict=True)
    return [None if a is None or c is None else affine.simplify(a + b + c) for a, b, c in parts]


def _concat(shapes: "SymbolicShapes", op: ir.Operation, number: int) -> Sizes:
    at: int = _attr(op, "dim")
    sizes = list(shapes.dims(op.operands[0]))
    for other in list(op.operands)[1:]:
        sizes[at] = sizes[at] + shapes.dims(other)[at]
    return [*sizes[:at], affine.simplify(sizes[at]), *sizes[at + 1 :]]


_RULES: dict[str, ShapeRule] = {
    "tensor.empty": _tensor_empty,
    "tensor.expand_shape": _expand_shape,
    "tensor.collapse_shape": _collapse_shape,
    "tensor.extract_slice": _extract_slice,
    "tensor.insert_slice": same_as_second,
    "tensor.insert": same_as_second,
    "tensor.cast": same_as_first,
    "tensor.pad": _tensor_pad,
    "tensor.concat": _concat,
}


def shape_rule(op: ir.Operation) -> ShapeRule | None:
    """The rule of an op of any dialect; None for one whose results are unknown."""
    if op.name.startswith("linalg."):
        return destination
    return _RULES.get(op.name) or opdef(op).shape


# ---------------------------------------------------------------------------------------------------- index arithmetic


def index_expr(shapes: "SymbolicShapes", value: ir.Value) -> ir.AffineExpr | None:
    """An index or integer value as an expression, None if it is none."""
    if not isinstance(value.owner, ir.Operation | ir.OpView):
        return None
    op = value.owner.operation
    name = op.name
    if name == "arith.constant":
        attribute = op.attributes["value"]
        return ir.AffineExpr.get_constant(attribute.value) if isinstance(attribute, ir.IntegerAttr) else None
    if name == "tensor.dim":
        position = affine.constant_of(shapes.expr(op.operands[1]))
        return None if position is None else shapes.dims(op.operands[0])[position]
    if name in ("arith.index_cast", "arith.index_castui", "arith.extsi", "arith.extui"):
        return shapes.expr(op.operands[0])
    if name == "affine.apply":
        map_ = _attr(op, "map")
        operands = [shapes.expr(v) for v in op.operands]
        return affine.substitute(map_.results[0], operands[: map_.n_dims], operands[map_.n_dims :])
    build = _ARITHMETIC.get(name)
    if build is None:
        return None
    lhs, rhs = (shapes.expr(v) for v in op.operands)
    if name in _TRUNCATING and not (affine.nonnegative(lhs) and affine.nonnegative(rhs)):
        return None
    if name not in ("arith.addi", "arith.subi", "arith.muli") and affine.constant_of(rhs) == 0:
        return None
    return build(lhs, rhs)


_TRUNCATING = {"arith.divsi", "arith.remsi"}

_ARITHMETIC: dict[str, Callable[[ir.AffineExpr, ir.AffineExpr], ir.AffineExpr]] = {
    "arith.addi": ir.AffineExpr.get_add,
    "arith.subi": lambda a, b: a - b,
    "arith.muli": ir.AffineExpr.get_mul,
    "arith.divsi": ir.AffineExpr.get_floor_div,
    "arith.divui": ir.AffineExpr.get_floor_div,
    "arith.floordivsi": ir.AffineExpr.get_floor_div,
    "arith.ceildivsi": ir.AffineExpr.get_ceil_div,
    "arith.ceildivui": ir.AffineExpr.get_ceil_div,
    "arith.remsi": ir.AffineExpr.get_mod,
    "arith.remui": ir.AffineExpr.get_mod,
}
