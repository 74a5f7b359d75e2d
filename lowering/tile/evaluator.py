# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Emits any value of a fusion's body at any index, on demand: the traversal that all targets share.

The walk goes from a value along the indexing maps back to the operands. Nothing is materialised between ops, and a view
costs nothing but another index. Each value is emitted once per scope, in the outermost loop that binds the dims that it
depends on, so that what a loop does not change is outside of it.

What is emitted at an index (a scalar or a vector of lanes on a CPU, a scalar or a block on a GPU), how memory is
accessed and how a reduction's loops look is the target's: the abstract methods.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

from torch_mlir import ir

from kiln.dialects import affine
from kiln.dialects.kiln import name_of
from kiln.errors import UnsupportedError
from kiln.lowering.ir_builder import Condition, Index
from kiln.lowering.tile.access import Indices, compose, piece_at
from kiln.lowering.tile.body import FusionBody, indexing_maps, invert, output_map
from kiln.lowering.tile.scopes import Guard, Range, Scopes

__all__ = ["ANY", "Traversal"]

ANY = 1 << 40
"""Stands for the extent of an index that is known at run time only."""


class Traversal(Scopes, ABC):
    """Emits values of a fusion's body into one kernel. Whoever derives from it sets these:

    body: the fusion's body.
    layouts: element offset of each tensor operand, then of each result, as an affine map over its indices and the
        fusion's symbols.
    bound: values that something else has computed, such as the sums of a matrix product, at their index.
    generator: what errors call this code generator.
    """

    body: FusionBody
    layouts: list[ir.AffineMap]
    bound: dict[tuple[ir.Value, Indices], ir.Value]
    generator: str

    # -- what a target does ----------------------------------------------------------------------------------

    @abstractmethod
    def load(self, position: int, indices: Indices, guard: Guard | None) -> ir.Value:
        """The elements of operand number `position` at `indices`; booleans as i1."""

    @abstractmethod
    def look_up(self, position: int, at: Sequence[Any], guard: Guard | None) -> ir.Value:
        """The same at indices of which some are values found at run time, others expressions."""

    @abstractmethod
    def emit_reduction(self, value: ir.Value, indices: Indices, guard: Guard | None) -> ir.Value:
        """The loops of the reduction that computes `value`, and their result at `indices`."""

    @abstractmethod
    def emit_op(self, op: ir.OpView, operands: list[ir.Value]) -> list[ir.Value]:
        """A scalar op of a body on what its operands are here."""

    @abstractmethod
    def number(self, attribute: Any) -> ir.Value:
        """A scalar constant."""

    @abstractmethod
    def fill(self, element: ir.Type) -> ir.Value:
        """What stands for elements that nothing has written."""

    @abstractmethod
    def position(self, expr: ir.AffineExpr) -> Index:
        """An index expression at every element that is computed at once."""

    def align(self, x: Index, y: Index) -> tuple[Index, Index]:
        """Two positions in a form in which the builder can compute with both."""
        return x, y

    def reload(self, value: ir.Value, indices: Indices) -> ir.Value | None:
        """The value if it was kept in memory by another loop."""
        return None

    def alternates(self, expr: ir.AffineExpr) -> bool:
        """Whether elements that are computed at once take turns in `expr`, as in a stack along the last dim."""
        return False

    def emitted(self, op: ir.OpView, env: dict[ir.Value, Any], guard: Guard | None) -> None:
        """Called when an op of a body has its results in `env`."""

    # -- values ----------------------------------------------------------------------------------------------

    def eval(self, value: ir.Value, indices: Indices, guard: Guard | None = None) -> ir.Value:
        """`value` (a tensor of the body) at `indices`."""
        depth = self.depth_of(indices, guard)
        key = (value, indices, guard)
        for scope in reversed(self.scopes[depth:]):
            if key in scope.memo:
                return scope.memo[key]
        bound = self.bound.get((value, indices))
        if bound is not None:
            return bound
        if guard is None:
            kept = self.reload(value, indices)
            if kept is not None:
                return kept
        depth = max(depth, self.floor)
        with self.at(depth):
            result = self._eval(value, indices, guard)
            self.scopes[depth].memo[key] = result
        return result

    def _eval(self, value: ir.Value, indices: Indices, guard: Guard | None) -> ir.Value:
        position = self.body.argument_position(value)
        if position is not None:
            return self.load(position, indices, guard)
        op = value.owner.opview
        name = name_of(op)
        if name == "linalg.generic":
            if self.body.reduction(value) is not None:
                with op.location:
                    return self.emit_reduction(value, indices, guard)
            return self._generic(op, value, indices, guard)
        if name == "kiln.view":
            m = self.body.local_map(op, "map")
            return self.eval(op.operands[0], compose(m, indices, self.loops), guard)
        if name == "kiln.pad":
            return self._pad(op, indices, guard)
        if name == "kiln.cat":
            return self._cat(op, indices, guard)
        if name == "arith.constant":
            return self.constant(op)
        if name == "kiln.empty":
            return self.fill(ir.RankedTensorType(value.type).element_type)
        raise UnsupportedError(name, str(op.location), f"the {self.generator} code generator does not evaluate this op")

    def constant(self, op: ir.OpView) -> ir.Value:
        """A scalar or splat constant as a scalar."""
        attribute = op.operation.attributes["value"]
        if isinstance(attribute, ir.DenseElementsAttr):
            if not attribute.is_splat:
                raise UnsupportedError("arith.constant", str(op.location), "a dense constant inside a fusion")
            attribute = attribute.get_splat_value()
        return self.number(attribute)

    def scalar(self, value: ir.Value) -> ir.Value:
        """A scalar SSA value of the body: a constant, a symbol, or arithmetic on these (the count of a mean)."""
        if value in self.body.symbols:
            return self.b.value(self.symbols[self.body.symbols.index(value)])
        op = value.owner.opview
        name = op.operation.name
        if name == "arith.constant":
            return self.constant(op)
        if not name.startswith("arith."):
            raise UnsupportedError(name, str(op.location), "a computed scalar inside a fusion")
        memo = self.scopes[0].memo
        if value not in memo:
            with self.at(0):
                memo.update(zip(op.results, self.emit_op(op, [self.scalar(v) for v in op.operands]), strict=True))
        return memo[value]

    # -- linalg.generic --------------------------------------------------------------------------------------

    def _generic(self, op: ir.OpView, value: ir.Value, indices: Indices, guard: Guard | None) -> ir.Value:
        point = invert(output_map(op), indices)
        results = self.body_at(op, point, guard)
        for result, emitted in zip(op.results, results, strict=True):
            if result != value:
                self.scopes[-1].memo.setdefault((result, indices, guard), emitted)
        return results[ir.OpResult(value).result_number]

    def body_at(
        self,
        op: ir.OpView,
        point: Sequence[ir.AffineExpr | None],
        guard: Guard | None,
        given: dict[ir.Value, ir.Value] | None = None,
        alias: dict[ir.Value, ir.Value] | None = None,
    ) -> list[ir.Value]:
        """What the body of a `linalg.generic` yields at a point of its iteration space.

        `given` has values of block arguments: what a reduction carries. An op whose result is in `alias` is not
        emitted; the value there, one of its operands, stands for it.
        """
        alias = alias or {}
        block = op.regions[0].blocks[0]
        outs = len(op.operands) - len(op.results)
        # linalg.index stays an expression until something other than an address wants its value.
        env: dict[ir.Value, Any] = dict(given or {})
        with op.location:  # what a kernel computes leads to the model's op, not to all ops of the fusion
            for k, (operand, m) in enumerate(zip(op.operands, indexing_maps(op), strict=True)):
                argument = block.arguments[k]
                if argument in env or not list(argument.uses) or (k >= outs and self.body.reduction(op.results[0])):
                    continue
                if not isinstance(operand.type, ir.RankedTensorType):
                    env[argument] = self.scalar(operand)
                else:
                    env[argument] = self.eval(operand, compose(m, point, self.loops), guard)
            return self._emit_body(op, block, point, guard, env, alias)

    def _emit_body(
        self,
        op: ir.OpView,
        block: ir.Block,
        point: Sequence[ir.AffineExpr | None],
        guard: Guard | None,
        env: dict[ir.Value, Any],
        alias: dict[ir.Value, ir.Value],
    ) -> list[ir.Value]:
        """What the ops of `block` yield, `env` being the values of its arguments."""
        for inner in block.operations:
            name = inner.operation.name
            if name == "linalg.yield":
                return [self.lookup(env, v) for v in inner.operands]
            if inner.results[0] in alias:
                env[inner.results[0]] = self.lookup(env, alias[inner.results[0]])
            elif name == "linalg.index":
                at = point[ir.IntegerAttr(inner.operation.attributes["dim"]).value]
                assert at is not None
                env[inner.results[0]] = at
            elif name == "tensor.extract":
                env[inner.results[0]] = self._extract(inner, env, guard)
            elif name == "arith.constant":
                env[inner.results[0]] = self.constant(inner)
            else:
                operands = [self.lookup(env, v) for v in inner.operands]
                env.update(zip(inner.results, self.emit_op(inner, operands), strict=True))
                self.emitted(inner, env, guard)
        raise UnsupportedError("linalg.generic", str(op.location), "a body without linalg.yield")

    def lookup(self, env: dict[ir.Value, Any], value: ir.Value) -> ir.Value:
        """A value of a body that is being emitted."""
        if value not in env:
            return self.scalar(value)
        if isinstance(env[value], ir.AffineExpr):
            env[value] = self.b.value(self.position(env[value]))
        return env[value]

    def _extract(self, op: ir.OpView, env: dict[ir.Value, Any], guard: Guard | None) -> ir.Value:
        """tensor.extract %table[%i, %j]: a load through the table's layout (and the views above it)."""
        table = op.operands[0]
        at: list[Any] = [
            env[v] if isinstance(env.get(v), ir.AffineExpr) else self.lookup(env, v) for v in op.operands[1:]
        ]
        while self.body.argument_position(table) is None:
            view = table.owner.opview
            if view.operation.name != "kiln.view":
                raise UnsupportedError("tensor.extract", str(op.location), "a table that is computed in the fusion")
            results = self.body.local_map(view, "map").results
            at = [at[e.position] if isinstance(e, ir.AffineDimExpr) else self.apply(e, at) for e in results]
            table = view.operands[0]
        position = self.body.argument_position(table)
        assert position is not None
        return self.look_up(position, at, guard)

    def apply(self, expr: ir.AffineExpr, dims: Sequence[Any]) -> Index:
        """An affine expression over run-time index values or expressions."""
        expr = expr.maybe_downcast()
        if isinstance(expr, ir.AffineDimExpr):
            at = dims[expr.position]
            return self.position(at) if isinstance(at, ir.AffineExpr) else at
        if not affine.dims_in(expr):
            return self.index(expr)
        x, y = self.align(self.apply(expr.lhs, dims), self.apply(expr.rhs, dims))
        # Indices found at run time are in bounds; only an offset can make them negative.
        return self.combine(expr, x, y, dict.fromkeys(affine.dims_in(expr.lhs), ANY))

    # -- pads and concatenations -----------------------------------------------------------------------------

    def within(self, expr: ir.AffineExpr, low: ir.AffineExpr, high: ir.AffineExpr, guard: Condition) -> Condition:
        """low <= expr < high, and `guard`; comparisons that always hold are left out."""
        size = self.loops.simplify(high - low)
        at = self.position(self.loops.simplify(expr - low))
        if low != ir.AffineConstantExpr.get(0):
            guard = self.b.andc(guard, self.b.cmpi("sge", *self.align(at, 0)))
        return self.b.andc(guard, self.b.cmpi("slt", *self.align(at, self.index(size))))

    def range_of(self, expr: ir.AffineExpr) -> tuple[int, int] | None:
        """Numbers that ``expr`` is never below and never above, where they are known."""
        return None

    def _guard(self, mask: Condition, indices: Indices, ranges: Sequence[Range], outer: Guard | None) -> Guard | None:
        if mask is True:
            return outer
        return Guard(mask, self.depth_of(indices, outer), (*(outer.ranges if outer else ()), *ranges))

    def _pad(self, op: ir.OpView, indices: Indices, guard: Guard | None) -> ir.Value:
        low = self.body.local_map(op, "low").results
        high = self.body.local_map(op, "high").results
        zero = ir.AffineConstantExpr.get(0)
        mask: Condition = guard.mask if guard else True
        sizes = self.body.dims(op.operands[0])
        ranges: list[Range] = []
        for e, lo, hi, size in zip(indices, low, high, sizes, strict=True):
            if lo != zero or hi != zero:
                ranges.append((e, lo, self.loops.simplify(lo + size)))
                mask = self.within(*ranges[-1], mask)
        source = tuple(self.loops.simplify(e - lo) for e, lo in zip(indices, low, strict=True))
        if mask is False:
            return self.scalar(op.operands[1])
        inner = self.eval(op.operands[0], source, self._guard(mask, indices, ranges, guard))
        return self.b.select(mask, inner, self.scalar(op.operands[1]))

    def _cat(self, op: ir.OpView, indices: Indices, guard: Guard | None) -> ir.Value:
        whole_piece = piece_at(self.body, op, indices, self.loops)
        if whole_piece is not None:
            return self.eval(*whole_piece, guard)
        dim = ir.IntegerAttr(op.operation.attributes["dim"]).value
        pieces = [v for v in op.operands if isinstance(v.type, ir.RankedTensorType)]
        start: ir.AffineExpr = ir.AffineConstantExpr.get(0)
        result: ir.Value | None = None
        read = self.range_of(indices[dim])
        for piece in pieces:
            stop = self.loops.simplify(start + self.body.dims(piece)[dim])
            first, start = start, stop
            if read is not None and not _meets(read, first, stop):
                continue
            mask = self.within(indices[dim], first, stop, guard.mask if guard else True)
            if mask is False:
                continue  # another piece of a loop that is cut here
            alone = affine.constant_of(self.body.dims(piece)[dim]) == 1 and self.alternates(indices[dim])
            at = ir.AffineConstantExpr.get(0) if alone else self.loops.simplify(indices[dim] - first)
            source = tuple(at if i == dim else e for i, e in enumerate(indices))
            # The index of a piece of one element is in bounds wherever it stands: what pieces share is computed once.
            behind = guard if alone else self._guard(mask, indices, [(indices[dim], first, stop)], guard)
            inner = self.eval(piece, source, behind)
            result = inner if result is None else self.b.select(mask, inner, result)
        if result is None:  # below a guard that is never true
            result = self.fill(ir.RankedTensorType(op.results[0].type).element_type)
        return result


def _meets(numbers: tuple[int, int], first: ir.AffineExpr, stop: ir.AffineExpr) -> bool:
    """Whether one of the numbers from the one to the other may lie in ``first <= x < stop``."""
    low, high = affine.constant_of(first), affine.constant_of(stop)
    return (low is None or low <= numbers[1]) and (high is None or numbers[0] < high)
