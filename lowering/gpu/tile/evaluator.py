# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Emits any value of a fusion's body at any index, on demand, as blocks of one tile.

A value at an index is a scalar or a block with the axes that the index depends on (size 1 along the others).  Each is
emitted once per scope, in the outermost loop that binds the dims it depends on.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torch_mlir import ir
from torch_mlir.dialects import arith

from kiln.dialects import affine, tt
from kiln.dialects.kiln import name_of
from kiln.errors import UnsupportedError
from kiln.lowering.cpu.tile.access import Indices, compose, compose_one
from kiln.lowering.cpu.tile.body import FusionBody, indexing_maps, invert, output_map
from kiln.lowering.cpu.tile.memory import ANY
from kiln.lowering.gpu.builder import Builder, Condition, Index
from kiln.lowering.gpu.tile.scalar import emit_scalar_op, type_of
from kiln.lowering.gpu.tile.scopes import Guard, Scopes


@dataclass(frozen=True)
class Row:
    """What the reductions of a kernel reduce: loops of these extents, expressions over `dim`, which lies along `axis`.

    persistent: the tile holds whole rows; else they are walked in blocks, once per level of reductions.
    """

    extents: tuple[ir.AffineExpr, ...]
    exprs: tuple[ir.AffineExpr, ...]
    dim: int
    axis: int
    persistent: bool


