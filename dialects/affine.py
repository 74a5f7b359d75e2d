# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Affine expressions from Python: substitution, evaluation, simplification, linear form, text."""

from collections.abc import Callable, Mapping, Sequence

from torch_mlir import ir

_BUILD: dict[type, Callable[[ir.AffineExpr, ir.AffineExpr], ir.AffineExpr]] = {
    ir.AffineAddExpr: ir.AffineExpr.get_add,
    ir.AffineMulExpr: ir.AffineExpr.get_mul,
    ir.AffineModExpr: ir.AffineExpr.get_mod,
    ir.AffineFloorDivExpr: ir.AffineExpr.get_floor_div,
    ir.AffineCeilDivExpr: ir.AffineExpr.get_ceil_div,
}


def symbols_in(expr: ir.AffineExpr) -> set[int]:
    """Positions of the symbols that occur in `expr`."""
    if isinstance(expr, ir.AffineSymbolExpr):
        return {expr.position}
    if isinstance(expr, ir.AffineBinaryExpr):
        return symbols_in(expr.lhs) | symbols_in(expr.rhs)
    return set()


def dims_in(expr: ir.AffineExpr) -> set[int]:
    """Positions of the dims that occur in `expr`."""
    if isinstance(expr, ir.AffineDimExpr):
        return {expr.position}
    if isinstance(expr, ir.AffineBinaryExpr):
        return dims_in(expr.lhs) | dims_in(expr.rhs)
    return set()


Replacements = Mapping[int, ir.AffineExpr] | Sequence[ir.AffineExpr]


def substitute(expr: ir.AffineExpr, dims: Replacements = (), symbols: Replacements = ()) -> ir.AffineExpr:
    """`expr` with dims and symbols replaced by position; positions that are not given stay."""
    d = dims if isinstance(dims, Mapping) else dict(enumerate(dims))
    s = symbols if isinstance(symbols, Mapping) else dict(enumerate(symbols))

    def walk(e: ir.AffineExpr) -> ir.AffineExpr:
        if isinstance(e, ir.AffineDimExpr):
            return d.get(e.position, e)
        if isinstance(e, ir.AffineSymbolExpr):
            return s.get(e.position, e)
        if isinstance(e, ir.AffineBinaryExpr):
            return _BUILD[type(e)](walk(e.lhs), walk(e.rhs))
        return e

    return walk(expr)
