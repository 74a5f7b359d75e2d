# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Activation functions."""

import math as pymath

from torch_mlir import ir

from .context import LoweringContext
from .registry import lowers
from .scalars import Scalar, ScalarBuilder
from .sizes import as_expr, dim
from .unary import sigmoid_of

SELU_ALPHA = 1.6732632423543772848170429916717
SELU_SCALE = 1.0507009873554804934193349852946
GELU_BETA = pymath.sqrt(2.0 / pymath.pi)
GELU_KAPPA = 0.044715


@lowers("torch.aten.relu")
def relu(cx: LoweringContext) -> ir.Value:
    """``max(x, 0)``, NaN and -0.0 kept: a comparison and a select, cheaper than a NaN-propagating maximum."""
    return cx.elementwise([cx.tensor(0)], lambda b, x: b.select(b.cmp("lt", x, 0), 0, x))


@lowers("torch.aten.relu6")
def relu6(cx: LoweringContext) -> ir.Value:
    """``min(max(x, 0), 6)``."""
    return cx.elementwise([cx.tensor(0)], lambda b, x: clamp_of(b, x, 0, 6))


def clamp_of(b: ScalarBuilder, x: Scalar, low: float | None, high: float | None) -> Scalar:
    """``x`` within constant bounds (the upper one wins); NaN stays NaN."""
    if low is not None:
        x = b.select(b.cmp("lt", x, low), low, x)
    if high is not None:
        x = b.select(b.cmp("gt", x, high), high, x)
    return x


@lowers("torch.aten.hardtanh")
def hardtanh(cx: LoweringContext) -> ir.Value:
    """``clamp(x, min_val, max_val)``."""
    low, high = cx.number(1), cx.number(2)
    return cx.elementwise([cx.tensor(0), low, high], _clamp3)


def _clamp3(b: ScalarBuilder, x: Scalar, low: Scalar, high: Scalar) -> Scalar:
    x = b.select(b.cmp("lt", x, low), low, x)
    return b.select(b.cmp("gt", x, high), high, x)


@lowers("torch.aten.leaky_relu")
def leaky_relu(cx: LoweringContext) -> ir.Value:
    """``x > 0 ? x : x * negative_slope``."""
    return cx.elementwise(
        [cx.tensor(0), cx.number(1)],
        lambda b, x, slope: b.select(b.cmp("gt", x, 0), x, b.mul(x, slope)),
        round_numbers=False,
    )


@lowers("torch.aten._prelu_kernel")
def prelu_kernel(cx: LoweringContext) -> ir.Value:
    """``x > 0 ? x : weight * x``, weight of a shape that broadcasts."""
    return cx.elementwise([cx.tensor(0), cx.tensor(1)], lambda b, x, w: b.select(b.cmp("gt", x, 0), x, b.mul(w, x)))


@lowers("torch.aten.prelu")
def prelu(cx: LoweringContext) -> ir.Value:
    """As above, with one weight per channel (dimension 1)."""
    x, weight = cx.tensor(0), cx.tensor(1)
    rank = cx.rank(x)
    if cx.rank(weight) == 1 and rank > 1 and not cx.is_one(cx.shape(weight)[0]):
        shape = [cx.shape(weight)[0] if k == 1 else as_expr(1) for k in range(rank)]
        weight = cx.view(weight, [dim(1)], shape)
    return cx.elementwise([x, weight], lambda b, v, w: b.select(b.cmp("gt", v, 0), v, b.mul(w, v)))


def _elu(b: ScalarBuilder, x: Scalar, alpha: float, scale: float, input_scale: float) -> Scalar:
    negative = b.mul(b.math("expm1", b.mul(x, input_scale) if input_scale != 1 else x), alpha * scale)
    return b.select(b.cmp("le", x, 0), negative, b.mul(x, scale) if scale != 1 else x)


@lowers("torch.aten.elu")
def elu(cx: LoweringContext) -> ir.Value:
    """``x > 0 ? scale * x : alpha * scale * expm1(input_scale * x)``."""
    alpha, scale, input_scale = (cx.const_float(i, 1.0) for i in (1, 2, 3))
    return cx.elementwise([cx.tensor(0)], lambda b, x: _elu(b, x, alpha, scale, input_scale))


@lowers("torch.aten.celu")
def celu(cx: LoweringContext) -> ir.Value:
    """``elu`` with input scale ``1 / alpha``."""
    alpha = cx.const_float(1, 1.0)
    return cx.elementwise([cx.tensor(0)], lambda b, x: _elu(b, x, alpha, 1.0, 1.0 / alpha))


@lowers("torch.aten.selu")
def selu(cx: LoweringContext) -> ir.Value:
    """``elu`` with the self-normalising constants (Klambauer et al. 2017)."""
    return cx.elementwise([cx.tensor(0)], lambda b, x: _elu(b, x, SELU_ALPHA, SELU_SCALE, 1.0))


@lowers("torch.aten.gelu")
def gelu(cx: LoweringContext) -> ir.Value:
    """``x * Phi(x)`` by erf, or its tanh approximation (Hendrycks and Gimpel 2016)."""
    approximate = cx.const_str(1, "none")

    def body(b: ScalarBuilder, x: Scalar) -> Scalar:
        if approximate == "tanh":
            cube = b.mul(b.mul(x, x), x)
            factor = b.math("tanh", b.mul(b.add(x, b.mul(cube, GELU_KAPPA)), GELU_BETA))
        else:
            factor = b.math("erf", b.mul(x, pymath.sqrt(0.5)))
        return b.mul(b.mul(x, 0.5), b.add(factor, 1))

    return cx.elementwise([cx.tensor(0)], body)


