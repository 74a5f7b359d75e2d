# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Scalar arithmetic in the body of a ``linalg.generic``: ops chosen by PyTorch element type."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from torch_mlir import ir
from torch_mlir.dialects import arith, linalg, math

from kiln.dialects.rounding import round_implicitly

from .dtypes import BOOL, F32, F64, I32, I64, DType
from .sizes import Expr

__all__ = ["Number", "Scalar", "ScalarBuilder", "SizeNumber"]


@dataclass(frozen=True)
class Scalar:
    """An SSA scalar with its PyTorch element type."""

    value: ir.Value
    dtype: DType


@dataclass(frozen=True)
class SizeNumber:
    """A number known when the graph is called: an integer expression of sizes, as an int or a float.

    ``divisor``, where given, makes it the float quotient of the two.
    """

    expr: Expr
    is_float: bool = False
    divisor: Expr | None = None


Number = Scalar | int | float | bool

_CMPF = {"eq": 1, "gt": 2, "ge": 3, "lt": 4, "le": 5, "one": 6, "ord": 7, "ueq": 8, "ne": 13, "uno": 14}
_CMPI_SIGNED = {"eq": 0, "ne": 1, "lt": 2, "le": 3, "gt": 4, "ge": 5}
_CMPI_UNSIGNED = {"eq": 0, "ne": 1, "lt": 6, "le": 7, "gt": 8, "ge": 9}


