# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Small helpers on affine expressions that stand for sizes: constants, and packing of the symbols in use."""

from collections.abc import Sequence
from itertools import pairwise

from torch_mlir import ir

__all__ = [
    "Expr",
    "as_expr",
    "constant_of",
    "dim",
    "pack_symbols",
    "product",
    "renumber",
    "share_memory",
    "used_symbols",
]

Expr = ir.AffineExpr


def as_expr(value: "int | ir.AffineExpr") -> ir.AffineExpr:
    """A constant expression for an int; expressions as they are."""
    return ir.AffineExpr.get_constant(value) if isinstance(value, int) else value


def constant_of(expr: "int | ir.AffineExpr") -> int | None:
    """The value of a constant expression, else None."""
    if isinstance(expr, int):
        return expr
    expr = expr.maybe_downcast()
    return expr.value if isinstance(expr, ir.AffineConstantExpr) else None


def share_memory(strides: Sequence[Expr], sizes: Sequence[Expr]) -> bool:
    """Whether elements of a tensor lie in one place, as those of windows do (``unfold``), as far as strides are known.

    A size that is known at run time only is at least 2: others are constants.
    """
    known = [(constant_of(stride), constant_of(size)) for stride, size in zip(strides, sizes, strict=True)]
    walked = sorted((s, 2 if n is None else n) for s, n in known if s is not None and (n is None or n > 1))
    return any(step < inner * count for (inner, count), (step, _) in pairwise(walked))


def dim(position: int) -> ir.AffineExpr:
    """``d<position>``."""
    return ir.AffineExpr.get_dim(position)


def product(exprs: Sequence["int | ir.AffineExpr"]) -> ir.AffineExpr:
    """The product; 1 for none."""
    result = ir.AffineExpr.get_constant(1)
    for expr in exprs:
        result = result * as_expr(expr)
    return result


def used_symbols(exprs: Sequence[ir.AffineExpr]) -> list[int]:
    """Positions of the symbols that occur, ascending."""
    found: set[int] = set()
    stack = list(exprs)
    while stack:
        expr = stack.pop().maybe_downcast()
        if isinstance(expr, ir.AffineSymbolExpr):
            found.add(expr.position)
        elif isinstance(expr, ir.AffineBinaryExpr):
            stack += [expr.lhs, expr.rhs]
    return sorted(found)


def renumber(expr: ir.AffineExpr, table: dict[int, int]) -> ir.AffineExpr:
    """``expr`` with symbol ``s<k>`` become ``s<table[k]>``."""
    expr = expr.maybe_downcast()
    if isinstance(expr, ir.AffineSymbolExpr):
        return ir.AffineExpr.get_symbol(table[expr.position])
    if not isinstance(expr, ir.AffineBinaryExpr):
        return expr
    lhs, rhs = renumber(expr.lhs, table), renumber(expr.rhs, table)
    if isinstance(expr, ir.AffineAddExpr):
        return lhs + rhs
    if isinstance(expr, ir.AffineMulExpr):
        return lhs * rhs
    if isinstance(expr, ir.AffineModExpr):
        return lhs % rhs
    if isinstance(expr, ir.AffineFloorDivExpr):
        return ir.AffineExpr.get_floor_div(lhs, rhs)
    return ir.AffineExpr.get_ceil_div(lhs, rhs)


def pack_symbols(*groups: tuple[int, Sequence[ir.AffineExpr]]) -> tuple[list[ir.AffineMap], list[int]]:
    """One map per group ``(number of dims, results)``, over just the symbols that any of them uses.

    Returns the maps and the positions of those symbols: the trailing operands of the op that gets the maps.
    """
    used = used_symbols([expr for _, exprs in groups for expr in exprs])
    table = {position: k for k, position in enumerate(used)}
    if any(position != k for position, k in table.items()):
        groups = tuple((dims, [renumber(expr, table) for expr in exprs]) for dims, exprs in groups)
    return [ir.AffineMap.get(dims, len(used), list(exprs)) for dims, exprs in groups], used
