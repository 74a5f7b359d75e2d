# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Elementwise functions of three tensors: clamp, lerp, addcmul, fma, addcdiv."""

from torch_mlir import ir

from .activations import clamp_of
from .context import LoweringContext
from .registry import lowers
from .scalars import Scalar, ScalarBuilder


@lowers("torch.aten.clamp", "torch.aten.clip")
def clamp(cx: LoweringContext) -> ir.Value:
    """``x`` within constant bounds; the upper one wins, NaN stays NaN, a NaN bound makes all NaN."""
    bounds = [None if cx.is_none(i) else cx.argument(i) for i in (1, 2)]
    info = cx.result_info()
    if any(isinstance(bound, float) and bound != bound for bound in bounds):
        return cx.full(float("nan"), info.shape, info.dtype)
    given = [bound for bound in bounds if bound is not None]

    def body(b: ScalarBuilder, x: Scalar, *limits: Scalar) -> Scalar:
        rest = list(limits)
        if bounds[0] is not None:
            low = rest.pop(0)
            x = b.select(b.cmp("lt", x, low), low, x)
        if bounds[1] is not None:
            high = rest.pop(0)
            x = b.select(b.cmp("gt", x, high), high, x)
        return x

    return cx.elementwise([cx.tensor(0), *given], body)


@lowers("torch.aten.clamp_min")
def clamp_min(cx: LoweringContext) -> ir.Value:
    """``max(x, number)``."""
    low = cx.number(1)
    return cx.elementwise([cx.tensor(0)], lambda b, x: clamp_of(b, x, low, None))


@lowers("torch.aten.clamp_max")
def clamp_max(cx: LoweringContext) -> ir.Value:
    """``min(x, number)``."""
    high = cx.number(1)
    return cx.elementwise([cx.tensor(0)], lambda b, x: clamp_of(b, x, None, high))


@lowers("torch.aten.clamp.Tensor", "torch.aten.clip.Tensor")
def clamp_tensor(cx: LoweringContext) -> ir.Value:
    """``min(max(x, low), high)`` with tensors; NaN in any gives NaN."""
    low, high = cx.optional_tensor(1), cx.optional_tensor(2)
    bounds = [bound for bound in (low, high) if bound is not None]

    def body(b: ScalarBuilder, x: Scalar, *limits: Scalar) -> Scalar:
        rest = list(limits)
        if low is not None:
            x = b.maximum(x, rest.pop(0))
        return b.minimum(x, rest.pop(0)) if high is not None else x

    return cx.elementwise([cx.tensor(0), *bounds], body)


@lowers("torch.aten.clamp_min.Tensor")
def clamp_min_tensor(cx: LoweringContext) -> ir.Value:
    """``max(x, y)``."""
    return cx.elementwise([cx.tensor(0), cx.tensor(1)], lambda b, x, y: b.maximum(x, y))


@lowers("torch.aten.clamp_max.Tensor")
def clamp_max_tensor(cx: LoweringContext) -> ir.Value:
    """``min(x, y)``."""
    return cx.elementwise([cx.tensor(0), cx.tensor(1)], lambda b, x, y: b.minimum(x, y))


@lowers("torch.aten.lerp.Scalar", "torch.aten.lerp.Tensor")
def lerp(cx: LoweringContext) -> ir.Value:
    """``x + w * (y - x)``, from the nearer end so that ``w = 1`` gives ``y`` exactly."""

    def body(b: ScalarBuilder, x: Scalar, y: Scalar, w: Scalar) -> Scalar:
        span = b.sub(y, x)
        from_end = b.sub(y, b.mul(span, b.sub(1, w)))
        return b.select(b.cmp("lt", b.abs(w), 0.5), b.add(x, b.mul(w, span)), from_end)

    return cx.elementwise([cx.tensor(0), cx.tensor(1), cx.argument(2)], body, round_numbers=False)


@lowers("torch.aten.addcmul")
def addcmul(cx: LoweringContext) -> ir.Value:
    """``x + value * y * z``."""
    value = cx.number(3) if not cx.is_none(3) else 1

    def body(b: ScalarBuilder, x: Scalar, y: Scalar, z: Scalar) -> Scalar:
        return b.add(x, b.mul(b.mul(y, value) if value != 1 else y, z))

    return cx.elementwise([cx.tensor(0), cx.tensor(1), cx.tensor(2)], body)


@lowers("torch.prims.fma")
def fma(cx: LoweringContext) -> ir.Value:
    """``x * y + z``: Dynamo traces optimizers' ``addcmul`` as this prim of Inductor's, whose eager rounds twice."""
    return cx.elementwise([cx.tensor(0), cx.tensor(1), cx.tensor(2)], lambda b, x, y, z: b.add(b.mul(x, y), z))


@lowers("torch.aten.addcdiv")
def addcdiv(cx: LoweringContext) -> ir.Value:
    """``x + value * y / z``."""
    value = cx.number(3) if not cx.is_none(3) else 1

    def body(b: ScalarBuilder, x: Scalar, y: Scalar, z: Scalar) -> Scalar:
        return b.add(x, b.div(b.mul(y, value) if value != 1 else y, z))

    return cx.elementwise([cx.tensor(0), cx.tensor(1), cx.tensor(2)], body)
