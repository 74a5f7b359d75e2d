# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Layer, RMS, group and batch norm."""

from typing import Any

from torch_mlir import ir

from kiln.dialects import kiln
from kiln.dialects.dtypes import DType

from .context import LoweringContext
from .emitter import Argument, At
from .reductions import mean_of
from .registry import lowers
from .scalars import Scalar, ScalarBuilder
from .sizes import constant_of, dim
from .variance import variance_of

_EPSILON = {"float32": 2.0**-23, "float64": 2.0**-52}


def _trailing_axes(cx: LoweringContext, x: ir.Value, i: int) -> list[int]:
    """The axes of a normalized shape at position ``i``."""
    return list(range(cx.rank(x) - len(cx.indices(i)), cx.rank(x)))


@lowers("torch.aten.native_layer_norm")
def native_layer_norm(cx: LoweringContext) -> list[ir.Value | None]:
    """``kiln.layer_norm``; written out where the mean and reciprocal deviation are wanted too (training)."""
    x, weight, bias = cx.tensor(0), cx.optional_tensor(2), cx.optional_tensor(3)
    axes, eps = _trailing_axes(cx, x, 1), cx.const_float(4)
    statistics = cx.result_used(1) or cx.result_used(2)
    same = all(p is None or cx.dtype(p) == cx.dtype(x) for p in (weight, bias))
    if not statistics and same and (weight is not None or bias is None) and axes:
        result = kiln.layer_norm(x, weight, bias, axes, eps)
        return [cx.named(result, cx.shape(x), cx.dtype(x)), None, None]
    return _layer_norm_written_out(cx, x, weight, bias, axes, eps)


def _layer_norm_written_out(
    cx: LoweringContext, x: ir.Value, weight: ir.Value | None, bias: ir.Value | None, axes: list[int], eps: float
) -> list[ir.Value | None]:
    info = cx.result_info(0)
    wide = info.dtype.compute
    kept = [k for k in range(cx.rank(x)) if k not in axes]
    variance, mean = variance_of(cx, x, axes, 0, wide)
    scale = cx.pointwise([variance], lambda b, v: b.div(1, b.math("sqrt", b.add(v, eps))), wide)
    inputs: list[Argument] = [x, At.dims(mean, kept), At.dims(scale, kept)]
    inputs += [At.dims(p, axes) for p in (weight, bias) if p is not None]

    def body(b: ScalarBuilder, v: Scalar, m: Scalar, s: Scalar, *params: Scalar) -> Scalar:
        result = b.mul(b.distance(v, m), s)
        rest = list(params)
        if weight is not None:
            result = b.mul(result, rest.pop(0))
        return b.add(result, rest.pop(0)) if bias is not None else result

    y = cx.pointwise(inputs, body, info.dtype, compute=wide, shape=info.shape)
    results: list[ir.Value | None] = [y]
    for k, statistic in ((1, mean), (2, scale)):
        used = cx.result_used(k)
        results.append(cx.keep_dims(cx.cast(statistic, cx.result_dtype(k)), axes) if used else None)
    return results


def _rms_norm(cx: LoweringContext, x: ir.Value, weight: ir.Value | None, axes: list[int], eps: float) -> ir.Value:
    x, weight = _of_one_type(cx, x, weight)
    result = cx.named(kiln.rms_norm(x, weight, axes, eps), cx.shape(x), cx.dtype(x))
    return cx.cast(result, cx.result_dtype(0))


def _of_one_type(cx: LoweringContext, x: ir.Value, *params: Any) -> tuple[Any, ...]:
    """An input and its parameters in one element type: all in float32, in which norms are computed, where they differ.
    Parameters stay in float32 where networks are run in 16 bits (AMP).
    """
    if all(p is None or cx.dtype(p) == cx.dtype(x) for p in params):
        return (x, *params)
    widths = [cx.dtype(v).compute for v in (x, *params) if v is not None]
    wide = next((w for w in widths if w.name == "float64"), widths[0])
    return tuple(None if v is None else cx.cast(v, wide) for v in (x, *params))


def _epsilon(cx: LoweringContext, i: int, dtype: DType) -> float:
    """The argument ``eps``; None is the machine epsilon of the type that PyTorch computes in."""
    eps = cx.const(i, None)
    return _EPSILON[dtype.compute.name] if eps is None else float(eps)


@lowers("torch.aten.rms_norm")
def rms_norm(cx: LoweringContext) -> ir.Value:
    """``kiln.rms_norm``."""
    x = cx.tensor(0)
    return _rms_norm(cx, x, cx.optional_tensor(2), _trailing_axes(cx, x, 1), _epsilon(cx, 3, cx.dtype(x)))


