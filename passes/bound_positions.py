# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Pass ``bound-positions``."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from torch_mlir import ir
from typing_extensions import override

from kiln.dialects.walk import defining_op
from kiln.lowering.tile.bounds import CHECKED
from kiln.passes.core import Pass, register_pass
from kiln.passes.element_ranges import ElementRanges
from kiln.passes.rewrites import may_rewrite

__all__ = ["BoundPositions"]

_CASTS = ("arith.index_cast", "arith.extsi", "arith.trunci")
_I32 = 2**31


@register_pass
@dataclass
class BoundPositions(Pass):
    """Drop what keeps positions in bounds where they cannot be out of them, and keep tables of positions in 32 bits.

    ATen's indexing counts negative positions from the end, and a kernel clamps each position, so that it never reads
    outside of a tensor. Where loops, constants and arithmetic say that a position is in bounds (interpolation, rolls,
    shuffles), that is some ten instructions for each element that is gathered. Ranges are exact for integers and
    widened for floats; a position that comes from a tensor of the caller's keeps all of it.

    Before::

        func.func @main(%x: tensor<8xf32>) -> tensor<4xf32> {
          %table = arith.constant dense<[6, 4, 2, 0]> : tensor<4xi64>
          %e = "kiln.empty"() {shape = affine_map<() -> (4)>} : () -> tensor<4xf32>
          %0 = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>],
              iterator_types = ["parallel"]} ins(%table : tensor<4xi64>) outs(%e : tensor<4xf32>) {
          ^bb0(%i: i64, %o: f32):
            %size = arith.constant 8 : i64
            %last = arith.constant 7 : i64
            %zero = arith.constant 0 : i64
            %from_end = arith.addi %i, %size : i64
            %is_negative = arith.cmpi slt, %i, %zero : i64
            %wrapped = arith.select %is_negative, %from_end, %i : i64
            %low = arith.maxsi %wrapped, %zero : i64
            %high = arith.minsi %low, %last : i64
            %position = arith.index_cast %high : i64 to index
            %1 = tensor.extract %x[%position] : tensor<8xf32>
            linalg.yield %1 : f32
          } -> tensor<4xf32>
          return %0 : tensor<4xf32>
        }

    After::

        #map = affine_map<() -> (4)>
        #map1 = affine_map<(d0) -> (d0)>
        func.func @main(%arg0: tensor<8xf32>) -> tensor<4xf32> {
          %cst = arith.constant dense<[6, 4, 2, 0]> : tensor<4xi32>
          %0 = "kiln.empty"() {shape = #map} : () -> tensor<4xf32>
          %1 = linalg.generic {indexing_maps = [#map1, #map1], iterator_types = ["parallel"]} ins(%cst : tensor<4xi32>)
              outs(%0 : tensor<4xf32>) {
          ^bb0(%in: i32, %out: f32):
            %2 = arith.extsi %in : i32 to i64
            %3 = arith.index_cast %2 : i64 to index
            %extracted = tensor.extract %arg0[%3] : tensor<8xf32>
            linalg.yield %extracted : f32
          } -> tensor<4xf32>
          return %1 : tensor<4xf32>
        }
    """

    name = "bound-positions"

    @override
    def run(self, module: ir.Module) -> None:
        for function in [op.operation for op in module.body.operations if op.operation.name == "func.func"]:
            if not function.regions[0].blocks:
                continue
            ranges = ElementRanges()
            tables: dict[ir.Value, None] = {}
            generics = [o.operation for o in function.regions[0].blocks[0] if o.operation.name == "linalg.generic"]
            gathers = [
                op for op in generics if any(o.operation.name == "tensor.extract" for o in op.regions[0].blocks[0])
            ]
            for op in gathers:
                for inner in [o.operation for o in op.regions[0].blocks[0] if o.operation.name == "tensor.extract"]:
                    for number in range(1, len(inner.operands)):
                        self._bound(inner, number, ranges)
                        tables.update(dict.fromkeys(_tables(op, inner.operands[number])))
            # Ranges know values by where they are: nothing goes before all are found.
            for op in gathers:
                _erase_unread(op.regions[0].blocks[0])
            for table in tables:
                self._narrow(table)

    def _bound(self, user: ir.Operation, number: int, ranges: ElementRanges) -> None:
        """Simplifies what computes an operand, from its use backwards."""
        value = user.operands[number]
        op = defining_op(value)
        if op is None:
            return
        if op.name in _CASTS:
            return self._bound(op, 0, ranges)
        kept = _kept(op, ranges)
        if kept is not None and may_rewrite(op):
            user.operands[number] = kept
            self.count("dropped")
            return self._bound(user, number, ranges)
        # A check compares with what the clamp was given: it needs both halves.
        if op.name == "arith.maxsi" or (op.name == "arith.minsi" and CHECKED not in op.attributes):
            self._bound(op, 0, ranges)

    def _narrow(self, table: ir.Value) -> None:
        """Makes a table of 64 bits one of 32, where only bodies of generics read it."""
        constant = defining_op(table)
        assert constant is not None
        users = [(use.owner.operation, use.operand_number) for use in table.uses]
        if any(op.name != "linalg.generic" or n >= len(op.operands) - len(op.results) for op, n in users):
            return
        if not may_rewrite(constant):
            return
        numbers = np.array(ir.DenseIntElementsAttr(constant.attributes["value"]))
        shape = ir.RankedTensorType(table.type).shape
        narrow_numbers: Any = np.ascontiguousarray(numbers.astype(np.int32)).reshape(shape)
        with constant.location, ir.InsertionPoint(constant):
            narrow = ir.DenseElementsAttr.get(narrow_numbers)
            made = ir.Operation.create("arith.constant", results=[narrow.type], attributes={"value": narrow}).result
        for op, number in users:
            op.operands[number] = made
            block = op.regions[0].blocks[0]
            argument = block.arguments[number]
            wide = argument.type
            readers = [(use.owner.operation, use.operand_number) for use in argument.uses]
            argument.set_type(ir.IntegerType.get_signless(32))
            with op.location, ir.InsertionPoint.at_block_begin(block):
                extended = ir.Operation.create("arith.extsi", results=[wide], operands=[argument]).result
            for reader, k in readers:
                reader.operands[k] = extended
        constant.erase()
        self.count("narrowed")


