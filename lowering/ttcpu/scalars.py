# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""One scalar of an elementwise op: arith, math and Triton's own arithmetic."""

import re
from collections.abc import Callable, Sequence
from typing import Any

from torch_mlir import ir
from torch_mlir.dialects import arith, llvm, math

from kiln.dialects.kiln import name_of
from kiln.errors import UnsupportedError
from kiln.lowering.cpu.builder import Builder
from kiln.lowering.float8 import is_float8
from kiln.lowering.ttcpu.approximate import inexact_form, is_power_of_two
from kiln.lowering.ttcpu.blocks import pointee, scalar_type
from kiln.lowering.ttcpu.functions import call

__all__ = ["apply_scalar", "is_elementwise", "scalar_cost"]

_SHORT = ir.BF16Type | ir.F16Type | ir.Float8E4M3FNType | ir.Float8E5M2Type
# Device functions (libdevice's ``__nv_NAMEf``, ROCm's ``__ocml_NAME_f32``) whose math op has another name.
_DEVICE = {
    "pow": "powf", "fabs": "absf", "rint": "roundeven", "nearbyint": "roundeven", "abs": "absi", "fast_exp": "exp",
    "fast_log": "log", "fast_sin": "sin", "fast_cos": "cos", "fast_tan": "tan", "fast_pow": "powf", "fast_tanh": "tanh",
}  # fmt: skip
_MATH = {
    *("absf", "absi", "acos", "acosh", "asin", "asinh", "atan", "atan2", "atanh", "cbrt", "ceil", "copysign", "cos"),
    *("cosh", "erf", "erfc", "exp", "exp2", "expm1", "floor", "fma", "isfinite", "isinf", "isnan", "log", "log10"),
    *("log1p", "log2", "powf", "round", "roundeven", "rsqrt", "sin", "sinh", "sqrt", "tan", "tanh", "trunc"),
}
_LIBM = {"lgamma", "tgamma", "hypot", "nextafter", "fdim", "remainder", "exp10", "j0", "j1", "y0", "y1"}
_UNCONTRACTED = {
    f"{name}.rn.{element}": op for name, op in (("add", arith.addf), ("sub", arith.subf)) for element in ("f32", "f64")
}
_ASSEMBLY = {
    "tanh.approx": "math.tanh", "ex2.approx": "math.exp2", "lg2.approx": "math.log2", "rsqrt.approx": "math.rsqrt",
    "sqrt.approx": "math.sqrt", "sin.approx": "math.sin", "cos.approx": "math.cos", "cvt.rpi": "math.ceil",
    "cvt.rmi": "math.floor",
}  # fmt: skip
_TT = {
    *("tt.addptr", "tt.bitcast", "tt.clampf", "tt.mulhiui", "tt.fp_to_fp", "tt.extern_elementwise", "tt.precise_sqrt"),
    *("tt.precise_divf", "tt.elementwise_inline_asm", "tt.int_to_ptr", "tt.ptr_to_int"),
}
_LOG2_E = 1.4426950408889634
_DIVISIONS = {"arith.divui", "arith.remui", "arith.divsi", "arith.remsi"}
_EXPENSIVE = {"arith.divsi", "arith.remsi", "arith.divui", "arith.remui", "arith.divf", "arith.remf", "arith.ceildivsi"}


def is_elementwise(name: str) -> bool:
    """Whether an op computes each element of its results from the same elements of its operands."""
    return name.startswith(("arith.", "math.")) or name in _TT


def scalar_cost(name: str) -> int:
    """Roughly how many instructions an element of the op takes."""
    if name in _EXPENSIVE:
        return 8
    if name in ("tt.extern_elementwise", "tt.elementwise_inline_asm") or name.startswith("math."):
        return 20
    return 1


def apply_scalar(
    b: Builder, op: ir.Operation, operands: Sequence[ir.Value], approximate: bool = False
) -> list[ir.Value]:
    """Emits an elementwise op on scalars. approximate: with the error that it has on a GPU.

    Raises UnsupportedError for an op, a function or a type that has no scalar form here.
    """
    inexact = inexact_form(op, operands) if approximate else None
    if inexact is None:
        return _exact(b, op, operands)
    wide = [inexact.operand(b, b.cast_float(v, b.f32)) for v in operands]
    name = name_of(op)
    if name == "math.exp":  # a power of two on a GPU, also of what the product is rounded to
        value = math.exp2(arith.mulf(wide[0], b.float_(_LOG2_E, b.f32)))
    elif name in _TT:
        value = _TT_RULES[name](b, op, wide, b.f32)
    else:
        value = _create(op.name, op, wide, [b.f32])[0]
    result = inexact.result(b, wide[0], value)
    if name == "arith.divf":
        result = arith.select(is_power_of_two(b, wide[1]), value, result)
    return [b.cast_float(result, scalar_type(op.results[0].type))]


