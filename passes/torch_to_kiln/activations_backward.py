# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Gradients of activation functions: elementwise functions of the output's gradient and the input or output."""

import math as pymath

from torch_mlir import ir

from .activations import GELU_BETA, GELU_KAPPA
from .context import LoweringContext
from .registry import lowers
from .scalars import Scalar, ScalarBuilder
from .unary import sigmoid_of


@lowers("torch.aten.sigmoid_backward")
def sigmoid_backward(cx: LoweringContext) -> ir.Value:
    """``grad * (1 - y) * y``, from the output."""
    return cx.elementwise([cx.tensor(0), cx.tensor(1)], lambda b, g, y: b.mul(b.mul(g, b.sub(1, y)), y))


@lowers("torch.aten.tanh_backward")
def tanh_backward(cx: LoweringContext) -> ir.Value:
    """``grad * (1 - y * y)``, from the output."""
    return cx.elementwise([cx.tensor(0), cx.tensor(1)], lambda b, g, y: b.mul(g, b.sub(1, b.mul(y, y))))


@lowers("torch.aten.threshold_backward")
def threshold_backward(cx: LoweringContext) -> ir.Value:
    """``x <= threshold ? 0 : grad``: relu's too."""
    return cx.elementwise(
        [cx.tensor(0), cx.tensor(1), cx.number(2)], lambda b, g, x, t: b.select(b.cmp("le", x, t), 0, g)
    )


@lowers("torch.aten.leaky_relu_backward")
def leaky_relu_backward(cx: LoweringContext) -> ir.Value:
    """``x > 0 ? grad : grad * slope``."""
    return cx.elementwise(
        [cx.tensor(0), cx.tensor(1), cx.number(2)],
        lambda b, g, x, slope: b.select(b.cmp("gt", x, 0), g, b.mul(g, slope)),
        round_numbers=False,
    )


@lowers("torch.aten._prelu_kernel_backward")
def prelu_kernel_backward(cx: LoweringContext) -> list[ir.Value | None]:
    """Gradients for the input and, before its reduction, the weight."""
    args = [cx.tensor(0), cx.tensor(1), cx.tensor(2)]
    info = cx.result_info(0)

    def to_input(b: ScalarBuilder, g: Scalar, x: Scalar, w: Scalar) -> Scalar:
        return b.select(b.cmp("gt", x, 0), g, b.mul(w, g))

    def to_weight(b: ScalarBuilder, g: Scalar, x: Scalar, _: Scalar) -> Scalar:
        return b.select(b.cmp("gt", x, 0), 0, b.mul(x, g))

    return [
        cx.pointwise(args, fn, info.dtype, compute=info.dtype, shape=info.shape) if cx.result_used(k) else None
        for k, fn in enumerate((to_input, to_weight))
    ]


@lowers("torch.aten.hardtanh_backward")
def hardtanh_backward(cx: LoweringContext) -> ir.Value:
    """The gradient where ``min_val < x < max_val``, else 0."""

    def body(b: ScalarBuilder, g: Scalar, x: Scalar, low: Scalar, high: Scalar) -> Scalar:
        return b.select(b.or_(b.cmp("le", x, low), b.cmp("ge", x, high)), 0, g)

    return cx.elementwise([cx.tensor(0), cx.tensor(1), cx.number(2), cx.number(3)], body)


@lowers("torch.aten.hardsigmoid_backward")
def hardsigmoid_backward(cx: LoweringContext) -> ir.Value:
    """``grad / 6`` where ``-3 < x < 3``, else 0."""

    def body(b: ScalarBuilder, g: Scalar, x: Scalar) -> Scalar:
        return b.select(b.and_(b.cmp("gt", x, -3), b.cmp("lt", x, 3)), b.mul(g, 1 / 6), 0)

    return cx.elementwise([cx.tensor(0), cx.tensor(1)], body)


@lowers("torch.aten.hardswish_backward")
def hardswish_backward(cx: LoweringContext) -> ir.Value:
    """0 up to -3, ``grad * (x / 3 + 1/2)`` below 3, then the gradient."""

    def body(b: ScalarBuilder, g: Scalar, x: Scalar) -> Scalar:
        middle = b.mul(g, b.add(b.div(x, 3), 0.5))
        return b.select(b.cmp("le", x, -3), 0, b.select(b.cmp("lt", x, 3), middle, g))

    return cx.elementwise([cx.tensor(0), cx.tensor(1)], body)


@lowers("torch.aten.hardshrink_backward", "torch.aten.softshrink_backward")
def shrink_backward(cx: LoweringContext) -> ir.Value:
    """0 within ``[-lambd, lambd]``, else the gradient."""

    def body(b: ScalarBuilder, g: Scalar, x: Scalar, bound: Scalar) -> Scalar:
        return b.select(b.and_(b.cmp("ge", x, b.neg(bound)), b.cmp("le", x, bound)), 0, g)

    return cx.elementwise([cx.tensor(0), cx.tensor(1), cx.number(2)], body)


