# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Division with rounding, remainders and powers."""

from collections.abc import Callable

from torch_mlir import ir

from .context import LoweringContext
from .emitter import Argument
from .registry import lowers
from .scalars import Scalar, ScalarBuilder

Integers = Callable[[ScalarBuilder, Scalar, int], Scalar]
Floats = Callable[[ScalarBuilder, Scalar, Scalar], Scalar]


def _divide(cx: LoweringContext, of_ints: Integers, of_floats: Floats) -> ir.Value:
    """Apply one of the two functions, by the result's type, to the first two arguments."""
    x, y = cx.argument(0), cx.argument(1)
    if cx.result_dtype().is_float:
        return cx.elementwise([x, y], of_floats, round_numbers=False)
    # An integer divided by zero raises in PyTorch and traps in the processor: only constants are known to be safe.
    if not isinstance(y, int) or y == 0:
        cx.unsupported("an integer division by values that may be zero, which PyTorch reports as an error")
    divisor = int(y)
    return cx.elementwise([x], lambda b, v: of_ints(b, v, divisor))


def floor_floats(b: ScalarBuilder, x: Scalar, y: Scalar) -> Scalar:
    """Python's ``//`` on floats, exact where ``floor(x / y)`` is not: ``div_floor_floating`` of PyTorch."""
    remainder = b.rem(x, y)
    quotient = b.div(b.sub(x, remainder), y)
    borrow = b.and_(b.cmp("ne", remainder, 0), b.xor(b.cmp("lt", y, 0), b.cmp("lt", remainder, 0)))
    quotient = b.select(borrow, b.sub(quotient, 1), quotient)
    whole = b.math("floor", quotient)
    whole = b.select(b.cmp("gt", b.sub(quotient, whole), 0.5), b.add(whole, 1), whole)
    plain = b.div(x, y)
    result = b.select(b.cmp("eq", quotient, 0), b.math("copysign", b.const(0, x.dtype), plain), whole)
    return b.select(b.cmp("eq", y, 0), plain, result)


def floor_ints(b: ScalarBuilder, x: Scalar, y: int) -> Scalar:
    """Python's ``//`` by a constant; -1 negates, since the least integer divided by it traps."""
    if y == 1 or y == -1:
        return x if y == 1 else b.neg(x)
    quotient = b.div(x, y)
    if not x.dtype.is_signed:
        return quotient
    remainder = b.sub(x, b.mul(quotient, y))
    borrow = b.cmp("lt" if y > 0 else "gt", remainder, 0)
    return b.sub(quotient, b.cast(borrow, x.dtype))


def trunc_ints(b: ScalarBuilder, x: Scalar, y: int) -> Scalar:
    """C's ``/`` by a constant."""
    if y == 1 or y == -1:
        return x if y == 1 else b.neg(x)
    return b.div(x, y)


def remainder_floats(b: ScalarBuilder, x: Scalar, y: Scalar) -> Scalar:
    """Python's ``%``: the sign of the divisor."""
    remainder = b.rem(x, y)
    other_side = b.xor(b.cmp("lt", y, 0), b.cmp("lt", remainder, 0))
    return b.select(b.and_(b.cmp("ne", remainder, 0), other_side), b.add(remainder, y), remainder)


def remainder_ints(b: ScalarBuilder, x: Scalar, y: int) -> Scalar:
    """Python's ``%`` by a constant."""
    if y in (1, -1):
        return b.const(0, x.dtype)
    remainder = b.rem(x, y)
    if not x.dtype.is_signed:
        return remainder
    return b.select(b.cmp("lt" if y > 0 else "gt", remainder, 0), b.add(remainder, y), remainder)


def fmod_ints(b: ScalarBuilder, x: Scalar, y: int) -> Scalar:
    """C's ``%`` by a constant."""
    return b.const(0, x.dtype) if y in (1, -1) else b.rem(x, y)


