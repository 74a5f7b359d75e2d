# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The tile: its axes, which positions along them are in bounds, and what an index is as a block."""

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from torch_mlir import ir
from torch_mlir.dialects import arith

from kiln.dialects import affine, tt
from kiln.lowering.gpu.builder import Builder, Condition, Index
from kiln.lowering.tile import scopes as shared
from kiln.lowering.tile.scopes import Guard


@dataclass
class Axis:
    """An axis of the tile: block size, and which of its positions are in bounds (None: all)."""

    size: int
    mask: ir.Value | None = None


class Scopes(shared.Scopes):
    """The tile and the open loops of a kernel, and the values of their dims.

    A loop dim is bound to a scalar (a position that the program or a loop gives) or to a block along one axis of the
    tile (`size` along it, 1 along the others), so an expression over dims is no larger than what it depends on.  Code
    goes into the outermost scope that binds what it depends on, once.
    """

    b: Builder

    def __init__(self, b: Builder, symbols: Sequence[Index]):
        super().__init__(b, symbols, ir.InsertionPoint.current.block.owner.operation)
        self.axes: list[Axis] = []
        self.axis_of: dict[int, int] = {}

    # -- the tile ----------------------------------------------------------------------------------------------

    def lanes(self, axis: int) -> ir.Value:
        """0, 1, ..., along an axis of the tile."""
        return self.b.lanes(self.axes[axis].size, axis, len(self.axes))

    def bind_axis(self, axis: int, dim: int, start: Index, extent: Index | None = None) -> Index:
        """Binds a loop dim to an axis, from `start` on; sets the axis' mask by `extent` (default: the loop's).

        Returns the positions.  To be used inside of `inside`, or at the start of the kernel.
        """
        b, size = self.b, self.axes[axis].size
        position = b.addi(start, self.lanes(axis)) if size > 1 else start
        limit = self.index(self.loops.extents[dim]) if extent is None else extent
        whole = isinstance(limit, int) and (limit % size == 0 if not isinstance(start, int) else start + size <= limit)
        condition: Condition = True if whole or size == 1 else b.cmpi("slt", position, limit)
        self.axes[axis].mask = condition if isinstance(condition, ir.Value) else None
        self.values[dim] = position
        self.axis_of[dim] = axis
        self.scopes[-1].dims.add(dim)
        return position

    def tile_shape(self) -> list[int]:
        """The sizes of the tile, one per axis."""
        return [axis.size for axis in self.axes]

    def shape_along(self, exprs: Sequence[ir.AffineExpr]) -> list[int]:
        """The tile's size along each axis that the expressions depend on, 1 along the others; empty if all are 1."""
        used = {self.axis_of.get(d) for e in exprs for d in affine.dims_in(e)}
        shape = [axis.size if k in used else 1 for k, axis in enumerate(self.axes)]
        return shape if any(n > 1 for n in shape) else []

    def mask_for(self, value: ir.Value, guard: Guard | None = None) -> Condition:
        """Which elements of a block (of offsets) may touch memory: in bounds along its axes, and behind the guard."""
        mask: Condition = True if guard is None else guard.mask
        shape = tt.shape_of(value.type)
        for axis, size in zip(self.axes, shape, strict=False):
            if size > 1 and axis.mask is not None:
                mask = self.b.andc(mask, axis.mask)
        return mask

    # -- scopes ------------------------------------------------------------------------------------------------

    @contextmanager
    def inside(self, dims: dict[int, Index]) -> Generator[None, None, None]:
        """As for every target; a loop inside may bind the same dims and axes again: another walk along the row."""
        values, masks = self.values, [axis.mask for axis in self.axes]
        self.values = dict(values)
        with super().inside(dims):
            yield
        for axis, mask in zip(self.axes, masks, strict=True):
            axis.mask = mask
        self.values = values

    # -- indices -----------------------------------------------------------------------------------------------

    def emit_index(self, expr: ir.AffineExpr) -> Index:
        """A sum adds its scalars first: what is the same for the whole block stays scalar."""
        if isinstance(expr, ir.AffineAddExpr):
            return self.b.sum_(*(self.index(term) for term in _terms(expr)))
        return super().emit_index(expr)

    def round_down(self, quotient: bool, x: ir.Value, y: ir.Value) -> ir.Value:
        """By the remainder of a truncated division: Triton has no division that rounds down."""
        b = self.b
        rest = arith.remsi(x, y)
        below = arith.cmpi(2, rest, b.constant(0, rest.type))
        if not quotient:
            return arith.select(below, arith.addi(rest, y), rest)
        one, zero = b.constant(1, rest.type), b.constant(0, rest.type)
        return arith.subi(arith.divsi(x, y), arith.select(below, one, zero))


def _terms(expr: ir.AffineExpr) -> list[ir.AffineExpr]:
    expr = expr.maybe_downcast()
    return [*_terms(expr.lhs), *_terms(expr.rhs)] if isinstance(expr, ir.AffineAddExpr) else [expr]
