# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The traversal on a GPU: values are scalars and blocks of one tile.

A value at an index is a scalar or a block with the axes that the index depends on (size 1 along the others).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torch_mlir import ir
from torch_mlir.dialects import arith
from typing_extensions import override

from kiln.dialects import tt
from kiln.lowering.gpu.builder import Builder, Condition, Index
from kiln.lowering.gpu.tile.scalar import emit_scalar_op, type_of
from kiln.lowering.gpu.tile.scopes import Scopes
from kiln.lowering.tile.access import Indices, compose_one
from kiln.lowering.tile.body import FusionBody
from kiln.lowering.tile.bounds import CHECKED, unclamped
from kiln.lowering.tile.evaluator import Traversal
from kiln.lowering.tile.scopes import Guard


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


class Evaluator(Scopes, Traversal):
    """Emits values of a fusion's body into one kernel.

    pointers: one `!tt.ptr` per tensor operand of the fusion, then per result.
    row: the rows that this kernel reduces, along one axis of the tile.
    """

    generator = "GPU"

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
        self.bound = {}
        self.row: Row | None = None

    @override
    def position(self, expr: ir.AffineExpr) -> Index:
        return self.index(expr)

    @override
    def emit_reduction(self, value: ir.Value, indices: Indices, guard: Guard | None) -> ir.Value:
        from kiln.lowering.gpu.tile.reduction import emit_reduction

        return emit_reduction(self, value, indices, guard)

    @override
    def emit_op(self, op: ir.OpView, operands: list[ir.Value]) -> list[ir.Value]:
        return emit_scalar_op(self.b, op, operands, self.backend)

    @override
    def number(self, attribute: Any) -> ir.Value:
        if isinstance(attribute, ir.BoolAttr):
            return self.b.constant(int(attribute.value), self.b.i1)
        return self.b.constant(attribute.value, type_of(self.b, attribute.type))

    @override
    def fill(self, element: ir.Type) -> ir.Value:
        return self.b.constant(0, type_of(self.b, element))

    def emitted(self, op: ir.OpView, env: dict[ir.Value, Any], guard: Guard | None) -> None:
        """An index that a checked clamp changes ends the kernel, in lanes that are in use."""
        if CHECKED not in op.operation.attributes:
            return
        index = unclamped(op.operation)
        if index is None:
            return
        b = self.b
        given, clamped = b.together(self.lookup(env, index), self.lookup(env, op.operation.results[0]))
        mask = self.mask_for(given, guard)
        same = b.cmpi("eq", given, clamped)
        name = ir.StringAttr(op.operation.attributes[CHECKED]).value
        b.assert_(same if mask is True else b.select(mask, same, b.constant(1, b.i1)), f"index out of range in {name}")

    # -- memory ------------------------------------------------------------------------------------------------

    @override
    def load(self, position: int, indices: Indices, guard: Guard | None) -> ir.Value:
        return self.load_at(position, self.index(compose_one(self.layouts[position], indices, self.loops)), guard)

    @override
    def look_up(self, position: int, at: Sequence[Any], guard: Guard | None) -> ir.Value:
        return self.load_at(position, self.apply(self.layouts[position].results[0], at), guard)

    def load_at(self, position: int, offset: Index, guard: Guard | None) -> ir.Value:
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