@lowers("torch.aten.div.Tensor_mode", "torch.aten.div.Scalar_mode")
def div_mode(cx: LoweringContext) -> ir.Value:
    """Division with rounding mode None, ``floor`` or ``trunc``."""
    mode = cx.const(2, None)
    if mode is None:
        return cx.elementwise([cx.argument(0), cx.argument(1)], lambda b, x, y: b.div(x, y), round_numbers=False)
    if mode == "floor":
        return _divide(cx, floor_ints, floor_floats)
    return _divide(cx, trunc_ints, lambda b, x, y: b.math("trunc", b.div(x, y)))


@lowers("torch.aten.floor_divide", "torch.aten.floor_divide.Scalar")
def floor_divide(cx: LoweringContext) -> ir.Value:
    """Python's ``//``."""
    return _divide(cx, floor_ints, floor_floats)


@lowers("torch.aten.remainder.Tensor", "torch.aten.remainder.Scalar", "torch.aten.remainder.Scalar_Tensor")
def remainder(cx: LoweringContext) -> ir.Value:
    """Python's ``%``."""
    return _divide(cx, remainder_ints, remainder_floats)


@lowers("torch.aten.fmod.Tensor", "torch.aten.fmod.Scalar")
def fmod(cx: LoweringContext) -> ir.Value:
    """C's ``fmod``: the sign of the dividend."""
    return _divide(cx, fmod_ints, lambda b, x, y: b.rem(x, y))


def _power_of_constant_exponent(b: ScalarBuilder, x: Scalar, exponent: int | float) -> Scalar:
    """The forms in which PyTorch computes the usual exponents, else ``powf``."""
    if exponent == 0:
        return b.const(1, x.dtype)
    if exponent == 1:
        return x
    if exponent == 2:
        return b.mul(x, x)
    if exponent == 3:
        return b.mul(b.mul(x, x), x)
    if exponent == 0.5:
        return b.math("sqrt", x)
    if exponent == -0.5:
        return b.div(1, b.math("sqrt", x))
    if exponent == -1:
        return b.div(1, x)
    if exponent == -2:
        return b.div(1, b.mul(x, x))
    return b.math("powf", x, exponent)


def _power_of_ints(b: ScalarBuilder, x: Scalar, exponent: int) -> Scalar:
    """``x ** exponent`` by squaring, wrapping."""
    if x.dtype.is_bool:
        return b.const(True, x.dtype) if exponent == 0 else x
    result: Scalar | None = None
    while exponent:
        if exponent & 1:
            result = x if result is None else b.mul(result, x)
        exponent >>= 1
        if exponent:
            x = b.mul(x, x)
    return b.const(1, x.dtype) if result is None else result


@lowers("torch.aten.pow.Tensor_Scalar", "torch.aten.float_power.Tensor_Scalar")
def pow_tensor_scalar(cx: LoweringContext) -> ir.Value:
    """``x ** number``."""
    x, exponent = cx.tensor(0), cx.number(1)
    if cx.result_dtype().is_float:
        return cx.elementwise([x], lambda b, v: _power_of_constant_exponent(b, v, exponent))
    if not isinstance(exponent, int) or exponent < 0:
        cx.unsupported("an integer to a negative power")
    return cx.elementwise([x], lambda b, v: _power_of_ints(b, v, int(exponent)))


def _pow(cx: LoweringContext, base: Argument, exponent: Argument) -> ir.Value:
    if not cx.result_dtype().is_float:
        cx.unsupported("an integer power with an exponent known only at run time")
    return cx.elementwise([base, exponent], lambda b, x, y: b.math("powf", x, y))


@lowers("torch.aten.pow.Tensor_Tensor", "torch.aten.float_power.Tensor_Tensor")
def pow_tensor_tensor(cx: LoweringContext) -> ir.Value:
    """``x ** y``."""
    return _pow(cx, cx.tensor(0), cx.tensor(1))


@lowers("torch.aten.pow.Scalar", "torch.aten.float_power.Scalar")
def pow_scalar(cx: LoweringContext) -> ir.Value:
    """``number ** y``; ``exp2`` for 2, as PyTorch does."""
    base, exponent = cx.number(0), cx.tensor(1)
    if base == 1:
        return cx.full(1, cx.result_shape(), cx.result_dtype())
    if base == 2 and cx.result_dtype().is_float:
        return cx.elementwise([exponent], lambda b, y: b.math("exp2", y))
    return _pow(cx, base, exponent)
