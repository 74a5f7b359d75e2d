# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Blocks of Triton IR: constants, positions, shapes, and integers on scalars and blocks alike.

A Value is an integer scalar or block. Integer methods fold what is known and turn ints into constants of the other
side's type. All two-sided methods broadcast: a scalar meets a block as a splat, a dim of size 1 grows.
"""

from collections.abc import Mapping, Sequence
from typing import Any, cast

from torch_mlir import ir
from torch_mlir.dialects import arith

from kiln.dialects import tt
from kiln.lowering.ir_builder import Condition, Index, IRBuilder

__all__ = ["BlockBuilder"]


class BlockBuilder(IRBuilder):
    """Emits ops on scalars and blocks at the current insertion point.

    Constants and ranges are placed once at the start of `entry`, the kernel's entry block.  `index` is the type that
    Python ints take when nothing else says (i32, or i64 for a kernel with large operands).
    """

    def __init__(self, entry: ir.Block, index: ir.Type | None = None):
        super().__init__(entry)
        self.f16 = ir.F16Type.get()
        self.bf16 = ir.BF16Type.get()
        self.index = index or self.i32
        self.has_float8 = True
        """Whether the chip converts e4m3fn (from sm_89 on); else integer arithmetic does."""
        self.instructions: Mapping[str, str] = {}
        """Ops on f32 that are one instruction: `device_math.INSTRUCTIONS` for an NVIDIA GPU."""

    # -- constants and positions -----------------------------------------------------------------------------

    def constant(self, value: float | bool, type_: ir.Type) -> ir.Value:
        """A number of a scalar or block type (a splat), once per kernel."""
        element = tt.element_of(type_)
        attribute: Any
        if isinstance(element, ir.IntegerType):
            bits = int(value) & ((1 << element.width) - 1)
            signed = bits - (1 << element.width) if element.width > 1 and bits >> (element.width - 1) else bits
            attribute = ir.IntegerAttr.get(element, signed)
        else:
            attribute = ir.FloatAttr.get(element, float(value))
        if tt.is_block(type_):
            attribute = ir.DenseElementsAttr.get_splat(type_, attribute)

        return self.attribute_constant(attribute, type_)

    def value(self, x: Any, like: ir.Type | None = None) -> ir.Value:
        """`x` as an SSA value; a Python number becomes a constant of the element type of `like` (else `index`)."""
        if isinstance(x, ir.Value):
            return cast(ir.Value, x)
        return self.constant(x, tt.element_of(like) if like is not None else self.index)

    def program_id(self, axis: int) -> ir.Value:
        """This program's position along a grid axis, as i32."""
        attributes = {"axis": self._i32(axis)}
        return self._once(("pid", str(axis)), lambda: tt.GetProgramIdOp.create([], [self.i32], attributes).result)

    def arange(self, length: int) -> ir.Value:
        """0, 1, ..., length - 1 as a 1-D block of `index`."""
        type_ = ir.RankedTensorType.get([length], self.i32)

        def make() -> ir.Value:
            x = tt.MakeRangeOp.create([], [type_], {"start": self._i32(0), "end": self._i32(length)}).result
            return x if self.index == self.i32 else arith.extsi(ir.RankedTensorType.get([length], self.index), x)

        return self._once(("range", str(length)), make)

    def lanes(self, length: int, axis: int, rank: int) -> ir.Value:
        """0, 1, ..., length - 1 along `axis` of a block of this rank whose other dims are 1."""
        x = self.arange(length)
        for i in range(rank):
            if i != axis:
                x = self.expand_dims(x, i)
        return x

    def _i32(self, value: int) -> ir.IntegerAttr:
        return ir.IntegerAttr.get(self.i32, value)

    # -- shapes ----------------------------------------------------------------------------------------------

    def splat(self, x: ir.Value, shape: Sequence[int]) -> ir.Value:
        """A scalar everywhere in a block; of a constant a constant."""
        owner = x.owner
        if shape and not isinstance(owner, ir.Block) and owner.operation.name == "arith.constant":
            value = owner.operation.attributes["value"].value
            return self.constant(value, ir.RankedTensorType.get(list(shape), x.type))
        return tt.SplatOp.create([x], [ir.RankedTensorType.get(list(shape), x.type)]).result if shape else x

    def expand_dims(self, x: ir.Value, axis: int) -> ir.Value:
        """`x` with a dim of size 1 at `axis`; a scalar becomes a block."""
        shape = tt.shape_of(x.type)
        shape.insert(axis, 1)
        if not tt.is_block(x.type):
            return self.splat(x, shape)
        type_ = ir.RankedTensorType.get(shape, tt.element_of(x.type))
        return tt.ExpandDimsOp.create([x], [type_], {"axis": self._i32(axis)}).result

    def broadcast(self, x: ir.Value, shape: Sequence[int]) -> ir.Value:
        """`x` in this shape: a scalar is splat, a block of the same rank grows its dims of size 1."""
        shape = list(shape)
        if tt.shape_of(x.type) == shape:
            return x
        if not tt.is_block(x.type):
            return self.splat(x, shape)
        return tt.BroadcastOp.create([x], [ir.RankedTensorType.get(shape, tt.element_of(x.type))]).result

    def together(self, *values: ir.Value) -> list[ir.Value]:
        """The values broadcast to one shape.  Blocks must have one rank and agree where neither size is 1."""
        shape: list[int] = []
        for v in values:
            own = tt.shape_of(v.type)
            if not own:
                continue
            if not shape:
                shape = own
            elif len(shape) != len(own) or any(a != b and 1 not in (a, b) for a, b in zip(shape, own, strict=True)):
                raise ValueError(f"blocks of shapes {shape} and {own} do not broadcast")
            else:
                shape = [max(a, b) for a, b in zip(shape, own, strict=True)]
        return [self.broadcast(v, shape) for v in values]

    def reshape(self, x: ir.Value, shape: Sequence[int]) -> ir.Value:
        """`x` with other sizes and as many elements, in row-major order."""
        if tt.shape_of(x.type) == list(shape):
            return x
        return tt.ReshapeOp.create([x], [ir.RankedTensorType.get(list(shape), tt.element_of(x.type))]).result

    def trans(self, x: ir.Value, order: Sequence[int] = (1, 0)) -> ir.Value:
        """Dim i of the result is dim `order[i]` of x."""
        shape = tt.shape_of(x.type)
        type_ = ir.RankedTensorType.get([shape[i] for i in order], tt.element_of(x.type))
        return tt.TransOp.create([x], [type_], {"order": ir.DenseI32ArrayAttr.get(list(order))}).result

    def join(self, x: ir.Value, y: ir.Value) -> ir.Value:
        """Two blocks of one type as one, with a last dim of size 2."""
        type_ = ir.RankedTensorType.get([*tt.shape_of(x.type), 2], tt.element_of(x.type))
        return tt.JoinOp.create([x, y], [type_]).result

    # -- integers (Python ints fold) -------------------------------------------------------------------------

    def pair(self, x: Index | float, y: Index | float) -> list[ir.Value]:
        """Two operands as values of one type: numbers take the other's element type, shapes broadcast."""
        like = x.type if isinstance(x, ir.Value) else y.type if isinstance(y, ir.Value) else None
        return self.together(self.value(x, like), self.value(y, like))

    def sum_(self, *terms: Index) -> Index:
        """The sum, scalars first: what is the same for the whole block stays scalar."""
        known = sum(t for t in terms if isinstance(t, int))
        values = [t for t in terms if isinstance(t, ir.Value)]
        total: Index = 0
        for t in sorted(values, key=lambda v: len(tt.shape_of(v.type))):
            if known and tt.is_block(t.type):
                total, known = self.addi(total, known), 0
            total = self.addi(total, t)
        return self.addi(total, known)

    def mask(self, condition: Condition | None, shape: Sequence[int]) -> ir.Value | None:
        """The condition as a mask of this shape; None where it is known to hold."""
        if condition is None or condition is True:
            return None
        if condition is False:
            return self.constant(False, tt.with_shape(shape, self.i1))
        return self.broadcast(condition, shape)

    def cast_int(self, x: ir.Value, element: ir.Type) -> ir.Value:
        """To another signed integer type."""
        source = tt.element_of(x.type)
        if source == element:
            return x
        target = tt.with_element(x.type, element)
        return arith.extsi(target, x) if element.width > source.width else arith.trunci(target, x)
