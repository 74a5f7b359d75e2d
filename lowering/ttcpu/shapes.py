# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Blocks out of scalars and other blocks: ranges, constants, and what rearranges indices."""

from typing import Any

from torch_mlir import ir
from torch_mlir.dialects import arith

from kiln.dialects import tt
from kiln.lowering.ttcpu.blocks import Block, Cursor, loop_nest, scalar_type
from kiln.lowering.ttcpu.core import Lowering, handles

Index = tuple[ir.Value, ...]


def _shape(value: ir.Value) -> tuple[int, ...]:
    return tuple(ir.RankedTensorType(value.type).shape)


@handles("tt.get_program_id")
def _program_id(low: Lowering, op: ir.Operation) -> None:
    low.values[op.results[0]] = low.programs[_axis(op)]


@handles("tt.get_num_programs")
def _num_programs(low: Lowering, op: ir.Operation) -> None:
    low.values[op.results[0]] = arith.index_cast(low.b.i32, low.b.value(low.grid[_axis(op)]))


def _axis(op: ir.Operation) -> int:
    return ir.IntegerAttr(op.attributes["axis"]).value


@handles("arith.constant")
def _constant(low: Lowering, op: ir.Operation) -> None:
    result, attribute, b = op.results[0], op.attributes["value"], low.b
    if not tt.is_block(result.type):
        low.values[result] = b.constant(attribute, result.type)
        return
    element = scalar_type(result.type)
    dense = ir.DenseElementsAttr(attribute)
    if dense.is_splat:
        value = b.constant(dense.get_splat_value(), element)
        low.values[result] = Block(_shape(result), element, lambda cursor, index: value)
        return
    stored = low.scratch.block(_shape(result), element)
    is_float = isinstance(element, ir.FloatType)
    values: Any = ir.DenseFPElementsAttr(attribute) if is_float else ir.DenseIntElementsAttr(attribute)
    flat = stored.reshaped([len(dense)])
    for number in range(len(dense)):
        value = values[number]
        flat.write((b.float_ if is_float else b.int_)(value, element), [b.value(number)])
    low.values[result] = stored


@handles("tt.make_range")
def _make_range(low: Lowering, op: ir.Operation) -> None:
    b, start = low.b, ir.IntegerAttr(op.attributes["start"]).value

    def compute(cursor: Cursor, index: Index) -> ir.Value:
        value = arith.index_cast(b.i32, index[0])
        return arith.addi(value, b.int_(start, b.i32)) if start else value

    low.values[op.results[0]] = Block(_shape(op.results[0]), b.i32, compute, 1)


@handles("tt.splat")
def _splat(low: Lowering, op: ir.Operation) -> None:
    value = low.scalar(op.operands[0])
    low.values[op.results[0]] = Block(_shape(op.results[0]), value.type, lambda cursor, index: value)


@handles("tt.unsplat")
def _unsplat(low: Lowering, op: ir.Operation) -> None:
    zeros = [low.b.value(0)] * len(low.block(op.operands[0]).shape)
    low.values[op.results[0]] = low.element(op.operands[0], zeros)


@handles("tt.expand_dims")
def _expand_dims(low: Lowering, op: ir.Operation) -> None:
    axis = _axis(op)
    source = low.block(op.operands[0])

    def compute(cursor: Cursor, index: Index) -> ir.Value:
        return cursor.value(source, (*index[:axis], *index[axis + 1 :]))

    low.define(op.results[0], Block(_shape(op.results[0]), source.element, compute, source.cost))


@handles("tt.broadcast")
def _broadcast(low: Lowering, op: ir.Operation) -> None:
    source = low.cheap(op.operands[0])
    zero = low.b.value(0)

    def compute(cursor: Cursor, index: Index) -> ir.Value:
        return cursor.value(source, tuple(zero if n == 1 else i for n, i in zip(source.shape, index, strict=True)))

    low.define(op.results[0], Block(_shape(op.results[0]), source.element, compute, source.cost))


@handles("tt.trans")
def _transpose(low: Lowering, op: ir.Operation) -> None:
    order = list(ir.DenseI32ArrayAttr(op.attributes["order"]))
    source = low.block(op.operands[0])

    def compute(cursor: Cursor, index: Index) -> ir.Value:
        return cursor.value(source, tuple(index[order.index(d)] for d in range(len(order))))

    low.define(op.results[0], Block(_shape(op.results[0]), source.element, compute, source.cost))


@handles("tt.reshape")
def _reshape(low: Lowering, op: ir.Operation) -> None:
    source, shape, zero = low.block(op.operands[0]), _shape(op.results[0]), low.b.value(0)
    real = [d for d, n in enumerate(shape) if n != 1]
    if [n for n in source.shape if n != 1] != [shape[d] for d in real]:
        low.values[op.results[0]] = low.stored(op.operands[0]).reshaped(shape)
        return

    def compute(cursor: Cursor, index: Index) -> ir.Value:
        left = iter([index[d] for d in real])
        return cursor.value(source, tuple(zero if n == 1 else next(left) for n in source.shape))

    low.define(op.results[0], Block(shape, source.element, compute, source.cost))


@handles("tt.join")
def _join(low: Lowering, op: ir.Operation) -> None:
    first, second = (low.block(v) for v in op.operands)

    def compute(cursor: Cursor, index: Index) -> ir.Value:
        is_first = arith.cmpi(0, index[-1], low.b.value(0))
        return arith.select(is_first, cursor.value(first, index[:-1]), cursor.value(second, index[:-1]))

    low.define(op.results[0], Block(_shape(op.results[0]), first.element, compute, first.cost + second.cost + 2))


@handles("tt.split")
def _split(low: Lowering, op: ir.Operation) -> None:
    source = low.cheap(op.operands[0])
    for number, result in enumerate(op.results):
        at = low.b.value(number)

        def compute(cursor: Cursor, index: Index, at: ir.Value = at) -> ir.Value:
            return cursor.value(source, (*index, at))

        low.define(result, Block(_shape(result), source.element, compute, source.cost))


@handles("tt.cat")
def _cat(low: Lowering, op: ir.Operation) -> None:
    sources = [low.block(v) for v in op.operands]
    target = low.scratch.block(_shape(op.results[0]), sources[0].element)
    start = 0
    for source in sources:

        def body(index: Index, source: Block = source, start: int = start) -> None:
            moved = low.b.value(low.b.addi(index[0], start))
            target.write(Cursor().value(source, index), (moved, *index[1:]))

        loop_nest(low.b, source.shape, body)
        start += source.shape[0]
    low.values[op.results[0]] = target


@handles("tt.gather")
def _gather(low: Lowering, op: ir.Operation) -> None:
    source, where, axis = low.stored(op.operands[0]), low.block(op.operands[1]), _axis(op)

    def compute(cursor: Cursor, index: Index) -> ir.Value:
        at = arith.index_cast(low.b.index_type, cursor.value(where, index))
        return cursor.value(source, (*index[:axis], at, *index[axis + 1 :]))

    low.define(op.results[0], Block(_shape(op.results[0]), source.element, compute, where.cost + 2))
