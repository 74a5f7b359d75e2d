# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Emits any value of a fusion's body at any index, on demand.

A value at an index is either uniform (a scalar, the same for all lanes) or a vector, one lane per consecutive
value of the lane dim. Each is emitted once per scope, in the outermost loop that binds the dims it depends on, so
that what a loop does not change is outside of it.
"""

from collections.abc import Sequence
from typing import Any

from torch_mlir import ir
from torch_mlir.dialects import arith

from kiln.dialects.kiln import name_of
from kiln.errors import UnsupportedError
from kiln.lowering.cpu.builder import Builder, Index
from kiln.lowering.cpu.tile.access import Indices, compose
from kiln.lowering.cpu.tile.body import FusionBody, indexing_maps, invert, output_map
from kiln.lowering.cpu.tile.bounds import CHECKED, emit_check, unclamped
from kiln.lowering.cpu.tile.memory import Memory, Scratch, memory_type
from kiln.lowering.cpu.tile.roundings import Roundings
from kiln.lowering.cpu.tile.scopes import Guard

CMP_SLT, CMP_SGE = 2, 5


class Evaluator(Memory):
    """Emits values of a fusion's body into one kernel.

    flag: the address of what the host looks at for indices out of range, if the body checks any.
    bound: values that something else has computed, such as the sums of a matrix product, at their index.
    """

    def __init__(
        self,
        b: Builder,
        body: FusionBody,
        buffers: Sequence[ir.Value],
        layouts: Sequence[ir.AffineMap],
        symbols: Sequence[Index],
        scratch: Scratch,
        flag: ir.Value | None = None,
    ):
        super().__init__(b, body, buffers, layouts, symbols, scratch)
        self.flag = flag
        self.bound: dict[tuple[ir.Value, Indices], ir.Value] = {}
        self.roundings = Roundings()

    def eval(self, value: ir.Value, indices: Indices, guard: Guard | None = None) -> ir.Value:
        """`value` (a tensor of the body) at `indices`: a scalar if uniform, else a vector of `lane.width`."""
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
                if guard is not None:
                    raise UnsupportedError(name, str(op.location), "a reduction below a pad or concatenation")
                from kiln.lowering.cpu.tile.reduction import emit_reduction

                return emit_reduction(self, value, indices)
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
            return self.b.zero(memory_type(ir.RankedTensorType(value.type).element_type))
        raise UnsupportedError(name, str(op.location), "the CPU code generator does not evaluate this op")

    def constant(self, op: ir.OpView) -> ir.Value:
        """A scalar or splat constant as a scalar."""
        attribute = op.operation.attributes["value"]
        if isinstance(attribute, ir.DenseElementsAttr):
            if not attribute.is_splat:
                raise UnsupportedError("arith.constant", str(op.location), "a dense constant inside a fusion")
            attribute = attribute.get_splat_value()
            if isinstance(attribute, ir.BoolAttr):
                return self.b.constant(ir.IntegerAttr.get(self.b.i1, int(attribute.value)), self.b.i1)
        return self.b.constant(attribute, attribute.type if hasattr(attribute, "type") else self.b.i1)

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
                memo.update(zip(op.results, self._clone(op, [self.scalar(v) for v in op.operands]), strict=True))
        return memo[value]

    def _generic(self, op: ir.OpView, value: ir.Value, indices: Indices, guard: Guard | None) -> ir.Value:
        point = invert(output_map(op), indices)
        inputs = self.inputs(op, point, guard)
        results = self.clone_body(op, inputs, point, guard)
        for result, emitted in zip(op.results, results, strict=True):
            if result != value:
                self.scopes[-1].memo.setdefault((result, indices, guard), emitted)
        return results[list(op.results).index(value)]

    def inputs(self, op: ir.OpView, point: Sequence[ir.AffineExpr | None], guard: Guard | None) -> list[ir.Value]:
        """The block arguments of a `linalg.generic` for its `ins` at a point of its iteration space (outs: those
        used by the body of a parallel op)."""
        values: list[ir.Value] = []
        block = op.regions[0].blocks[0]
        outs = len(op.operands) - len(op.results)
        for k, (operand, m) in enumerate(zip(op.operands, indexing_maps(op), strict=True)):
            if k >= outs and (self.body.reduction(op.results[0]) or not list(block.arguments[k].uses)):
                continue
            if not isinstance(operand.type, ir.RankedTensorType):
                values.append(self.scalar(operand))
            elif not list(block.arguments[k].uses):
                values.append(self.b.zero(memory_type(ir.RankedTensorType(operand.type).element_type)))
            else:
                values.append(self.eval(operand, compose(m, point, self.loops), guard))
        return values

    def clone_body(
        self,
        op: ir.OpView,
        arguments: Sequence[ir.Value],
        point: Sequence[ir.AffineExpr | None],
        guard: Guard | None = None,
    ) -> list[ir.Value]:
        """The body of a `linalg.generic` on scalars or vectors; returns what it yields."""
        block = op.regions[0].blocks[0]
        # linalg.index stays an expression until something other than an address wants its value.
        env: dict[ir.Value, Any] = dict(zip(block.arguments, arguments, strict=False))
        for inner in block.operations:
            name = inner.operation.name
            if name == "linalg.yield":
                return [self._lookup(env, v) for v in inner.operands]
            if name == "linalg.index":
                at = point[ir.IntegerAttr(inner.operation.attributes["dim"]).value]
                assert at is not None
                env[inner.results[0]] = at
            elif name == "tensor.extract":
                env[inner.results[0]] = self._extract(inner, env, guard)
            elif name == "arith.constant":
                env[inner.results[0]] = self.constant(inner)
            else:
                operands = [self._lookup(env, v) for v in inner.operands]
                wide = self.roundings.undo(inner.operation, operands[0]) if operands else None
                results = [wide] if wide is not None else self._clone(inner, operands)
                self.roundings.note(inner.operation, results)
                env.update(zip(inner.results, results, strict=True))
                if CHECKED in inner.operation.attributes:
                    self._check(inner, env, guard)
        raise UnsupportedError("linalg.generic", str(op.location), "a body without linalg.yield")

    def _lookup(self, env: dict[ir.Value, Any], value: ir.Value) -> ir.Value:
        if value not in env:
            return self.scalar(value)
        if isinstance(env[value], ir.AffineExpr):
            env[value] = self.index_value(env[value])
        return env[value]

    def _clone(self, op: ir.OpView, operands: list[ir.Value]) -> list[ir.Value]:
        if len(op.regions):
            raise UnsupportedError(op.operation.name, str(op.location), "control flow inside a linalg.generic")
        types = [r.type for r in op.results]
        if any(isinstance(v.type, ir.VectorType) for v in operands):
            width = next(ir.VectorType(v.type).shape[0] for v in operands if isinstance(v.type, ir.VectorType))
            operands = [v if isinstance(v.type, ir.VectorType) else self.b.broadcast(v, width) for v in operands]
            types = [self.b.vec(width, t) for t in types]
        attributes = {a: op.operation.attributes[a] for a in op.operation.attributes if a != CHECKED}
        made = ir.Operation.create(op.operation.name, results=types, operands=operands, attributes=attributes)
        return list(made.results)

    def _check(self, op: ir.OpView, env: dict[ir.Value, Any], guard: Guard | None) -> None:
        """Reports what the clamp `op` changed."""
        index = unclamped(op.operation)
        if index is None or self.flag is None:
            return
        given, clamped = self._lookup(env, index), self._lookup(env, op.operation.results[0])
        if isinstance(given.type, ir.VectorType) != isinstance(clamped.type, ir.VectorType):
            given, clamped = self.splat(given), self.splat(clamped)
        is_vector = isinstance(given.type, ir.VectorType)
        # A uniform index is that of lanes in use, unless a guard says that it may be none.
        mask = self.mask(guard) if is_vector else guard.mask if guard is not None else None
        emit_check(self.b, given, clamped, mask, self.flag)

    def _extract(self, op: ir.OpView, env: dict[ir.Value, Any], guard: Guard | None) -> ir.Value:
        """tensor.extract %table[%i, %j]: a gather through the table's layout (and the views above it).

        Where all indices found at run time are the same for all lanes, and the rest walks along a line (the row of an
        embedding), it is a load.
        """
        table = op.operands[0]
        at: list[Any] = [
            env[v] if isinstance(env.get(v), ir.AffineExpr) else self._lookup(env, v) for v in op.operands[1:]
        ]
        while self.body.argument_position(table) is None:
            view = table.owner.opview
            if view.operation.name != "kiln.view":
                raise UnsupportedError("tensor.extract", str(op.location), "a table that is computed in the fusion")
            results = self.body.local_map(view, "map").results
            found = [at[e.position] if isinstance(e, ir.AffineDimExpr) else None for e in results]
            at = [self.apply(e, at) if f is None else f for e, f in zip(results, found, strict=True)]
            table = view.operands[0]
        position = self.body.argument_position(table)
        assert position is not None
        buffer = self.buffers[position]
        element = ir.RankedTensorType(table.type).element_type
        loaded = self.load_line(buffer, self.layouts[position], at, guard)
        if loaded is not None:
            return self.boolean(loaded, element)
        offset = self.apply(self.layouts[position].results[0], at)
        if isinstance(offset.type, ir.VectorType):
            return self.boolean(self.gather(buffer, offset, self.mask(guard)), element)
        return self.boolean(self.load_one(buffer, offset, guard), element)

    def _within(
        self, expr: ir.AffineExpr, low: ir.AffineExpr, high: ir.AffineExpr, guard: ir.Value | None
    ) -> ir.Value | None:
        """low <= expr < high, and `guard`; comparisons that always hold are left out."""
        size = self.loops.simplify(high - low)
        moved = self.loops.simplify(expr - low)
        at = None
        zero = ir.AffineConstantExpr.get(0)
        if low != zero:
            at = self.index_value(moved)
            below = self.splat(self.b.value(0)) if isinstance(at.type, ir.VectorType) else self.b.value(0)
            guard = self._and(guard, arith.cmpi(CMP_SGE, at, below))
        at = at if at is not None else self.index_value(moved)
        limit = self.b.value(self.index(size))
        limit = self.splat(limit) if isinstance(at.type, ir.VectorType) else limit
        return self._and(guard, arith.cmpi(CMP_SLT, at, limit))

    def _and(self, x: ir.Value | None, y: ir.Value) -> ir.Value:
        if x is None:
            return y
        if isinstance(x.type, ir.VectorType) != isinstance(y.type, ir.VectorType):
            x, y = self.splat(x), self.splat(y)
        return arith.andi(x, y)

    def _guard(self, mask: ir.Value | None, indices: Indices, outer: Guard | None) -> Guard | None:
        return outer if mask is None else Guard(mask, self.depth_of(indices, outer))

    def _choose(self, mask: ir.Value | None, x: ir.Value, y: ir.Value) -> ir.Value:
        if mask is None:
            return x
        if any(isinstance(v.type, ir.VectorType) for v in (mask, x, y)):
            mask, x, y = self.splat(mask), self.splat(x), self.splat(y)
        return arith.select(mask, x, y)

    def _pad(self, op: ir.OpView, indices: Indices, guard: Guard | None) -> ir.Value:
        low = self.body.local_map(op, "low").results
        high = self.body.local_map(op, "high").results
        zero = ir.AffineConstantExpr.get(0)
        mask = guard.mask if guard else None
        sizes = self.body.dims(op.operands[0])
        for e, lo, hi, size in zip(indices, low, high, sizes, strict=True):
            if lo != zero or hi != zero:
                mask = self._within(e, lo, self.loops.simplify(lo + size), mask)
        source = tuple(self.loops.simplify(e - lo) for e, lo in zip(indices, low, strict=True))
        inner = self.eval(op.operands[0], source, self._guard(mask, indices, guard))
        return self._choose(mask, inner, self.scalar(op.operands[1]))

    def _cat(self, op: ir.OpView, indices: Indices, guard: Guard | None) -> ir.Value:
        dim = ir.IntegerAttr(op.operation.attributes["dim"]).value
        pieces = [v for v in op.operands if isinstance(v.type, ir.RankedTensorType)]
        start: ir.AffineExpr = ir.AffineConstantExpr.get(0)
        result: ir.Value | None = None
        for piece in pieces:
            stop = self.loops.simplify(start + self.body.dims(piece)[dim])
            mask = self._within(indices[dim], start, stop, guard.mask if guard else None)
            source = tuple(self.loops.simplify(e - start) if i == dim else e for i, e in enumerate(indices))
            inner = self.eval(piece, source, self._guard(mask, indices, guard))
            result = inner if result is None else self._choose(mask, inner, result)
            start = stop
        assert result is not None
        return result
