# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Arithmetic of two tensors, or a tensor and a number."""

from collections.abc import Callable

from torch_mlir import ir

from kiln.dialects.rounding import EXACT

from .context import LoweringContext
from .emitter import Argument
from .registry import lowers
from .scalars import Scalar, ScalarBuilder


def _binary(
    fn: Callable[[ScalarBuilder, Scalar, Scalar], Scalar], *, round_numbers: bool = True
) -> Callable[[LoweringContext], ir.Value]:
    """A rule that applies ``fn`` to the first two arguments in the result's type."""
    return lambda cx: cx.elementwise([cx.argument(0), cx.argument(1)], fn, round_numbers=round_numbers)


lowers("torch.aten.mul.Tensor", "torch.aten.mul.Scalar")(_binary(lambda b, x, y: b.mul(x, y), round_numbers=False))
lowers("torch.aten.div.Tensor", "torch.aten.div.Scalar", "torch.aten.true_divide.Tensor")(
    _binary(lambda b, x, y: b.div(x, y), round_numbers=False)
)
lowers("torch.aten.maximum")(_binary(lambda b, x, y: b.maximum(x, y)))
lowers("torch.aten.minimum")(_binary(lambda b, x, y: b.minimum(x, y)))
lowers("torch.aten.max.other")(_binary(lambda b, x, y: b.maximum(x, y)))
lowers("torch.aten.min.other")(_binary(lambda b, x, y: b.minimum(x, y)))
lowers("torch.aten.fmax")(_binary(lambda b, x, y: b.fmax(x, y)))
lowers("torch.aten.fmin")(_binary(lambda b, x, y: b.fmin(x, y)))
lowers("torch.aten.atan2")(_binary(lambda b, x, y: b.math("atan2", x, y)))
lowers("torch.aten.copysign.Tensor", "torch.aten.copysign.Scalar")(_binary(lambda b, x, y: b.math("copysign", x, y)))


def _scaled(cx: LoweringContext, i: int) -> tuple[list[Argument], bool]:
    """The argument ``alpha`` at position ``i`` as a list: empty if it is 1."""
    if cx.is_none(i):
        return [], False
    alpha = cx.argument(i)
    return ([], False) if isinstance(alpha, int | float) and alpha == 1 else ([alpha], True)


def _times(b: ScalarBuilder, x: Scalar, alpha: tuple[Scalar, ...]) -> Scalar:
    return b.mul(x, alpha[0]) if alpha else x


def _add(b: ScalarBuilder, x: Scalar, y: Scalar, *alpha: Scalar) -> Scalar:
    return b.add(x, _times(b, y, alpha))


def _sub(b: ScalarBuilder, x: Scalar, y: Scalar, *alpha: Scalar) -> Scalar:
    return b.sub(x, _times(b, y, alpha))


def _reversed_sub(b: ScalarBuilder, x: Scalar, y: Scalar, *alpha: Scalar) -> Scalar:
    return b.sub(y, _times(b, x, alpha))


@lowers("torch.aten.add.Tensor", "torch.aten.add.Scalar")
def add(cx: LoweringContext) -> ir.Value:
    """``x + alpha * y``; logical or for bool."""
    alpha, _ = _scaled(cx, 2)
    return cx.elementwise(
        [cx.argument(0), cx.argument(1), *alpha],
        _add,
        round_numbers=False,
    )


@lowers("torch.aten.sub.Tensor", "torch.aten.sub.Scalar")
def sub(cx: LoweringContext) -> ir.Value:
    """``x - alpha * y``; rounded by itself if one of them is a mean of the other (``kiln.exact``)."""
    alpha, _ = _scaled(cx, 2)
    if EXACT in cx.op.attributes and not alpha:
        return cx.elementwise([cx.argument(0), cx.argument(1)], lambda b, x, mean: b.distance(x, mean))
    return cx.elementwise(
        [cx.argument(0), cx.argument(1), *alpha],
        _sub,
        round_numbers=False,
    )


@lowers("torch.aten.rsub.Tensor", "torch.aten.rsub.Scalar")
def rsub(cx: LoweringContext) -> ir.Value:
    """``y - alpha * x``."""
    alpha, _ = _scaled(cx, 2)
    return cx.elementwise(
        [cx.argument(0), cx.argument(1), *alpha],
        _reversed_sub,
        round_numbers=False,
    )


