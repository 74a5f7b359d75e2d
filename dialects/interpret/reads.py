# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Reads of a tensor at affine index maps: views where strides can say it, else ATen's indexing."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch_mlir import ir

__all__ = ["Box", "grid", "linear", "read", "window"]


@dataclass(frozen=True)
class Box:
    """A part of an iteration space: the first index and the number of indices along each loop."""

    starts: tuple[int, ...]
    extents: tuple[int, ...]

    @classmethod
    def whole(cls, extents: Sequence[int]) -> "Box":
        """All points of loops with these extents."""
        return cls((0,) * len(extents), tuple(extents))

    def part(self, loop: int, start: int, extent: int) -> "Box":
        """The indices of one loop from `start` on."""
        starts, extents = list(self.starts), list(self.extents)
        starts[loop], extents[loop] = start, extent
        return Box(tuple(starts), tuple(extents))


def linear(expr: ir.AffineExpr, symbols: Sequence[int]) -> tuple[int, dict[int, int]] | None:
    """Constant and coefficient of each loop that occurs; None where `expr` is not linear in the loops."""
    expr = expr.maybe_downcast()
    if isinstance(expr, ir.AffineConstantExpr):
        return expr.value, {}
    if isinstance(expr, ir.AffineDimExpr):
        return 0, {expr.position: 1}
    if isinstance(expr, ir.AffineSymbolExpr):
        return symbols[expr.position], {}
    a, b = linear(expr.lhs, symbols), linear(expr.rhs, symbols)
    if a is None or b is None:
        return None
    if isinstance(expr, ir.AffineAddExpr):
        sums = {d: a[1].get(d, 0) + b[1].get(d, 0) for d in {*a[1], *b[1]}}
        return a[0] + b[0], {d: c for d, c in sums.items() if c}
    if isinstance(expr, ir.AffineMulExpr):
        if a[1] and b[1]:
            return None
        (base, terms), factor = (a, b[0]) if not b[1] else (b, a[0])
        return base * factor, {d: c * factor for d, c in terms.items() if c * factor}
    if a[1] or b[1]:
        return None
    if isinstance(expr, ir.AffineModExpr):
        return a[0] % b[0], {}
    return (a[0] // b[0] if isinstance(expr, ir.AffineFloorDivExpr) else -(-a[0] // b[0])), {}


def grid(expr: ir.AffineExpr, box: Box, symbols: Sequence[int], device: torch.device) -> torch.Tensor:
    """The values of `expr` over a box, of size 1 along loops that it does not depend on."""
    expr = expr.maybe_downcast()
    rank = len(box.extents)
    if isinstance(expr, ir.AffineDimExpr):
        d = expr.position
        shape = [box.extents[d] if k == d else 1 for k in range(rank)]
        return torch.arange(box.starts[d], box.starts[d] + box.extents[d], device=device).view(shape)
    if isinstance(expr, ir.AffineConstantExpr | ir.AffineSymbolExpr):
        value = expr.value if isinstance(expr, ir.AffineConstantExpr) else symbols[expr.position]
        return torch.full((1,) * rank, value, dtype=torch.int64, device=device)
    a, b = grid(expr.lhs, box, symbols, device), grid(expr.rhs, box, symbols, device)
    if isinstance(expr, ir.AffineAddExpr):
        return a + b
    if isinstance(expr, ir.AffineMulExpr):
        return a * b
    if isinstance(expr, ir.AffineModExpr):
        return torch.remainder(a, b)
    if isinstance(expr, ir.AffineFloorDivExpr):
        return torch.div(a, b, rounding_mode="floor")
    return -torch.div(-a, b, rounding_mode="floor")


def window(x: torch.Tensor, exprs: Sequence[ir.AffineExpr], box: Box, symbols: Sequence[int]) -> torch.Tensor | None:
    """A view of `x` with one dim per loop, of size 1 along loops that no index depends on.

    None where strides cannot say it: an index that is not linear in the loops, or runs backwards.  Raises IndexError
    for an index that leaves `x`.
    """
    offset, strides = x.storage_offset(), [0] * len(box.extents)
    used: set[int] = set()
    for d, expr in enumerate(exprs):
        found = linear(expr, symbols)
        if found is None or any(c < 0 for c in found[1].values()):
            return None
        base, terms = found
        first = base + sum(c * box.starts[k] for k, c in terms.items())
        last = first + sum(c * (box.extents[k] - 1) for k, c in terms.items())
        if first < 0 or last >= x.shape[d]:
            raise IndexError(f"index {expr} runs from {first} to {last} in a dim of size {x.shape[d]}")
        offset += first * x.stride(d)
        for k, c in terms.items():
            used.add(k)
            strides[k] += c * x.stride(d)
    sizes = [n if k in used else 1 for k, n in enumerate(box.extents)]
    return x.as_strided(sizes, strides, offset)


def read(x: torch.Tensor, exprs: Sequence[ir.AffineExpr], box: Box, symbols: Sequence[int] = ()) -> torch.Tensor:
    """`x[exprs(loops)]` over a box, of size 1 along loops that no index depends on."""
    if 0 in box.extents:
        return x.new_empty(box.extents)
    view = window(x, exprs, box, symbols)
    if view is not None:
        return view
    indices = [grid(e, box, symbols, x.device) for e in exprs]
    check_bounds(indices, x.shape)
    return x[tuple(indices)]


def check_bounds(indices: Sequence[torch.Tensor], sizes: Sequence[int]) -> None:
    """Raise IndexError for an index that is negative or beyond its dim."""
    for d, (index, size) in enumerate(zip(indices, sizes, strict=True)):
        low, high = (int(v) for v in index.aminmax())
        if low < 0 or high >= size:
            raise IndexError(f"index {low if low < 0 else high} is out of bounds of dim {d} of size {size}")
