# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Atomic operations: programs run one after the other, so that each is a read and a write."""

from collections.abc import Callable

from torch_mlir import ir
from torch_mlir.dialects import arith

from kiln.lowering.ttcpu.blocks import Cursor, bytes_of, memory_type, scalar_type
from kiln.lowering.ttcpu.core import Lowering, handles
from kiln.lowering.ttcpu.memory import read, undefined, write
from kiln.lowering.ttcpu.watch import Watch

Index = tuple[ir.Value, ...]

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
    _, value, *masks = list(op.operands)
    kind = ir.IntegerAttr(op.attributes["atomic_rmw_op"]).value

    def combined(old: ir.Value, new: ir.Value) -> ir.Value:
        name = _COMBINE[kind]
        if name is None:
            return new
        if isinstance(new.type, (ir.BF16Type, ir.F16Type)):
            wide = arith.addf(low.b.cast_float(old, low.b.f32), low.b.cast_float(new, low.b.f32))
            return low.b.cast_float(wide, new.type)
        return ir.Operation.create(name, results=[new.type], operands=[old, new]).result

    def update(index: Index, address: ir.Value) -> ir.Value:
        old = read(low, address, scalar_type(value.type))
        write(low, address, combined(old, low.element(value, index)))
        return old

    _each(low, op, masks, update)


@handles("tt.atomic_cas")
def _compare_and_swap(low: Lowering, op: ir.Operation) -> None:
    _, expected, value = list(op.operands)

    def update(index: Index, address: ir.Value) -> ir.Value:
        cursor = Cursor()
        old = read(low, address, scalar_type(value.type))
        bits = ir.IntegerType.get_signless(old.type.width)
        same = [v if v.type == bits else arith.bitcast(bits, v) for v in (old, low.element(expected, index, cursor))]
        new = low.element(value, index, cursor)
        write(low, address, arith.select(arith.cmpi(0, *same), new, old))
        return old

    _each(low, op, [], update)


def _each(
    low: Lowering, op: ir.Operation, masks: list[ir.Value], update: Callable[[Index, ir.Value], ir.Value]
) -> None:
    """Runs `update(index, address)` for each element that is not masked off; its results are the op's."""
    result, pointer = op.results[0], op.operands[0]
    element = scalar_type(result.type)
    nothing = undefined(low, element)
    watch = Watch(low, op, "atomic", pointer, bytes_of(memory_type(element)))

    def access(index: Index) -> list[ir.Value]:
        address = low.element(pointer, index)
        return watch.touch(address, lambda: [update(index, address)], [nothing])

    def one(index: Index) -> list[ir.Value]:
        if not masks:
            return access(index)
        types = [element, *watch.types]
        return low.b.if_(low.element(masks[0], index), lambda: access(index), lambda: [nothing, *watch.nothing], types)

    low.stop()
    watch.fill(result, one)
    low.stop(is_told=True)
