# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Slices, splits and windows as ``kiln.view``.

PyTorch clamps the bounds of a slice. With symbolic sizes the trace has decided whether they were clamped, and the
size of the result tells how: :func:`slice_start` checks its candidates against it.
"""

from torch_mlir import ir

from kiln.dialects import affine
from kiln.dialects.walk import defining_op

from .aten_fallback import is_row_major, op_strides
from .context import LoweringContext
from .registry import lowers
from .reshape import same_size
from .shape_ops import list_unpack
from .sizes import Expr, as_expr, constant_of, dim
from .torch_values import op_name
from .views import ALIASING, PLACES, copy

_END = (1 << 63) - 1


def slice_start(cx: LoweringContext, size: Expr, start: Expr, end: Expr | None, step: int, result: Expr) -> Expr:
    """First index of ``x[start:end:step]`` along a dim of ``size``, whose result has ``result`` elements.

    Raises UnsupportedError where sizes do not tell whether a symbolic bound was clamped or counted from the end.
    """
    known_start, known_size = constant_of(start), constant_of(size)
    if cx.is_non_negative(start):
        return start  # clamped only where nothing is read
    if known_start is not None and known_size is not None:
        return as_expr(max(known_start + known_size, 0))
    if step != 1:
        cx.unsupported(f"a slice with a step from {start}, which may be negative")
    known_end = constant_of(end) if end is not None else _END
    if known_end is not None and known_end >= _END:
        return size - result  # everything from start on
    ends = [e for e in (size, end, size + end if end is not None else None) if e is not None]
    # Against an end that is not negative, a start that counts from the end would give another difference.
    certain = [size, *([end] if end is not None and _is_from_the_start(cx, end, size, result) else [])]
    if any(same_size(e - start, result) for e in certain):
        return start
    if known_start is not None:
        if any(same_size(e - (size + start), result) for e in ends):
            return size + start
        if any(same_size(e, result) for e in ends):
            return as_expr(0)
    cx.unsupported(f"whether the slice start {start} was clamped or counted from the end cannot be told")


def _is_from_the_start(cx: LoweringContext, end: Expr, size: Expr, result: Expr) -> bool:
    """Whether the end of a slice is not negative, given that there are as many elements as it has: ``n - 1`` of 4."""
    if cx.is_non_negative(end):
        return True
    symbol = size.maybe_downcast()
    if not isinstance(symbol, ir.AffineSymbolExpr) or symbol.position in affine.symbols_in(result):
        return False
    return cx.is_non_negative(affine.substitute(end, {}, {symbol.position: symbol + result}))


def slice_view(cx: LoweringContext, x: ir.Value, at: int, start: Expr, size: Expr, step: int = 1) -> ir.Value:
    """``size`` elements of ``x`` along dim ``at``, from ``start`` on; ``start`` is in bounds and not negative."""
    indices: list[Expr] = [dim(k) for k in range(cx.rank(x))]
    indices[at] = dim(at) * step + start
    shape = list(cx.shape(x))
    shape[at] = size
    return cx.view(x, indices, shape)


@lowers("torch.aten.slice.Tensor", "torch.aten.slice_copy.Tensor")
def lower_slice(cx: LoweringContext) -> ir.Value:
    """`aten.slice.Tensor` as a view; start and end are clamped as PyTorch does."""
    x = cx.tensor(0)
    at = cx.dim(1, cx.rank(x))
    step = cx.const_int(4, 1)
    result = cx.result_shape()[at]
    start = slice_start(cx, cx.shape(x)[at], cx.index(2, 0), cx.index(3, None), step, result)
    PLACES.those({"slice by sizes": constant_of(cx.index(2, 0)) is None})
    return slice_view(cx, x, at, start, result, step)


@lowers("torch.aten.narrow", "torch.aten.narrow_copy")
def lower_narrow(cx: LoweringContext) -> ir.Value:
    """`aten.narrow` as a view."""
    x = cx.tensor(0)
    at = cx.dim(1, cx.rank(x))
    return slice_view(cx, x, at, index_start(cx, cx.shape(x)[at], cx.index(2)), cx.result_shape()[at])


def index_start(cx: LoweringContext, size: Expr, index: Expr) -> Expr:
    """One index into a dim of ``size``: negative constants count from the end."""
    known = constant_of(index)
    if known is not None:
        return index if known >= 0 else size + known
    if cx.is_non_negative(index):
        return index
    cx.unsupported(f"the index {index} may be negative")


def drop_dim(cx: LoweringContext, x: ir.Value, at: int, index: Expr) -> ir.Value:
    """``x`` at ``index`` of dim ``at``, which is gone from the result."""
    sizes = cx.shape(x)
    indices = [dim(k) if k < at else index if k == at else dim(k - 1) for k in range(len(sizes))]
    return cx.view(x, indices, [*sizes[:at], *sizes[at + 1 :]])


@lowers("torch.aten.select.int", "torch.aten.select_copy.int")
def lower_select(cx: LoweringContext) -> ir.Value:
    """`aten.select.int` as a view without the dim."""
    x = cx.tensor(0)
    at = cx.dim(1, cx.rank(x))
    return drop_dim(cx, x, at, index_start(cx, cx.shape(x)[at], cx.index(2)))


# Ops whose result is a list of tensors -> position of their dim operand.
_SPLITS = {
    f"torch.aten.{name}": 2
    for name in (
        "split.Tensor split.sizes split_with_sizes chunk unsafe_split.Tensor unsafe_split_with_sizes unsafe_chunk "
        "tensor_split.sections tensor_split.indices split_copy.Tensor split_with_sizes_copy"
    ).split()
} | {"torch.aten.unbind.int": 1, "torch.aten.unbind_copy.int": 1}


@lowers(*_SPLITS)
def lower_split(cx: LoweringContext) -> list[ir.Value]:
    """The pieces of a split, chunk or unbind. Their number and sizes are those of the ``ListUnpack`` that uses them."""
    unpack = list_unpack(cx.op.results[0])
    if unpack is None:
        cx.unsupported("its list is not unpacked")
    x = cx.tensor(0)
    at = cx.dim(_SPLITS[cx.name], cx.rank(x))
    count = len(unpack.results)
    is_copy = "copy" in cx.name
    if "unbind" in cx.name:
        pieces = [drop_dim(cx, x, at, as_expr(k)) for k in range(count)]
    else:
        pieces: list[ir.Value] = []
        start = as_expr(0)
        for k in range(count):
            info = cx.state.result_info(unpack, k)
            if info is None:
                cx.unsupported(f"piece {k} is no tensor")
            pieces.append(slice_view(cx, x, at, start, info.shape[at]))
            start = start + info.shape[at]
    return [copy(cx, piece) for piece in pieces] if is_copy else pieces


@lowers("torch.aten.unfold", "torch.aten.unfold_copy")
def lower_unfold(cx: LoweringContext) -> ir.Value:
    """``unfold(x, dim, size, step)``: windows along a dim; the position in the window is the last result dim."""
    x = cx.tensor(0)
    rank = cx.rank(x)
    if rank == 0:
        return cx.view(x, [], cx.result_shape())
    at, step = cx.dim(1, rank), cx.const_int(3)
    indices: list[Expr] = [dim(k) for k in range(rank)]
    indices[at] = dim(at) * step + dim(rank)
    return cx.view(x, indices, cx.result_shape())


@lowers("torch.aten.as_strided")
def lower_as_strided(cx: LoweringContext) -> ir.Value:
    """``as_strided`` of a tensor that is known to be row-major with storage offset 0: an op's own fresh result."""
    x = cx.tensor(0)
    source = defining_op(cx.torch_operand(0))
    if source is None:
        cx.unsupported("the storage of an argument may be larger than the tensor")
    strides_in = op_strides(source, ir.OpResult(cx.torch_operand(0)).result_number)
    if op_name(source) in ALIASING or strides_in is None or not is_row_major(strides_in, cx.shape(x)):
        cx.unsupported("the operand may be a view of other memory, or is not row-major")
    sizes = [constant_of(size) for size in cx.shape(x)]
    strides, offset = cx.const_list(2), cx.const_int(3, 0)
    if any(size is None for size in sizes):
        cx.unsupported("as_strided of a tensor with dynamic sizes")
    linear = as_expr(offset)
    for k, stride in enumerate(strides):
        linear = linear + dim(k) * stride
    indices: list[ir.AffineExpr] = []
    suffix = 1
    for k in reversed(range(len(sizes))):
        size = sizes[k] or 1
        index = ir.AffineExpr.get_floor_div(linear, as_expr(suffix)) if suffix != 1 else linear
        indices.append(ir.AffineExpr.get_mod(index, as_expr(size)) if k else index)
        suffix *= size
    return cx.view(x, indices[::-1], cx.result_shape())
