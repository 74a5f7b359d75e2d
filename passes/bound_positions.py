# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Pass ``bound-positions``."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from torch_mlir import ir
from torch_mlir.dialects import arith
from typing_extensions import override

from kiln.dialects.walk import defining_op
from kiln.lowering.tile.bounds import CHECKED, without_casts
from kiln.passes.core import Pass, register_pass
from kiln.passes.element_ranges import ElementRanges
from kiln.passes.rewrites import may_rewrite

__all__ = ["BoundPositions"]

_I32 = 2**31


@register_pass
@dataclass
class BoundPositions(Pass):
    """Keep positions that cannot be out of bounds there by one instruction, and tables of positions in 32 bits.

    ATen's indexing counts negative positions from the end, and a kernel clamps each position, so that it never reads
    outside of a tensor: some ten instructions for each element that is gathered. Where loops, constants and arithmetic
    say that a position is in bounds (interpolation, rolls, shuffles), a minimum of unsigned 32-bit numbers stands for
    all of it; what is proved of kernels rests on that, and not on the ranges. Ranges are exact for integers and widened
    for floats; a position that comes from a tensor of the caller's stays as it is.

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
            %3 = arith.trunci %2 : i64 to i32
            %c7_i32 = arith.constant 7 : i32
            %4 = arith.minui %3, %c7_i32 : i32
            %5 = arith.index_cast %4 : i32 to index
            %extracted = tensor.extract %arg0[%5] : tensor<8xf32>
            linalg.yield %extracted : f32
          } -> tensor<4xf32>
          return %1 : tensor<4xf32>
        }
    """

    name = "bound-positions"

    @override
    def run(self, module: ir.Module) -> None:
        for function in [op.operation for op in module.body.operations if op.operation.name == "func.func"]:
            if function.regions[0].blocks:
                self._run_on(function.regions[0].blocks[0])

    def _run_on(self, block: ir.Block) -> None:
        ranges, tables, bodies = ElementRanges(), dict[ir.Value, None](), list[ir.Block]()
        for op in [o.operation for o in block if o.operation.name == "linalg.generic"]:
            body = op.regions[0].blocks[0]
            gathers = [o.operation for o in body if o.operation.name == "tensor.extract"]
            sources = [self._bound(g, number, ranges) for g in gathers for number in range(1, len(g.operands))]
            tables.update(dict.fromkeys(t for s in sources if s is not None for t in _tables(op, s)))
            bodies += [body] if gathers else []
        # Ranges know values by where they are: nothing goes before all are found.
        for body in bodies:
            _erase_unread(body)
        for table in tables:
            self._narrow(table)

    def _bound(self, gather: ir.Operation, number: int, ranges: ElementRanges) -> ir.Value | None:
        """Replaces a position by what it is clamped from, with one unsigned minimum, and returns that source; None
        where the position stays.
        """
        type_ = ir.RankedTensorType(gather.operands[0].type)
        if type_.is_dynamic_dim(number - 1) or not 0 < type_.shape[number - 1] <= _I32:
            return None
        last = type_.shape[number - 1] - 1
        source, dropped = _unclamped(gather.operands[number], last, ranges)
        found = ranges.of(source)
        if not dropped or found is None or found[0] < 0 or found[1] >= _I32 or not may_rewrite(gather):
            return None
        self.count("dropped")
        if isinstance(source.type, ir.IndexType) and found[1] <= last:
            gather.operands[number] = source  # the index of a loop, whose extent is known behind this pass, too
            return source
        with gather.location, ir.InsertionPoint(gather):
            least = arith.minui(_as_i32(source), arith.constant(ir.IntegerType.get_signless(32), last))
            gather.operands[number] = arith.index_cast(ir.IndexType.get(), least)
        return source

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


def _as_i32(x: ir.Value) -> ir.Value:
    """An integer whose value has 32 bits, in these."""
    i32 = ir.IntegerType.get_signless(32)
    if isinstance(x.type, ir.IndexType):
        return arith.index_cast(i32, x)
    width = ir.IntegerType(x.type).width
    return x if width == 32 else (arith.trunci if width > 32 else arith.extsi)(i32, x)


def _unclamped(position: ir.Value, last: int, ranges: ElementRanges) -> tuple[ir.Value, int]:
    """What a position is cast and clamped from, by ops that change nothing or that a minimum of unsigned numbers with
    `last` does as well, and how many of these there are.
    """
    dropped = 0
    while True:
        position = without_casts(position)
        op = defining_op(position)
        kept = None if op is None else _kept(op, last, ranges)
        if kept is None:
            return position, dropped
        position, dropped = kept, dropped + 1


def _kept(op: ir.Operation, last: int, ranges: ElementRanges) -> ir.Value | None:
    """The operand that an op always returns, or that it returns up to `last`."""
    if op.name == "arith.select":
        holds = ranges.decided(op.operands[0])
        return None if holds is None else op.operands[1 if holds else 2]
    if op.name not in ("arith.maxsi", "arith.minsi"):
        return None
    x, bound = op.operands
    a, b = ranges.of(x), ranges.of(bound)
    if a is None or b is None:
        return None
    if op.name == "arith.maxsi":
        return x if a[0] >= b[1] else None
    # The minimum that stays does for one of the last position; a check must see what is beyond.
    does_as_well = b == (last, last) and a[0] >= 0 and CHECKED not in op.attributes
    return x if a[1] <= b[0] or does_as_well else None


def _tables(generic: ir.Operation, position: ir.Value) -> list[ir.Value]:
    """The constant tensor of 64-bit numbers that a position, which has 32 bits, is an element of."""
    is_wide = isinstance(position.type, ir.IntegerType) and position.type.width == 64
    if defining_op(position) is not None or not is_wide:
        return []
    table = generic.operands[ir.BlockArgument(position).arg_number]
    made = defining_op(table)
    if made is None or made.name != "arith.constant":
        return []
    attribute = made.attributes["value"]
    return [table] if isinstance(attribute, ir.DenseIntElementsAttr) and not attribute.is_splat else []


def _erase_unread(block: ir.Block) -> None:
    """Erases pure ops of a body whose results nothing reads."""
    for op in reversed([o.operation for o in block][:-1]):
        if op.results and not any(list(r.uses) for r in op.results):
            op.erase()
