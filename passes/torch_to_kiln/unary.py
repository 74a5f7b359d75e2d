# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Elementwise functions of one tensor."""

import math as pymath
from collections.abc import Callable

from torch_mlir import ir

from kiln.dialects.dtypes import BOOL, DType

from .context import LoweringContext
from .registry import lowers
from .scalars import Scalar, ScalarBuilder

# Functions that are one op of the math dialect; integers are computed as the result's float type.
_MATH = """
exp exp2 expm1 log log2 log10 log1p sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh erf erfc sqrt
""".split()

_FINITE_MAX = {
    "float16": 65504.0,
    "bfloat16": 3.3895313892515355e38,
    "float32": 3.4028234663852886e38,
    "float64": 1.7976931348623157e308,
}


def _unary(fn: Callable[[ScalarBuilder, Scalar], Scalar]) -> Callable[[LoweringContext], ir.Value]:
    """A rule that applies ``fn`` in the result's type."""
    return lambda cx: cx.elementwise([cx.tensor(0)], fn)


def _math(name: str) -> Callable[[LoweringContext], ir.Value]:
    return _unary(lambda b, x: b.math(name, x))


for _name in _MATH:
    lowers(f"torch.aten.{_name}")(_math(_name))

lowers("torch.aten.neg")(_unary(lambda b, x: b.neg(x)))
lowers("torch.aten.abs")(_unary(lambda b, x: x if x.dtype.is_bool else b.abs(x)))
lowers("torch.aten.square")(_unary(lambda b, x: b.mul(x, x)))
lowers("torch.aten.reciprocal")(_unary(lambda b, x: b.div(1, x)))
lowers("torch.aten.rsqrt")(_unary(lambda b, x: b.div(1, b.math("sqrt", x))))
lowers("torch.aten.deg2rad")(_unary(lambda b, x: b.mul(x, pymath.pi / 180)))
lowers("torch.aten.rad2deg")(_unary(lambda b, x: b.mul(x, 180 / pymath.pi)))
lowers("torch.aten.bitwise_not")(_unary(lambda b, x: b.not_(x)))


def _rounding(name: str) -> Callable[[LoweringContext], ir.Value]:
    """A rounding function; integers are as they are."""

    def rule(cx: LoweringContext) -> ir.Value:
        x = cx.tensor(0)
        return cx.elementwise([x], lambda b, v: b.math(name, v)) if cx.dtype(x).is_float else x

    return rule


for _torch, _mlir in {"floor": "floor", "ceil": "ceil", "trunc": "trunc", "fix": "trunc", "round": "roundeven"}.items():
    lowers(f"torch.aten.{_torch}")(_rounding(_mlir))


@lowers("torch.aten.round.decimals")
def round_decimals(cx: LoweringContext) -> ir.Value:
    """``round(x, decimals=n)``: scaled by a power of ten, half to even."""
    x, decimals = cx.tensor(0), cx.const_int(1)
    if not cx.dtype(x).is_float:
        cx.unsupported("round with decimals of an integer tensor")
    power = 10.0 ** abs(decimals)

    def body(b: ScalarBuilder, v: Scalar) -> Scalar:
        if decimals < 0:
            return b.mul(b.math("roundeven", b.div(v, power)), power)
        return b.div(b.math("roundeven", b.mul(v, power)), power)

    return cx.elementwise([x], body)


@lowers("torch.aten.frac")
def frac(cx: LoweringContext) -> ir.Value:
    """``x - trunc(x)``."""
    return cx.elementwise([cx.tensor(0)], lambda b, x: b.sub(x, b.math("trunc", x)))


@lowers("torch.aten.sign", "torch.aten.sgn")
def sign(cx: LoweringContext) -> ir.Value:
    """-1, 0 or 1; NaN gives 0, as in PyTorch."""

    def body(b: ScalarBuilder, x: Scalar) -> Scalar:
        if x.dtype.is_bool:
            return x
        positive = b.cast(b.cmp("gt", x, 0), x.dtype)
        return b.sub(positive, b.cast(b.cmp("lt", x, 0), x.dtype)) if x.dtype.is_signed else positive

    return cx.elementwise([cx.tensor(0)], body)


