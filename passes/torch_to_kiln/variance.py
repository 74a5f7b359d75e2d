# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Variance and standard deviation: the mean first, then the squared distances, in float32 for half types."""

from collections.abc import Sequence

from torch_mlir import ir

from kiln.dialects.dtypes import DType

from .context import LoweringContext
from .emitter import At
from .reductions import mean_of, reduced_count
from .registry import lowers
from .scalars import Scalar, ScalarBuilder


def variance_of(
    cx: LoweringContext, x: ir.Value, dims: Sequence[int], correction: float, dtype: DType, *, root: bool = False
) -> tuple[ir.Value, ir.Value]:
    """Variance (its root with ``root``) over ``max(0, n - correction)``, of type ``dtype``, and the float32 mean."""
    wide = dtype.compute
    kept = [k for k in range(cx.rank(x)) if k not in dims]
    mean = mean_of(cx, x, dims, wide)

    def square(b: ScalarBuilder, v: Scalar, m: Scalar) -> Scalar:
        distance = b.distance(v, m)
        return b.mul(distance, distance)

    total = cx.reduce([x, At.dims(mean, kept)], dims, 0.0, lambda b, acc, v: b.add(acc, v), wide, element=square)

    def finish(b: ScalarBuilder, s: Scalar, n: Scalar) -> Scalar:
        degrees = b.sub(n, correction) if correction else n
        variance = b.div(s, b.select(b.cmp("lt", degrees, 0), 0, degrees))
        return b.math("sqrt", variance) if root else variance

    count = reduced_count(cx, x, dims)
    if isinstance(count, int):
        degrees = max(0.0, count - correction)
        result = cx.pointwise(
            [total],
            lambda b, s: b.math("sqrt", b.div(s, degrees)) if root else b.div(s, degrees),
            dtype,
            compute=wide,
        )
    else:
        result = cx.pointwise([total, count], finish, dtype, compute=wide)
    return result, mean


_KINDS = ("var", "std", "var_mean", "std_mean")


@lowers(*(f"torch.aten.{kind}{suffix}" for kind in _KINDS for suffix in ("", ".dim", ".correction")))
def variance(cx: LoweringContext) -> "ir.Value | list[ir.Value | None]":
    """var, std, var_mean and std_mean over all dimensions or some."""
    x = cx.tensor(0)
    rank = cx.rank(x)
    kind, _, suffix = cx.name.removeprefix("torch.aten.").partition(".")
    if suffix == "":
        dims, correction, keepdim = list(range(rank)), float(cx.const_bool(1, True)), False
    elif suffix == "dim":
        dims, correction, keepdim = cx.dims(1, rank), float(cx.const_bool(2, True)), cx.const_bool(3, False)
    else:
        dims, correction, keepdim = cx.dims(1, rank), cx.const_float(2, 1.0), cx.const_bool(3, False)
    result, mean = variance_of(cx, x, dims, correction, cx.result_dtype(), root=kind.startswith("std"))
    if keepdim and dims:
        result = cx.keep_dims(result, dims)
    if not kind.endswith("mean"):
        return result
    if not cx.result_used(1):
        return [result, None]
    mean = cx.cast(mean, cx.result_dtype(1))
    return [result, cx.keep_dims(mean, dims) if keepdim and dims else mean]
