# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Loads, stores, atomics and tensor descriptors: what touches memory outside of the kernel.

These run where they stand; a masked-off element touches no memory.
"""

from collections.abc import Callable

from torch_mlir import ir
from torch_mlir.dialects import arith, llvm

from kiln.dialects import tt
from kiln.errors import UnsupportedError
from kiln.lowering.float8 import is_float8
from kiln.lowering.ttcpu.blocks import Block, Cursor, loop_nest, memory_type, pointee, scalar_type
from kiln.lowering.ttcpu.core import Descriptor, Lowering, handles
from kiln.lowering.ttcpu.scalars import element_address

Index = tuple[ir.Value, ...]


def _segments(op: ir.Operation) -> list[list[ir.Value]]:
    sizes = list(ir.DenseI32ArrayAttr(op.attributes["operandSegmentSizes"]))
    operands = list(op.operands)
    return [operands[sum(sizes[:i]) : sum(sizes[: i + 1])] for i in range(len(sizes))]


def _read(low: Lowering, address: ir.Value, element: ir.Type) -> ir.Value:
    """A scalar of type `element` from memory."""
    stored = memory_type(element)
    value = llvm.load(stored, address)
    if stored == element:
        return value
    if is_float8(element):
        return arith.bitcast(element, value)
    return arith.trunci(element, value) if isinstance(element, ir.IntegerType) else llvm.inttoptr(element, value)


def _write(low: Lowering, address: ir.Value, value: ir.Value) -> None:
    stored = memory_type(value.type)
    if is_float8(value.type):
        value = arith.bitcast(stored, value)
    elif stored != value.type:
        is_bool = isinstance(value.type, ir.IntegerType)
        value = arith.extui(stored, value) if is_bool else llvm.ptrtoint(stored, value)
    llvm.store(value, address)


def _zero(low: Lowering, element: ir.Type) -> ir.Value:
    if isinstance(element, (ir.IntegerType, ir.FloatType)):
        return low.b.zero(element)
    return llvm.inttoptr(element, low.b.int_(0, low.b.i64))


def _undefined(low: Lowering, element: ir.Type) -> ir.Value:
    """What a masked-off element is without an `other`: on a GPU any bits, here NaN or 1, so that a
    kernel that uses them gives a wrong result here, too."""
    if isinstance(element, ir.FloatType):
        return low.b.float_(float("nan"), element)
    return low.b.int_(1, element) if isinstance(element, ir.IntegerType) else _zero(low, element)


def _guarded(low: Lowering, mask: ir.Value | None, load: Callable[[], ir.Value], other: ir.Value) -> ir.Value:
    if mask is None:
        return load()
    return low.b.if_(mask, lambda: [load()], lambda: [other], [other.type])[0]


@handles("tt.load")
def _load(low: Lowering, op: ir.Operation) -> None:
    pointers, masks, others = _segments(op)
    if any(list(ir.DenseI32ArrayAttr(op.attributes[k])) for k in ("boundaryCheck",) if k in op.attributes):
        raise UnsupportedError(op.name, str(op.location), "block pointers do not run on the CPU")
    result = op.results[0]
    element = scalar_type(result.type)

    def compute(cursor: Cursor, index: Index) -> ir.Value:
        mask = low.element(masks[0], index, cursor) if masks else None
        other = low.element(others[0], index, cursor) if others else _undefined(low, element)
        return _guarded(low, mask, lambda: _read(low, _address(low, pointers[0], index, cursor, mask), element), other)

    if not tt.is_block(result.type):
        low.values[result] = compute(Cursor(), ())
        return
    low.values[result] = low.scratch.store(Block(ir.RankedTensorType(result.type).shape, element, compute))


def _address(low: Lowering, pointer: ir.Value, index: Index, cursor: Cursor, mask: ir.Value | None = None) -> ir.Value:
    """An element's address. Under a mask it is computed inside of the branch, by a cursor of its own."""
    return low.element(pointer, index, None if mask is not None else cursor)


@handles("tt.store")
def _store(low: Lowering, op: ir.Operation) -> None:
    pointer, value, *masks = list(op.operands)

    def body(index: Index) -> None:
        cursor = Cursor()
        if not masks:
            _write(low, low.element(pointer, index, cursor), low.element(value, index, cursor))
            return
        mask = low.element(masks[0], index, cursor)
        inside = Cursor()
        low.b.if_(mask, lambda: _write(low, low.element(pointer, index, inside), low.element(value, index, inside)))

    loop_nest(low.b, _block_shape(pointer), body)


