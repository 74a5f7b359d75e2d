# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Where extrema are: argmax, argmin, and max and min with indices.

The position is a second reduction, the least index whose element equals the extremum (or is NaN, which wins over every
number): two plain reductions vectorise, one over pairs does not, and the first occurrence wins as in PyTorch.
"""

from collections.abc import Sequence

from torch_mlir import ir

from kiln.dialects.dtypes import I64

from .context import LoweringContext
from .emitter import At
from .reductions import maximum_of, minimum_of
from .registry import lowers
from .scalars import Scalar, ScalarBuilder
from .sizes import Expr, as_expr


def _extremum(cx: LoweringContext, x: ir.Value, dims: Sequence[int], *, is_maximum: bool) -> ir.Value:
    """In the dtype that elements are compared in: no rounding stands between it and them."""
    return (maximum_of if is_maximum else minimum_of)(cx, x, dims, dtype=cx.dtype(x).compute)


def _position(cx: LoweringContext, x: ir.Value, extremum: ir.Value, dims: Sequence[int]) -> ir.Value:
    """Row-major index, within ``dims``, of the first element equal to ``extremum``; int64."""
    shape = cx.shape(x)
    kept = [k for k in range(len(shape)) if k not in dims]

    def element(b: ScalarBuilder, v: Scalar, best: Scalar) -> Scalar:
        index: Scalar | None = None
        stride: Expr = as_expr(1)
        for d in reversed(dims):
            term = b.index(d)
            if index is not None:
                term = b.mul(term, b.size(stride, cx.state.symbol_value))
            index = term if index is None else b.add(index, term)
            stride = stride * shape[d]
        found = b.cmp("eq", v, best)
        if v.dtype.is_float:
            found = b.or_(found, b.is_nan(v))
        return b.select(found, index if index is not None else b.const(0, I64), I64.max)

    return cx.reduce(
        [x, At.dims(extremum, kept)],
        dims,
        I64.max,
        lambda b, acc, i: b.minimum(acc, i),
        I64,
        element=element,
        convert=False,
    )


@lowers("torch.aten.argmax", "torch.aten.argmin")
def argmax(cx: LoweringContext) -> ir.Value:
    """Index of the first extremum along a dimension, or in the flattened tensor."""
    x = cx.tensor(0)
    rank = cx.rank(x)
    if rank == 0:
        return cx.full(0, cx.result_shape(), I64)
    dims = list(range(rank)) if cx.is_none(1) else [cx.dim(1, rank)]
    extremum = _extremum(cx, x, dims, is_maximum="argmax" in cx.name)
    result = _position(cx, x, extremum, dims)
    return cx.keep_dims(result, dims) if cx.const_bool(2, False) else result


@lowers("torch.aten.max.dim", "torch.aten.min.dim")
def max_dim(cx: LoweringContext) -> list[ir.Value | None]:
    """Extrema along a dimension, and their first positions."""
    x = cx.tensor(0)
    rank = cx.rank(x)
    if rank == 0:
        return [x, cx.full(0, [], I64)]
    dims, keepdim = [cx.dim(1, rank)], cx.const_bool(2, False)
    extremum = _extremum(cx, x, dims, is_maximum=".max." in cx.name)
    values = cx.cast(cx.keep_dims(extremum, dims) if keepdim else extremum, cx.dtype(x))
    if not cx.result_used(1):
        return [values, None]
    indices = _position(cx, x, extremum, dims)
    return [values, cx.keep_dims(indices, dims) if keepdim else indices]


@lowers("torch.aten.aminmax")
def aminmax(cx: LoweringContext) -> list[ir.Value | None]:
    """Minimum and maximum."""
    x = cx.tensor(0)
    rank = cx.rank(x)
    dims = list(range(rank)) if cx.is_none(1) or rank == 0 else [cx.dim(1, rank)]
    keepdim = cx.const_bool(2, False) and rank > 0
    return [minimum_of(cx, x, dims, keepdim), maximum_of(cx, x, dims, keepdim)]
