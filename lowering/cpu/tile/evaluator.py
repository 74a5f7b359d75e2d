# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Emits any value of a fusion's body at any index, on demand.

A value at an index is either uniform (a scalar, the same for all lanes) or a vector, one lane per consecutive
value of the lane dim. Each is emitted once per scope, in the outermost loop that binds the dims it depends on, so
that what a loop does not change is outside of it.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any

from torch_mlir import ir
from torch_mlir.dialects import arith, vector

from kiln.dialects import affine
from kiln.dialects.kiln import name_of
from kiln.errors import UnsupportedError
from kiln.lowering.cpu.builder import Builder, Index
from kiln.lowering.cpu.tile.access import Indices, Loops, compose, compose_one, lane_coefficient
from kiln.lowering.cpu.tile.body import FusionBody, indexing_maps, invert, output_map

CMP_SLT, CMP_SGE = 2, 5
UNALIGNED = 1 << 62
"""An alignment that no divisor is a multiple of."""


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


class Evaluator:
    """Emission state of one kernel.

    buffers: one 1-D memref per tensor operand of the fusion, then per result.
    layouts: element offset of each of them as an affine map over its indices and the fusion's symbols.
    """

    def __init__(
        self,
        b: Builder,
        body: FusionBody,
        buffers: Sequence[ir.Value],
        layouts: Sequence[ir.AffineMap],
        symbols: Sequence[Index],
        scratch: "Scratch",
    ):
        self.b, self.body, self.buffers, self.layouts = b, body, list(buffers), list(layouts)
        self.symbols, self.scratch = list(symbols), scratch
        self.loops = Loops()
        self.values: dict[int, Index] = {}
        self.scopes = [Scope(set(), b.entry.owner.operation)]
        self.lane = Lane()
        self.bound: dict[tuple[ir.Value, Indices], ir.Value] = {}

    # -- scopes ------------------------------------------------------------------------------------------------

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

    # -- indices -----------------------------------------------------------------------------------------------

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
        if isinstance(expr, ir.AffineFloorDivExpr):
            return self.b.divi(x, y)
        if isinstance(expr, ir.AffineModExpr):
            return self.b.remi(x, y)
        return self.b.ceildivi(x, y)

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
        if isinstance(expr, ir.AffineFloorDivExpr):
            return arith.divui(x, y)
        if isinstance(expr, ir.AffineModExpr):
            return arith.remui(x, y)
        one = self.splat(self.b.value(1))
        return arith.divui(arith.addi(x, arith.subi(y, one)), y)

    # -- lanes ---------------------------------------------------------------------------------------------------

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

    # -- memory --------------------------------------------------------------------------------------------------

    def load(self, position: int, indices: Indices, guard: Guard | None) -> ir.Value:
        """An element (uniform) or the lanes' elements of a buffer."""
        buffer = self.buffers[position]
        offset = compose_one(self.layouts[position], indices, self.loops)
        type_ = ir.RankedTensorType(self.body.tensors[position].type).element_type
        return self._boolean(self._load(buffer, offset, guard), type_)

    def _load(self, buffer: ir.Value, offset: ir.AffineExpr, guard: Guard | None) -> ir.Value:
        b, lane = self.b, self.lane
        if self.is_uniform([offset]):
            return self._load_one(buffer, self.index(offset), guard)
        assert lane.dim is not None
        mask = self.mask(guard)
        linear = lane.line(offset)
        if linear is not None:
            stride, base = linear
            return b.gather(buffer, self.index(base), self.index(stride), lane.width, mask)
        return self.gather(buffer, self.index_value(offset), mask)

    def gather(self, buffer: ir.Value, offsets: ir.Value, mask: ir.Value | None) -> ir.Value:
        """Elements at a vector of offsets."""
        b = self.b
        type_ = b.vec(self.lane.width, ir.MemRefType(buffer.type).element_type)
        if mask is None:
            mask = b.constant(
                ir.DenseElementsAttr.get_splat(b.vec(self.lane.width, b.i1), ir.BoolAttr.get(True)),
                b.vec(self.lane.width, b.i1),
            )
        return vector.gather(type_, buffer, [b.value(0)], offsets, mask, b.zero(type_))

    def store(self, position: int, indices: Indices, value: ir.Value) -> None:
        """Write a result's element, or its lanes' elements."""
        b, lane = self.b, self.lane
        buffer = self.buffers[position]
        offset = compose_one(self.layouts[position], indices, self.loops)
        if _element(value.type) == b.i1:
            value = arith.extui(_like(value.type, b.i8), value)
        if self.is_uniform([offset]):
            if isinstance(value.type, ir.VectorType):
                value = b.extract(value, 0)
            b.store(value, buffer, self.index(offset))
            return
        assert lane.dim is not None
        value = self.splat(value)
        linear = lane.line(offset)
        if linear is not None and linear[0] == ir.AffineConstantExpr.get(1):
            b.vstore(value, buffer, self.index(linear[1]), lane.mask)
            return
        full = ir.DenseElementsAttr.get_splat(b.vec(lane.width, b.i1), ir.BoolAttr.get(True))
        mask = lane.mask if lane.mask is not None else b.constant(full, b.vec(lane.width, b.i1))
        vector.ScatterOp(None, buffer, [b.value(0)], self.index_value(offset), mask, value)

    def _boolean(self, value: ir.Value, element: ir.Type) -> ir.Value:
        """Booleans are bytes in memory and i1 in registers."""
        if element == self.b.i1:
            return arith.cmpi(1, value, self.b.zero(value.type))
        return value

    # -- values ----------------------------------------------------------------------------------------------------

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
            kept = self._reload(value, indices)
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
            return self.b.zero(_memory(ir.RankedTensorType(value.type).element_type))
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
        """A scalar SSA value of the body: a constant, or a symbol."""
        if value in self.body.symbols:
            return self.b.value(self.symbols[self.body.symbols.index(value)])
        op = value.owner.opview
        if op.operation.name != "arith.constant":
            raise UnsupportedError(op.operation.name, str(op.location), "a computed scalar inside a fusion")
        return self.constant(op)

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
                values.append(self.b.zero(_memory(ir.RankedTensorType(operand.type).element_type)))
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
                env.update(zip(inner.results, self._clone(inner, [self._lookup(env, v) for v in inner.operands]), strict=True))
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
        attributes = {a: op.operation.attributes[a] for a in op.operation.attributes}
        made = ir.Operation.create(op.operation.name, results=types, operands=operands, attributes=attributes)
        return list(made.results)

    def _extract(self, op: ir.OpView, env: dict[ir.Value, Any], guard: Guard | None) -> ir.Value:
        """tensor.extract %table[%i, %j]: a gather through the table's layout (and the views above it).

        Where all indices found at run time are the same for all lanes, and the rest walks along a line (the row of an
        embedding), it is a load.
        """
        table = op.operands[0]
        at: list[Any] = [env[v] if isinstance(env.get(v), ir.AffineExpr) else self._lookup(env, v) for v in op.operands[1:]]
        while self.body.argument_position(table) is None:
            view = table.owner.opview
            if view.operation.name != "kiln.view":
                raise UnsupportedError("tensor.extract", str(op.location), "a table that is computed in the fusion")
            results = self.body.local_map(view, "map").results
            found = [at[e.position] if isinstance(e, ir.AffineDimExpr) else None for e in results]
            at = [self._apply(e, at) if f is None else f for e, f in zip(results, found, strict=True)]
            table = view.operands[0]
        position = self.body.argument_position(table)
        assert position is not None
        buffer = self.buffers[position]
        element = ir.RankedTensorType(table.type).element_type
        loaded = self._extract_line(buffer, self.layouts[position], at, guard)
        if loaded is not None:
            return self._boolean(loaded, element)
        offset = self._apply(self.layouts[position].results[0], at)
        if isinstance(offset.type, ir.VectorType):
            return self._boolean(self.gather(buffer, offset, self.mask(guard)), element)
        return self._boolean(self._load_one(buffer, offset, guard), element)

    def _extract_line(
        self, buffer: ir.Value, layout: ir.AffineMap, at: Sequence[Any], guard: Guard | None
    ) -> ir.Value | None:
        linear = affine.linear_coefficients(layout.results[0])
        if linear is None or self.lane.dim is None:
            return None
        base: Index = self.index(linear[0])
        along: ir.AffineExpr = ir.AffineConstantExpr.get(0)
        for d, coefficient in linear[1].items():
            if isinstance(at[d], ir.AffineExpr):
                along = along + at[d] * coefficient
            elif isinstance(at[d].type, ir.VectorType):
                return None
            else:
                base = self.b.addi(base, self.b.muli(at[d], self.index(coefficient)))
        line = self.lane.line(self.loops.simplify(along))
        if line is None or self.is_uniform([along]):
            return None
        start = self.b.addi(base, self.index(line[1]))
        return self.b.gather(buffer, start, self.index(line[0]), self.lane.width, self.mask(guard))

    def _load_one(self, buffer: ir.Value, offset: Index, guard: Guard | None) -> ir.Value:
        """A uniform element; behind a guard, only if a lane is in bounds."""
        if guard is None:
            return self.b.load(buffer, offset)
        wanted = guard.mask
        if isinstance(wanted.type, ir.VectorType):
            wanted = self.b.reduce("or", wanted)
        one = vector.broadcast(self.b.vec(1, self.b.i1), wanted)
        return self.b.extract(self.b.vload(buffer, offset, 1, one), 0)

    def _apply(self, expr: ir.AffineExpr, dims: Sequence[Any]) -> ir.Value:
        """An affine expression over run-time index values (scalars or vectors) or expressions."""
        if isinstance(expr, ir.AffineDimExpr):
            at = dims[expr.position]
            return self.index_value(at) if isinstance(at, ir.AffineExpr) else at
        if not affine.dims_in(expr):
            return self.b.value(self.index(expr))
        x, y = self._apply(expr.lhs, dims), self._apply(expr.rhs, dims)
        if isinstance(x.type, ir.VectorType) or isinstance(y.type, ir.VectorType):
            x, y = self.splat(x), self.splat(y)
        if isinstance(expr, ir.AffineAddExpr):
            return arith.addi(x, y)
        if isinstance(expr, ir.AffineMulExpr):
            return arith.muli(x, y)
        if isinstance(expr, ir.AffineFloorDivExpr):
            return arith.divui(x, y)
        if isinstance(expr, ir.AffineModExpr):
            return arith.remui(x, y)
        return arith.ceildivui(x, y)

    # -- pads and concatenations ---------------------------------------------------------------------------------------

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

    # -- scratch ---------------------------------------------------------------------------------------------------------

    def _reload(self, value: ir.Value, indices: Indices) -> ir.Value | None:
        for scope in reversed(self.scopes):
            kept = scope.spilled.get(value)
            if kept is not None and all(indices[i] == e for i, e in kept.fixed.items()):
                offset = linear_offset([indices[i] for i in kept.free], kept.sizes)
                loaded = self._load(kept.buffer, self.loops.simplify(offset), None)
                return self._boolean(loaded, ir.RankedTensorType(value.type).element_type)
        return None