class Evaluator(Scopes):
    """Emits values of a fusion's body into one kernel.

    pointers: one `!tt.ptr` per tensor operand of the fusion, then per result.
    layouts: element offset of each of them as an affine map over its indices and the fusion's symbols.
    bound: values that something else has computed, such as the sums of a matrix product, at their index.
    row: the rows that this kernel reduces, along one axis of the tile.
    """

    def __init__(
        self,
        b: Builder,
        body: FusionBody,
        pointers: Sequence[ir.Value],
        layouts: Sequence[ir.AffineMap],
        symbols: Sequence[Index],
        backend: str = "cuda",
    ):
        super().__init__(b, symbols)
        self.body, self.pointers, self.layouts, self.backend = body, list(pointers), list(layouts), backend
        self.bound: dict[tuple[ir.Value, Indices], ir.Value] = {}
        self.row: Row | None = None

    # -- values ------------------------------------------------------------------------------------------------

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
        with self.at(depth):
            result = self._eval(value, indices, guard)
            self.scopes[depth].memo[key] = result
        return result

    def _eval(self, value: ir.Value, indices: Indices, guard: Guard | None) -> ir.Value:
        position = self.body.argument_position(value)
        if position is not None:
            offset = self.index(compose_one(self.layouts[position], indices, self.loops))
            return self.load(position, offset, guard)
        op = value.owner.opview
        name = name_of(op)
        if name == "linalg.generic":
            if self.body.reduction(value) is not None:
                from kiln.lowering.gpu.tile.reduction import emit_reduction

                return emit_reduction(self, value, indices, guard)
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
            return self.b.constant(0, type_of(self.b, ir.RankedTensorType(value.type).element_type))
        raise UnsupportedError(name, str(op.location), "the GPU code generator does not evaluate this op")

    def constant(self, op: ir.OpView) -> ir.Value:
        """A scalar or splat constant as a scalar."""
        attribute = op.operation.attributes["value"]
        if isinstance(attribute, ir.DenseElementsAttr):
            if not attribute.is_splat:
                raise UnsupportedError("arith.constant", str(op.location), "a dense constant inside a fusion")
            attribute = attribute.get_splat_value()
        if isinstance(attribute, ir.BoolAttr):
            return self.b.constant(int(attribute.value), self.b.i1)
        return self.b.constant(attribute.value, type_of(self.b, attribute.type))

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
                operands = [self.scalar(v) for v in op.operands]
                memo.update(zip(op.results, emit_scalar_op(self.b, op, operands, self.backend), strict=True))
        return memo[value]

    # -- linalg.generic ----------------------------------------------------------------------------------------

    def _generic(self, op: ir.OpView, value: ir.Value, indices: Indices, guard: Guard | None) -> ir.Value:
        point = invert(output_map(op), indices)
        results = self.body_at(op, point, guard)
        for result, emitted in zip(op.results, results, strict=True):
            if result != value:
                self.scopes[-1].memo.setdefault((result, indices, guard), emitted)
        return results[list(op.results).index(value)]

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
        for k, (operand, m) in enumerate(zip(op.operands, indexing_maps(op), strict=True)):
            argument = block.arguments[k]
            if argument in env or not list(argument.uses) or (k >= outs and self.body.reduction(op.results[0])):
                continue
            if not isinstance(operand.type, ir.RankedTensorType):
                env[argument] = self.scalar(operand)
            else:
                env[argument] = self.eval(operand, compose(m, point, self.loops), guard)
        for inner in block.operations:
            name = inner.operation.name
            if name == "linalg.yield":
                return [self._lookup(env, v) for v in inner.operands]
            if inner.results[0] in alias:
                env[inner.results[0]] = self._lookup(env, alias[inner.results[0]])
            elif name == "linalg.index":
                at = point[ir.IntegerAttr(inner.operation.attributes["dim"]).value]
                assert at is not None
                env[inner.results[0]] = at
            elif name == "tensor.extract":
                env[inner.results[0]] = self._extract(inner, env, guard)
            elif name == "arith.constant":
                env[inner.results[0]] = self.constant(inner)
            else:
                operands = [self._lookup(env, v) for v in inner.operands]
                env.update(zip(inner.results, emit_scalar_op(self.b, inner, operands, self.backend), strict=True))
        raise UnsupportedError("linalg.generic", str(op.location), "a body without linalg.yield")

    def _lookup(self, env: dict[ir.Value, Any], value: ir.Value) -> ir.Value:
        if value not in env:
            return self.scalar(value)
        if isinstance(env[value], ir.AffineExpr):
            env[value] = self.b.value(self.index(env[value]))
        return env[value]

    def _extract(self, op: ir.OpView, env: dict[ir.Value, Any], guard: Guard | None) -> ir.Value:
        """tensor.extract %table[%i, %j]: a load through the table's layout (and the views above it)."""
        table = op.operands[0]
        at: list[Any] = [
            env[v] if isinstance(env.get(v), ir.AffineExpr) else self._lookup(env, v) for v in op.operands[1:]
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
        return self.load(position, self.apply(self.layouts[position].results[0], at), guard)

    def apply(self, expr: ir.AffineExpr, dims: Sequence[Any]) -> Index:
        """An affine expression over run-time index values or expressions."""
        expr = expr.maybe_downcast()
        if isinstance(expr, ir.AffineDimExpr):
            at = dims[expr.position]
            return self.index(at) if isinstance(at, ir.AffineExpr) else at
        if not affine.dims_in(expr):
            return self.index(expr)
        x, y = self.apply(expr.lhs, dims), self.apply(expr.rhs, dims)
        if isinstance(expr, ir.AffineAddExpr):
            return self.b.addi(x, y)
        if isinstance(expr, ir.AffineMulExpr):
            return self.b.muli(x, y)
        if isinstance(expr, ir.AffineCeilDivExpr):
            return self.b.ceildivi(x, y)
        # Indices found at run time are in bounds; only an offset can make them negative.
        return self.divide(expr, x, y, affine.nonnegative(expr.lhs, dict.fromkeys(affine.dims_in(expr.lhs), ANY)))

    # -- memory ------------------------------------------------------------------------------------------------

    def load(self, position: int, offset: Index, guard: Guard | None) -> ir.Value:
        """Elements of a buffer at an offset; booleans are bytes in memory and i1 in registers."""
        b = self.b
        pointers = b.addptr(self.pointers[position], offset)
        element = ir.RankedTensorType(self.body.tensors[position].type).element_type
        mask = self.mask_for(pointers, guard)
        if (
            isinstance(mask, ir.Value)
            and len(tt.shape_of(mask.type))
            and tt.shape_of(pointers.type) != (shape := tt.shape_of(b.together(pointers, mask)[0].type))
        ):
            pointers = b.broadcast(pointers, shape)
        # What is out of bounds is dropped later, but a division by it must not trap where a CPU runs the kernel.
        filler = 1 if isinstance(element, ir.IntegerType) else 0
        loaded = b.load(pointers, mask, filler)
        if element == b.i1:
            return arith.cmpi(1, loaded, b.constant(0, loaded.type))
        return loaded

    def store(self, position: int, indices: Indices, value: ir.Value, condition: Condition = True) -> None:
        """Write a result's elements; `condition` leaves some out."""
        b = self.b
        offset = self.index(compose_one(self.layouts[position], indices, self.loops))
        pointers = b.addptr(self.pointers[position], offset)
        if tt.element_of(value.type) == b.i1:
            value = arith.extui(tt.with_element(value.type, b.i8), value)
        mask = b.andc(self.mask_for(pointers), condition)
        shaped = [v for v in (mask,) if isinstance(v, ir.Value)]
        pointers, value, *rest = b.together(pointers, value, *shaped)
        b.store(pointers, value, rest[0] if rest else mask)

    # -- pads and concatenations -------------------------------------------------------------------------------

    def _within(self, expr: ir.AffineExpr, low: ir.AffineExpr, high: ir.AffineExpr, guard: Condition) -> Condition:
        """low <= expr < high, and `guard`; comparisons that always hold are left out."""
        b = self.b
        size = self.loops.simplify(high - low)
        at = self.index(self.loops.simplify(expr - low))
        if low != ir.AffineConstantExpr.get(0):
            guard = b.andc(guard, b.cmpi("sge", at, 0))
        return b.andc(guard, b.cmpi("slt", at, self.index(size)))

    def _guard(self, mask: Condition, indices: Indices, outer: Guard | None) -> Guard | None:
        return outer if mask is True else Guard(mask, self.depth_of(indices, outer))

    def _pad(self, op: ir.OpView, indices: Indices, guard: Guard | None) -> ir.Value:
        low = self.body.local_map(op, "low").results
        high = self.body.local_map(op, "high").results
        zero = ir.AffineConstantExpr.get(0)
        mask: Condition = guard.mask if guard else True
        sizes = self.body.dims(op.operands[0])
        for e, lo, hi, size in zip(indices, low, high, sizes, strict=True):
            if lo != zero or hi != zero:
                mask = self._within(e, lo, self.loops.simplify(lo + size), mask)
        source = tuple(self.loops.simplify(e - lo) for e, lo in zip(indices, low, strict=True))
        inner = self.eval(op.operands[0], source, self._guard(mask, indices, guard))
        return self.b.select(mask, inner, self.scalar(op.operands[1]))

    def _cat(self, op: ir.OpView, indices: Indices, guard: Guard | None) -> ir.Value:
        dim = ir.IntegerAttr(op.operation.attributes["dim"]).value
        pieces = [v for v in op.operands if isinstance(v.type, ir.RankedTensorType)]
        start: ir.AffineExpr = ir.AffineConstantExpr.get(0)
        result: ir.Value | None = None
        for piece in pieces:
            stop = self.loops.simplify(start + self.body.dims(piece)[dim])
            mask = self._within(indices[dim], start, stop, guard.mask if guard else True)
            source = tuple(self.loops.simplify(e - start) if i == dim else e for i, e in enumerate(indices))
            inner = self.eval(piece, source, self._guard(mask, indices, guard))
            result = inner if result is None else self.b.select(mask, inner, result)
            start = stop
        assert result is not None
        return result