class ScalarBuilder:
    """Builds scalar ops at the current insertion point.

    Binary methods take two scalars of one element type, or one scalar and a Python number, which becomes a constant
    of the scalar's type. Comparisons follow IEEE and PyTorch: every ordered one is false on NaN, ``ne`` is true.
    """

    def const(self, value: int | float | bool, dtype: DType) -> Scalar:
        """A constant; integers wrap to the type's width as PyTorch's casts do."""
        if dtype.is_float:
            return Scalar(arith.constant(dtype.type, ir.FloatAttr.get(dtype.type, float(value))), dtype)
        if dtype.is_bool:
            return Scalar(arith.constant(dtype.type, ir.BoolAttr.get(bool(value))), dtype)
        number = int(value) & ((1 << dtype.bits) - 1)
        if number >= 1 << (dtype.bits - 1):
            number -= 1 << dtype.bits
        return Scalar(arith.constant(dtype.type, ir.IntegerAttr.get(dtype.type, number)), dtype)

    def index(self, dim: int) -> Scalar:
        """The loop index of ``dim`` as int64."""
        return Scalar(arith.index_cast(I64.type, linalg.IndexOp(dim).result), I64)

    def size(self, expr: Expr, symbol: Callable[[int], ir.Value]) -> Scalar:
        """An expression of sizes as int64; the body captures the index values of its symbols."""
        return Scalar(arith.index_cast(I64.type, _index_value(expr, symbol)), I64)

    def size_number(self, number: SizeNumber, symbol: Callable[[int], ir.Value]) -> Scalar:
        """A :class:`SizeNumber` as int64, or as float64 if it is a float."""
        value = self.size(number.expr, symbol)
        if not number.is_float:
            return value
        value = self.cast(value, F64)
        if number.divisor is None:
            return value
        return self.div(value, self.cast(self.size(number.divisor, symbol), F64))

    def pair(self, x: Number, y: Number) -> tuple[Scalar, Scalar]:
        """Both as scalars of one type; a Python number takes the other's type."""
        if not isinstance(x, Scalar):
            if not isinstance(y, Scalar):
                raise TypeError("one of the two values must be a Scalar")
            x = self.const(x, y.dtype)
        if not isinstance(y, Scalar):
            y = self.const(y, x.dtype)
        if x.dtype != y.dtype:
            raise TypeError(f"element types differ: {x.dtype.name} and {y.dtype.name}")
        return x, y

    # -- casts

    def cast(self, x: Scalar, to: DType, asked: bool = False) -> Scalar:
        """PyTorch's cast: to bool is ``x != 0``, to integers truncates and wraps, to half goes through float32.

        ``asked``: the program asks for the cast, so that a rounding to 16 bits is none that ``drop-roundings`` drops.
        """
        source = x.dtype
        if source == to:
            return x
        if source.is_float8:
            return self.cast(Scalar(arith.extf(F32.type, x.value), F32), to)
        if to.is_float8:
            return Scalar(arith.truncf(to.type, self.cast(x, F32).value), to)
        if to.is_bool:
            return self.cmp("ne", x, 0)
        if source.is_float and to.is_float:
            if source.bits == 16 and to.bits > 16:
                x = Scalar(arith.extf(F32.type, x.value), F32)
                return self.cast(x, to)
            if to.bits == 16:
                if source.bits == 64 or source.bits == 16:
                    x = self.cast(x, F32)
                return Scalar(arith.truncf(to.type, x.value) if asked else round_implicitly(to.type, x.value), to)
            op = arith.extf if to.bits > source.bits else arith.truncf
            return Scalar(op(to.type, x.value), to)
        if source.is_float:
            if source.is_half:
                x = self.cast(x, F32)
            if to.kind == "u" and to.bits == 64:
                return Scalar(arith.fptoui(to.type, x.value), to)
            # Narrow integers are cut from a wider one, as C++ does on x86: 300.0 becomes 44 in uint8, not poison.
            wide = I64 if to.bits == 64 or (to.kind == "u" and to.bits == 32) else I32
            return self.cast(Scalar(arith.fptosi(wide.type, x.value), wide), to)
        if to.is_float:
            if to.is_half:
                return self.cast(self.cast(x, F32), to, asked)
            op = arith.sitofp if source.is_signed else arith.uitofp
            return Scalar(op(to.type, x.value), to)
        if to.bits == source.bits:
            return Scalar(x.value, to)
        if to.bits < source.bits:
            return Scalar(arith.trunci(to.type, x.value), to)
        op = arith.extsi if source.is_signed else arith.extui
        return Scalar(op(to.type, x.value), to)

    # -- arithmetic

    def _binary(self, x: Number, y: Number, name: str, ops: Mapping[str, Callable[..., ir.Value] | None]) -> Scalar:
        a, b = self.pair(x, y)
        op = ops.get(a.dtype.kind)
        if op is None:
            raise TypeError(f"{name} is not defined for {a.dtype.name}")
        return Scalar(op(a.value, b.value), a.dtype)

    def add(self, x: Number, y: Number) -> Scalar:
        """Sum; logical or for bool."""
        return self._binary(x, y, "add", {"f": arith.addf, "i": arith.addi, "u": arith.addi, "b": arith.ori})

    def sub(self, x: Number, y: Number) -> Scalar:
        """Difference."""
        return self._binary(x, y, "sub", {"f": arith.subf, "i": arith.subi, "u": arith.subi})

    def mul(self, x: Number, y: Number) -> Scalar:
        """Product; logical and for bool."""
        return self._binary(x, y, "mul", {"f": arith.mulf, "i": arith.muli, "u": arith.muli, "b": arith.andi})

    def div(self, x: Number, y: Number) -> Scalar:
        """Quotient, truncated for integers (whose divisor must not be zero)."""
        return self._binary(x, y, "div", {"f": arith.divf, "i": arith.divsi, "u": arith.divui})

    def rem(self, x: Number, y: Number) -> Scalar:
        """C's remainder, with the sign of the dividend (an integer divisor must not be zero)."""
        return self._binary(x, y, "rem", {"f": arith.remf, "i": arith.remsi, "u": arith.remui})

    def maximum(self, x: Number, y: Number) -> Scalar:
        """The greater; NaN if either is NaN."""
        return self._binary(x, y, "maximum", {"f": arith.maximumf, "i": arith.maxsi, "u": arith.maxui, "b": arith.ori})

    def minimum(self, x: Number, y: Number) -> Scalar:
        """The lesser; NaN if either is NaN."""
        return self._binary(x, y, "minimum", {"f": arith.minimumf, "i": arith.minsi, "u": arith.minui, "b": arith.andi})

    def fmax(self, x: Number, y: Number) -> Scalar:
        """The greater; a NaN loses against a number."""
        return self._binary(x, y, "fmax", {"f": arith.maxnumf, "i": arith.maxsi, "u": arith.maxui, "b": arith.ori})

    def fmin(self, x: Number, y: Number) -> Scalar:
        """The lesser; a NaN loses against a number."""
        return self._binary(x, y, "fmin", {"f": arith.minnumf, "i": arith.minsi, "u": arith.minui, "b": arith.andi})

    def neg(self, x: Scalar) -> Scalar:
        """Negation; flips the sign of a float zero."""
        if x.dtype.is_float:
            return Scalar(arith.negf(x.value), x.dtype)
        return self.sub(self.const(0, x.dtype), x)

    def abs(self, x: Scalar) -> Scalar:
        """Absolute value."""
        if x.dtype.is_float:
            return Scalar(math.absf(x.value), x.dtype)
        return self.select(self.cmp("lt", x, 0), self.neg(x), x) if x.dtype.kind == "i" else x

    # -- bits

    def and_(self, x: Number, y: Number) -> Scalar:
        """Bitwise and."""
        return self._binary(x, y, "and", dict.fromkeys("iub", arith.andi))

    def or_(self, x: Number, y: Number) -> Scalar:
        """Bitwise or."""
        return self._binary(x, y, "or", dict.fromkeys("iub", arith.ori))

    def xor(self, x: Number, y: Number) -> Scalar:
        """Bitwise exclusive or."""
        return self._binary(x, y, "xor", dict.fromkeys("iub", arith.xori))

    def not_(self, x: Scalar) -> Scalar:
        """Bitwise complement; logical for bool."""
        return self.xor(x, True if x.dtype.is_bool else -1)

    def shl(self, x: Number, y: Number) -> Scalar:
        """Shift left; the count must be below the width."""
        return self._binary(x, y, "shl", dict.fromkeys("iu", arith.shli))

    def shr(self, x: Number, y: Number) -> Scalar:
        """Shift right, arithmetic for signed types; the count must be below the width."""
        return self._binary(x, y, "shr", {"i": arith.shrsi, "u": arith.shrui})

    # -- comparisons

    def cmp(self, predicate: str, x: Number, y: Number) -> Scalar:
        """``eq ne lt le gt ge`` (and ``one ueq uno ord`` for floats) as bool."""
        a, b = self.pair(x, y)
        if a.dtype.is_float:
            return Scalar(arith.cmpf(_CMPF[predicate], a.value, b.value), BOOL)
        table = _CMPI_SIGNED if a.dtype.is_signed else _CMPI_UNSIGNED
        return Scalar(arith.cmpi(table[predicate], a.value, b.value), BOOL)

    def select(self, condition: Scalar, x: Number, y: Number) -> Scalar:
        """``condition ? x : y``."""
        a, b = self.pair(x, y)
        return Scalar(arith.select(condition.value, a.value, b.value), a.dtype)

    def is_nan(self, x: Scalar) -> Scalar:
        """True on NaN; false for all integers."""
        return self.cmp("uno", x, x) if x.dtype.is_float else self.const(False, BOOL)

    # -- functions

    def math(self, name: str, *args: Number) -> Scalar:
        """The ``math`` dialect's float op ``name`` (``exp``, ``atan2``, ``copysign``, ``fma``, ``roundeven`` ...)."""
        dtype = next(a.dtype for a in args if isinstance(a, Scalar))
        if not dtype.is_float:
            raise TypeError(f"math.{name} is not defined for {dtype.name}")
        values = [a.value if isinstance(a, Scalar) else self.const(a, dtype).value for a in args]
        return Scalar(getattr(math, name)(*values), dtype)

    def extract(self, table: ir.Value, indices: list[Scalar], dtype: DType) -> Scalar:
        """``table[indices]`` of a captured tensor of element type ``dtype``; indices are integers in range."""
        from torch_mlir.dialects import tensor

        index = ir.IndexType.get()
        casts = [
            (arith.index_cast if i.dtype.is_signed else arith.index_castui)(index, i.value)
            if i.value.type != index
            else i.value
            for i in indices
        ]
        return Scalar(tensor.extract(table, casts), dtype)


def _index_value(expr: Expr, symbol: Callable[[int], ir.Value]) -> ir.Value:
    """``expr``, over symbols only, as ops on index values; divisors are positive, as in affine expressions."""
    expr = expr.maybe_downcast()
    if isinstance(expr, ir.AffineConstantExpr):
        return arith.constant(ir.IndexType.get(), ir.IntegerAttr.get(ir.IndexType.get(), expr.value))
    if isinstance(expr, ir.AffineSymbolExpr):
        return symbol(expr.position)
    if not isinstance(expr, ir.AffineBinaryExpr):
        raise TypeError(f"{expr} is no expression of sizes")
    lhs, rhs = _index_value(expr.lhs, symbol), _index_value(expr.rhs, symbol)
    if isinstance(expr, ir.AffineAddExpr):
        return arith.addi(lhs, rhs)
    if isinstance(expr, ir.AffineMulExpr):
        return arith.muli(lhs, rhs)
    if isinstance(expr, ir.AffineCeilDivExpr):
        return arith.ceildivsi(lhs, rhs)
    quotient = arith.floordivsi(lhs, rhs)
    if isinstance(expr, ir.AffineFloorDivExpr):
        return quotient
    return arith.subi(lhs, arith.muli(quotient, rhs))
