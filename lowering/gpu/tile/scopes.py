# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Where code goes and what an index is there: the tile's axes, open loops and index expressions of a kernel."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field

from torch_mlir import ir
from torch_mlir.dialects import arith

from kiln.dialects import affine, tt
from kiln.lowering.cpu.tile.access import Loops
from kiln.lowering.gpu.builder import Builder, Condition, Index


@dataclass(frozen=True)
class Guard:
    """Elements for which an index is in bounds (a pad, a piece of a concatenation); loads touch only these."""

    mask: Condition
    depth: int


@dataclass
class Scope:
    """One level of control flow: the dims it binds and the op whose block it is.

    anchor: the loop of the next inner level, before which code for this level goes.
    """

    dims: set[int]
    owner: ir.Operation
    anchor: ir.OpView | None = None
    memo: dict[object, ir.Value] = field(default_factory=dict)


@dataclass
class Axis:
    """An axis of the tile: block size, and which of its positions are in bounds (None: all)."""

    size: int
    mask: ir.Value | None = None


class Scopes:
    """The tile and the open loops of a kernel, and the values of their dims.

    A loop dim is bound to a scalar (a position that the program or a loop gives) or to a block along one axis of the
    tile (`size` along it, 1 along the others), so an expression over dims is no larger than what it depends on.  Code
    goes into the outermost scope that binds what it depends on, once.
    """

    def __init__(self, b: Builder, symbols: Sequence[Index]):
        self.b, self.symbols = b, list(symbols)
        self.loops = Loops()
        self.values: dict[int, Index] = {}
        self.scopes = [Scope(set(), ir.InsertionPoint.current.block.owner.operation)]
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
    def inside(self, dims: dict[int, Index]) -> Iterator[None]:
        """The body of a loop (the current insertion block) that gives `dims` their values.

        The builder inlines loops of one trip: then the scope shares its block with the outer one.
        """
        # A loop inside may bind the same dims again: another walk along the row.
        values = self.values
        self.values = {**values, **dims}
        owner = ir.InsertionPoint.current.block.owner
        outer = self.scopes[-1]
        inlined = owner.operation == outer.owner
        saved = outer.anchor
        if not inlined:
            outer.anchor = owner.opview if isinstance(owner, ir.Operation) else owner
        self.scopes.append(Scope(set(dims), owner.operation))
        masks = [axis.mask for axis in self.axes]
        yield
        for axis, mask in zip(self.axes, masks, strict=True):
            axis.mask = mask
        self.values = values
        self.scopes.pop()
        outer.anchor = saved

    @contextmanager
    def at(self, depth: int) -> Iterator[None]:
        """Emission into scope `depth`, before the loop that is open in it."""
        if depth == len(self.scopes) - 1:
            yield
            return
        anchor = next((s.anchor for s in self.scopes[depth:-1] if s.anchor is not None), None)
        rest = self.scopes[depth + 1 :]
        del self.scopes[depth + 1 :]
        scope = self.scopes[-1]
        saved, scope.anchor = scope.anchor, None
        with ir.InsertionPoint(anchor) if anchor is not None else nullcontext():
            yield
        scope.anchor = saved
        self.scopes.extend(rest)

    def depth_of(self, exprs: Sequence[ir.AffineExpr], guard: Guard | None = None) -> int:
        """The outermost scope where `exprs` (and the guard) are known."""
        used: set[int] = set()
        for e in exprs:
            used |= affine.dims_in(e)
        depth = guard.depth if guard else 0
        for i in range(len(self.scopes) - 1, depth, -1):
            if self.scopes[i].dims & used:
                return i
        return depth

    # -- indices -----------------------------------------------------------------------------------------------

    def unflatten(self, position: Index, dims: Sequence[int]) -> dict[int, Index]:
        """Values of `dims` at a row-major position in their space."""
        values: dict[int, Index] = {}
        for d in reversed(dims[1:]):
            extent = self.index(self.loops.extents[d])
            values[d], position = self.b.remi(position, extent), self.b.divi(position, extent)
        if dims:
            values[dims[0]] = position
        return values

    def index(self, expr: ir.AffineExpr) -> Index:
        """An index expression over loop dims: an int, a scalar, or a block along the axes that it depends on."""
        expr = expr.maybe_downcast()
        if isinstance(expr, ir.AffineConstantExpr):
            return expr.value
        if isinstance(expr, ir.AffineDimExpr):
            return self.values[expr.position]
        if isinstance(expr, ir.AffineSymbolExpr):
            return self.symbols[expr.position]
        depth = self.depth_of([expr])
        memo = self.scopes[depth].memo
        if expr not in memo:
            with self.at(depth):
                value = self._combine(expr)
                if isinstance(value, int):
                    return value
                memo[expr] = value
        return memo[expr]

    def _combine(self, expr: ir.AffineExpr) -> Index:
        if isinstance(expr, ir.AffineAddExpr):
            return self.b.sum_(*(self.index(term) for term in _terms(expr)))
        x, y = self.index(expr.lhs), self.index(expr.rhs)
        if isinstance(expr, ir.AffineMulExpr):
            return self.b.muli(x, y)
        if isinstance(expr, ir.AffineCeilDivExpr):
            return self.b.ceildivi(x, y)
        return self.divide(expr, x, y, affine.nonnegative(expr.lhs, dict(enumerate(self.loops.extents))))

    def divide(self, expr: ir.AffineExpr, x: Index, y: Index, nonnegative: bool) -> Index:
        """x floordiv y or x mod y as `expr` says; rounded down where x may be negative (a roll, below a pad)."""
        b, quotient = self.b, isinstance(expr, ir.AffineFloorDivExpr)
        if isinstance(x, int) and isinstance(y, int):
            return x // y if quotient else x % y
        if nonnegative:
            return b.divi(x, y) if quotient else b.remi(x, y)
        p, q = b.pair(x, y)
        rest = arith.remsi(p, q)
        below = arith.cmpi(2, rest, b.constant(0, rest.type))
        if not quotient:
            return arith.select(below, arith.addi(rest, q), rest)
        one, zero = b.constant(1, rest.type), b.constant(0, rest.type)
        return arith.subi(arith.divsi(p, q), arith.select(below, one, zero))


def _terms(expr: ir.AffineExpr) -> list[ir.AffineExpr]:
    expr = expr.maybe_downcast()
    return [*_terms(expr.lhs), *_terms(expr.rhs)] if isinstance(expr, ir.AffineAddExpr) else [expr]