class Scratch:
    """This thread's private memory: typed areas given out at symbolic offsets, each aligned to 64 bytes."""

    def __init__(self, memory: ir.Value):
        self.memory = memory
        self.bytes: ir.AffineExpr = ir.AffineConstantExpr.get(0)

    def allocate(self, e: Evaluator, count: ir.AffineExpr, element: ir.Type) -> ir.Value:
        """A memref<?xelement> of `count` elements."""
        memory_type = _memory(element)
        size = memory_type.width // 8 if not isinstance(memory_type, ir.IndexType) else 8
        offset = self.bytes
        blocks = ir.AffineExpr.get_ceil_div(count * size, 64)
        self.bytes = self.bytes + blocks * 64
        return e.b.view(self.memory, e.index(offset), e.index(count), memory_type)


def linear_offset(indices: Sequence[ir.AffineExpr], sizes: Sequence[ir.AffineExpr]) -> ir.AffineExpr:
    """Row-major offset."""
    offset: ir.AffineExpr = ir.AffineConstantExpr.get(0)
    for e, size in zip(indices, sizes, strict=True):
        offset = offset * size + e
    return offset


def _element(type_: ir.Type) -> ir.Type:
    return type_.element_type if isinstance(type_, ir.VectorType) else type_


def _like(type_: ir.Type, element: ir.Type) -> ir.Type:
    return ir.VectorType.get(type_.shape, element) if isinstance(type_, ir.VectorType) else element


def _memory(element: ir.Type) -> ir.Type:
    """Type of an element in memory."""
    if isinstance(element, ir.IntegerType) and element.width == 1:
        return ir.IntegerType.get_signless(8)
    return element
