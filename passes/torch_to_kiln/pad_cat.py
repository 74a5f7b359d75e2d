# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Concatenation, padding and triangles."""

from collections.abc import Sequence

from torch_mlir import ir

from .context import LoweringContext
from .registry import lowers
from .scalars import Scalar, ScalarBuilder
from .shape_ops import cat, pad
from .sizes import Expr, as_expr, constant_of, dim
from .views import copy


@lowers("torch.aten.cat", "torch.aten.concat", "torch.aten.concatenate", "torch.prims.cat")
def lower_cat(cx: LoweringContext) -> ir.Value:
    """``cat(tensors, dim)``. Types are promoted; a 1-d tensor of size 0 joins tensors of any rank and adds nothing."""
    dtype, shape = cx.result_dtype(), cx.result_shape()
    inputs = [x for x in cx.tensors(0) if cx.rank(x) == len(shape)]
    at = cx.normalize_dim(cx.const_int(1, 0), len(shape))
    parts = [cx.cast(x, dtype) for x in inputs if constant_of(cx.shape(x)[at]) != 0]
    if not parts:
        return cx.empty(shape, dtype)
    # A concatenation of one tensor is a new tensor all the same.
    return cat(cx, parts, at, shape) if len(parts) > 1 else copy(cx, parts[0])


@lowers("torch.aten.stack")
def lower_stack(cx: LoweringContext) -> ir.Value:
    """`aten.stack`: each tensor with a dim of size 1, concatenated along it."""
    shape = cx.result_shape()
    at = cx.normalize_dim(cx.const_int(1, 0), len(shape))
    parts = [cx.keep_dims(cx.cast(x, cx.result_dtype()), [at]) for x in cx.tensors(0)]
    return cat(cx, parts, at, shape) if len(parts) > 1 else copy(cx, parts[0])


