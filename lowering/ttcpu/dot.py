# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""``tt.dot``: products of blocks in f32 (f64, i32), with loops that LLVM vectorises along the columns."""

from torch_mlir import ir
from torch_mlir.dialects import arith

from kiln.dialects.tt import PRECISION
from kiln.lowering.ir_builder import Index
from kiln.lowering.ttcpu.blocks import Block, Cursor, Stored
from kiln.lowering.ttcpu.core import Lowering, handles


@handles("tt.dot")
def _dot(low: Lowering, op: ir.Operation) -> None:
    lhs_value, rhs_value, start = list(op.operands)
    result = ir.RankedTensorType(op.results[0].type)
    element = result.element_type
    if low.is_approximate and element == low.b.f32 and _takes_tf32(op):
        lhs, rhs = _in_tf32(low, lhs_value), _in_tf32(low, rhs_value)
    else:
        lhs, rhs = low.stored(lhs_value, element), low.stored(rhs_value, element)
    accumulator = low.accumulator(op, start)
    *batch, rows, columns = result.shape
    depth = lhs.shape[-1]

    def multiply(index: tuple[ir.Value, ...]) -> None:
        def row(i: Index) -> None:
            def inner(k: Index) -> None:
                left = _at(lhs, (*index, low.b.value(i), low.b.value(k)))

                def column(j: Index) -> None:
                    at = (*index, low.b.value(i), low.b.value(j))
                    right = _at(rhs, (*index, low.b.value(k), low.b.value(j)))
                    accumulator.write(_multiply_add(low, left, right, _at(accumulator, at)), at)

                low.b.for_(0, columns, 1, column)

            low.b.for_(0, depth, 1, inner)

        low.b.for_(0, rows, 1, row)

    def nest(index: tuple[ir.Value, ...]) -> None:
        if len(index) == len(batch):
            multiply(index)
        else:
            low.b.for_(0, batch[len(index)], 1, lambda i: nest((*index, low.b.value(i))))

    nest(())
    low.values[op.results[0]] = accumulator


def _takes_tf32(op: ir.Operation) -> bool:
    source = ir.RankedTensorType(op.operands[0].type).element_type
    return isinstance(source, ir.F32Type) and ir.IntegerAttr(op.attributes["inputPrecision"]).value == PRECISION["tf32"]


def _in_tf32(low: Lowering, value: ir.Value) -> Stored:
    """A block of which each element lacks its lower 13 bits: tensor cores ignore them (PTX ISA, `wgmma` with .tf32)."""
    source, b = low.cheap(value), low.b

    def compute(cursor: Cursor, index: tuple[ir.Value, ...]) -> ir.Value:
        bits = arith.bitcast(b.i32, cursor.value(source, index))
        return arith.bitcast(b.f32, arith.andi(bits, b.int_(-(1 << 13), b.i32)))

    return low.scratch.store(Block(source.shape, source.element, compute))


def _at(block: Stored, index: tuple[ir.Value, ...]) -> ir.Value:
    return block.b.load(block.memory, block.offset(index))


def _multiply_add(low: Lowering, x: ir.Value, y: ir.Value, z: ir.Value) -> ir.Value:
    if isinstance(z.type, ir.IntegerType):
        return arith.addi(arith.muli(x, y), z)
    return low.b.fma(x, y, z)
