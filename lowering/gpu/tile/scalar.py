# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""One scalar op of a `linalg.generic` body on blocks: the same op where Triton has it, else what it stands for."""

from collections.abc import Sequence

from torch_mlir import ir
from torch_mlir.dialects import arith

from kiln.dialects import tt
from kiln.dialects.rounding import EXACT
from kiln.errors import UnsupportedError
from kiln.lowering.gpu.builder import Builder
from kiln.lowering.gpu.device_math import DIRECT, INSTRUCTIONS, library_symbol
from kiln.lowering.gpu.tile.beside_one import emit_short_erf, emit_short_tanh
from kiln.lowering.gpu.tile.float8 import convert
from kiln.lowering.tile.short_formulas import GPU_FORMULAS, is_short_enough

# Ops whose operands and results are blocks of one shape and which Triton lowers for every element type that they have.
_SAME = {
    *("arith.addi", "arith.subi", "arith.muli", "arith.divsi", "arith.divui", "arith.remsi", "arith.remui"),
    *("arith.andi", "arith.ori", "arith.xori", "arith.shli", "arith.shrsi", "arith.shrui", "arith.minsi"),
    *("arith.maxsi", "arith.minui", "arith.maxui", "arith.extsi", "arith.extui", "arith.trunci", "arith.select"),
    *("arith.cmpi", "arith.addf", "arith.subf", "arith.mulf", "arith.divf", "arith.maximumf", "arith.minimumf"),
    *("arith.maxnumf", "arith.minnumf", "arith.cmpf", "arith.sitofp", "arith.uitofp", "arith.fptosi", "arith.fptoui"),
}
_SHORT = {"math.erf": emit_short_erf, "math.tanh": emit_short_tanh}
_UNCONTRACTED = {"arith.addf": "add.rn", "arith.subf": "sub.rn"}
_NARROW = (ir.BF16Type, ir.F16Type, ir.Float8E4M3FNType, ir.Float8E5M2Type)


def type_of(b: Builder, type_: ir.Type) -> ir.Type:
    """A scalar type of a body as the kernel has it: `index` becomes the kernel's index type."""
    return b.index if isinstance(type_, ir.IndexType) else type_


def emit_scalar_op(b: Builder, op: ir.OpView, operands: Sequence[ir.Value], backend: str) -> list[ir.Value]:
    """The results of `op` on scalars or blocks, broadcast to one shape.

    An op on bf16 or f16 computes in f32 and rounds its result.  Raises UnsupportedError for an op that has no
    form on the device.
    """
    name = op.operation.name
    if len(op.regions):
        raise UnsupportedError(name, str(op.location), "control flow inside a linalg.generic")
    values = b.together(*operands)
    special = _SPECIAL.get(name)
    if special is not None:
        return special(b, op, values)
    target = type_of(b, op.results[0].type)
    wide = [_widen(b, v) for v in values]
    element = tt.element_of(wide[0].type)
    computed = b.f32 if isinstance(target, _NARROW) else target
    if name in _SHORT and is_short_enough(op.operation, GPU_FORMULAS):
        results = [_SHORT[name](b, wide[0])]
    elif name == "math.sqrt" and element == b.f32:
        results = [tt.PreciseSqrtOp.create(wide, [wide[0].type]).result]
    elif name == "arith.divf" and EXACT in op.operation.attributes:
        results = [b.divf(*wide, precise=True)]
    elif name in _UNCONTRACTED and EXACT in op.operation.attributes and backend == "cuda":
        results = [b.instruction(f"{_UNCONTRACTED[name]}.{element}", *wide)]
    elif name in INSTRUCTIONS and element == b.f32 and backend == "cuda":
        results = [b.instruction(INSTRUCTIONS[name], *wide)]
    elif (symbol := library_symbol(name, element, backend)) is not None:
        results = [b.extern(symbol, *wide)]
    elif name in _SAME or name in DIRECT:
        attributes = {a: op.operation.attributes[a] for a in op.operation.attributes}
        attributes.pop("nneg", None)
        attributes.pop("kiln.checked", None)  # GPUs clamp and go on
        attributes.pop(EXACT, None)
        type_ = tt.with_element(wide[0].type, computed)
        results = [ir.Operation.create(name, results=[type_], operands=wide, attributes=attributes).result]
    else:
        raise UnsupportedError(name, str(op.location), "it has no form in Triton IR")
    return [convert(b, r, target) if computed != target else r for r in results]


