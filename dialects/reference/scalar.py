# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Scalar arithmetic for op bodies: `arith` and `math` ops chosen by the element type."""

from typing import Any

from torch_mlir import ir
from torch_mlir.dialects import arith, math

from kiln.dialects.rounding import round_implicitly


def is_float(type_: ir.Type) -> bool:
    return isinstance(type_, ir.F16Type | ir.BF16Type | ir.F32Type | ir.F64Type)


def compute_type(type_: ir.Type) -> ir.Type:
    """The type that arithmetic on `type_` is done in: f32 for the half types."""
    return ir.F32Type.get() if isinstance(type_, ir.F16Type | ir.BF16Type) else type_


def constant(type_: ir.Type, value: float | int) -> ir.Value:
    """A constant of an integer, index or float type; floats may be inf."""
    if isinstance(type_, ir.IndexType):
        return arith.constant(type_, int(value))
    if isinstance(type_, ir.IntegerType):
        return arith.constant(type_, ir.IntegerAttr.get(type_, int(value)))
    return arith.constant(type_, ir.FloatAttr.get(type_, float(value)))


def lowest(type_: ir.Type) -> float | int:
    """The identity of max."""
    return -_highest_int(type_) - 1 if isinstance(type_, ir.IntegerType) and type_.width > 1 else _edge(type_, -1)


def highest(type_: ir.Type) -> float | int:
    """The identity of min."""
    return _highest_int(type_) if isinstance(type_, ir.IntegerType) and type_.width > 1 else _edge(type_, 1)


def _highest_int(type_: Any) -> int:
    return (1 << (type_.width - 1)) - 1


def _edge(type_: ir.Type, sign: int) -> float | int:
    if isinstance(type_, ir.IntegerType):
        return 1 if sign > 0 else 0
    return sign * float("inf")


def cast(x: ir.Value, type_: ir.Type) -> ir.Value:
    """Convert between float widths, integers to floats, index to integers and floats."""
    source = x.type
    if source == type_:
        return x
    if isinstance(source, ir.IndexType):
        return cast(arith.index_cast(ir.IntegerType.get_signless(64), x), type_)
    if isinstance(type_, ir.IndexType):
        return arith.index_cast(type_, x)
    if is_float(source) and is_float(type_):
        wider = _bits(type_) > _bits(source)
        return arith.extf(type_, x) if wider else round_implicitly(type_, x)
    if is_float(type_):
        return arith.sitofp(type_, x)
    if _bits(type_) > _bits(source):
        return arith.extui(type_, x) if _bits(source) == 1 else arith.extsi(type_, x)
    return arith.trunci(type_, x)


def _bits(type_: Any) -> int:
    return type_.width


def add(a: ir.Value, b: ir.Value) -> ir.Value:
    return arith.addf(a, b) if is_float(a.type) else arith.addi(a, b)


def sub(a: ir.Value, b: ir.Value) -> ir.Value:
    return arith.subf(a, b) if is_float(a.type) else arith.subi(a, b)


def mul(a: ir.Value, b: ir.Value) -> ir.Value:
    return arith.mulf(a, b) if is_float(a.type) else arith.muli(a, b)


def div(a: ir.Value, b: ir.Value) -> ir.Value:
    """Division; of integers rounding to zero."""
    return arith.divf(a, b) if is_float(a.type) else arith.divsi(a, b)


def maximum(a: ir.Value, b: ir.Value) -> ir.Value:
    """The larger; NaN if either is."""
    if is_float(a.type):
        return arith.maximumf(a, b)
    return arith.ori(a, b) if a.type == ir.IntegerType.get_signless(1) else arith.maxsi(a, b)


def minimum(a: ir.Value, b: ir.Value) -> ir.Value:
    """The smaller; NaN if either is."""
    if is_float(a.type):
        return arith.minimumf(a, b)
    return arith.andi(a, b) if a.type == ir.IntegerType.get_signless(1) else arith.minsi(a, b)


_FLOAT = {"eq": 1, "gt": 2, "ge": 3, "lt": 4, "le": 5, "ne": 13, "uno": 14}
_INT = {"eq": 0, "ne": 1, "lt": 2, "le": 3, "gt": 4, "ge": 5, "ult": 6, "ule": 7, "ugt": 8, "uge": 9}


def compare(predicate: str, a: ir.Value, b: ir.Value) -> ir.Value:
    """An i1; floats compare ordered except "ne" and "uno" (either is NaN), integers signed unless "u..."."""
    if is_float(a.type):
        return arith.cmpf(ir.IntegerAttr.get(ir.IntegerType.get_signless(64), _FLOAT[predicate]), a, b)
    return arith.cmpi(ir.IntegerAttr.get(ir.IntegerType.get_signless(64), _INT[predicate]), a, b)


def select(condition: ir.Value, a: ir.Value, b: ir.Value) -> ir.Value:
    return arith.select(condition, a, b)


def both(a: ir.Value, b: ir.Value) -> ir.Value:
    return arith.andi(a, b)


def either(a: ir.Value, b: ir.Value) -> ir.Value:
    return arith.ori(a, b)


def is_nan(x: ir.Value) -> ir.Value:
    """Whether `x` is NaN; false for integers."""
    return compare("uno", x, x) if is_float(x.type) else constant(ir.IntegerType.get_signless(1), 0)


exp = math.exp
log = math.log
rsqrt = math.rsqrt
