# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Sums, products, extrema, logic, norms and log-sum-exp over dimensions."""

from collections.abc import Sequence

from torch_mlir import ir

from kiln.dialects.dtypes import BOOL, I64, DType

from .context import LoweringContext
from .creation import count
from .emitter import Argument, At
from .registry import lowers
from .scalars import Scalar, ScalarBuilder, SizeNumber
from .sizes import Expr

INF = float("inf")


def size_argument(value: "int | Expr") -> Argument:
    """A number of elements as an input of ``pointwise``."""
    return value if isinstance(value, int) else SizeNumber(value)


def reduced_count(cx: LoweringContext, x: ir.Value, dims: Sequence[int]) -> Argument:
    """The number of elements that each result of a reduction covers."""
    shape = cx.shape(x)
    return size_argument(count([shape[d] for d in dims]))


def sum_of(cx: LoweringContext, x: ir.Value, dims: Sequence[int], dtype: DType, keepdim: bool = False) -> ir.Value:
    """The sum, in float32 for half types; elements are cast to ``dtype`` first."""
    return cx.reduce([x], dims, 0, lambda b, acc, v: b.add(acc, v), dtype, keepdim=keepdim)


def maximum_of(
    cx: LoweringContext, x: ir.Value, dims: Sequence[int], keepdim: bool = False, dtype: DType | None = None
) -> ir.Value:
    """The maximum, NaN if there is one, in `dtype` or that of `x`."""
    own = cx.dtype(x)
    return cx.reduce([x], dims, own.min, lambda b, acc, v: b.maximum(acc, v), dtype or own, keepdim=keepdim)


def minimum_of(
    cx: LoweringContext, x: ir.Value, dims: Sequence[int], keepdim: bool = False, dtype: DType | None = None
) -> ir.Value:
    """The minimum, NaN if there is one, in `dtype` or that of `x`."""
    own = cx.dtype(x)
    return cx.reduce([x], dims, own.max, lambda b, acc, v: b.minimum(acc, v), dtype or own, keepdim=keepdim)


def mean_of(cx: LoweringContext, x: ir.Value, dims: Sequence[int], dtype: DType, keepdim: bool = False) -> ir.Value:
    """Sum over count, in float32 for half types, rounded once."""
    total = sum_of(cx, x, dims, dtype.compute)
    result = cx.pointwise(
        [total, reduced_count(cx, x, dims)], lambda b, s, n: b.div(s, n), dtype, compute=dtype.compute
    )
    return cx.keep_dims(result, dims) if keepdim else result


@lowers("torch.aten.sum", "torch.aten.sum.dim_IntList")
def sum_(cx: LoweringContext) -> ir.Value:
    """Sum over all dimensions or some."""
    x = cx.tensor(0)
    some = cx.name.endswith("IntList")
    dims = cx.dims(1, cx.rank(x)) if some else list(range(cx.rank(x)))
    return sum_of(cx, x, dims, cx.result_dtype(), keepdim=some and cx.const_bool(2))


@lowers("torch.aten.nansum")
def nansum(cx: LoweringContext) -> ir.Value:
    """Sum that takes NaN as 0."""
    x = cx.tensor(0)
    dims = cx.dims(1, cx.rank(x))

    def element(b: ScalarBuilder, v: Scalar) -> Scalar:
        return b.select(b.is_nan(v), 0, v) if v.dtype.is_float else v

    dtype = cx.result_dtype()
    keepdim = cx.const_bool(2) and bool(dims)
    return cx.reduce([x], dims, 0, lambda b, acc, v: b.add(acc, v), dtype, keepdim=keepdim, element=element)


@lowers("torch.aten.dist")
def dist(cx: LoweringContext) -> ir.Value:
    """Vector norm of the difference."""
    dtype = cx.result_dtype()
    difference = cx.pointwise([cx.tensor(0), cx.tensor(1)], lambda b, x, y: b.sub(x, y), dtype, compute=dtype)
    return norm_of(cx, difference, cx.const_float(2, 2.0), list(range(cx.rank(difference))), dtype, False)


@lowers("torch.aten.mean", "torch.aten.mean.dim")
def mean(cx: LoweringContext) -> ir.Value:
    """Mean over all dimensions or some."""
    x = cx.tensor(0)
    some = cx.name.endswith("dim")
    dims = cx.dims(1, cx.rank(x)) if some else list(range(cx.rank(x)))
    return mean_of(cx, x, dims, cx.result_dtype(), keepdim=some and cx.const_bool(2))


@lowers("torch.aten.prod", "torch.aten.prod.dim_int")
def prod(cx: LoweringContext) -> ir.Value:
    """Product over all dimensions or one."""
    x = cx.tensor(0)
    rank = cx.rank(x)
    one = cx.name.endswith("dim_int")
    dims = ([cx.dim(1, rank)] if rank else []) if one else list(range(rank))
    keepdim = one and rank > 0 and cx.const_bool(2)
    return cx.reduce([x], dims, 1, lambda b, acc, v: b.mul(acc, v), cx.result_dtype(), keepdim=keepdim)


@lowers("torch.aten.amax", "torch.aten.amin")
def amax(cx: LoweringContext) -> ir.Value:
    """Maximum or minimum over some dimensions (all for an empty list)."""
    x = cx.tensor(0)
    reduce = maximum_of if cx.name.endswith("max") else minimum_of
    dims = cx.dims(1, cx.rank(x))
    return reduce(cx, x, dims, keepdim=cx.const_bool(2) and bool(dims))


