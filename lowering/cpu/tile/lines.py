# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Index expressions along the lanes of a vector that are no straight lines, but need no gather either.

Lines that jump once, and go on in parallel: a roll reads `(d + 127) mod 128`, a flattened slice
`(d floordiv 50) * 80 + d mod 50`. Where the divisor is a constant not below the number of lanes, or the number of all
positions of the lanes' loop, known at run time only, a vector crosses at most one of its multiples: two masked loads
have its elements, where a gather would take them one by one and divide for each.

Patterns: known steps from the first lane. What is repeated reads `d floordiv 2`, what is interleaved asks whether
`d mod 2` is 0. Where the divisor divides the index of the first lane, quotients and remainders are constants.
"""

from dataclasses import dataclass

from torch_mlir import ir

from kiln.dialects import affine
from kiln.lowering.tile.access import is_multiple, lane_coefficient

__all__ = ["PARTS", "Bend", "Pattern", "Piece", "bent_line", "lane_pattern", "pieces"]

PARTS = 4
"""Loads that are shuffled into one vector, and lanes that share an element, at most."""


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
    """dim: that of the lanes; extent: of its loop, if it is known; crossed: the dividend at the first lane and its
    divisor, the same for all that bends.
    """

    dim: int
    width: int
    multiple_of: int
    extent: ir.AffineExpr | None = None
    crossed: tuple[ir.AffineExpr, ir.AffineExpr] | None = None

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
        divisor = expr.rhs.maybe_downcast()
        if left[0] != ir.AffineConstantExpr.get(1) or left[2] != zero or not self._is_long(divisor):
            return None
        if self.crossed not in (None, (left[1], divisor)):
            return None
        self.crossed = left[1], divisor
        if isinstance(expr, ir.AffineModExpr):
            return left[0], ir.AffineExpr.get_mod(left[1], divisor), divisor * -1
        if isinstance(expr, ir.AffineFloorDivExpr):
            return zero, ir.AffineExpr.get_floor_div(left[1], divisor), ir.AffineConstantExpr.get(1)
        return None

    def _is_long(self, divisor: ir.AffineExpr) -> bool:
        """Whether the lanes in use cross one of its multiples at most."""
        known = affine.constant_of(divisor)
        if known is None:
            return self.extent is not None and divisor == self.extent
        return known >= self.width


def bent_line(
    expr: ir.AffineExpr, dim: int, width: int, multiple_of: int, extent: ir.AffineExpr | None = None
) -> Bend | None:
    """`expr` along `width` lanes of `dim`, whose first is a multiple of `multiple_of`; None if it is no such line.

    extent: of the lanes' loop, which begins at 0, where lanes behind it are in no use.
    """
    walk = _Walk(dim, width, multiple_of, extent)
    found = walk.line(expr)
    if found is None or walk.crossed is None:
        return None
    dividend, divisor = walk.crossed
    return Bend(*found, divisor - ir.AffineExpr.get_mod(dividend, divisor))


Pattern = tuple[ir.AffineExpr, tuple[int, ...]]
"""An index at the first lane, and what each lane has more."""


def lane_pattern(expr: ir.AffineExpr, dim: int, width: int, multiple_of: int) -> Pattern | None:
    """The pattern of `expr` along `width` lanes of `dim`, whose first is a multiple of `multiple_of`, if it is one."""
    expr = expr.maybe_downcast()
    same = (0,) * width
    if dim not in affine.dims_in(expr):
        return expr, same
    if isinstance(expr, ir.AffineDimExpr):
        return expr, tuple(range(width))
    left, right = (lane_pattern(e, dim, width, multiple_of) for e in (expr.lhs, expr.rhs))
    if left is None or right is None:
        return None
    if isinstance(expr, ir.AffineAddExpr):
        return left[0] + right[0], tuple(x + y for x, y in zip(left[1], right[1], strict=True))
    by = affine.constant_of(expr.rhs)
    if by is None or by <= 0:
        return None
    if isinstance(expr, ir.AffineMulExpr):
        return left[0] * by, tuple(x * by for x in left[1])
    # What divides the first lane's index, but for a constant, which the steps take along.
    linear = affine.linear_coefficients(left[0])
    first = affine.constant_of(linear[0]) if linear is not None else None
    more = 0 if first is None else first % by
    start = affine.simplify(left[0] - more)
    if multiple_of % by or not is_multiple(start, by, dim):
        return None
    if isinstance(expr, ir.AffineModExpr):
        return ir.AffineConstantExpr.get(0), tuple((x + more) % by for x in left[1])
    if isinstance(expr, ir.AffineFloorDivExpr):
        return ir.AffineExpr.get_floor_div(start, by), tuple((x + more) // by for x in left[1])
    return None


@dataclass(frozen=True)
class Piece:
    """Neighbours that some lanes read: `count` elements from `start` on; `lanes` of each."""

    start: int
    lanes: tuple[tuple[int, ...], ...]

    @property
    def count(self) -> int:
        """Elements from the first to the last one that is read."""
        return len(self.lanes)


def pieces(steps: tuple[int, ...]) -> list[Piece] | None:
    """The loads that bring what lanes read, no longer than the vector; None where they, or the lanes that share an
    element, are too many.
    """
    readers: dict[int, list[int]] = {}
    for lane, step in enumerate(steps):
        readers.setdefault(step, []).append(lane)
    found: list[list[int]] = []
    for step in sorted(readers):
        if not found or step - found[-1][0] >= len(steps):
            found.append([step])
        found[-1].append(step)
    if len(found) > PARTS or max(map(len, readers.values())) > PARTS:
        return None
    spans = [range(group[0], group[-1] + 1) for group in found]
    return [Piece(span[0], tuple(tuple(readers.get(i, ())) for i in span)) for span in spans]
