# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Tensors of which a view is replaced: adjacent elements as ``kiln.cat``, others as a loop that selects."""

from collections.abc import Callable, Sequence

from torch_mlir import ir

from kiln.lowering import paths

from .aten_fallback import op_strides
from .context import LoweringContext
from .registry import lowers
from .reshape import same_size
from .scalars import Scalar, ScalarBuilder
from .shape_ops import cat, pad
from .sizes import Expr, as_expr, constant_of, dim, share_memory
from .slices import index_start, slice_start, slice_view
from .views import copy, reshape_to

_TAKEN = paths.group("any view-writes", "adjacent elements", "one of each group", "steps", "diagonal")


@lowers("torch.aten.slice_scatter")
def lower_slice_scatter(cx: LoweringContext) -> ir.Value:
    """``slice_scatter(x, src, dim, start, end, step)``."""
    _refuse_shared_memory(cx)
    x = cx.tensor(0)
    at, step = cx.dim(2, cx.rank(x)), cx.const_int(5, 1)
    piece = cx.cast(cx.tensor(1), cx.dtype(x))
    size = cx.shape(piece)[at]
    if constant_of(size) == 0:
        return copy(cx, x)
    start = slice_start(cx, cx.shape(x)[at], cx.index(3, 0), cx.index(4, None), step, size)
    if step == 1 or constant_of(size) == 1:
        return _write_slice(cx, x, piece, at, start, size)
    return _write_every(cx, x, piece, at, start, step)


@lowers("torch.aten.select_scatter")
def lower_select_scatter(cx: LoweringContext) -> ir.Value:
    """``select_scatter(x, src, dim, index)``."""
    _refuse_shared_memory(cx)
    x = cx.tensor(0)
    at = cx.dim(2, cx.rank(x))
    piece = cx.keep_dims(cx.cast(cx.tensor(1), cx.dtype(x)), [at])
    return _write_slice(cx, x, piece, at, index_start(cx, cx.shape(x)[at], cx.index(3)), as_expr(1))


@lowers("torch.aten.diagonal_scatter")
def lower_diagonal_scatter(cx: LoweringContext) -> ir.Value:
    """``diagonal_scatter(x, src, offset, dim1, dim2)``; the last dim of ``src`` is along the diagonal."""
    _refuse_shared_memory(cx)
    x = cx.tensor(0)
    rank, offset = cx.rank(x), cx.const_int(2, 0)
    row, column = cx.dim(3, rank), cx.dim(4, rank)
    piece = cx.cast(cx.tensor(1), cx.dtype(x))
    size = cx.shape(piece)[-1]
    if constant_of(size) == 0:
        return copy(cx, x)
    _TAKEN("diagonal")
    piece = _pad_dim(cx, piece, cx.rank(piece) - 1, as_expr(max(-offset, 0)), cx.shape(x)[row])
    source = [*(dim(k) for k in range(rank) if k not in (row, column)), dim(row)]

    def is_written(b: ScalarBuilder) -> Scalar:
        return b.cmp("eq", b.sub(b.index(column), b.index(row)), offset)

    return _select(cx, x, piece, source, is_written)


def _write_slice(cx: LoweringContext, x: ir.Value, piece: ir.Value, at: int, start: Expr, size: Expr) -> ir.Value:
    """``x`` with ``size`` elements along ``at`` from ``start`` on replaced by ``piece``, as a concatenation."""
    total = cx.shape(x)[at]
    end = start + size
    _TAKEN("adjacent elements")
    parts = [
        slice_view(cx, x, at, as_expr(0), start) if constant_of(start) != 0 else None,
        piece,
        slice_view(cx, x, at, end, total - end) if not same_size(end, total) else None,
    ]
    return cat(cx, [part for part in parts if part is not None], at, cx.shape(x))


def _write_every(cx: LoweringContext, x: ir.Value, piece: ir.Value, at: int, start: Expr, step: int) -> ir.Value:
    """``x`` with the elements at ``start``, ``start + step``, ... along ``at`` replaced by those of ``piece``.

    Element i of ``x`` belongs to row ``i // step`` of ``piece``, which is padded to as many rows as ``x`` has groups.
    """
    known = constant_of(start)
    if known is None:
        cx.unsupported("slice_scatter with a step and a symbolic start")
    skipped, place = divmod(known, step)
    total, end = cx.shape(x)[at], cx.shape(piece)[at] + skipped
    if not skipped and same_size(end * step, total):
        return _write_column(cx, x, piece, at, place, step)
    groups = ir.AffineExpr.get_ceil_div(total, as_expr(step))
    _TAKEN("steps")
    identity = [dim(k) for k in range(cx.rank(x))]
    source = [*identity[:at], ir.AffineExpr.get_floor_div(dim(at), as_expr(step)), *identity[at + 1 :]]
    is_whole = same_size(end, groups)

    def is_written(b: ScalarBuilder) -> Scalar:
        index = b.index(at)
        found = b.cmp("eq", b.rem(index, step), place)
        if skipped:
            found = b.and_(found, b.cmp("ge", index, known))
        if not is_whole:
            found = b.and_(found, b.cmp("lt", index, b.size(end * step, cx.state.symbol_value)))
        return found

    padded = _pad_dim(cx, piece, at, as_expr(skipped), end if is_whole else groups)
    return _select(cx, x, cx.view(padded, source, cx.shape(x)), identity, is_written)


def _write_column(cx: LoweringContext, x: ir.Value, piece: ir.Value, at: int, place: int, step: int) -> ir.Value:
    """``x`` in groups of ``step`` elements along ``at``, each with the element at ``place`` replaced."""
    _TAKEN("one of each group")
    shape = cx.shape(x)
    by_group = (*shape[:at], cx.shape(piece)[at], as_expr(step), *shape[at + 1 :])
    column = cx.keep_dims(piece, [at + 1])
    written = _write_slice(cx, reshape_to(cx, x, by_group), column, at + 1, as_expr(place), as_expr(1))
    return reshape_to(cx, written, shape)


def _pad_dim(cx: LoweringContext, x: ir.Value, at: int, low: Expr, size: Expr) -> ir.Value:
    """``x`` with ``low`` zeros before it along ``at``, and as many behind it as give ``size`` elements."""
    rank, after = cx.rank(x), size - low - cx.shape(x)[at]
    shape = list(cx.shape(x))
    shape[at] = size
    lows, highs = ([amount if k == at else as_expr(0) for k in range(rank)] for amount in (low, after))
    return pad(cx, x, 0, lows, highs, shape)


def _select(
    cx: LoweringContext,
    x: ir.Value,
    piece: ir.Value,
    source: Sequence[Expr],
    is_written: Callable[[ScalarBuilder], Scalar],
) -> ir.Value:
    """``x``, or ``piece`` at ``source`` where the element is written; ``source`` is in bounds everywhere."""
    rank = cx.rank(x)
    identity = [dim(k) for k in range(rank)]

    def body(b: ScalarBuilder, new: Scalar, old: Scalar, _: Scalar) -> Scalar:
        return b.select(is_written(b), new, old)

    out = cx.empty(cx.shape(x), cx.dtype(x))
    return cx.generic([piece, x], [source, identity], [out], [identity], "p" * rank, body)[0]


def _refuse_shared_memory(cx: LoweringContext) -> None:
    """ATen writes into a copy with the base's strides: where elements of windows share memory (``unfold``), what is
    written to one changes others.
    """
    strides = op_strides(cx.op, 0)
    if strides is not None and share_memory(strides, cx.result_shape()):
        cx.unsupported("elements of the result share memory")