def _exact(b: Builder, op: ir.Operation, operands: Sequence[ir.Value]) -> list[ir.Value]:
    types = [scalar_type(r.type) for r in op.results]
    name = name_of(op)
    if name in _TT:
        return [_TT_RULES[name](b, op, list(operands), types[0])]
    if any(kind in str(t) for t in (*types, *(v.type for v in operands)) for kind in ("FNUZ", "E8M0")):
        raise UnsupportedError(op.name, str(op.location), "these 8-bit floats are not computed on the CPU")
    if name in _DIVISIONS and not _is_constant(operands[1]):
        return [_division(b, name, operands)]
    if op.name not in _MOVES and any(isinstance(v.type, _SHORT) for v in operands):
        return _in_f32(b, op, operands, types)
    if op.name not in _MOVES and any(isinstance(t, _SHORT) for t in types):
        wide = _create(op.name, op, operands, [b.f32 if isinstance(t, _SHORT) else t for t in types])
        return [b.cast_float(v, t) if isinstance(t, _SHORT) else v for v, t in zip(wide, types, strict=True)]
    return _create(op.name, op, operands, types)


def _is_constant(value: ir.Value) -> bool:
    return not isinstance(value.owner, ir.Block) and value.owner.operation.name == "arith.constant"


def _division(b: Builder, name: str, operands: Sequence[ir.Value]) -> ir.Value:
    """A division in a function of its own, which LLVM does not inline.

    LLVM 24's loop vectoriser takes `(i + start) % n`, with an `n` known at run time only, for equal in all lanes.
    """
    type_ = operands[0].type
    symbol = f"{name.replace('.', '_')}_{type_}"
    text = f"func.func private @{symbol}(%x: {type_}, %y: {type_}) -> {type_} {{\n%z = {name} %x, %y : {type_}\n"
    return call(b, symbol, f"{text}return %z : {type_}\n}}", operands, [type_])[0]


# Casts between floats and what does not compute keep 16-bit floats.
_MOVES = {"arith.extf", "arith.truncf", "arith.select", "arith.bitcast", "arith.constant"}


def _create(name: str, op: ir.Operation, operands: Sequence[ir.Value], types: Sequence[ir.Type]) -> list[ir.Value]:
    attributes = dict(op.attributes.items())
    return list(ir.Operation.create(name, results=types, operands=operands, attributes=attributes).results)


def _in_f32(b: Builder, op: ir.Operation, operands: Sequence[ir.Value], types: Sequence[ir.Type]) -> list[ir.Value]:
    """The op on 16-bit floats, computed in f32 and rounded once."""
    wide = [b.cast_float(v, b.f32) if isinstance(v.type, _SHORT) else v for v in operands]
    results = _create(op.name, op, wide, [b.f32 if isinstance(t, _SHORT) else t for t in types])
    return [b.cast_float(v, t) if isinstance(t, _SHORT) else v for v, t in zip(results, types, strict=True)]


def _math(b: Builder, name: str, operands: list[ir.Value], type_: ir.Type) -> ir.Value:
    wide = [b.cast_float(v, b.f32) if isinstance(v.type, _SHORT) else v for v in operands]
    result = b.f32 if isinstance(type_, _SHORT) else type_
    predicates = ("math.isnan", "math.isinf", "math.isfinite")
    raw = b.i1 if name in predicates else result
    value = ir.Operation.create(name, results=[raw], operands=wide).result
    if raw != result:
        return arith.extui(result, value)
    return b.cast_float(value, type_) if isinstance(type_, _SHORT) else value


# -- Triton's ops ----------------------------------------------------------------------------------------


def _addptr(b: Builder, op: ir.Operation, operands: list[ir.Value], type_: ir.Type) -> ir.Value:
    pointer, offset = operands
    if offset.type != b.i64:
        offset = arith.extsi(b.i64, offset)
    return element_address(pointer, offset, pointee(op.results[0].type))


def element_address(pointer: ir.Value, offset: ir.Value, element: ir.Type) -> ir.Value:
    """The address `offset` (i64) elements past a pointer."""
    # A float type that LLVM's translation does not need to know: only its size counts.
    sized = ir.IntegerType.get_signless(element.width) if isinstance(element, ir.FloatType) else element
    dynamic = ir.DenseI32ArrayAttr.get([-(2**31)])
    attributes = {"elem_type": ir.TypeAttr.get(sized), "rawConstantIndices": dynamic}
    return ir.Operation.create(
        "llvm.getelementptr", results=[pointer.type], operands=[pointer, offset], attributes=attributes
    ).result


def _bitcast(b: Builder, op: ir.Operation, operands: list[ir.Value], type_: ir.Type) -> ir.Value:
    value = operands[0]
    return value if value.type == type_ else arith.bitcast(type_, value)


def _clamp(b: Builder, op: ir.Operation, operands: list[ir.Value], type_: ir.Type) -> ir.Value:
    propagates = ir.IntegerAttr(op.attributes["propagateNan"]).value != 0
    low, high = ("arith.maximumf", "arith.minimumf") if propagates else ("arith.maxnumf", "arith.minnumf")
    x, lo, hi = (b.cast_float(v, b.f32) if isinstance(v.type, _SHORT) else v for v in operands)
    raised = ir.Operation.create(low, results=[x.type], operands=[x, lo]).result
    result = ir.Operation.create(high, results=[x.type], operands=[raised, hi]).result
    return b.cast_float(result, type_) if isinstance(type_, _SHORT) else result


