# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Scalar arithmetic in the bodies of ops: `arith` and `math` ops chosen by the element type.

An op depends on the kind of its operands: `f` (float), `i` (signed integer or index), `u` (unsigned integer) or `b`
(bool, `i1`).  Builtin integers have no sign, so `kind_of` takes them as signed; a caller that knows better gives the
kind.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch_mlir import ir
from torch_mlir.dialects import arith, math

from kiln.dialects.dtypes import F32, I32, I64, DType, dtype_from_builtin
from kiln.dialects.rounding import EXACT, round_implicitly

_OPS: Mapping[str, Mapping[str, Callable[..., ir.Value]]] = {
    "add": {"f": arith.addf, "i": arith.addi, "u": arith.addi, "b": arith.ori},
    "sub": {"f": arith.subf, "i": arith.subi, "u": arith.subi},
    "mul": {"f": arith.mulf, "i": arith.muli, "u": arith.muli, "b": arith.andi},
    "div": {"f": arith.divf, "i": arith.divsi, "u": arith.divui},
    "rem": {"f": arith.remf, "i": arith.remsi, "u": arith.remui},
    "maximum": {"f": arith.maximumf, "i": arith.maxsi, "u": arith.maxui, "b": arith.ori},
    "minimum": {"f": arith.minimumf, "i": arith.minsi, "u": arith.minui, "b": arith.andi},
    "fmax": {"f": arith.maxnumf, "i": arith.maxsi, "u": arith.maxui, "b": arith.ori},
    "fmin": {"f": arith.minnumf, "i": arith.minsi, "u": arith.minui, "b": arith.andi},
    "and": dict.fromkeys("iub", arith.andi),
    "or": dict.fromkeys("iub", arith.ori),
    "xor": dict.fromkeys("iub", arith.xori),
    "shl": dict.fromkeys("iu", arith.shli),
    "shr": {"i": arith.shrsi, "u": arith.shrui},
}

_CMPF = {"eq": 1, "gt": 2, "ge": 3, "lt": 4, "le": 5, "one": 6, "ord": 7, "ueq": 8, "ne": 13, "uno": 14}
_CMPI_SIGNED = {"eq": 0, "ne": 1, "lt": 2, "le": 3, "gt": 4, "ge": 5}
_CMPI_UNSIGNED = {"eq": 0, "ne": 1, "lt": 6, "le": 7, "gt": 8, "ge": 9}


# ------------------------------------------------------------------------------------------------------------ types


def is_float(type_: ir.Type) -> bool:
    """Whether the type is f16, bf16, f32 or f64."""
    return isinstance(type_, ir.F16Type | ir.BF16Type | ir.F32Type | ir.F64Type)


def kind_of(type_: ir.Type) -> str:
    """`f`, `i` or `b` for a scalar type; integers are taken as signed."""
    if isinstance(type_, ir.IntegerType):
        return "b" if type_.width == 1 else "i"
    return "i" if isinstance(type_, ir.IndexType) else "f"


def compute_type(type_: ir.Type) -> ir.Type:
    """The type that arithmetic on `type_` is done in: f32 for the half types."""
    return ir.F32Type.get() if isinstance(type_, ir.F16Type | ir.BF16Type) else type_


def lowest(type_: ir.Type) -> float | int:
    """The identity of max."""
    return _dtype(type_).min


def highest(type_: ir.Type) -> float | int:
    """The identity of min."""
    return _dtype(type_).max


def _dtype(type_: ir.Type) -> DType:
    found = dtype_from_builtin(type_)
    if found is None:
        raise TypeError(f"{type_} is no element type")
    return found


# -------------------------------------------------------------------------------------------------- constants, casts


def constant(type_: ir.Type, value: float | int | bool) -> ir.Value:
    """A constant of an integer, index or float type.

    Integers wrap to the width of the type, as PyTorch's casts do; what is not 0 is true; floats may be inf.
    """
    if isinstance(type_, ir.IntegerType):
        return arith.constant(type_, ir.IntegerAttr.get(type_, _wrapped(value, type_.width)))
    if isinstance(type_, ir.IndexType):
        return arith.constant(type_, int(value))
    return arith.constant(type_, ir.FloatAttr.get(type_, float(value)))


def _wrapped(value: float | int | bool, bits: int) -> int:
    if bits == 1:
        return int(bool(value))
    number = int(value) & ((1 << bits) - 1)
    return number - (1 << bits) if number >= 1 << (bits - 1) else number


def cast(x: ir.Value, type_: ir.Type) -> ir.Value:
    """`x` of any scalar type, index included, as `type_`; integers are signed."""
    source = x.type
    if source == type_:
        return x
    if isinstance(source, ir.IndexType):
        return cast(arith.index_cast(I64.type, x), type_)
    if isinstance(type_, ir.IndexType):
        return arith.index_cast(type_, x)
    return convert(x, _dtype(source), _dtype(type_))


def convert(x: ir.Value, source: DType, to: DType, asked: bool = False) -> ir.Value:
    """PyTorch's cast: to bool is `x != 0`, to integers truncates and wraps, to and from half goes through f32.

    `asked`: the program asks for the cast, so `drop-roundings` keeps a rounding to 16 bits.
    """
    if source == to:
        return x
    if source.is_float8:
        return convert(arith.extf(F32.type, x), F32, to)
    if to.is_float8:
        return arith.truncf(to.type, convert(x, source, F32))
    if to.is_bool:
        return compare("ne", x, constant(source.type, 0), source.kind)
    if source.is_float and to.is_float:
        return _between_floats(x, source, to, asked)
    if source.is_float:
        if source.is_half:
            x, source = convert(x, source, F32), F32
        if to.kind == "u" and to.bits == 64:
            return arith.fptoui(to.type, x)
        # Narrow integers are cut from a wider one, as C++ does on x86: 300.0 becomes 44 in uint8, not poison.
        wide = I64 if to.bits == 64 or (to.kind == "u" and to.bits == 32) else I32
        return convert(arith.fptosi(wide.type, x), wide, to)
    if to.is_half:
        return convert(convert(x, source, F32), F32, to, asked)
    if to.is_float:
        return (arith.sitofp if source.is_signed else arith.uitofp)(to.type, x)
    if to.bits == source.bits:
        return x
    if to.bits < source.bits:
        return arith.trunci(to.type, x)
    return (arith.extsi if source.is_signed else arith.extui)(to.type, x)


