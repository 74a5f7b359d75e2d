# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Where code goes and what an index is there: scopes, lanes and index expressions of a kernel under construction."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field

from torch_mlir import ir
from torch_mlir.dialects import arith

from kiln.dialects import affine
from kiln.lowering.cpu.builder import Builder, Index
from kiln.lowering.cpu.tile.access import Loops, lane_coefficient

UNALIGNED = 1 << 62
"""An alignment that no divisor is a multiple of."""


def floor_division(expr: ir.AffineExpr, x: ir.Value, y: ir.Value) -> ir.Value:
    """x floordiv y or x mod y as `expr` says, for x of any sign and y > 0: rounded down, as affine maps mean it."""
    quotient = arith.floordivsi(x, y)
    if isinstance(expr, ir.AffineFloorDivExpr):
        return quotient
    return arith.subi(x, arith.muli(quotient, y))


@dataclass(frozen=True)
class Guard:
    """Lanes for which an index is in bounds (a pad, a piece of a concatenation); loads touch only these."""

    mask: ir.Value
    depth: int


@dataclass
class Spilled:
    """A value kept in scratch memory: `fixed` are the indices that hold outside of the loop that wrote it."""

    buffer: ir.Value
    fixed: dict[int, ir.AffineExpr]
    free: list[int]
    sizes: list[ir.AffineExpr]


@dataclass
class Scope:
    """One level of control flow: the dims it binds and the op whose block it is.

    anchor: the loop or branch of the next inner level, before which code for this level goes.
    """

    dims: set[int]
    owner: ir.Operation
    anchor: ir.OpView | None = None
    memo: dict[object, ir.Value] = field(default_factory=dict)
    spilled: dict[ir.Value, Spilled] = field(default_factory=dict)


@dataclass
class Lane:
    """The dim whose consecutive values are a vector's lanes; `mask` turns off those past its end.

    aligned: the first lane is a multiple of the width, so that divisions of the dim by multiples of it are uniform.
    """

    dim: int | None = None
    width: int = 1
    mask: ir.Value | None = None
    aligned: bool = True

    def line(self, expr: ir.AffineExpr) -> tuple[ir.AffineExpr, ir.AffineExpr] | None:
        """`expr` along the lanes as (stride, index of the first lane), or None if the lanes are not on a line."""
        assert self.dim is not None
        return lane_coefficient(expr, self.dim, self.width if self.aligned else UNALIGNED)


class Scopes:
    """The open loops of a kernel and the values of their dims.

    Code is emitted into the outermost scope that binds what it depends on, once; what a loop does not change is thus
    outside of it.
    """

    def __init__(self, b: Builder, symbols: Sequence[Index]):
        self.b, self.symbols = b, list(symbols)
        self.loops = Loops()
        self.values: dict[int, Index] = {}
        self.scopes = [Scope(set(), b.entry.owner.operation)]
        self.lane = Lane()

    @contextmanager
    def inside(self, dims: dict[int, Index]) -> Iterator[None]:
        """The body of a loop or branch (the current insertion block) that gives `dims` their values.

        The builder inlines loops of one trip: then the scope shares its block with the outer one.
        """
        self.values.update(dims)
        owner = ir.InsertionPoint.current.block.owner
        outer = self.scopes[-1]
        inlined = owner.operation == outer.owner
        saved = outer.anchor
        if not inlined:
            outer.anchor = owner.opview if isinstance(owner, ir.Operation) else owner
        self.scopes.append(Scope(set(dims), owner.operation))
        yield
        self.scopes.pop()
        outer.anchor = saved

    def unflatten(self, position: Index, dims: Sequence[int]) -> dict[int, Index]:
        """Values of `dims` at a row-major position in their space."""
        values: dict[int, Index] = {}
        for d in reversed(dims[1:]):
            extent = self.index(self.loops.extents[d])
            values[d], position = self.b.remi(position, extent), self.b.divi(position, extent)
        if dims:
            values[dims[0]] = position
        return values

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

    @contextmanager
    def lanes(self, lane: Lane) -> Iterator[None]:
        """Vectorise along another dim."""
        saved, self.lane = self.lane, lane
        yield
        self.lane = saved

    def index(self, expr: ir.AffineExpr) -> Index:
        """A lane-independent index (for the lane dim: its block start)."""
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
                x, y = self.index(expr.lhs), self.index(expr.rhs)
                value = self._combine(expr, x, y)
                if isinstance(value, int):
                    return value
                memo[expr] = value
        return memo[expr]

    def _combine(self, expr: ir.AffineExpr, x: Index, y: Index) -> Index:
        if isinstance(expr, ir.AffineAddExpr):
            return self.b.addi(x, y)
        if isinstance(expr, ir.AffineMulExpr):
            return self.b.muli(x, y)
        if isinstance(expr, ir.AffineCeilDivExpr):
            return self.b.ceildivi(x, y)
        if isinstance(x, int) and isinstance(y, int):
            return x // y if isinstance(expr, ir.AffineFloorDivExpr) else x % y
        if self._never_negative(expr.lhs):
            return self.b.divi(x, y) if isinstance(expr, ir.AffineFloorDivExpr) else self.b.remi(x, y)
        return floor_division(expr, self.b.value(x), self.b.value(y))

    def _never_negative(self, expr: ir.AffineExpr) -> bool:
        """Whether unsigned division is right for `expr`; not so for an index moved by a roll, or below a pad."""
        return affine.nonnegative(expr, dict(enumerate(self.loops.extents)))

    def index_value(self, expr: ir.AffineExpr) -> ir.Value:
        """`expr` as an index scalar, or as a vector of indices if it varies along the lane."""
        expr = expr.maybe_downcast()
        if self.lane.dim is None or self.lane.dim not in affine.dims_in(expr):
            return self.b.value(self.index(expr))
        linear = self.lane.line(expr)
        if linear is not None:
            stride, base = linear
            lanes = self.b.step(self.lane.width)
            if stride != ir.AffineConstantExpr.get(1):
                lanes = arith.muli(lanes, self.splat(self.b.value(self.index(stride))))
            return arith.addi(lanes, self.splat(self.b.value(self.index(base))))
        x, y = self.splat(self.index_value(expr.lhs)), self.splat(self.index_value(expr.rhs))
        if isinstance(expr, ir.AffineAddExpr):
            return arith.addi(x, y)
        if isinstance(expr, ir.AffineMulExpr):
            return arith.muli(x, y)
        if isinstance(expr, ir.AffineCeilDivExpr):
            return arith.divui(arith.addi(x, arith.subi(y, self.splat(self.b.value(1)))), y)
        if not self._never_negative(expr.lhs):
            return floor_division(expr, x, y)
        return arith.divui(x, y) if isinstance(expr, ir.AffineFloorDivExpr) else arith.remui(x, y)

    def splat(self, value: ir.Value) -> ir.Value:
        """A vector; a uniform value is broadcast."""
        if isinstance(value.type, ir.VectorType):
            return value
        return self.b.broadcast(value, self.lane.width)

    def is_uniform(self, indices: Sequence[ir.AffineExpr]) -> bool:
        """Whether nothing in `indices` varies along the lane."""
        return self.lane.dim is None or not any(self.lane.dim in affine.dims_in(e) for e in indices)

    def mask(self, guard: Guard | None) -> ir.Value | None:
        """Lanes that may touch memory; None for all."""
        if guard is None:
            return self.lane.mask
        inside = self.splat(guard.mask)
        return inside if self.lane.mask is None else arith.andi(inside, self.lane.mask)