def _amounts(cx: LoweringContext, operand: int, rank: int) -> tuple[list[Expr], list[Expr]]:
    """PyTorch's pad list ``[last low, last high, next low, ...]`` as amounts per dim."""
    given = cx.indices(operand)
    low, high = [as_expr(0)] * rank, [as_expr(0)] * rank
    for k in range(len(given) // 2):
        low[rank - 1 - k], high[rank - 1 - k] = given[2 * k], given[2 * k + 1]
    return low, high


@lowers("torch.aten.constant_pad_nd")
def lower_constant_pad(cx: LoweringContext) -> ir.Value:
    """``constant_pad_nd(x, pad, value)``; negative amounts crop."""
    x = cx.tensor(0)
    low, high = _amounts(cx, 1, cx.rank(x))
    value = cx.number(2) if not cx.is_none(2) else 0
    padded = pad(cx, x, value, low, high, cx.result_shape())
    return copy(cx, x) if padded == x else padded


@lowers("torch.aten.pad")
def lower_pad(cx: LoweringContext) -> ir.Value:
    """``pad(x, pad, mode, value)``."""
    x, mode = cx.tensor(0), cx.const_str(2)
    low, high = _amounts(cx, 1, cx.rank(x))
    if mode == "constant":
        value = cx.number(3) if not cx.is_none(3) else 0
        return pad(cx, x, value, low, high, cx.result_shape())
    if mode == "reflect":
        return _mirror(cx, x, low, high, repeat_edge=False)
    if mode == "replicate":
        return _mirror(cx, x, low, high, repeat_edge=True)
    cx.unsupported(f"padding mode {mode!r}")


@lowers("torch.aten.reflection_pad1d", "torch.aten.reflection_pad2d", "torch.aten.reflection_pad3d")
def lower_reflection_pad(cx: LoweringContext) -> ir.Value:
    """`aten.reflection_pad{1,2,3}d`: a view that reads back from the edges, without these."""
    x = cx.tensor(0)
    low, high = _amounts(cx, 1, cx.rank(x))
    return _mirror(cx, x, low, high, repeat_edge=False)


@lowers("torch.aten.replication_pad1d", "torch.aten.replication_pad2d", "torch.aten.replication_pad3d")
def lower_replication_pad(cx: LoweringContext) -> ir.Value:
    """`aten.replication_pad{1,2,3}d`: a view that reads the edges again."""
    x = cx.tensor(0)
    low, high = _amounts(cx, 1, cx.rank(x))
    return _mirror(cx, x, low, high, repeat_edge=True)


def _mirror(cx: LoweringContext, x: ir.Value, low: Sequence[Expr], high: Sequence[Expr], repeat_edge: bool) -> ir.Value:
    """Pads dim by dim: views of the edges (repeated, or mirrored without the edge itself) around the tensor.

    Views keep every index affine, so that this holds for symbolic sizes.
    """
    for at in reversed(range(cx.rank(x))):
        before, after = low[at], high[at]
        for amount in (before, after):
            known = constant_of(amount)
            if known is None or known < 0:
                cx.unsupported(f"padding by {amount}: expected a constant that is not negative")
        size = cx.shape(x)[at]
        parts = [x]
        if constant_of(before):
            first = as_expr(0) if repeat_edge else before - dim(at)
            parts.insert(0, _edge(cx, x, at, first, before))
        if constant_of(after):
            last = size - 1 if repeat_edge else size - 2 - dim(at)
            parts.append(_edge(cx, x, at, last, after))
        shape = list(cx.shape(x))
        shape[at] = before + size + after
        x = cat(cx, parts, at, shape)
    return x


def _edge(cx: LoweringContext, x: ir.Value, at: int, index: Expr, count: Expr) -> ir.Value:
    """``count`` elements of ``x`` along ``at``, the one at position ``d`` taken from ``index``."""
    indices: list[Expr] = [dim(k) for k in range(cx.rank(x))]
    indices[at] = index
    shape = list(cx.shape(x))
    shape[at] = count
    return cx.view(x, indices, shape)


@lowers("torch.aten.tril", "torch.aten.triu")
def lower_triangle(cx: LoweringContext) -> ir.Value:
    """``tril(x, diagonal)`` keeps elements with ``column - row <= diagonal``, ``triu`` those with ``>=``."""
    x, diagonal = cx.tensor(0), cx.const_int(1, 0)
    rank, keep = cx.rank(x), "le" if cx.name == "torch.aten.tril" else "ge"
    identity = [dim(k) for k in range(rank)]

    def body(b: ScalarBuilder, value: Scalar, _: Scalar) -> Scalar:
        offset = b.sub(b.index(rank - 1), b.index(rank - 2))
        return b.select(b.cmp(keep, offset, diagonal), value, 0)

    return cx.generic([x], [identity], [cx.empty(cx.shape(x), cx.dtype(x))], [identity], "p" * rank, body)[0]


@lowers("torch.aten.diag_embed")
def lower_diag_embed(cx: LoweringContext) -> ir.Value:
    """``diag_embed(x, offset, dim1, dim2)``: the last dim of ``x`` on a diagonal, zeros elsewhere."""
    x, offset = cx.tensor(0), cx.const_int(1, 0)
    shape = cx.result_shape()
    rank = len(shape)
    a, b_dim = cx.dim(2, rank), cx.dim(3, rank)
    if offset < 0:
        a, b_dim, offset = b_dim, a, -offset
    rest = [dim(k) for k in range(rank) if k not in (a, b_dim)]
    # Row k of the diagonal is x[..., k]: repeat x along the other dim, padded to the square's side.
    padded = pad(cx, x, 0, [0] * cx.rank(x), [0] * (cx.rank(x) - 1) + [offset]) if offset else x
    identity = [dim(k) for k in range(rank)]

    def body(b: ScalarBuilder, value: Scalar, _: Scalar) -> Scalar:
        on_diagonal = b.cmp("eq", b.sub(b.index(b_dim), b.index(a)), offset)
        return b.select(on_diagonal, value, 0)

    out = cx.empty(shape, cx.dtype(x))
    return cx.generic([padded], [[*rest, dim(a)]], [out], [identity], "p" * rank, body)[0]