@lowers("torch.aten._fused_rms_norm")
def fused_rms_norm(cx: LoweringContext) -> list[ir.Value | None]:
    """``kiln.rms_norm``, and the reciprocal root that training wants."""
    x, weight = cx.tensor(0), cx.optional_tensor(2)
    axes, dtype = _trailing_axes(cx, x, 1), cx.dtype(x)
    eps = _epsilon(cx, 3, dtype)
    root: ir.Value | None = None
    if cx.result_used(1):
        wide = dtype.compute
        squares = cx.pointwise([x], lambda b, v: b.mul(v, v), wide)
        mean = mean_of(cx, squares, axes, wide)
        scale = cx.pointwise([mean], lambda b, v: b.div(1, b.math("sqrt", b.add(v, eps))), cx.result_dtype(1))
        root = cx.keep_dims(scale, axes)
    return [_rms_norm(cx, x, weight, axes, eps), root]


@lowers("torch.aten.native_group_norm")
def native_group_norm(cx: LoweringContext) -> list[ir.Value | None]:
    """``kiln.group_norm``."""
    x, weight, bias = _affine(cx, cx.tensor(0), cx.optional_tensor(1), cx.optional_tensor(2))
    groups, eps = cx.const_int(6), cx.const_float(7)
    result = kiln.group_norm(x, weight, bias, groups, eps)
    statistics = _group_statistics(cx, x, groups, eps) if cx.result_used(1) or cx.result_used(2) else [None, None]
    return [cx.cast(cx.named(result, cx.shape(x), cx.dtype(x)), cx.result_dtype(0)), *statistics]


def _group_statistics(cx: LoweringContext, x: ir.Value, groups: int, eps: float) -> list[ir.Value | None]:
    """Mean and reciprocal deviation of each sample's groups, ``[N, groups]``, as training saves them."""
    batch, channels, *space = cx.shape(x)
    width = constant_of(channels)
    if width is None or width % groups:
        cx.unsupported("group norm with a number of channels known only at run time")
    each = width // groups
    places = [dim(3 + k) for k in range(len(space))]
    grouped = cx.view(x, [dim(0), dim(1) * each + dim(2), *places], [batch, groups, each, *space])
    axes = list(range(2, cx.rank(grouped)))
    variance, mean = variance_of(cx, grouped, axes, 0, cx.dtype(x).compute)
    scale = cx.pointwise([variance], lambda b, v: b.div(1, b.math("sqrt", b.add(v, eps))), cx.result_dtype(2))
    return [cx.cast(mean, cx.result_dtype(1)), scale]


def _affine(cx: LoweringContext, x: ir.Value, weight: ir.Value | None, bias: ir.Value | None, *more: ir.Value) -> Any:
    """An input and its parameters in one element type; a bias alone gets a weight of ones."""
    if weight is None and bias is not None:
        weight = cx.full(1, cx.shape(bias), cx.dtype(bias))
    return _of_one_type(cx, x, weight, bias, *more)


def _batch_norm(
    cx: LoweringContext, params: list[ir.Value | None], statistics: list[ir.Value], eps: float
) -> list[ir.Value | None]:
    x, weight, bias, mean, variance = _affine(cx, cx.tensor(0), params[0], params[1], *statistics)
    result = cx.named(kiln.batch_norm(x, mean, variance, weight, bias, eps), cx.shape(x), cx.dtype(x))
    result = cx.cast(result, cx.result_dtype(0))
    saved: list[ir.Value | None] = []
    for k in range(1, cx.num_results):  # without training these are empty
        info = cx.result_info(k) if cx.result_used(k) else None
        saved.append(None if info is None else cx.full(0, info.shape, info.dtype))
    return [result, *saved]


@lowers("torch.aten._native_batch_norm_legit_no_training")
def batch_norm_no_training(cx: LoweringContext) -> list[ir.Value | None]:
    """``kiln.batch_norm``."""
    params = [cx.optional_tensor(1), cx.optional_tensor(2)]
    return _batch_norm(cx, params, [cx.tensor(3), cx.tensor(4)], cx.const_float(6))


@lowers("torch.aten.native_batch_norm", "torch.aten.batch_norm")
def native_batch_norm(cx: LoweringContext) -> list[ir.Value | None]:
    """``kiln.batch_norm``, when not training."""
    if cx.const_bool(5) or cx.is_none(3) or cx.is_none(4):
        cx.unsupported("batch norm over the batch's own statistics (training)")
    params = [cx.optional_tensor(1), cx.optional_tensor(2)]
    return _batch_norm(cx, params, [cx.tensor(3), cx.tensor(4)], cx.const_float(7))