@lowers("torch.aten.elu_backward")
def elu_backward(cx: LoweringContext) -> ir.Value:
    """The gradient of ``elu``, from its input or its result."""
    alpha, scale, input_scale = (cx.const_float(i) for i in (1, 2, 3))
    from_result = cx.const_bool(4)

    def body(b: ScalarBuilder, g: Scalar, x: Scalar) -> Scalar:
        factor = b.mul(g, input_scale)
        if from_result:
            negative = b.mul(factor, b.add(x, alpha * scale))
        else:
            negative = b.mul(b.mul(factor, alpha * scale), b.math("exp", b.mul(x, input_scale)))
        return b.select(b.cmp("le", x, 0), negative, b.mul(g, scale))

    return cx.elementwise([cx.tensor(0), cx.tensor(5)], body)


@lowers("torch.aten.gelu_backward")
def gelu_backward(cx: LoweringContext) -> ir.Value:
    """``grad * (Phi(x) + x * phi(x))``, or the derivative of the tanh approximation."""
    approximate = cx.const_str(2, "none")

    def erf_form(b: ScalarBuilder, g: Scalar, x: Scalar) -> Scalar:
        cdf = b.mul(b.add(b.math("erf", b.mul(x, pymath.sqrt(0.5))), 1), 0.5)
        density = b.mul(b.math("exp", b.mul(b.mul(x, x), -0.5)), 1 / pymath.sqrt(2 * pymath.pi))
        return b.mul(g, b.add(cdf, b.mul(x, density)))

    def tanh_form(b: ScalarBuilder, g: Scalar, x: Scalar) -> Scalar:
        square = b.mul(x, x)
        inner = b.mul(b.add(x, b.mul(b.mul(square, x), GELU_KAPPA)), GELU_BETA)
        tanh = b.math("tanh", inner)
        left = b.mul(b.add(tanh, 1), 0.5)
        slope = b.mul(b.add(b.mul(square, 3 * GELU_KAPPA), 1), GELU_BETA)
        right = b.mul(b.mul(b.mul(x, 0.5), b.sub(1, b.mul(tanh, tanh))), slope)
        return b.mul(g, b.add(left, right))

    return cx.elementwise([cx.tensor(0), cx.tensor(1)], tanh_form if approximate == "tanh" else erf_form)


@lowers("torch.aten.silu_backward")
def silu_backward(cx: LoweringContext) -> ir.Value:
    """``grad * s * (1 + x * (1 - s))`` with ``s`` the sigmoid of ``x``."""

    def body(b: ScalarBuilder, g: Scalar, x: Scalar) -> Scalar:
        s = sigmoid_of(b, x)
        return b.mul(b.mul(g, s), b.add(b.mul(x, b.sub(1, s)), 1))

    return cx.elementwise([cx.tensor(0), cx.tensor(1)], body)


@lowers("torch.aten.mish_backward")
def mish_backward(cx: LoweringContext) -> ir.Value:
    """``grad * (t + x * s * (1 - t * t))`` with ``t = tanh(softplus(x))`` and ``s`` the sigmoid."""

    def body(b: ScalarBuilder, g: Scalar, x: Scalar) -> Scalar:
        t = b.math("tanh", b.math("log1p", b.math("exp", x)))
        return b.mul(g, b.add(t, b.mul(b.mul(x, sigmoid_of(b, x)), b.sub(1, b.mul(t, t)))))

    return cx.elementwise([cx.tensor(0), cx.tensor(1)], body)


@lowers("torch.aten.softplus_backward")
def softplus_backward(cx: LoweringContext) -> ir.Value:
    """``grad * z / (z + 1)`` with ``z = exp(beta x)``; the gradient where ``beta x`` exceeds the threshold."""
    beta, limit = cx.const_float(2), cx.const_float(3)

    def body(b: ScalarBuilder, g: Scalar, x: Scalar) -> Scalar:
        scaled = b.mul(x, beta)
        z = b.math("exp", scaled)
        return b.select(b.cmp("gt", scaled, limit), g, b.div(b.mul(g, z), b.add(z, 1)))

    return cx.elementwise([cx.tensor(0), cx.tensor(1)], body)


@lowers("torch.aten.log_sigmoid_backward")
def log_sigmoid_backward(cx: LoweringContext) -> ir.Value:
    """``grad * sigmoid(-x)``, from the forward's buffer ``exp(-|x|)``."""

    def body(b: ScalarBuilder, g: Scalar, x: Scalar, z: Scalar) -> Scalar:
        ratio = b.div(z, b.add(z, 1))
        return b.mul(g, b.select(b.cmp("lt", x, 0), b.sub(1, ratio), ratio))

    return cx.elementwise([cx.tensor(0), cx.tensor(1), cx.tensor(2)], body)


@lowers("torch.aten.logit_backward")
def logit_backward(cx: LoweringContext) -> ir.Value:
    """``grad / (x * (1 - x))``; 0 outside ``[eps, 1 - eps]``, NaN outside ``[0, 1]`` without eps."""
    eps = cx.const(2, None)
    low, high = (0.0, 1.0) if eps is None else (eps, 1 - eps)

    def body(b: ScalarBuilder, g: Scalar, x: Scalar) -> Scalar:
        inside = b.and_(b.cmp("ge", x, low), b.cmp("le", x, high))
        outside = float("nan") if eps is None else 0.0
        return b.select(inside, b.div(g, b.mul(x, b.sub(1, x))), outside)

    return cx.elementwise([cx.tensor(0), cx.tensor(1)], body)
