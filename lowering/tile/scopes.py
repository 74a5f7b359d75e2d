# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Where code goes and what an index is there: the open loops of a kernel under construction, and index expressions."""

from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any

from torch_mlir import ir

from kiln.dialects import affine
from kiln.lowering.ir_builder import Condition, Index, IRBuilder
from kiln.lowering.tile.access import Loops

__all__ = ["Guard", "Range", "Scope", "Scopes"]

Range = tuple[ir.AffineExpr, ir.AffineExpr, ir.AffineExpr]
"""An expression, its least value, and the first one above it."""


@dataclass(frozen=True)
class Guard:
    """Elements for which an index is in bounds (a pad, a piece of a concatenation); loads touch only these.

    ranges: what the mask says, as (expression, low, high): low <= expression < high in each.
    """

    mask: Condition
    depth: int
    ranges: tuple[Range, ...] = field(default=(), compare=False)


@dataclass
class Scope:
    """One level of control flow: the dims it binds and the op whose block it is.

    anchor: the loop or branch of the next inner level, before which code for this level goes.
    """

    dims: set[int]
    owner: ir.Operation
    anchor: ir.OpView | None = None
    memo: dict[object, ir.Value] = field(default_factory=dict[object, ir.Value])


class Scopes:
    """The open loops of a kernel and the values of their dims.

    Code is emitted into the outermost scope that binds what it depends on, once; what a loop does not change is thus
    outside of it. `home` is the op whose block code starts in.
    """

    b: Any  # the target's builder, an `IRBuilder`
    scope_type: type[Scope] = Scope

    def __init__(self, b: IRBuilder, symbols: Sequence[Index], home: ir.Operation):
        self.b, self.symbols = b, list(symbols)
        self.loops = Loops()
        self.values: dict[int, Index] = {}
        self.scopes = [self.scope_type(set(), home)]
        self.floor: int = 0  # no code goes further out than into this scope

    # -- scopes ----------------------------------------------------------------------------------------------

    @contextmanager
    def inside(self, dims: dict[int, Index]) -> Generator[None, None, None]:
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
        self.scopes.append(self.scope_type(set(dims), owner.operation))
        yield
        self.scopes.pop()
        outer.anchor = saved

    @contextmanager
    def inside_flat(
        self, position: Index, dims: Sequence[int], pieces: Mapping[int, tuple[Index, Index]] | None = None
    ) -> Generator[None, None, None]:
        """The body of a loop that goes through the space of all `dims` at once, at a row-major position in it. Of dims
        in `pieces`, it goes from the first number on, to as many values as the second one says.
        """
        # The scope comes first: extents that are computed belong before the loop.
        with self.inside(dict.fromkeys(dims, 0)):
            self.values.update(self.unflatten(position, dims, pieces))
            yield

    @contextmanager
    def branch(self) -> Generator[None, None, None]:
        """A branch (the current insertion block) as the outermost scope: what it alone computes is not computed before
        it, whatever it depends on.
        """
        outer, values, floor = self.scopes, self.values, self.floor
        self.scopes = [self.scope_type(set(), ir.InsertionPoint.current.block.owner.operation)]
        self.values, self.floor = dict(values), 0
        yield
        self.scopes, self.values, self.floor = outer, values, floor

    @contextmanager
    def piece(self, dim: int, low: ir.AffineExpr, high: ir.AffineExpr) -> Generator[None, None, None]:
        """A piece of the loop of `dim`, and the branch that it is in where it may be empty: what is read in it may not
        be there then, hence not before the branch either.
        """
        with self.inside({}):
            saved = self.floor, self.loops.pieces
            if self.scopes[-1].owner != self.scopes[-2].owner:
                self.floor = len(self.scopes) - 1
            self.loops.pieces = {**self.loops.pieces, dim: (low, high)}
            yield
            self.floor, self.loops.pieces = saved

    @contextmanager
    def at(self, depth: int) -> Generator[None, None, None]:
        """Emission into scope `depth`, before the loop that is open in it."""
        if depth == len(self.scopes) - 1:
            yield
            return
        anchor = next((s.anchor for s in self.scopes[depth:-1] if s.anchor is not None), None)
        rest = self.scopes[depth + 1 :]
        del self.scopes[depth + 1 :]
        scope = self.scopes[-1]
        saved, floor = scope.anchor, self.floor
        scope.anchor, self.floor = None, min(floor, depth)
        with ir.InsertionPoint(anchor) if anchor is not None else nullcontext():
            yield
        scope.anchor, self.floor = saved, floor
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

    # -- indices ---------------------------------------------------------------------------------------------

    def unflatten(
        self, position: Index, dims: Sequence[int], pieces: Mapping[int, tuple[Index, Index]] | None = None
    ) -> dict[int, Index]:
        """Values of `dims` at a row-major position in their space, in `pieces` of them as above."""
        pieces = pieces or {}
        values: dict[int, Index] = {}
        for d in reversed(dims[1:]):
            extent = pieces[d][1] if d in pieces else self.index(self.loops.extents[d])
            values[d], position = self.b.remi(position, extent), self.b.divi(position, extent)
        if dims:
            values[dims[0]] = position
        return {d: self.b.addi(x, pieces[d][0]) if d in pieces else x for d, x in values.items()}

    def index(self, expr: ir.AffineExpr) -> Index:
        """An index expression over loop dims, each at the value that its loop gives it."""
        expr = expr.maybe_downcast()
        if isinstance(expr, ir.AffineConstantExpr):
            return expr.value
        if isinstance(expr, ir.AffineDimExpr):
            return self.values[expr.position]
        if isinstance(expr, ir.AffineSymbolExpr):
            return self.symbols[expr.position]
        depth = max(self.depth_of([expr]), self.floor)
        memo = self.scopes[depth].memo
        if expr not in memo:
            with self.at(depth):
                value = self.emit_index(expr)
                if isinstance(value, int):
                    return value
                memo[expr] = value
        return memo[expr]

    def emit_index(self, expr: ir.AffineExpr) -> Index:
        """The code of an operator of an index expression, in the scope where it goes."""
        return self.combine(expr, self.index(expr.lhs), self.index(expr.rhs))

    def combine(
        self, expr: ir.AffineExpr, x: Index, y: Index, extents: dict[int, ir.AffineExpr | int] | None = None
    ) -> Index:
        """The operator of `expr` on its two sides. Indices are not negative, so that divisions are unsigned, but for
        an index moved by a roll, or below a pad: these round down, as affine maps mean it.

        `extents` of the dims decide which one it is; those of the loops if none are given.
        """
        b = self.b
        if isinstance(expr, ir.AffineAddExpr):
            return b.addi(x, y)
        if isinstance(expr, ir.AffineMulExpr):
            return b.muli(x, y)
        if isinstance(expr, ir.AffineCeilDivExpr):
            return b.ceildivi(x, y)
        quotient = isinstance(expr, ir.AffineFloorDivExpr)
        if isinstance(y, int) and y < 1:
            return 0  # by the size of an empty tensor: no element is ever there
        if isinstance(x, int) and isinstance(y, int):
            return x // y if quotient else x % y
        if affine.nonnegative(expr.lhs, dict(enumerate(self.loops.extents)) if extents is None else extents):
            return b.divi(x, y) if quotient else b.remi(x, y)
        return self.round_down(quotient, *b.pair(x, y))

    def round_down(self, quotient: bool, x: ir.Value, y: ir.Value) -> ir.Value:
        """x floordiv y (`quotient`) or x mod y for x of any sign and y > 0."""
        raise NotImplementedError