@lowers("torch.aten.sigmoid")
def sigmoid(cx: LoweringContext) -> ir.Value:
    """``1 / (1 + exp(-x))``."""
    return cx.elementwise([cx.tensor(0)], sigmoid_of)


def sigmoid_of(b: ScalarBuilder, x: Scalar) -> Scalar:
    """The logistic function of a scalar."""
    return b.div(1, b.add(b.math("exp", b.neg(x)), 1))


@lowers("torch.aten.logit")
def logit(cx: LoweringContext) -> ir.Value:
    """``log(x / (1 - x))``, ``x`` clamped to ``[eps, 1 - eps]`` if eps is given."""
    eps = cx.const(1, None)

    def body(b: ScalarBuilder, x: Scalar) -> Scalar:
        if eps is not None:
            x = b.select(b.cmp("lt", x, eps), eps, x)
            x = b.select(b.cmp("gt", x, 1 - eps), 1 - eps, x)
        return b.math("log", b.div(x, b.sub(1, x)))

    return cx.elementwise([cx.tensor(0)], body)


@lowers("torch.aten.angle")
def angle(cx: LoweringContext) -> ir.Value:
    """0 for non-negative numbers, pi for negative ones, NaN for NaN."""

    def body(b: ScalarBuilder, x: Scalar) -> Scalar:
        real = b.select(b.cmp("lt", x, 0), b.const(pymath.pi, x.dtype), 0)
        return b.select(b.is_nan(x), x, real)

    return cx.elementwise([cx.tensor(0)], body)


def _test(float_test: Callable[[ScalarBuilder, Scalar], Scalar], others: bool) -> Callable[[LoweringContext], ir.Value]:
    """A rule for a bool test of floats that is ``others`` for every integer."""

    def rule(cx: LoweringContext) -> ir.Value:
        x = cx.tensor(0)
        if not cx.dtype(x).is_float:
            return cx.full(others, cx.result_shape(), BOOL)
        return cx.pointwise([x], float_test, BOOL)

    return rule


_INF = float("inf")
lowers("torch.aten.isnan")(_test(lambda b, x: b.is_nan(x), False))
lowers("torch.aten.isinf")(_test(lambda b, x: b.cmp("eq", b.abs(x), _INF), False))
lowers("torch.aten.isfinite")(_test(lambda b, x: b.cmp("lt", b.abs(x), _INF), True))
lowers("torch.aten.isposinf")(_test(lambda b, x: b.cmp("eq", x, _INF), False))
lowers("torch.aten.isneginf")(_test(lambda b, x: b.cmp("eq", x, -_INF), False))


@lowers("torch.aten.signbit")
def signbit(cx: LoweringContext) -> ir.Value:
    """Whether the sign bit is set, also of -0.0."""

    def body(b: ScalarBuilder, x: Scalar) -> Scalar:
        if x.dtype.is_float:
            return b.cmp("lt", b.math("copysign", b.const(1, x.dtype), x), 0)
        return b.cmp("lt", x, 0) if x.dtype.kind == "i" else b.const(False, BOOL)

    return cx.pointwise([cx.tensor(0)], body, BOOL)


@lowers("torch.aten.logical_not")
def logical_not(cx: LoweringContext) -> ir.Value:
    """``x == 0``."""
    return cx.pointwise([cx.tensor(0)], lambda b, x: b.not_(b.cast(x, BOOL)), cx.result_dtype())


@lowers("torch.aten.nan_to_num")
def nan_to_num(cx: LoweringContext) -> ir.Value:
    """NaN and infinities replaced; by default with 0 and the greatest finite numbers."""
    x = cx.tensor(0)
    dtype: DType = cx.dtype(x)
    if not dtype.is_float:
        return x
    limit = _FINITE_MAX[dtype.name]
    nan, high, low = cx.const(1, 0.0), cx.const(2, limit), cx.const(3, -limit)

    def body(b: ScalarBuilder, v: Scalar) -> Scalar:
        result = b.select(b.cmp("eq", v, _INF), high, v)
        result = b.select(b.cmp("eq", v, -_INF), low, result)
        return b.select(b.is_nan(v), nan, result)

    return cx.elementwise([x], body)
