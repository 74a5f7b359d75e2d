# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Softmax, log-softmax and their gradients."""

from torch_mlir import ir

from kiln.dialects import kiln

from .context import LoweringContext
from .emitter import At
from .reductions import maximum_of, sum_of
from .registry import lowers
from .scalars import Scalar, ScalarBuilder

_NAMES = {
    "torch.aten._softmax": False,
    "torch.aten.softmax.int": False,
    "torch.aten._log_softmax": True,
    "torch.aten.log_softmax.int": True,
}


@lowers(*_NAMES)
def softmax(cx: LoweringContext) -> ir.Value:
    """``kiln.softmax`` in the result's element type."""
    info = cx.result_info()
    x = cx.cast(cx.tensor(0), info.dtype)
    log = _NAMES[cx.name]
    if not info.shape:  # one number: exp(x - x) / exp(x - x), so that NaN and infinities give NaN
        return cx.elementwise([x], lambda b, v: b.sub(v, v) if log else b.math("exp", b.sub(v, v)))
    return cx.named(kiln.softmax(x, cx.dim(1, len(info.shape)), log), info.shape, info.dtype)


@lowers("torch.aten._safe_softmax")
def safe_softmax(cx: LoweringContext) -> ir.Value:
    """A softmax whose rows of nothing but -inf are zeros."""
    info = cx.result_info()
    x = cx.cast(cx.tensor(0), info.dtype)
    if not info.shape:
        cx.unsupported("a softmax of one number")
    axis = cx.dim(1, len(info.shape))
    y = cx.named(kiln.softmax(x, axis), info.shape, info.dtype)
    top = maximum_of(cx, x, [axis])
    kept = [k for k in range(len(info.shape)) if k != axis]

    def body(b: ScalarBuilder, v: Scalar, m: Scalar) -> Scalar:
        return b.select(b.cmp("eq", m, float("-inf")), 0, v)

    return cx.elementwise([y, At.dims(top, kept)], body)


@lowers("torch.aten._softmax_backward_data")
def softmax_backward(cx: LoweringContext) -> ir.Value:
    """``y * (grad - sum(grad * y))``."""
    grad, y = cx.tensor(0), cx.tensor(1)
    rank = cx.rank(y)
    if rank == 0:
        cx.unsupported("the gradient of a softmax of one number")
    dims = [cx.dim(2, rank)]
    wide = cx.dtype(y).compute
    total = cx.reduce([grad, y], dims, 0.0, _add, wide, element=lambda b, g, v: b.mul(g, v))
    kept = [k for k in range(rank) if k not in dims]
    return cx.elementwise([grad, y, At.dims(total, kept)], lambda b, g, v, s: b.mul(b.sub(g, s), v), compute=wide)


@lowers("torch.aten._log_softmax_backward_data")
def log_softmax_backward(cx: LoweringContext) -> ir.Value:
    """``grad - exp(y) * sum(grad)``."""
    grad, y = cx.tensor(0), cx.tensor(1)
    rank = cx.rank(y)
    if rank == 0:
        cx.unsupported("the gradient of a softmax of one number")
    dims = [cx.dim(2, rank)]
    wide = cx.dtype(y).compute
    total = sum_of(cx, grad, dims, wide)
    kept = [k for k in range(rank) if k not in dims]

    def body(b: ScalarBuilder, g: Scalar, v: Scalar, s: Scalar) -> Scalar:
        return b.sub(g, b.mul(b.math("exp", v), s))

    return cx.elementwise([grad, y, At.dims(total, kept)], body, compute=wide)


def _add(b: ScalarBuilder, acc: Scalar, v: Scalar) -> Scalar:
    return b.add(acc, v)
