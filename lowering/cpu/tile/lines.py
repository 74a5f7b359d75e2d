# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Index expressions that follow a line along the lanes of a vector, jump once, and go on in parallel.

A roll reads `(d + 127) mod 128`, a flattened slice `(d floordiv 50) * 80 + d mod 50`. Where the divisor is a constant
not below the number of lanes, a vector crosses at most one of its multiples: two masked loads have its elements, where
a gather would take them one by one and divide for each.
"""

from dataclasses import dataclass

from torch_mlir import ir

from kiln.dialects import affine
from kiln.lowering.tile.access import lane_coefficient

__all__ = ["Bend", "bent_line"]


@dataclass(frozen=True)
class Bend:
    """Lane l has `base + stride * l` below lane number `at`, and `jump` more from there on. The lanes' dim stands for
    the first lane in `base` and `at`, neither `stride` nor `jump` depends on it, and 1 <= at.
    """

    stride: ir.AffineExpr
    base: ir.AffineExpr
    jump: ir.AffineExpr
    at: ir.AffineExpr


@dataclass
class _Walk:
    """dim: that of the lanes; crossed: the dividend at the first lane and its divisor, the same for all that bends."""

    dim: int
    width: int
    multiple_of: int
    crossed: tuple[ir.AffineExpr, int] | None = None

    def line(self, expr: ir.AffineExpr) -> tuple[ir.AffineExpr, ir.AffineExpr, ir.AffineExpr] | None:
        """Stride, base and jump of an expression."""
        zero = ir.AffineConstantExpr.get(0)
        expr = expr.maybe_downcast()
        straight = lane_coefficient(expr, self.dim, self.multiple_of)
        if straight is not None:
            return *straight, zero
        left, right = self.line(expr.lhs), self.line(expr.rhs)
        if left is None or right is None:
            return None
        if isinstance(expr, ir.AffineAddExpr):
            return left[0] + right[0], left[1] + right[1], left[2] + right[2]
        if isinstance(expr, ir.AffineMulExpr):
            by, moved = (expr.rhs, left) if self.dim not in affine.dims_in(expr.rhs) else (expr.lhs, right)
            return (moved[0] * by, moved[1] * by, moved[2] * by) if self.dim not in affine.dims_in(by) else None
        divisor = affine.constant_of(expr.rhs)
        if left[0] != ir.AffineConstantExpr.get(1) or left[2] != zero or divisor is None or divisor < self.width:
            return None
        if self.crossed not in (None, (left[1], divisor)):
            return None
        self.crossed = left[1], divisor
        if isinstance(expr, ir.AffineModExpr):
            return left[0], ir.AffineExpr.get_mod(left[1], divisor), ir.AffineConstantExpr.get(-divisor)
        if isinstance(expr, ir.AffineFloorDivExpr):
            return zero, ir.AffineExpr.get_floor_div(left[1], divisor), ir.AffineConstantExpr.get(1)
        return None


def bent_line(expr: ir.AffineExpr, dim: int, width: int, multiple_of: int) -> Bend | None:
    """`expr` along `width` lanes of `dim`, whose first is a multiple of `multiple_of`; None if it is no such line."""
    walk = _Walk(dim, width, multiple_of)
    found = walk.line(expr)
    if found is None or walk.crossed is None:
        return None
    dividend, divisor = walk.crossed
    return Bend(*found, ir.AffineConstantExpr.get(divisor) - ir.AffineExpr.get_mod(dividend, divisor))