@lowers("torch.aten.max", "torch.aten.min")
def max_all(cx: LoweringContext) -> ir.Value:
    """Maximum or minimum of all elements."""
    x = cx.tensor(0)
    reduce = maximum_of if cx.name.endswith("max") else minimum_of
    return reduce(cx, x, list(range(cx.rank(x))))


@lowers(
    "torch.aten.any",
    "torch.aten.any.dim",
    "torch.aten.any.dims",
    "torch.aten.all",
    "torch.aten.all.dim",
    "torch.aten.all.dims",
)
def any_all(cx: LoweringContext) -> ir.Value:
    """Logical or, or and, over all dimensions or some."""
    x = cx.tensor(0)
    rank = cx.rank(x)
    whole = cx.name.count(".") == 2
    if whole:
        dims, keepdim = list(range(rank)), False
    else:
        dims = cx.dims(1, rank) if cx.name.endswith("dims") or rank == 0 else [cx.dim(1, rank)]
        keepdim = cx.const_bool(2) and rank > 0
    if ".any" in cx.name:
        result = cx.reduce([x], dims, False, lambda b, acc, v: b.or_(acc, v), BOOL, keepdim=keepdim)
    else:
        result = cx.reduce([x], dims, True, lambda b, acc, v: b.and_(acc, v), BOOL, keepdim=keepdim)
    return cx.cast(result, cx.result_dtype())


def norm_of(
    cx: LoweringContext, x: ir.Value, order: float, dims: Sequence[int], dtype: DType, keepdim: bool
) -> ir.Value:
    """The vector norm ``(sum |x| ** order) ** (1 / order)`` and its limits."""
    wide = dtype.compute

    def add(b: ScalarBuilder, acc: Scalar, v: Scalar) -> Scalar:
        return b.add(acc, v)

    def element(b: ScalarBuilder, v: Scalar) -> Scalar:
        if order == 2:
            return b.mul(v, v)
        if order == 0:
            return b.cast(b.cmp("ne", v, 0), v.dtype)
        return b.abs(v) if order == 1 or abs(order) == INF else b.math("powf", b.abs(v), order)

    if order == INF:
        result = cx.reduce([x], dims, 0.0, lambda b, acc, v: b.maximum(acc, v), wide, element=element)
    elif order == -INF:
        result = cx.reduce([x], dims, INF, lambda b, acc, v: b.minimum(acc, v), wide, element=element)
    else:
        result = cx.reduce([x], dims, 0.0, add, wide, element=element)
    if order == 2:
        result = cx.pointwise([result], lambda b, s: b.math("sqrt", s), dtype)
    elif order not in (0, 1, INF, -INF):
        result = cx.pointwise([result], lambda b, s: b.math("powf", s, 1.0 / order), dtype)
    result = cx.cast(result, dtype)
    return cx.keep_dims(result, dims) if keepdim else result


@lowers("torch.aten.linalg_vector_norm")
def linalg_vector_norm(cx: LoweringContext) -> ir.Value:
    """Vector norm over some dimensions."""
    x = cx.tensor(0)
    dims = cx.dims(2, cx.rank(x))
    return norm_of(cx, x, cx.const_float(1), dims, cx.result_dtype(), cx.const_bool(3) and bool(dims))


@lowers("torch.aten.norm.Scalar", "torch.aten.norm.ScalarOpt_dim", "torch.aten.norm.ScalarOpt_dim_dtype")
def norm(cx: LoweringContext) -> ir.Value:
    """Vector norm over all dimensions or some."""
    x = cx.tensor(0)
    some = "_dim" in cx.name
    dims = cx.dims(2, cx.rank(x)) if some else list(range(cx.rank(x)))
    return norm_of(cx, x, cx.const_float(1, 2.0), dims, cx.result_dtype(), some and cx.const_bool(3) and bool(dims))


@lowers("torch.aten.logsumexp")
def logsumexp(cx: LoweringContext) -> ir.Value:
    """``log(sum(exp(x - m))) + m`` with the maximum ``m``, 0 where that is infinite."""
    x = cx.tensor(0)
    dims, info = cx.dims(1, cx.rank(x)), cx.result_info()
    wide = info.dtype.compute
    kept = [k for k in range(cx.rank(x)) if k not in dims]
    top = maximum_of(cx, cx.cast(x, wide), dims)
    shift = cx.pointwise([top], lambda b, m: b.select(b.cmp("eq", b.abs(m), INF), 0, m), wide)
    total = cx.reduce(
        [x, At.dims(shift, kept)],
        dims,
        0.0,
        lambda b, acc, v: b.add(acc, v),
        wide,
        element=lambda b, v, m: b.math("exp", b.sub(v, m)),
    )
    result = cx.pointwise([total, shift], lambda b, s, m: b.add(b.math("log", s), m), info.dtype)
    return cx.keep_dims(result, dims) if cx.const_bool(2) and dims else result


@lowers("torch.aten.count_nonzero", "torch.aten.count_nonzero.dim_IntList")
def count_nonzero(cx: LoweringContext) -> ir.Value:
    """Number of elements that are not zero."""
    x = cx.tensor(0)
    dims = cx.dims(1, cx.rank(x))
    return cx.reduce(
        [x],
        dims,
        0,
        lambda b, acc, v: b.add(acc, v),
        I64,
        convert=False,
        element=lambda b, v: b.cast(b.cast(v, BOOL), I64),
    )
