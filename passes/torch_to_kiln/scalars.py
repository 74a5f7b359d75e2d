# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Scalar arithmetic in the body of a ``linalg.generic``: ops chosen by PyTorch element type."""

from collections.abc import Callable
from dataclasses import dataclass

from torch_mlir import ir
from torch_mlir.dialects import arith, linalg, math, tensor

from kiln.dialects import scalar
from kiln.dialects.dtypes import BOOL, F64, I64, DType

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


class ScalarBuilder:
    """Builds scalar ops at the current insertion point.

    Binary methods take two scalars of one element type, or one scalar and a Python number, which becomes a constant
    of the scalar's type. Comparisons follow IEEE and PyTorch: every ordered one is false on NaN, ``ne`` is true.
    """

    def const(self, value: int | float | bool, dtype: DType) -> Scalar:
        """A constant; integers wrap to the type's width as PyTorch's casts do."""
        return Scalar(scalar.constant(dtype.type, value), dtype)

    def index(self, dim: int) -> Scalar:
        """The loop index of ``dim`` as int64."""
        return Scalar(arith.index_cast(I64.type, linalg.IndexOp(dim).result), I64)

    def size(self, expr: Expr, symbol: Callable[[int], ir.Value]) -> Scalar:
        """An expression of sizes as int64; the body captures the index values of its symbols."""
        return Scalar(arith.index_cast(I64.type, scalar.index_value(expr, [], symbol)), I64)

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
        return x if x.dtype == to else Scalar(scalar.convert(x.value, x.dtype, to, asked), to)

    # -- arithmetic

    def _binary(self, name: str, x: Number, y: Number) -> Scalar:
        a, b = self.pair(x, y)
        return Scalar(scalar.binary(name, a.value, b.value, a.dtype.kind), a.dtype)

    def add(self, x: Number, y: Number) -> Scalar:
        """Sum; logical or for bool."""
        return self._binary("add", x, y)

    def sub(self, x: Number, y: Number) -> Scalar:
        """Difference."""
        return self._binary("sub", x, y)

    def distance(self, x: Scalar, mean: Scalar) -> Scalar:
        """Difference of a float and a mean of such floats, rounded by itself."""
        return Scalar(scalar.distance(x.value, mean.value), x.dtype)

    def mul(self, x: Number, y: Number) -> Scalar:
        """Product; logical and for bool."""
        return self._binary("mul", x, y)

    def div(self, x: Number, y: Number) -> Scalar:
        """Quotient, truncated for integers (whose divisor must not be zero)."""
        return self._binary("div", x, y)

    def rem(self, x: Number, y: Number) -> Scalar:
        """C's remainder, with the sign of the dividend (an integer divisor must not be zero)."""
        return self._binary("rem", x, y)

    def maximum(self, x: Number, y: Number) -> Scalar:
        """The greater; NaN if either is NaN."""
        return self._binary("maximum", x, y)

    def minimum(self, x: Number, y: Number) -> Scalar:
        """The lesser; NaN if either is NaN."""
        return self._binary("minimum", x, y)

    def fmax(self, x: Number, y: Number) -> Scalar:
        """The greater; a NaN loses against a number."""
        return self._binary("fmax", x, y)

    def fmin(self, x: Number, y: Number) -> Scalar:
        """The lesser; a NaN loses against a number."""
        return self._binary("fmin", x, y)

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
        return self._binary("and", x, y)

    def or_(self, x: Number, y: Number) -> Scalar:
        """Bitwise or."""
        return self._binary("or", x, y)

    def xor(self, x: Number, y: Number) -> Scalar:
        """Bitwise exclusive or."""
        return self._binary("xor", x, y)

    def not_(self, x: Scalar) -> Scalar:
        """Bitwise complement; logical for bool."""
        return self.xor(x, True if x.dtype.is_bool else -1)

    def shl(self, x: Number, y: Number) -> Scalar:
        """Shift left; the count must be below the width."""
        return self._binary("shl", x, y)

    def shr(self, x: Number, y: Number) -> Scalar:
        """Shift right, arithmetic for signed types; the count must be below the width."""
        return self._binary("shr", x, y)

    # -- comparisons

    def cmp(self, predicate: str, x: Number, y: Number) -> Scalar:
        """``eq ne lt le gt ge`` (and ``one ueq uno ord`` for floats) as bool."""
        a, b = self.pair(x, y)
        return Scalar(scalar.compare(predicate, a.value, b.value, a.dtype.kind), BOOL)

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
        index = ir.IndexType.get()
        casts = [
            (arith.index_cast if i.dtype.is_signed else arith.index_castui)(index, i.value)
            if i.value.type != index
            else i.value
            for i in indices
        ]
        return Scalar(tensor.extract(table, casts), dtype)
