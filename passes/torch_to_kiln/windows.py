# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""``F.unfold`` and ``F.fold``: the windows of an image as columns, and the sum of such columns back in an image."""

from dataclasses import dataclass

from torch_mlir import ir

from .context import LoweringContext
from .registry import lowers
from .scalars import Scalar, ScalarBuilder
from .shape_ops import pad
from .sizes import Expr, as_expr, dim
from .views import reshape_to


@dataclass
class _Axis:
    """The windows along one dim of an image: ``count`` of them, whose elements are ``dilation`` apart."""

    size: Expr
    kernel: int
    dilation: int
    padding: int
    stride: int

    @property
    def count(self) -> Expr:
        reach = self.dilation * (self.kernel - 1) + 1
        return ir.AffineExpr.get_floor_div(self.size + (2 * self.padding - reach), as_expr(self.stride)) + 1


def _axes(cx: LoweringContext, image: "tuple[Expr, ...]", first: int) -> list[_Axis]:
    """Both axes of an image; operand ``first`` and those behind are kernel, dilation, padding and stride."""
    given = [cx.const_list(first + k) for k in range(4)]
    pairs = [values * 2 if len(values) == 1 else values for values in given]
    return [_Axis(image[-2 + k], *(pair[k] for pair in pairs)) for k in range(2)]


@lowers("torch.aten.im2col")
def lower_im2col(cx: LoweringContext) -> ir.Value:
    """``im2col(x, kernel, dilation, padding, stride)``: a view of the padded image."""
    x = cx.tensor(0)
    sizes, lead = cx.shape(x), cx.rank(x) - 2
    rows, columns = _axes(cx, sizes, 1)
    margins = [0] * lead + [rows.padding, columns.padding]
    padded = pad(cx, x, 0, margins, margins)
    indices = [dim(k) for k in range(lead)]
    for k, axis in enumerate((rows, columns)):
        indices.append(dim(lead + k) * axis.dilation + dim(lead + 2 + k) * axis.stride)
    window = [as_expr(rows.kernel), as_expr(columns.kernel)]
    taken = cx.view(padded, indices, [*sizes[:lead], *window, rows.count, columns.count])
    return reshape_to(cx, taken, cx.result_shape())


@lowers("torch.aten.col2im")
def lower_col2im(cx: LoweringContext) -> ir.Value:
    """``col2im(x, size, kernel, dilation, padding, stride)``: each pixel sums over the windows that hold it.

    Row y of the padded image is row ``y mod stride + stride * t`` of window ``y floordiv stride - t``, for the few t
    with which that is a row of the window; with stride 1, row t of window ``y - dilation * t``.
    """
    x, shape = cx.tensor(0), cx.result_shape()
    dtype = cx.dtype(x)
    lead, rank = len(shape) - 2, len(shape)
    axes = _axes(cx, shape, 2)
    if any(axis.stride > 1 and axis.dilation > 1 for axis in axes):
        cx.unsupported("windows with both strides and holes")
    kernels = [as_expr(axis.kernel) for axis in axes]
    columns = reshape_to(cx, x, [*shape[:lead], *kernels, *(axis.count for axis in axes)])
    low: list[int | Expr] = [0] * (lead + 4)
    high: list[int | Expr] = [0] * (lead + 4)
    within: list[Expr] = []
    window: list[Expr] = []
    extents: list[int] = []
    for k, axis in enumerate(axes):
        turns = -(-axis.kernel // axis.stride)
        at = dim(lead + k) + axis.padding
        t = dim(rank + k)
        back = (turns - 1) * axis.dilation
        last = ir.AffineExpr.get_floor_div(axis.size + (axis.padding - 1), as_expr(axis.stride))
        high[lead + k] = turns * axis.stride - axis.kernel
        low[lead + 2 + k] = back
        high[lead + 2 + k] = last + 1 - axis.count
        within.append(ir.AffineExpr.get_mod(at, axis.stride) + t * axis.stride)
        window.append(ir.AffineExpr.get_floor_div(at, axis.stride) - t * axis.dilation + back)
        extents.append(turns)
    padded = pad(cx, columns, 0, low, high)
    compute = dtype.compute

    def body(b: ScalarBuilder, value: Scalar, _: Scalar, acc: Scalar) -> Scalar:
        return b.add(acc, b.cast(value, compute))

    identity = [dim(k) for k in range(rank)]
    source = [*identity[:lead], *within, *window]
    taps = [dim(rank), dim(rank + 1)]
    start = cx.full(0, shape, compute)
    inputs = [padded, cx.empty(extents, dtype)]
    summed = cx.generic(inputs, [source, taps], [start], [identity], "p" * rank + "rr", body)[0]
    return cx.cast(summed, dtype)
