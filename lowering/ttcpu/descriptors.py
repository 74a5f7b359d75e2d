# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Tensor descriptors: blocks that the copy engine (TMA) moves."""

from collections.abc import Callable

from torch_mlir import ir
from torch_mlir.dialects import arith, llvm

from kiln.lowering.ttcpu.blocks import Block, Cursor, bytes_of, loop_nest, memory_type, pointee, scalar_type
from kiln.lowering.ttcpu.core import Descriptor, Extent, Lowering, handles
from kiln.lowering.ttcpu.extents import extents_of
from kiln.lowering.ttcpu.memory import read, write, zero
from kiln.lowering.ttcpu.scalars import element_address
from kiln.lowering.ttcpu.watch import report

__all__ = ["check_descriptor"]

Index = tuple[ir.Value, ...]

_UNIT = 16
"""Bytes that a tensor map's strides are multiples of."""


@handles("tt.make_tensor_descriptor")
def _make_descriptor(low: Lowering, op: ir.Operation) -> None:
    pointer, *rest = list(op.operands)
    sizes = [_as_index(low, v) for v in rest[: len(rest) // 2]]
    strides = [_as_index(low, v) for v in rest[len(rest) // 2 :]]
    is_nan = "padding" in op.attributes and ir.IntegerAttr(op.attributes["padding"]).value == 2
    descriptor = Descriptor(low.scalar(pointer), pointee(pointer.type), sizes, strides, is_nan)
    low.values[op.results[0]] = descriptor
    found = extents_of(low, pointer)
    if len(found) == 1:
        check_descriptor(low, op, descriptor, found[0])


def check_descriptor(low: Lowering, op: ir.Operation, descriptor: Descriptor, extent: Extent) -> None:
    """Reports a descriptor that goes past its memory, or that the hardware has no form for: all but the last stride
    are multiples of 16 bytes.
    """
    b, item = low.b, bytes_of(memory_type(descriptor.element))
    last, is_empty = b.value(0), b.int_(0, b.i1)
    start = arith.subi(llvm.ptrtoint(b.i64, descriptor.pointer), extent.base)
    for size, stride in zip(descriptor.sizes, descriptor.strides, strict=True):
        last = arith.addi(last, arith.muli(arith.subi(size, b.value(1)), stride))
        is_empty = arith.ori(is_empty, arith.cmpi(3, size, b.value(0)))
    offset = arith.addi(start, arith.muli(arith.index_cast(b.i64, last), b.int_(item, b.i64)))
    end = arith.addi(offset, b.int_(item, b.i64))
    is_outside = arith.ori(arith.cmpi(4, end, extent.size), arith.cmpi(2, start, b.int_(0, b.i64)))
    is_outside = arith.andi(is_outside, arith.xori(is_empty, b.int_(1, b.i1)))
    b.if_(is_outside, lambda: report(low, op, "descriptor", extent, offset))
    for stride in descriptor.strides[:-1]:
        distance = arith.muli(arith.index_cast(b.i64, stride), b.int_(item, b.i64))
        is_odd = arith.cmpi(1, arith.andi(distance, b.int_(_UNIT - 1, b.i64)), b.int_(0, b.i64))
        b.if_(is_odd, lambda distance=distance: report(low, op, "alignment", extent, distance, "a tensor map's stride"))


def _as_index(low: Lowering, value: ir.Value) -> ir.Value:
    return low.b.to_index(low.scalar(value))


def _place(
    low: Lowering, descriptor: Descriptor, starts: list[ir.Value], index: Index
) -> tuple[ir.Value, Callable[[], ir.Value]]:
    """(whether an element of the block lies in the tensor, its address)."""
    at: list[ir.Value] = []
    b, inside = low.b, None
    for start, i, size in zip(starts, index, descriptor.sizes, strict=True):
        place = b.value(b.addi(start, i))
        at.append(place)
        valid = arith.andi(arith.cmpi(5, place, b.value(0)), arith.cmpi(2, place, size))
        inside = valid if inside is None else arith.andi(inside, valid)
    assert inside is not None

    def address() -> ir.Value:
        offset = b.sum_(*(b.muli(p, s) for p, s in zip(at, descriptor.strides, strict=True)))
        return element_address(
            descriptor.pointer, arith.index_cast(b.i64, b.value(offset)), memory_type(descriptor.element)
        )

    return inside, address


@handles("tt.descriptor_load")
def _descriptor_load(low: Lowering, op: ir.Operation) -> None:
    descriptor = low.values[op.operands[0]]
    assert isinstance(descriptor, Descriptor)
    starts = [_as_index(low, v) for v in list(op.operands)[1:]]
    result = op.results[0]
    element = scalar_type(result.type)

    def compute(cursor: Cursor, index: Index) -> ir.Value:
        # Leading dims of 1 may be missing.
        whole = (*[low.b.value(0)] * (len(starts) - len(index)), *index)
        inside, address = _place(low, descriptor, starts, whole)
        outside = low.b.float_(float("nan"), element) if descriptor.is_nan else zero(low, element)
        return low.b.if_(inside, lambda: [read(low, address(), element)], lambda: [outside], [element])[0]

    low.values[result] = low.scratch.store(Block(ir.RankedTensorType(result.type).shape, element, compute))


@handles("tt.descriptor_store")
def _descriptor_store(low: Lowering, op: ir.Operation) -> None:
    descriptor, source = low.values[op.operands[0]], low.block(op.operands[1])
    assert isinstance(descriptor, Descriptor)
    starts = [_as_index(low, v) for v in list(op.operands)[2:]]

    def body(index: Index) -> None:
        # Leading dims of 1 may be missing.
        whole = (*[low.b.value(0)] * (len(starts) - len(index)), *index)
        inside, address = _place(low, descriptor, starts, whole)
        low.b.if_(inside, lambda: write(low, address(), Cursor().value(source, index)))

    loop_nest(low.b, source.shape, body)