def _kept(op: ir.Operation, ranges: ElementRanges) -> ir.Value | None:
    """The operand that an op always returns."""
    if op.name in ("arith.maxsi", "arith.minsi"):
        a, b = (ranges.of(v) for v in op.operands)
        if a is None or b is None:
            return None
        first, second = (a, b) if op.name == "arith.maxsi" else (b, a)
        if first[0] >= second[1]:
            return op.operands[0]
        return op.operands[1] if second[0] >= first[1] else None
    holds = ranges.decided(op.operands[0]) if op.name == "arith.select" else None
    return None if holds is None else op.operands[1 if holds else 2]


def _tables(generic: ir.Operation, position: ir.Value) -> list[ir.Value]:
    """The constant tensor of 64-bit numbers, all of which have 32 bits, that a position is an element of."""
    op = defining_op(position)
    while op is not None and op.name in _CASTS:
        position = op.operands[0]
        op = defining_op(position)
    if op is not None or not isinstance(position.type, ir.IntegerType) or position.type.width != 64:
        return []
    table = generic.operands[ir.BlockArgument(position).arg_number]
    made = defining_op(table)
    if made is None or made.name != "arith.constant":
        return []
    attribute = made.attributes["value"]
    if not isinstance(attribute, ir.DenseIntElementsAttr) or attribute.is_splat:
        return []
    numbers = np.array(attribute)
    return [table] if numbers.size and numbers.min() >= -_I32 and numbers.max() < _I32 else []


def _erase_unread(block: ir.Block) -> None:
    """Erases pure ops of a body whose results nothing reads."""
    for op in reversed([o.operation for o in block][:-1]):
        if op.results and not any(list(r.uses) for r in op.results):
            op.erase()
