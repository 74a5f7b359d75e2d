# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Reductions and scans along a dim of blocks."""

from typing import Any

from torch_mlir import ir
from typing_extensions import override

from kiln.dialects.tt import base
from kiln.dialects.tt.base import Family


def _check_combiner(op: Any, terminator: str) -> int:
    """Operands of one shape, a region that combines two elements of each; returns the axis."""
    first = op.operands[0]
    shape = base.shape_of(first.type)
    for i, value in enumerate(op.operands):
        base.same_shape(f"operand {i}", value, first)
    axis = base.integer(op, "axis", 0, len(shape))
    elements = [base.element_of(v.type) for v in op.operands]
    block = op.regions[0].blocks[0]
    found = [a.type for a in block.arguments]
    base.require(found == elements * 2, "block arguments", elements * 2, found)
    last = list(block.operations)[-1].operation
    base.require(last.name.startswith(terminator), "last op of the body", terminator, last.name)
    given = [v.type for v in last.operands]
    base.require(given == elements, f"{terminator} operands", elements, given)
    base.require(len(op.results) == len(elements), "results", len(elements), len(op.results))
    return axis


class ReduceOp(Family):
    """Combines all elements along `axis`, which the results lack; a 1-D block gives scalars.

    The combiner takes the left elements, then the right ones, and must be associative.

    ```mlir
    %x = "test.value"() : () -> tensor<16x64xf32>
    %0 = "tt.reduce"(%x) ({
    ^bb0(%a: f32, %b: f32):
      %s = arith.addf %a, %b : f32
      "tt.reduce.return"(%s) : (f32) -> ()
    }) {axis = 1 : i32} : (tensor<16x64xf32>) -> tensor<16xf32>
    ```
    """

    NAME = "reduce"
    ATTRIBUTES = {"axis": "#builtin.integer"}
    REGIONS = 1

    @staticmethod
    @override
    def check(op: Any) -> None:
        axis = _check_combiner(op, "tt.reduce.return")
        for i, (value, result) in enumerate(zip(op.operands, op.results, strict=True)):
            shape = base.shape_of(value.type)
            del shape[axis]
            base.same_type(f"result {i}", result, base.with_shape(shape, base.element_of(value.type)))


class ReduceReturnOp(Family):
    """The combined elements of a `tt.reduce`.

    ```mlir
    %x = "test.value"() : () -> tensor<64xi32>
    %0 = "tt.reduce"(%x) ({
    ^bb0(%a: i32, %b: i32):
      %s = arith.maxsi %a, %b : i32
      "tt.reduce.return"(%s) : (i32) -> ()
    }) {axis = 0 : i32} : (tensor<64xi32>) -> i32
    ```
    """

    NAME = "reduce.return"
    TRAITS = (base.Pure, ir.IsTerminatorTrait)


class ScanOp(Family):
    """All prefixes along `axis`, each element included in its own; from the end with `reverse`.

    ```mlir
    %x = "test.value"() : () -> tensor<16x64xf32>
    %0 = "tt.scan"(%x) ({
    ^bb0(%a: f32, %b: f32):
      %s = arith.addf %a, %b : f32
      "tt.scan.return"(%s) : (f32) -> ()
    }) {axis = 1 : i32, reverse = false} : (tensor<16x64xf32>) -> tensor<16x64xf32>
    ```
    """

    NAME = "scan"
    ATTRIBUTES = {"axis": "#builtin.integer", "reverse": "#builtin.integer"}
    REGIONS = 1

    @staticmethod
    @override
    def check(op: Any) -> None:
        _check_combiner(op, "tt.scan.return")
        for i, (value, result) in enumerate(zip(op.operands, op.results, strict=True)):
            base.same_type(f"result {i}", result, value.type)


class ScanReturnOp(Family):
    """The combined elements of a `tt.scan`.

    ```mlir
    %x = "test.value"() : () -> tensor<64xi64>
    %0 = "tt.scan"(%x) ({
    ^bb0(%a: i64, %b: i64):
      %s = arith.addi %a, %b : i64
      "tt.scan.return"(%s) : (i64) -> ()
    }) {axis = 0 : i32, reverse = true} : (tensor<64xi64>) -> tensor<64xi64>
    ```
    """

    NAME = "scan.return"
    TRAITS = (base.Pure, ir.IsTerminatorTrait)
