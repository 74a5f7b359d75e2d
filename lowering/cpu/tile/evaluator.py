# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""The traversal on a CPU: values are scalars and vectors of lanes.

A value at an index is either uniform (a scalar, the same for all lanes) or a vector, one lane per consecutive
value of the lane dim.
"""

from collections.abc import Sequence
from math import inf
from typing import Any

from torch_mlir import ir
from typing_extensions import override

from kiln.dialects import affine
from kiln.errors import UnsupportedError
from kiln.lowering.cpu.builder import Builder, Condition, Index
from kiln.lowering.cpu.tile.bounds import emit_check
from kiln.lowering.cpu.tile.memory import Memory, Scratch
from kiln.lowering.tile.access import Indices, memory_type
from kiln.lowering.tile.body import FusionBody
from kiln.lowering.tile.bounds import CHECKED, unclamped
from kiln.lowering.tile.evaluator import Traversal
from kiln.lowering.tile.scopes import Guard
from kiln.lowering.tile.short_formulas import CPU_FORMULAS, is_short_enough


class Evaluator(Memory, Traversal):
    """Emits values of a fusion's body into one kernel.

    flag: the address of what the host looks at for indices out of range, if the body checks any.
    """

    generator = "CPU"

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
        self.bound = {}

    @override
    def position(self, expr: ir.AffineExpr) -> Index:
        return self.index_value(expr)

    @override
    def align(self, x: Index, y: Index) -> tuple[Index, Index]:
        if isinstance(x, ir.Value) or isinstance(y, ir.Value):
            p, q = self.b.together(*self.b.pair(x, y))
            return p, q
        return x, y

    def within(self, expr: ir.AffineExpr, low: ir.AffineExpr, high: ir.AffineExpr, guard: Condition) -> Condition:
        """As the traversal's; lanes on a rising line are told from two numbers, not one by one in 64 bits."""
        b, lane = self.b, self.lane
        moved = self.loops.simplify(expr - low)
        if self.loops.pieces and self.loops.is_outside(moved, high - low):
            return False
        if self.loops.pieces and self.loops.is_inside(moved, high - low):
            return guard
        if self.is_uniform([moved]):
            # Not by `position`: a value has lost what is known of the integer, which may decide the comparison.
            at = self.index(moved)
            if low != ir.AffineConstantExpr.get(0):
                guard = b.andc(guard, b.cmpi("sge", at, 0))
            return b.andc(guard, b.cmpi("slt", at, self.index(self.loops.simplify(high - low))))
        inside = self._known_inside(moved, self.loops.simplify(high - low))
        if inside is not None:
            return b.andc(guard, inside if isinstance(inside, bool) else b.mask_of(inside))
        line = lane.line(moved)
        step = line[0].maybe_downcast() if line is not None else None
        if line is None or not isinstance(step, ir.AffineConstantExpr) or step.value <= 0:
            return super().within(expr, low, high, guard)
        first = self.index(line[1])
        least, most = b.known(first)[:2]
        size, last = affine.constant_of(self.loops.simplify(high - low)), step.value * (lane.width - 1)
        if size is not None and (most + last < 0 or least >= size):
            return False
        if size is not None and least >= 0 and most + last < size:
            return guard
        stop = b.ceildivi(b.maxi(b.subi(self.index(self.loops.simplify(high - low)), first), 0), step.value)
        start: Index = 0
        if low != ir.AffineConstantExpr.get(0):
            start = b.ceildivi(b.maxi(b.subi(0, first), 0), step.value)
        mask = b.mask_between(start, stop, lane.width)
        return guard if mask is None else b.andc(guard, mask)

    @override
    def range_of(self, expr: ir.AffineExpr) -> tuple[int, int] | None:
        line = (ir.AffineConstantExpr.get(0), expr) if self.is_uniform([expr]) else self.lane.line(expr)
        step = affine.constant_of(line[0]) if line is not None else None
        if line is None or step is None:
            return None
        low, high = self.b.known(self.index(line[1]))[:2]
        last = step * (self.lane.width - 1) if step else 0
        ends = low + min(last, 0), high + max(last, 0)
        return None if inf in map(abs, ends) else (int(ends[0]), int(ends[1]))

    @override
    def alternates(self, expr: ir.AffineExpr) -> bool:
        return not self.is_uniform([expr])

    def _known_inside(self, expr: ir.AffineExpr, size: ir.AffineExpr) -> bool | list[bool] | None:
        """Which lanes have 0 <= expr < size, or whether all or none have, where that is known."""
        pattern, count = self.lane.pattern(expr), affine.constant_of(size)
        start = affine.constant_of(pattern[0]) if pattern is not None else None
        if pattern is None or start is None or count is None:
            return None
        inside = [0 <= start + step < count for step in pattern[1]]
        return inside if any(inside) and not all(inside) else inside[0]

    @override
    def emit_reduction(self, value: ir.Value, indices: Indices, guard: Guard | None) -> ir.Value:
        from kiln.lowering.cpu.tile.reduction import emit_reduction

        if guard is not None:
            location = str(value.owner.opview.location)
            raise UnsupportedError("linalg.generic", location, "a reduction below a pad or concatenation")
        return emit_reduction(self, value, indices)

    @override
    def emit_op(self, op: ir.OpView, operands: list[ir.Value]) -> list[ir.Value]:
        if len(op.regions):
            raise UnsupportedError(op.operation.name, str(op.location), "control flow inside a linalg.generic")
        types = [r.type for r in op.results]
        if any(isinstance(v.type, ir.VectorType) for v in operands):
            width = next(ir.VectorType(v.type).shape[0] for v in operands if isinstance(v.type, ir.VectorType))
            operands = [v if isinstance(v.type, ir.VectorType) else self.b.broadcast(v, width) for v in operands]
            types = [self.b.vec(width, t) for t in types]
        attributes = {a: op.operation.attributes[a] for a in op.operation.attributes if a not in (CHECKED, "fastmath")}
        if is_short_enough(op.operation, CPU_FORMULAS):
            attributes["fastmath"] = ir.Attribute.parse("#arith.fastmath<afn>")
        made = ir.Operation.create(op.operation.name, results=types, operands=operands, attributes=attributes)
        return list(made.results)

    @override
    def number(self, attribute: Any) -> ir.Value:
        if isinstance(attribute, ir.BoolAttr):
            attribute = ir.IntegerAttr.get(self.b.i1, int(attribute.value))
        return self.b.constant(attribute, attribute.type)

    @override
    def fill(self, element: ir.Type) -> ir.Value:
        return self.b.zero(memory_type(element))

    def emitted(self, op: ir.OpView, env: dict[ir.Value, Any], guard: Guard | None) -> None:
        """Reports what a checked clamp changed."""
        if CHECKED not in op.operation.attributes or self.flag is None:
            return
        index = unclamped(op.operation)
        if index is None:
            return
        given, clamped = self.b.together(self.lookup(env, index), self.lookup(env, op.operation.results[0]))
        is_vector = isinstance(given.type, ir.VectorType)
        # A uniform index is that of lanes in use, unless a guard says that it may be none.
        mask = self.mask(guard) if is_vector else self.b.condition(guard.mask) if guard is not None else None
        emit_check(self.b, given, clamped, mask, self.flag)

    def look_up(self, position: int, at: Sequence[Any], guard: Guard | None) -> ir.Value:
        """A gather; where all indices found at run time are the same for all lanes, and the rest walks along a line
        (the row of an embedding), a load.
        """
        buffer = self.buffers[position]
        element = ir.RankedTensorType(self.body.tensors[position].type).element_type
        loaded = self.load_line(buffer, self.layouts[position], at, guard)
        if loaded is not None:
            return self.boolean(loaded, element)
        offset = self.b.value(self.apply(self.layouts[position].results[0], at))
        if isinstance(offset.type, ir.VectorType):
            return self.boolean(self.gather(buffer, offset, self.mask(guard)), element)
        return self.boolean(self.load_one(buffer, offset, guard), element)