def _between_floats(x: ir.Value, source: DType, to: DType, asked: bool) -> ir.Value:
    if source.bits == 16 and to.bits > 16:
        return convert(arith.extf(F32.type, x), F32, to)
    if to.bits == 16:
        x = convert(x, source, F32)
        return arith.truncf(to.type, x) if asked else round_implicitly(to.type, x)
    return (arith.extf if to.bits > source.bits else arith.truncf)(to.type, x)


# -------------------------------------------------------------------------------------------------------- arithmetic


def binary(name: str, a: ir.Value, b: ir.Value, kind: str | None = None) -> ir.Value:
    """The op `name` (`add`, `fmax`, `shr`, ...) on two values of one type. Raises TypeError where it has no such op."""
    kind = kind or kind_of(a.type)
    op = _OPS[name].get(kind)
    if op is None:
        raise TypeError(f"{name} is not defined for {a.type}")
    return op(a, b)


def add(a: ir.Value, b: ir.Value) -> ir.Value:
    """Sum; of bools, whether either is true."""
    return binary("add", a, b)


def sub(a: ir.Value, b: ir.Value) -> ir.Value:
    """`a - b`, of floats or integers of one type."""
    return binary("sub", a, b)


def distance(a: ir.Value, of_all: ir.Value) -> ir.Value:
    """`a - of_all` of floats, for a mean or an extremum of numbers like `a`, rounded by itself (`kiln.exact`).

    A GPU would contract it with the product that `a` may be; one number would have a variance then, and a logarithm
    of its softmax that is not 0.
    """
    difference = arith.subf(a, of_all)
    difference.owner.attributes[EXACT] = ir.UnitAttr.get()
    return difference


def mul(a: ir.Value, b: ir.Value) -> ir.Value:
    """Product; of bools, whether both are true."""
    return binary("mul", a, b)


def div(a: ir.Value, b: ir.Value) -> ir.Value:
    """Quotient; of integers rounded to zero."""
    return binary("div", a, b)


def maximum(a: ir.Value, b: ir.Value) -> ir.Value:
    """The larger; NaN if either is."""
    return binary("maximum", a, b)


def minimum(a: ir.Value, b: ir.Value) -> ir.Value:
    """The smaller; NaN if either is."""
    return binary("minimum", a, b)


def compare(predicate: str, a: ir.Value, b: ir.Value, kind: str | None = None) -> ir.Value:
    """`eq ne lt le gt ge` (and `one ueq uno ord` of floats) as an i1.

    Ordered comparisons with NaN are false, `ne` is true. Bools compare as 0 and 1.
    """
    kind = kind or kind_of(a.type)
    if kind == "f":
        return arith.cmpf(_CMPF[predicate], a, b)
    return arith.cmpi((_CMPI_SIGNED if kind == "i" else _CMPI_UNSIGNED)[predicate], a, b)


def select(condition: ir.Value, a: ir.Value, b: ir.Value) -> ir.Value:
    """`a` where the i1 `condition` is true, else `b`."""
    return arith.select(condition, a, b)


def both(a: ir.Value, b: ir.Value) -> ir.Value:
    """The conjunction of two i1."""
    return arith.andi(a, b)


def either(a: ir.Value, b: ir.Value) -> ir.Value:
    """The disjunction of two i1."""
    return arith.ori(a, b)


def is_nan(x: ir.Value) -> ir.Value:
    """Whether `x` is NaN; false for integers."""
    return compare("uno", x, x) if is_float(x.type) else constant(ir.IntegerType.get_signless(1), 0)


exp = math.exp
log = math.log
rsqrt = math.rsqrt


# ------------------------------------------------------------------------------------------------------------- index


def _no_symbol(position: int) -> ir.Value:
    raise TypeError(f"s{position} has no value here")


def index_value(
    e: ir.AffineExpr, dim_values: Sequence[ir.Value], symbol_value: Callable[[int], ir.Value] = _no_symbol
) -> ir.Value:
    """`e` as index arithmetic at the current insertion point; divisors are positive."""
    e = e.maybe_downcast()
    if isinstance(e, ir.AffineConstantExpr):
        return constant(ir.IndexType.get(), e.value)
    if isinstance(e, ir.AffineDimExpr):
        return dim_values[e.position]
    if isinstance(e, ir.AffineSymbolExpr):
        return symbol_value(e.position)
    operands: Any = e
    lhs = index_value(operands.lhs, dim_values, symbol_value)
    rhs = index_value(operands.rhs, dim_values, symbol_value)
    if isinstance(e, ir.AffineAddExpr):
        return arith.addi(lhs, rhs)
    if isinstance(e, ir.AffineMulExpr):
        return arith.muli(lhs, rhs)
    if isinstance(e, ir.AffineCeilDivExpr):
        return arith.ceildivsi(lhs, rhs)
    quotient = arith.floordivsi(lhs, rhs)
    return quotient if isinstance(e, ir.AffineFloorDivExpr) else arith.subi(lhs, arith.muli(quotient, rhs))