@lowers("torch.aten.silu")
def silu(cx: LoweringContext) -> ir.Value:
    """``x / (1 + exp(-x))``."""
    return cx.elementwise([cx.tensor(0)], lambda b, x: b.div(x, b.add(b.math("exp", b.neg(x)), 1)))


@lowers("torch.aten.mish")
def mish(cx: LoweringContext) -> ir.Value:
    """``x * tanh(log1p(exp(x)))``."""
    return cx.elementwise([cx.tensor(0)], lambda b, x: b.mul(x, b.math("tanh", b.math("log1p", b.math("exp", x)))))


@lowers("torch.aten.softplus")
def softplus(cx: LoweringContext) -> ir.Value:
    """``log1p(exp(beta x)) / beta``; ``x`` itself where ``beta x`` exceeds the threshold."""
    beta, threshold = cx.const_float(1, 1.0), cx.const_float(2, 20.0)

    def body(b: ScalarBuilder, x: Scalar) -> Scalar:
        scaled = b.mul(x, beta) if beta != 1 else x
        soft = b.math("log1p", b.math("exp", scaled))
        return b.select(b.cmp("gt", scaled, threshold), x, b.div(soft, beta) if beta != 1 else soft)

    return cx.elementwise([cx.tensor(0)], body)


@lowers("torch.aten.hardswish")
def hardswish(cx: LoweringContext) -> ir.Value:
    """``x * clamp(x + 3, 0, 6) / 6``."""
    return cx.elementwise([cx.tensor(0)], lambda b, x: b.div(b.mul(x, clamp_of(b, b.add(x, 3), 0, 6)), 6))


@lowers("torch.aten.hardsigmoid")
def hardsigmoid(cx: LoweringContext) -> ir.Value:
    """``clamp(x + 3, 0, 6) / 6``."""
    return cx.elementwise([cx.tensor(0)], lambda b, x: b.div(clamp_of(b, b.add(x, 3), 0, 6), 6))


@lowers("torch.aten.hardshrink")
def hardshrink(cx: LoweringContext) -> ir.Value:
    """0 within ``[-lambd, lambd]``, else ``x``."""

    def body(b: ScalarBuilder, x: Scalar, bound: Scalar) -> Scalar:
        inside = b.and_(b.cmp("ge", x, b.neg(bound)), b.cmp("le", x, bound))
        return b.select(inside, 0, x)

    return cx.elementwise([cx.tensor(0), cx.number(1)], body)


@lowers("torch.aten.softshrink")
def softshrink(cx: LoweringContext) -> ir.Value:
    """``x`` moved towards 0 by ``lambd``, 0 within; NaN kept."""

    def body(b: ScalarBuilder, x: Scalar, bound: Scalar) -> Scalar:
        low = b.select(b.cmp("lt", x, b.neg(bound)), b.add(x, bound), b.mul(x, 0))
        return b.select(b.cmp("gt", x, bound), b.sub(x, bound), low)

    return cx.elementwise([cx.tensor(0), cx.number(1)], body)


@lowers("torch.aten.threshold")
def threshold(cx: LoweringContext) -> ir.Value:
    """``x <= threshold ? value : x``."""
    return cx.elementwise(
        [cx.tensor(0), cx.number(1), cx.number(2)], lambda b, x, t, v: b.select(b.cmp("le", x, t), v, x)
    )


@lowers("torch.aten.log_sigmoid_forward")
def log_sigmoid_forward(cx: LoweringContext) -> list[ir.Value | None]:
    """``min(x, 0) - log1p(exp(-|x|))``, and the buffer ``exp(-|x|)`` that the backward wants."""
    x = cx.tensor(0)

    def decay(b: ScalarBuilder, v: Scalar) -> Scalar:
        return b.math("exp", b.neg(b.abs(v)))

    def body(b: ScalarBuilder, v: Scalar) -> Scalar:
        return b.sub(b.select(b.cmp("gt", v, 0), 0, v), b.math("log1p", decay(b, v)))

    return [cx.elementwise([x], body), cx.elementwise([x], decay) if cx.result_used(1) else None]


@lowers("torch.aten.log_sigmoid")
def log_sigmoid(cx: LoweringContext) -> ir.Value:
    """The first result of ``log_sigmoid_forward``."""
    value = log_sigmoid_forward(cx)[0]
    assert value is not None
    return value


@lowers("torch.aten.glu")
def glu(cx: LoweringContext) -> ir.Value:
    """First half along a dimension times the sigmoid of the second."""
    x = cx.tensor(0)
    axis = cx.normalize_dim(cx.const_int(1, -1), cx.rank(x))
    shape = cx.result_shape()
    first = [dim(k) for k in range(len(shape))]
    second = [dim(k) + shape[k] if k == axis else dim(k) for k in range(len(shape))]
    gate = cx.view(x, second, shape)
    return cx.elementwise([cx.view(x, first, shape), gate], lambda b, v, g: b.mul(v, sigmoid_of(b, g)))
