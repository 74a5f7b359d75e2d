# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What all `tt` ops share: the dialect, its types, checks of blocks, effects."""

from collections.abc import Mapping, Sequence
from typing import Any

from torch_mlir import ir
from torch_mlir.dialects import ext
from torch_mlir.dialects.irdl import Variadicity

from kiln.dialects.elements import element_of, with_element
from kiln.dialects.kiln.base import I64Array, Pure, Result
from kiln.dialects.kiln.checks import InvalidOp, require, verified
from kiln.dialects.kiln.family import Family as KilnFamily

DenseArray = I64Array
"""Constraint for `array<...>` attributes of any integer type."""

MAX_ELEMENTS = 1 << 20
"""The largest block that Triton takes (`TRITON_MAX_TENSOR_NUMEL`)."""


class Tt(ext.Dialect, name="tt"):
    """A mirror of Triton's dialect: what Kiln emits, spelt so that Triton parses it (see `lowering/gpu/ttir.py`).

    Blocks are ranked tensors whose sizes are powers of two; a pointer is `!tt.ptr<f32>`, a block of pointers
    `tensor<128x!tt.ptr<f32>>`.  Booleans are `i1` in registers and bytes in memory.  Arithmetic is `arith` and `math`
    on blocks, control flow `scf`.
    """


class PtrType(Tt.Type, name="ptr"):
    """`!tt.ptr<T>`: the address of elements of type T in global memory."""

    pointee: Any


class TensorDescType(Tt.Type, name="tensordesc"):
    """`!tt.tensordesc<tensor<128x64xbf16>>`: a descriptor of a tensor in memory that is moved in blocks of that type.

    Triton 3.9 writes it `!tt.tensordesc<128x64xbf16>`; the printer knows.
    """

    block: Any


def ptr(element: ir.Type) -> ir.Type:
    """`!tt.ptr<element>`."""
    return PtrType.get(element)


def tensordesc(block: ir.Type) -> ir.Type:
    """`!tt.tensordesc<block>`."""
    return TensorDescType.get(block)


def is_ptr(type_: ir.Type) -> bool:
    """Whether the type is a pointer `!tt.ptr<T>`; a block of pointers is none."""
    return str(type_).startswith("!tt.ptr<")


def is_tensordesc(type_: ir.Type) -> bool:
    """Whether the type is a tensor descriptor."""
    return str(type_).startswith("!tt.tensordesc<")


def pointee(type_: ir.Type) -> ir.Type:
    """The element type of a pointer, or of a block of pointers."""
    return ir.TypeAttr(ir.DynamicType(element_of(type_)).params[0]).value


def block_of(type_: ir.Type) -> ir.RankedTensorType:
    """The block type that a descriptor moves."""
    return ir.RankedTensorType(ir.TypeAttr(ir.DynamicType(type_).params[0]).value)


def is_block(type_: ir.Type) -> bool:
    """Whether it is a block's type: a ranked tensor."""
    return isinstance(type_, ir.RankedTensorType)


def shape_of(type_: ir.Type) -> list[int]:
    """The sizes of a block; empty for a scalar."""
    return list(type_.shape) if isinstance(type_, ir.RankedTensorType) else []


def with_shape(shape: Sequence[int], element: ir.Type) -> ir.Type:
    """A block of this shape; the element type itself for no dims."""
    # Verifiers call this where no location is current.
    return ir.RankedTensorType.get(list(shape), element, loc=ir.Location.unknown(element.context)) if shape else element


class Operation(Tt.Operation):
    """Base of the ops with a fixed form.

    One optional or variadic operand group needs no segment sizes and gets none, as in Triton; `tt.load` has two and
    `operandSegmentSizes`, as in Triton.
    """

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "name" not in kwargs:
            return
        operands, _, _, _ = ext.partition_fields(cls._fields)
        if sum(field.variadicity != Variadicity.single for field in operands) > 1:
            return
        for i, field in enumerate(operands):
            setattr(cls, field.name, _positional(i, field.variadicity))
        cls._ODS_OPERAND_SEGMENTS = None

    @classmethod
    def create(
        cls,
        operands: Sequence[ir.Value],
        results: Sequence[ir.Type],
        attributes: Mapping[str, ir.Attribute] | None = None,
        regions: int = 0,
    ) -> Any:
        """Make the op at the current insertion point and location; returns its view."""
        op = ir.Operation.create(
            cls.OPERATION_NAME, operands=operands, results=results, attributes=attributes or {}, regions=regions
        )
        return op.opview


def _positional(index: int, variadicity: Any) -> property:
    if variadicity == Variadicity.single:
        return property(lambda op: op.operands[index])
    if variadicity == Variadicity.optional:
        return property(lambda op: op.operands[index] if len(op.operands) > index else None)
    return property(lambda op: list(op.operands)[index:])


class Family(KilnFamily):
    """Base of the ops with any number of operands of any types; see `kiln.dialects.kiln.family`."""

    DIALECT = Tt


class Effects:
    """Trait factory: the op reads, or writes, or both, so that dead reads go and nothing else is dropped or moved."""

    def __init__(self, *effects: str) -> None:
        self.effects = effects

    def attach(self, op_name: str) -> None:
        """Attach the memory effects to the op of a registered name."""
        names = self.effects

        class Interface(ir.MemoryEffectsOpInterface):
            @staticmethod
            def get_effects(op: Any, effects: Any) -> None:
                for name in names:
                    effects.append(getattr(ir.MemoryEffect, name))

        Interface.attach(op_name)


# ------------------------------------------------------------------------------------------------------------ checks


def check_block(what: str, type_: ir.Type) -> None:
    """A block's sizes are powers of two, and there are not too many elements."""
    if not is_block(type_):
        return
    total = 1
    for size in shape_of(type_):
        require(size > 0 and size & (size - 1) == 0, f"{what} sizes", "powers of two", type_)
        total *= size
    require(total <= MAX_ELEMENTS, f"{what} elements", f"at most {MAX_ELEMENTS}", total)


def same_shape(what: str, value: ir.Value, other: ir.Value) -> None:
    """`value` has the shape of `other` (both may be scalars)."""
    require(shape_of(value.type) == shape_of(other.type), f"{what} shape", shape_of(other.type), shape_of(value.type))


def same_type(what: str, value: ir.Value, type_: ir.Type) -> None:
    """Raise `InvalidOp` unless `value`, called `what`, has this type."""
    require(value.type == type_, f"{what} type", type_, value.type)


def element_is(what: str, value: ir.Value, element: str) -> None:
    """The element type, as text."""
    found = str(element_of(value.type))
    require(found == element, f"{what} element type", element, found)


def integer(op: Any, name: str, least: int, below: int) -> int:
    """An integer attribute in [least, below)."""
    value = op.attributes[name].value
    require(least <= value < below, f"attribute {name}", f"in [{least}, {below})", value)
    return value


__all__ = [
    "DenseArray",
    "Effects",
    "Family",
    "InvalidOp",
    "MAX_ELEMENTS",
    "Operation",
    "PtrType",
    "Pure",
    "Result",
    "TensorDescType",
    "Tt",
    "block_of",
    "check_block",
    "element_is",
    "element_of",
    "integer",
    "is_block",
    "is_ptr",
    "is_tensordesc",
    "pointee",
    "ptr",
    "require",
    "same_shape",
    "same_type",
    "shape_of",
    "tensordesc",
    "verified",
    "with_element",
    "with_shape",
]
