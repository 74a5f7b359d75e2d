# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Scans whose combining function is a region: linear recurrences, running maxima with what comes with them."""

from collections.abc import Sequence
from typing import Any

from torch_mlir import ir
from typing_extensions import override

from kiln.dialects.kiln import base, checks
from kiln.dialects.kiln.family import Family
from kiln.dialects.kiln.table import Role, define, same_as_first


class RecurrenceOp(Family):
    """Inclusive scan of several tensors at once along `dim`, combined by the region, which is associative.

    For operands `x0`, `x1`, ... of equal sizes, the results at position 0 are the operands' elements, and those at
    position t are what the region yields for the results at t - 1 (its first arguments) and the operands' elements at
    t (the others). Floats of 16 bits are arguments of type f32, and what is carried stays f32. As
    `torch.associative_scan`.

    ```mlir
    func.func @linear(%a: tensor<64x512xf32>, %b: tensor<64x512xf32>) -> tensor<64x512xf32> {
      %0:2 = "kiln.recurrence"(%a, %b) ({
      ^bb0(%a0: f32, %b0: f32, %a1: f32, %b1: f32):
        %p = arith.mulf %a0, %a1 : f32
        %q = arith.mulf %a1, %b0 : f32
        %r = arith.addf %q, %b1 : f32
        "kiln.yield"(%p, %r) : (f32, f32) -> ()
      }) {dim = 0 : i64} : (tensor<64x512xf32>, tensor<64x512xf32>) -> (tensor<64x512xf32>, tensor<64x512xf32>)
      return %0#1 : tensor<64x512xf32>
    }
    ```
    """

    NAME = "recurrence"
    ATTRIBUTES = {"dim": "#builtin.integer"}
    REGIONS = 1

    @staticmethod
    @override
    def check(op: Any) -> None:
        checks.require(len(op.operands) > 0, "operands", "at least one", 0)
        checks.require(len(op.results) == len(op.operands), "results", f"{len(op.operands)}", len(op.results))
        checks.require(len(op.regions[0].blocks) == 1, "combine", "one block", f"{len(op.regions[0].blocks)} blocks")
        sizes = checks.sizes_of(op.operands[0])
        for i, (x, result) in enumerate(zip(op.operands, op.results, strict=True)):
            checks.same_sizes(f"operand {i}", sizes, x)
            checks.same_type(f"result {i}", result, x)
        checks.dim_in_range(op, "dim", len(sizes))
        block = op.regions[0].blocks[0]
        expected = [carried_type(x.type.element_type) for x in op.operands]
        found = [a.type for a in block.arguments]
        checks.require(found == expected * 2, "block arguments", [*map(str, expected * 2)], [*map(str, found)])
        operations = list(block.operations)
        last = operations[-1].operation if operations else None
        is_yield = last is not None and last.name.startswith("kiln.yield")
        checks.require(is_yield, "last op of the region", "kiln.yield", "nothing" if last is None else last.name)
        assert last is not None
        given = [v.type for v in last.operands]
        checks.require(given == expected, "kiln.yield operands", [*map(str, expected)], [*map(str, given)])

    @property
    def combine(self) -> ir.Block:
        """The region's block: arguments for what comes before, then for what comes behind."""
        return self.regions[0].blocks[0]


define(
    RecurrenceOp,
    Role.SCAN,
    shape=same_as_first,
    reference="kiln.dialects.reference.order:recurrence",
    has_kernel=True,
)


def carried_type(element: ir.Type) -> ir.Type:
    """The type in which elements are combined: f32 for floats of 16 bits."""
    return ir.F32Type.get(element.context) if isinstance(element, ir.BF16Type | ir.F16Type) else element


def recurrence(xs: Sequence[ir.Value], dim: int) -> RecurrenceOp:
    """Build a `kiln.recurrence` with an entry block and no terminator: fill `op.combine`."""
    op = RecurrenceOp.create(list(xs), [x.type for x in xs], {"dim": base.i64(dim)})
    carried = [carried_type(ir.RankedTensorType(x.type).element_type) for x in xs] * 2
    op.regions[0].blocks.append(*carried, arg_locs=[op.location] * len(carried))
    return op


def needed_steps(op: Any, wanted: Sequence[int], segments: bool = False) -> tuple[set[int], set[ir.Operation]]:
    """Which operands have to be carried to compute the results `wanted`, and the ops of the region that do it.

    segments: also those that are only read behind, which are carried where two segments are combined.
    """
    from kiln.dialects.walk import defining_op

    yielded = list(list(op.combine.operations)[-1].operands)
    arguments = {a: i for i, a in enumerate(op.combine.arguments)}
    carried: set[int] = set()
    ops: set[ir.Operation] = set()
    values: list[ir.Value] = []
    work = list(wanted)
    while work or values:
        if not values:
            k = work.pop()
            values += [] if k in carried else [yielded[k]]
            carried.add(k)
            continue
        value = values.pop()
        number = arguments.get(value)
        if number is not None:
            if number < len(yielded) or segments:
                work.append(number % len(yielded))
            continue
        owner = defining_op(value)
        if owner is not None and owner.parent == op.operation and owner not in ops:
            ops.add(owner)
            values += owner.operands
    return carried, ops