def _widen(b: Builder, value: ir.Value) -> ir.Value:
    return convert(b, value, b.f32) if isinstance(tt.element_of(value.type), _NARROW) else value


def _cast_index(b: Builder, op: ir.OpView, values: list[ir.Value]) -> list[ir.Value]:
    target = type_of(b, op.results[0].type)
    source = tt.element_of(values[0].type)
    if op.operation.name == "arith.index_castui" and target.width > source.width:
        return [arith.extui(tt.with_element(values[0].type, target), values[0])]
    return [b.cast_int(values[0], target)]


def _cast_float(b: Builder, op: ir.OpView, values: list[ir.Value]) -> list[ir.Value]:
    return [convert(b, values[0], op.results[0].type)]


def _select(b: Builder, op: ir.OpView, values: list[ir.Value]) -> list[ir.Value]:
    return [arith.select(*values)]


def _bitcast(b: Builder, op: ir.OpView, values: list[ir.Value]) -> list[ir.Value]:
    return [b.bitcast(values[0], op.results[0].type)]


def _negate(b: Builder, op: ir.OpView, values: list[ir.Value]) -> list[ir.Value]:
    element = tt.element_of(values[0].type)
    return [b.cast_float(b.negf(_widen(b, values[0])), element)]


def _floor_divide(b: Builder, op: ir.OpView, values: list[ir.Value]) -> list[ir.Value]:
    """Rounded down: one less than the truncated quotient where the remainder has the other sign than the divisor."""
    x, y = values
    quotient, rest = arith.divsi(x, y), arith.remsi(x, y)
    zero = b.constant(0, x.type)
    wrong = arith.andi(arith.cmpi(1, rest, zero), arith.cmpi(2, arith.xori(rest, y), zero))
    return [arith.select(wrong, arith.subi(quotient, b.constant(1, x.type)), quotient)]


def _ceil_divide(b: Builder, op: ir.OpView, values: list[ir.Value]) -> list[ir.Value]:
    x, y = values
    quotient, rest = arith.divsi(x, y), arith.remsi(x, y)
    zero = b.constant(0, x.type)
    wrong = arith.andi(arith.cmpi(1, rest, zero), arith.cmpi(5, arith.xori(rest, y), zero))
    return [arith.select(wrong, arith.addi(quotient, b.constant(1, x.type)), quotient)]


def _multiply_extended(b: Builder, op: ir.OpView, values: list[ir.Value]) -> list[ir.Value]:
    high = tt.MulhiUiOp.create(values, [values[0].type]).result
    return [arith.muli(*values), high]


def _absolute(b: Builder, op: ir.OpView, values: list[ir.Value]) -> list[ir.Value]:
    (x,) = values
    zero = b.constant(0, x.type)
    return [arith.select(arith.cmpi(2, x, zero), arith.subi(zero, x), x)]


def _is_nan(b: Builder, op: ir.OpView, values: list[ir.Value]) -> list[ir.Value]:
    x = _widen(b, values[0])
    return [b.cmpf("uno", x, x)]


def _is_infinite(b: Builder, op: ir.OpView, values: list[ir.Value]) -> list[ir.Value]:
    return [b.cmpf("oeq", b.math("absf", _widen(b, values[0])), float("inf"))]


def _is_finite(b: Builder, op: ir.OpView, values: list[ir.Value]) -> list[ir.Value]:
    return [b.cmpf("olt", b.math("absf", _widen(b, values[0])), float("inf"))]


_SPECIAL = {
    "arith.index_cast": _cast_index,
    "arith.index_castui": _cast_index,
    "arith.extf": _cast_float,
    "arith.truncf": _cast_float,
    "arith.select": _select,
    "arith.bitcast": _bitcast,
    "arith.negf": _negate,
    "arith.floordivsi": _floor_divide,
    "arith.ceildivsi": _ceil_divide,
    "arith.mului_extended": _multiply_extended,
    "math.absi": _absolute,
    "math.isnan": _is_nan,
    "math.isinf": _is_infinite,
    "math.isfinite": _is_finite,
}
