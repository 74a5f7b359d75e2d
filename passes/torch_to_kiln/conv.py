# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Convolution as ``kiln.conv``; its bias is an addition after it, which fuses with what follows.

``kiln.conv`` keeps eager's sizes and strides in the discardable attributes ``shape`` and ``strides``, maps over the
symbols that its attribute ``symbols`` names, for a later choice of a library's kernel; the addition carries
``conv_bias`` for the same reason.
"""

from torch_mlir import ir

from kiln.dialects import kiln

from .aten_fallback import op_strides
from .context import LoweringContext
from .registry import lowers
from .sizes import Expr, constant_of, dim


@lowers("torch.aten.convolution", "torch.aten._convolution")
def lower_convolution(cx: LoweringContext) -> ir.Value:
    """``convolution(x, weight, bias, stride, padding, dilation, transposed, output_padding, groups)``."""
    transposed = cx.const_bool(6)
    spatial = cx.rank(cx.tensor(0)) - 2
    return _convolve(
        cx,
        _spread(cx, 3, spatial),
        _spread(cx, 4, spatial),
        _spread(cx, 5, spatial),
        cx.const_int(8),
        transposed,
        _spread(cx, 7, spatial),
    )


@lowers("torch.aten.conv1d", "torch.aten.conv2d", "torch.aten.conv3d")
def lower_conv(cx: LoweringContext) -> ir.Value:
    """``conv2d(x, weight, bias, stride, padding, dilation, groups)``."""
    spatial = cx.rank(cx.tensor(0)) - 2
    stride, padding, dilation = (_spread(cx, k, spatial) for k in (3, 4, 5))
    return _convolve(cx, stride, padding, dilation, cx.const_int(6), False, [0] * spatial)


def _spread(cx: LoweringContext, operand: int, count: int) -> list[int]:
    values = cx.const_list(operand)
    return values * count if len(values) == 1 else values


def _convolve(
    cx: LoweringContext,
    stride: list[int],
    padding: list[int],
    dilation: list[int],
    groups: int,
    transposed: bool,
    output_padding: list[int],
) -> ir.Value:
    x, weight, bias = cx.tensor(0), cx.tensor(1), cx.optional_tensor(2)
    dtype, shape = cx.dtype(x), cx.result_shape()
    if cx.rank(x) != cx.rank(weight) or cx.rank(x) < 3:
        cx.unsupported("a convolution without a batch dimension")
    if cx.dtype(weight) != dtype or not dtype.is_float:
        cx.unsupported(f"a convolution of {dtype.name} with {cx.dtype(weight).name}")
    sizes = [constant_of(size) for size in shape]
    result = kiln.conv(x, weight, stride, padding, dilation, groups, transposed, output_padding, sizes)
    op = result.owner.operation
    _keep_layout(cx, op, shape)
    cx.state.set_info(result, shape, dtype)
    if bias is None:
        return result
    rank = len(shape)
    identity = [dim(k) for k in range(rank)]
    compute = dtype.compute
    summed = cx.generic(
        [result, bias],
        [identity, [dim(1)]],
        [cx.empty(shape, dtype)],
        [identity],
        "p" * rank,
        lambda b, value, shift, _: b.cast(b.add(b.cast(value, compute), b.cast(shift, compute)), dtype),
    )[0]
    summed.owner.operation.attributes["conv_bias"] = ir.UnitAttr.get()
    return summed


def _keep_layout(cx: LoweringContext, op: ir.Operation, shape: "tuple[Expr, ...]") -> None:
    names = cx.state.symbol_names
    count = len(names)
    if count:
        op.attributes["symbols"] = ir.ArrayAttr.get([ir.StringAttr.get(name) for name in names])
    op.attributes["shape"] = ir.AffineMapAttr.get(ir.AffineMap.get(0, count, list(shape)))
    strides = op_strides(cx.op, 0)
    if strides is not None:
        op.attributes["strides"] = ir.AffineMapAttr.get(ir.AffineMap.get(0, count, strides))
