# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Products of matrices whose rows were reordered, as products of the rows as they lie."""

from collections.abc import Sequence
from typing import TypeVar

from torch_mlir import ir

from kiln.dialects import affine, kiln
from kiln.lowering import paths
from kiln.passes.views.elementwise import is_elementwise, rebuild_elementwise
from kiln.passes.views.function_views import FunctionViews, View

__all__ = ["follow_row_order", "row_order"]

_T = TypeVar("_T")
_TAKEN = paths.group("any row-order", "alone", "with what is behind")

Order = tuple[int, ...]
"""Position in memory's order -> dim of the value."""


def row_order(op: ir.Operation, views: FunctionViews) -> Order | None:
    """The order of the left operand's source if it is another one, and what is behind the product can have it.

    A left operand [T, B, K] that is a view of [B, T, K] with a right operand for all rows; None for any other. Rows
    of such a view are steps of B times T rows apart, of which a tile of a product could take no more than B.
    """
    lhs, rhs = op.operands
    view = views.read(lhs)
    rank = len(view.sizes)
    if rank < 3 or ir.RankedTensorType(rhs.type).rank != 2 or ir.BoolAttr(op.attributes["transpose_lhs"]).value:
        return None
    dims = [index.maybe_downcast() for index in view.indices]
    order = tuple(d.position for d in dims if isinstance(d, ir.AffineDimExpr))
    if order == tuple(range(rank)) or sorted(order) != [*range(rank)] or len(dims) != rank or order[-1] != rank - 1:
        return None
    return order if _can_follow(op.results[0], views) else None


def _can_follow(value: ir.Value, views: FunctionViews) -> bool:
    """Whether nothing that a kernel of the product could hold stands behind it, but what follows its order."""
    users = [use.owner.operation for use in value.uses]
    generics = [user for user in users if user.name == "linalg.generic"]
    return all(_follows(user, value) and _can_follow(user.results[0], views) for user in generics)


def _follows(op: ir.Operation, value: ir.Value) -> bool:
    """Whether an op is elementwise and reads, besides ``value``, only what is the same for all rows."""
    if not is_elementwise(op):
        return False
    maps = [ir.AffineMapAttr(m).value for m in ir.ArrayAttr(op.attributes["indexing_maps"])]
    last = maps[-1].n_dims - 1
    for operand, map_ in zip(list(op.operands)[:-1], maps[:-1], strict=True):
        if operand == value:
            if map_ != maps[-1]:
                return False
        elif any(affine.dims_in(e) - {last} for e in map_.results):
            return False
    return True


def follow_row_order(op: ir.Operation, order: Order, views: FunctionViews) -> int:
    """Rewrite a product and the elementwise ops behind it to rows in ``order``; the number of ops rewritten.

    All other users read a view with the rows as they were.
    """
    view = views.read(op.operands[0])
    sizes = _ordered(views.sizes(op.results[0]), order)
    flags = [ir.BoolAttr(op.attributes[key]).value for key in ("transpose_lhs", "transpose_rhs")]
    with ir.InsertionPoint(op), op.location:
        element = ir.RankedTensorType(op.results[0].type).element_type
        type_ = ir.RankedTensorType.get(_ordered(ir.RankedTensorType(op.results[0].type).shape, order), element)
        product = kiln.matmul(view.source, op.operands[1], type_, *flags)
    behind = _replace(op.results[0], product, sizes, order, views)
    _TAKEN("with what is behind" if behind else "alone")
    return 1 + behind


def _replace(old: ir.Value, new: ir.Value, sizes: tuple[ir.AffineExpr, ...], order: Order, views: FunctionViews) -> int:
    """Let users of ``old`` read ``new``, whose dims are those of ``old`` in ``order``; erases the op of ``old``."""
    count = 0
    users = [use.owner.operation for use in old.uses if use.owner.operation.name == "linalg.generic"]
    for user in dict.fromkeys(users):  # one that reads it twice is one user
        with ir.InsertionPoint(user), user.location:
            moved = _moved(user, old, new, sizes, order, views)
        count += 1 + _replace(user.results[0], moved, sizes, order, views)
    owner = old.owner.operation
    with ir.InsertionPoint(owner), owner.location:
        back = [ir.AffineExpr.get_dim(k) for k in order]
        old.replace_all_uses_with(views.emit(View(new, tuple(back), views.sizes(old))))
    views.shapes.forget(old)
    owner.erase()
    return count


def _moved(
    op: ir.Operation, old: ir.Value, new: ir.Value, sizes: tuple[ir.AffineExpr, ...], order: Order, views: FunctionViews
) -> ir.Value:
    """An elementwise op that follows, on ``new`` and its loops."""
    used: set[int] = set()
    for size in sizes:
        used |= affine.symbols_in(size)
    element = ir.RankedTensorType(op.results[0].type).element_type
    out = kiln.empty(element, list(sizes), views.shapes.values(used))
    loops: list[ir.AffineExpr] = [ir.AffineExpr.get_dim(k) for k in range(len(order))]
    maps: list[list[ir.AffineExpr]] = [
        list(ir.AffineMapAttr(m).value.results) for m in ir.ArrayAttr(op.attributes["indexing_maps"])
    ]
    operands = list(op.operands)[:-1]
    exprs = [loops if operand == old else map_ for operand, map_ in zip(operands, maps[:-1], strict=True)]
    return rebuild_elementwise(
        op, [*(new if operand == old else operand for operand in operands), out], [*exprs, loops], len(loops)
    )


def _ordered(values: Sequence[_T], order: Order) -> tuple[_T, ...]:
    return tuple(values[k] for k in order)