def _mulhi(b: Builder, op: ir.Operation, operands: list[ir.Value], type_: ir.Type) -> ir.Value:
    wide = ir.IntegerType.get_signless(2 * ir.IntegerType(type_).width)
    product = arith.muli(arith.extui(wide, operands[0]), arith.extui(wide, operands[1]))
    shift = b.int_(ir.IntegerType(type_).width, wide)
    return arith.trunci(type_, arith.shrui(product, shift))


def _fp_to_fp(b: Builder, op: ir.Operation, operands: list[ir.Value], type_: ir.Type) -> ir.Value:
    """As a GPU's instruction does it: what is too large becomes the largest number."""
    if any("FNUZ" in str(t) or "E8M0" in str(t) for t in (operands[0].type, type_)):
        raise UnsupportedError(op.name, str(op.location), "these 8-bit floats are not computed on the CPU")
    value = operands[0]
    if is_float8(type_):
        most = 448.0 if isinstance(type_, ir.Float8E4M3FNType) else 57344.0
        value = b.cast_float(value, b.f32)
        value = arith.minimumf(arith.maximumf(value, b.float_(-most, b.f32)), b.float_(most, b.f32))
    return b.cast_float(value, type_)


def _extern(b: Builder, op: ir.Operation, operands: list[ir.Value], type_: ir.Type) -> ir.Value:
    symbol = ir.StringAttr(op.attributes["symbol"]).value
    name = re.sub(r"_f(16|32|64)$", "", re.sub(r"^__(nv|ocml)_", "", symbol))
    short = name.removesuffix("f")
    for candidate in (name, short):
        if _DEVICE.get(candidate, candidate) in _MATH:
            return _math(b, f"math.{_DEVICE.get(candidate, candidate)}", operands, type_)
        if candidate in ("fmod", "fdividef", "fdivide"):
            return arith.remf(*operands) if candidate == "fmod" else arith.divf(*operands)
        if candidate in _LIBM:
            return _libm(b, candidate, operands, type_)
    raise UnsupportedError(op.name, str(op.location), f"the device function {symbol} has no counterpart on the CPU")


def _libm(b: Builder, name: str, operands: list[ir.Value], type_: ir.Type) -> ir.Value:
    """A call of the C library's function."""
    symbol = name if type_ == b.f64 else f"{name}f"
    types = ", ".join(str(v.type) for v in operands)
    return call(b, symbol, f"func.func private @{symbol}({types}) -> {type_}", operands, [type_])[0]


def _assembly(b: Builder, op: ir.Operation, operands: list[ir.Value], type_: ir.Type) -> ir.Value:
    text = ir.StringAttr(op.attributes["asm_string"]).value
    name = text.partition(" ")[0]
    if name in _UNCONTRACTED and text.count(";") <= 1:
        return _UNCONTRACTED[name](*operands)
    found = re.search(r"[a-z0-9]+\.approx|cvt\.r[mp]i", text)
    if found is not None and found.group() == "rcp.approx" and text.count(";") <= 1:
        return arith.divf(b.float_(1.0, type_), operands[0])
    if found is None or found.group() not in _ASSEMBLY or text.count(";") > 1:
        raise UnsupportedError(op.name, str(op.location), f"inline assembly {text!r} has no counterpart on the CPU")
    return _math(b, _ASSEMBLY[found.group()], operands, type_)


def _square_root(b: Builder, op: ir.Operation, operands: list[ir.Value], type_: ir.Type) -> ir.Value:
    return math.sqrt(operands[0])


def _quotient(b: Builder, op: ir.Operation, operands: list[ir.Value], type_: ir.Type) -> ir.Value:
    return arith.divf(*operands)


def _to_pointer(b: Builder, op: ir.Operation, operands: list[ir.Value], type_: ir.Type) -> ir.Value:
    return llvm.inttoptr(type_, operands[0])


def _from_pointer(b: Builder, op: ir.Operation, operands: list[ir.Value], type_: ir.Type) -> ir.Value:
    return llvm.ptrtoint(type_, operands[0])


_TT_RULES: dict[str, Callable[[Builder, ir.Operation, list[ir.Value], Any], ir.Value]] = {
    "tt.addptr": _addptr,
    "tt.bitcast": _bitcast,
    "tt.clampf": _clamp,
    "tt.mulhiui": _mulhi,
    "tt.fp_to_fp": _fp_to_fp,
    "tt.extern_elementwise": _extern,
    "tt.precise_sqrt": _square_root,
    "tt.precise_divf": _quotient,
    "tt.elementwise_inline_asm": _assembly,
    "tt.int_to_ptr": _to_pointer,
    "tt.ptr_to_int": _from_pointer,
}
