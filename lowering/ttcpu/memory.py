# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Loads and stores: what touches memory outside of the kernel, with `atomics.py` and `descriptors.py`.

These run where they stand; a masked-off element touches no memory.
"""

from torch_mlir import ir
from torch_mlir.dialects import arith, llvm

from kiln.dialects import tt
from kiln.errors import UnsupportedError
from kiln.lowering.float8 import is_float8
from kiln.lowering.ttcpu.blocks import Cursor, bytes_of, memory_type, scalar_type
from kiln.lowering.ttcpu.core import Lowering, handles
from kiln.lowering.ttcpu.watch import Watch

__all__ = ["read", "undefined", "write", "zero"]

Index = tuple[ir.Value, ...]


def _segments(op: ir.Operation) -> list[list[ir.Value]]:
    sizes = list(ir.DenseI32ArrayAttr(op.attributes["operandSegmentSizes"]))
    operands = list(op.operands)
    return [operands[sum(sizes[:i]) : sum(sizes[: i + 1])] for i in range(len(sizes))]


def read(low: Lowering, address: ir.Value, element: ir.Type) -> ir.Value:
    """A scalar of type `element` from memory."""
    stored = memory_type(element)
    value = llvm.load(stored, address)
    if stored == element:
        return value
    if is_float8(element):
        return arith.bitcast(element, value)
    return arith.trunci(element, value) if isinstance(element, ir.IntegerType) else llvm.inttoptr(element, value)


def write(low: Lowering, address: ir.Value, value: ir.Value) -> list[ir.Value]:
    """Stores a scalar; the list of its results."""
    stored = memory_type(value.type)
    if is_float8(value.type):
        value = arith.bitcast(stored, value)
    elif stored != value.type:
        is_bool = isinstance(value.type, ir.IntegerType)
        value = arith.extui(stored, value) if is_bool else llvm.ptrtoint(stored, value)
    llvm.store(value, address)
    return []


def zero(low: Lowering, element: ir.Type) -> ir.Value:
    """A zero of an element type; a null pointer for pointers."""
    if isinstance(element, (ir.IntegerType, ir.FloatType)):
        return low.b.zero(element)
    return llvm.inttoptr(element, low.b.int_(0, low.b.i64))


def undefined(low: Lowering, element: ir.Type) -> ir.Value:
    """What a masked-off element is without an `other`: on a GPU any bits, here NaN or bytes of 0xA5, so that a kernel
    that uses them gives a wrong result here, too.
    """
    if isinstance(element, ir.FloatType):
        return low.b.float_(float("nan"), element)
    if isinstance(element, ir.IntegerType):
        bits = int.from_bytes(b"\xa5" * 8, "little") & ((1 << element.width) - 1)
        return low.b.int_(bits - (1 << element.width) if bits >> (element.width - 1) else bits, element)
    return zero(low, element)


@handles("tt.load")
def _load(low: Lowering, op: ir.Operation) -> None:
    pointers, masks, others = _segments(op)
    if any(list(ir.DenseI32ArrayAttr(op.attributes[k])) for k in ("boundaryCheck",) if k in op.attributes):
        raise UnsupportedError(op.name, str(op.location), "block pointers do not run on the CPU")
    result = op.results[0]
    element = scalar_type(result.type)
    watch = Watch(low, op, "load", pointers[0], bytes_of(memory_type(element)))

    def load(index: Index) -> list[ir.Value]:
        """The element, then what `Watch` is to know."""
        cursor = Cursor()
        other = low.element(others[0], index, cursor) if others else undefined(low, element)

        def access(cursor: Cursor) -> list[ir.Value]:
            address = low.element(pointers[0], index, cursor)
            return watch.touch(address, lambda: [read(low, address, element)], [undefined(low, element)])

        if not masks:
            return access(cursor)
        # The address is computed inside of the branch, by a cursor of its own.
        mask = low.element(masks[0], index, cursor)
        return low.b.if_(mask, lambda: access(Cursor()), lambda: [other, *watch.nothing], [other.type, *watch.types])

    low.stop()
    watch.fill(result, load)


@handles("tt.store")
def _store(low: Lowering, op: ir.Operation) -> None:
    pointer, value, *masks = list(op.operands)
    watch = Watch(low, op, "store", pointer, bytes_of(memory_type(scalar_type(value.type))))

    def body(index: Index) -> list[ir.Value]:
        def access(cursor: Cursor) -> list[ir.Value]:
            address = low.element(pointer, index, cursor)
            return watch.touch(address, lambda: write(low, address, low.element(value, index, cursor)))

        cursor = Cursor()
        if not masks:
            return access(cursor)
        mask = low.element(masks[0], index, cursor)
        return low.b.if_(mask, lambda: access(Cursor()), lambda: watch.nothing, watch.types)

    low.stop()
    watch.each(tuple(ir.RankedTensorType(pointer.type).shape) if tt.is_block(pointer.type) else (), body)