def _block_shape(value: ir.Value) -> tuple[int, ...]:
    return tuple(ir.RankedTensorType(value.type).shape) if tt.is_block(value.type) else ()


# -- atomics ---------------------------------------------------------------------------------------------

# Triton's RMWOp -> the op that combines old and new; None: the new value.
_COMBINE = {
    1: "arith.andi",
    2: "arith.ori",
    3: "arith.xori",
    4: "arith.addi",
    5: "arith.addf",
    6: "arith.maxsi",
    7: "arith.minsi",
    8: "arith.maxui",
    9: "arith.minui",
    10: None,
}


@handles("tt.atomic_rmw")
def _atomic(low: Lowering, op: ir.Operation) -> None:
    """Reads, combines and writes: programs with atomics run one after the other."""
    pointer, value, *masks = list(op.operands)
    kind = ir.IntegerAttr(op.attributes["atomic_rmw_op"]).value

    def combined(old: ir.Value, new: ir.Value) -> ir.Value:
        name = _COMBINE[kind]
        if name is None:
            return new
        if isinstance(new.type, (ir.BF16Type, ir.F16Type)):
            wide = arith.addf(low.b.cast_float(old, low.b.f32), low.b.cast_float(new, low.b.f32))
            return low.b.cast_float(wide, new.type)
        return ir.Operation.create(name, results=[new.type], operands=[old, new]).result

    def update(index: Index) -> ir.Value:
        cursor = Cursor()
        address = low.element(pointer, index, cursor)
        old = _read(low, address, scalar_type(value.type))
        _write(low, address, combined(old, low.element(value, index, cursor)))
        return old

    _each(low, op, pointer, masks, update)


@handles("tt.assert")
def _assert(low: Lowering, op: ir.Operation) -> None:
    """Nothing: what an assertion guards is clamped, and loops on a CPU have no way to end all programs."""


@handles("tt.atomic_cas")
def _compare_and_swap(low: Lowering, op: ir.Operation) -> None:
    pointer, expected, value = list(op.operands)

    def update(index: Index) -> ir.Value:
        cursor = Cursor()
        address = low.element(pointer, index, cursor)
        old = _read(low, address, scalar_type(value.type))
        bits = ir.IntegerType.get_signless(old.type.width)
        same = [v if v.type == bits else arith.bitcast(bits, v) for v in (old, low.element(expected, index, cursor))]
        new = low.element(value, index, cursor)
        _write(low, address, arith.select(arith.cmpi(0, *same), new, old))
        return old

    _each(low, op, pointer, [], update)


def _each(
    low: Lowering, op: ir.Operation, pointer: ir.Value, masks: list[ir.Value], update: Callable[[Index], ir.Value]
) -> None:
    """Runs `update` for each element that is not masked off; its results are the op's."""
    result = op.results[0]
    element = scalar_type(result.type)

    def one(index: Index) -> ir.Value:
        mask = low.element(masks[0], index) if masks else None
        return _guarded(low, mask, lambda: update(index), _zero(low, element))

    if not tt.is_block(result.type):
        low.values[result] = one(())
        return
    target = low.scratch.block(ir.RankedTensorType(result.type).shape, element)
    loop_nest(low.b, _block_shape(pointer), lambda index: target.write(one(index), index))
    low.values[result] = target


# -- descriptors -----------------------------------------------------------------------------------------


@handles("tt.make_tensor_descriptor")
def _make_descriptor(low: Lowering, op: ir.Operation) -> None:
    pointer, *rest = list(op.operands)
    sizes = [_as_index(low, v) for v in rest[: len(rest) // 2]]
    strides = [_as_index(low, v) for v in rest[len(rest) // 2 :]]
    low.values[op.results[0]] = Descriptor(low.scalar(pointer), pointee(pointer.type), sizes, strides)


def _as_index(low: Lowering, value: ir.Value) -> ir.Value:
    return low.b.to_index(low.scalar(value))


def _place(
    low: Lowering, descriptor: Descriptor, starts: list[ir.Value], index: Index
) -> tuple[ir.Value, Callable[[], ir.Value]]:
    """(whether an element of the block lies in the tensor, its address)."""
    b, inside, at = low.b, None, []
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
        return _guarded(low, inside, lambda: _read(low, address(), element), _zero(low, element))

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
        low.b.if_(inside, lambda: _write(low, address(), Cursor().value(source, index)))

    loop_nest(low.b, source.shape, body)
