# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Views of one function as index expressions over the function's symbols."""

from collections.abc import Sequence
from dataclasses import dataclass

from torch_mlir import ir

from kiln.dialects import affine, kiln
from kiln.dialects.shapes import SymbolicShapes

__all__ = ["FunctionViews", "View", "divisions", "is_view"]

Expr = ir.AffineExpr


def is_view(value: ir.Value) -> bool:
    """Whether a ``kiln.view`` makes ``value``."""
    return not isinstance(value, ir.BlockArgument) and kiln.name_of(value.owner) == "kiln.view"


def divisions(exprs: Sequence[Expr]) -> int:
    """Number of floordivs and mods in ``exprs``: 0 for an access that is linear."""
    count = 0
    stack = list(exprs)
    while stack:
        expr = stack.pop().maybe_downcast()
        if isinstance(expr, ir.AffineBinaryExpr):
            count += isinstance(expr, ir.AffineFloorDivExpr | ir.AffineModExpr | ir.AffineCeilDivExpr)
            stack += [expr.lhs, expr.rhs]
    return count


@dataclass(frozen=True)
class View:
    """``result[d0..] = source[indices]`` with a result of ``sizes``; expressions over the function's symbols."""

    source: ir.Value
    indices: tuple[Expr, ...]
    sizes: tuple[Expr, ...]


class FunctionViews:
    """Reads and makes the views of one function."""

    def __init__(self, function: ir.Operation) -> None:
        self.shapes = SymbolicShapes(function)

    def sizes(self, value: ir.Value) -> tuple[Expr, ...]:
        """Sizes of a tensor."""
        return tuple(self.shapes.dims(value))

    def read(self, value: ir.Value) -> View:
        """``value`` as a view of what lies under all views; an identity of itself if no view makes it."""
        sizes = self.sizes(value)
        indices: list[Expr] = [ir.AffineExpr.get_dim(k) for k in range(len(sizes))]
        while is_view(value):
            op = value.owner
            index_map = ir.AffineMapAttr(op.attributes["map"]).value
            symbols = [self.shapes.expr(operand) for operand in list(op.operands)[1:]]
            indices = [affine.substitute(e, indices, symbols) for e in index_map.results]
            value = op.operands[0]
        return View(value, tuple(affine.simplify(e, sizes) for e in indices), sizes)

    def read_one(self, value: ir.Value) -> View:
        """The one view that makes ``value``, whatever makes its source."""
        op = value.owner
        symbols = [self.shapes.expr(operand) for operand in list(op.operands)[1:]]
        sizes = self.sizes(value)
        results = ir.AffineMapAttr(op.attributes["map"]).value.results
        indices = tuple(affine.simplify(affine.substitute(e, {}, symbols), sizes) for e in results)
        return View(op.operands[0], indices, sizes)

    def is_identity(self, view: View) -> bool:
        """Whether the view is its source; a dim of size 1 may be read at 0."""
        source = self.sizes(view.source)
        if len(source) != len(view.sizes):
            return False
        for k, (index, size, own) in enumerate(zip(view.indices, view.sizes, source, strict=True)):
            single = affine.constant_of(size) == 1 and affine.constant_of(index) == 0
            if not (single or index == ir.AffineExpr.get_dim(k)) or not affine.equal(size, own):
                return False
        return True

    def emit(self, view: View) -> ir.Value:
        """A ``kiln.view`` at the insertion point, or the source itself for an identity."""
        if self.is_identity(view):
            return view.source
        used: set[int] = set()
        for expr in (*view.indices, *view.sizes):
            used |= affine.symbols_in(expr)
        symbols = self.shapes.values(used)
        return kiln.view(view.source, list(view.indices), list(view.sizes), symbols)