@lowers("torch.aten.ldexp.Tensor")
def ldexp(cx: LoweringContext) -> ir.Value:
    """``x * 2 ** y``."""
    return cx.elementwise([cx.tensor(0), cx.tensor(1)], lambda b, x, y: b.mul(x, b.math("exp2", y)))


@lowers("torch.aten.hypot")
def hypot(cx: LoweringContext) -> ir.Value:
    """``sqrt(x*x + y*y)`` without overflow: infinite if either is, even beside a NaN."""

    def body(b: ScalarBuilder, x: Scalar, y: Scalar) -> Scalar:
        x, y = b.abs(x), b.abs(y)
        high, low = b.maximum(x, y), b.minimum(x, y)
        ratio = b.div(low, high)
        length = b.mul(high, b.math("sqrt", b.add(b.mul(ratio, ratio), 1)))
        length = b.select(b.cmp("eq", high, 0), 0, length)
        infinite = b.or_(b.cmp("eq", x, float("inf")), b.cmp("eq", y, float("inf")))
        return b.select(infinite, float("inf"), length)

    return cx.elementwise([cx.argument(0), cx.argument(1)], body)


def _xlog(function: str) -> Callable[[LoweringContext], ir.Value]:
    """``x * f(y)``: NaN where y is, else 0 where x is."""

    def body(b: ScalarBuilder, x: Scalar, y: Scalar) -> Scalar:
        product = b.select(b.cmp("eq", x, 0), 0, b.mul(x, b.math(function, y)))
        return b.select(b.is_nan(y), y, product)

    return lambda cx: cx.elementwise([cx.argument(0), cx.argument(1)], body)


for _suffix in ("Tensor", "Scalar_Self", "Scalar_Other"):
    lowers(f"torch.aten.xlogy.{_suffix}")(_xlog("log"))
lowers(
    "torch.aten.special_xlog1py", "torch.aten.special_xlog1py.self_scalar", "torch.aten.special_xlog1py.other_scalar"
)(_xlog("log1p"))


@lowers("torch.aten.logaddexp")
def logaddexp(cx: LoweringContext) -> ir.Value:
    """``log(exp(x) + exp(y))``."""

    def body(b: ScalarBuilder, x: Scalar, y: Scalar) -> Scalar:
        decay = b.math("exp", b.neg(b.abs(b.sub(x, y))))
        result = b.add(b.maximum(x, y), b.math("log1p", decay))
        same = b.and_(b.cmp("eq", x, y), b.cmp("eq", b.abs(x), float("inf")))
        return b.select(same, x, result)

    return cx.elementwise([cx.argument(0), cx.argument(1)], body)


@lowers("torch.aten.logaddexp2")
def logaddexp2(cx: LoweringContext) -> ir.Value:
    """``log2(2**x + 2**y)``."""

    def body(b: ScalarBuilder, x: Scalar, y: Scalar) -> Scalar:
        decay = b.math("exp2", b.neg(b.abs(b.sub(x, y))))
        result = b.add(b.maximum(x, y), b.mul(b.math("log1p", decay), 1.4426950408889634))
        same = b.and_(b.cmp("eq", x, y), b.cmp("eq", b.abs(x), float("inf")))
        return b.select(same, x, result)

    return cx.elementwise([cx.argument(0), cx.argument(1)], body)


@lowers("torch.aten.heaviside")
def heaviside(cx: LoweringContext) -> ir.Value:
    """0 below 0 and for NaN, ``values`` at 0, 1 above."""

    def body(b: ScalarBuilder, x: Scalar, y: Scalar) -> Scalar:
        return b.select(b.cmp("eq", x, 0), y, b.cast(b.cmp("gt", x, 0), x.dtype))

    return cx.elementwise([cx.tensor(0), cx.tensor(1)], body)


@lowers("torch.aten.polar", "torch.aten.complex")
def complex_result(cx: LoweringContext) -> ir.Value:
    """Complex numbers are left to ATen."""
    cx.unsupported("Kiln does not compute complex numbers")
