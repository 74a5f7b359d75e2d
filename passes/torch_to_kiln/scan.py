# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Cumulative ops: ``kiln.scan``, and ``kiln.recurrence`` for what is combined by more than one operation."""

from collections.abc import Callable, Sequence

from torch_mlir import ir

from kiln.dialects import kiln
from kiln.dialects.dtypes import F64, I64, DType

from .context import LoweringContext
from .registry import lowers
from .scalars import Scalar, ScalarBuilder

_KINDS = {"cumsum": "sum", "cumprod": "prod"}

Combine = Callable[[ScalarBuilder, list[Scalar], list[Scalar]], Sequence[Scalar]]
"""What comes before and what comes behind as one."""


@lowers("torch.aten.cumsum", "torch.aten.cumprod")
def cumulative(cx: LoweringContext) -> ir.Value:
    """Inclusive sums and products in the result's element type."""
    info = cx.result_info()
    x = cx.cast(cx.tensor(0), info.dtype)
    if not info.shape:
        return x
    _check_type(cx, info.dtype)
    kind = _KINDS[cx.name.removeprefix("torch.aten.")]
    return cx.named(kiln.scan(x, cx.dim(1, len(info.shape)), kind).result, info.shape, info.dtype)


@lowers("torch.aten.logcumsumexp")
def cumulative_logsumexp(cx: LoweringContext) -> ir.Value:
    """Logarithms of inclusive sums of exponentials.

    Carried are the largest exponent and, in units of its exponential, the sum of the others. The sum is in f64, as in
    PyTorch: a factor that is rounded the same way at each step would add up.
    """
    info = cx.result_info()
    x = cx.cast(cx.tensor(0), info.dtype)
    if not info.shape:
        return x

    def combine(b: ScalarBuilder, left: list[Scalar], right: list[Scalar]) -> Sequence[Scalar]:
        (m, s), (n, t) = left, right
        is_left = b.cmp("ge", m, n)
        distance = b.sub(b.cast(b.minimum(m, n), F64), b.cast(b.maximum(m, n), F64))
        same = b.cmp("eq", m, n)  # infinities have no distance
        factor = b.math("exp", b.select(same, 0.0, distance))
        above, below = b.select(is_left, s, t), b.select(is_left, t, s)
        return b.maximum(m, n), b.add(above, b.mul(factor, b.add(below, 1.0)))

    top, others = _recurrence(cx, [x, cx.full(0.0, info.shape, F64)], combine)
    return cx.pointwise([top, others], lambda b, m, s: b.add(m, b.math("log1p", s)), info.dtype, compute=F64)


@lowers("torch.aten.cummax", "torch.aten.cummin")
def cumulative_extremum(cx: LoweringContext) -> list[ir.Value | None]:
    """Inclusive extrema and where they are: the last of equals, and a NaN once there is one."""
    x, info = cx.tensor(0), cx.result_info()
    if not info.shape:
        return [x, cx.full(0, [], I64)]
    _check_type(cx, info.dtype)
    order = "ge" if cx.name.endswith("max") else "le"

    def combine(b: ScalarBuilder, left: list[Scalar], right: list[Scalar]) -> Sequence[Scalar]:
        takes = b.cmp(order, right[0], left[0])
        if info.dtype.is_float:
            takes = b.or_(takes, b.is_nan(right[0]))
        return [b.select(takes, y, x) for x, y in zip(left, right, strict=True)]

    dim = cx.dim(1, len(info.shape))
    positions = cx.pointwise([], lambda b: b.index(dim), I64, shape=info.shape)
    extrema, where = _recurrence(cx, [x, positions], combine)
    return [extrema, where]


def _check_type(cx: LoweringContext, dtype: DType) -> None:
    if dtype.is_bool or dtype.kind == "u":
        cx.unsupported(f"a scan of {dtype.name}")


def _recurrence(cx: LoweringContext, xs: Sequence[ir.Value], combine: Combine) -> list[ir.Value]:
    """``kiln.recurrence`` of tensors of one shape along the op's dim."""
    infos = [cx.state.info(x) for x in xs]
    op = kiln.recurrence(xs, cx.dim(1, len(infos[0].shape)))
    arguments = list(op.combine.arguments)
    left = [Scalar(v, info.dtype.compute) for v, info in zip(arguments[: len(xs)], infos, strict=True)]
    right = [Scalar(v, info.dtype.compute) for v, info in zip(arguments[len(xs) :], infos, strict=True)]
    with ir.InsertionPoint(op.combine):
        kiln.yield_([x.value for x in combine(cx.scalars, left, right)])
    return [cx.named(v, info.shape, info.dtype) for v, info in zip(op.results, infos, strict=True)]
