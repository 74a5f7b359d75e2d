# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Ops that make blocks and change their shape."""

from math import prod
from typing import Any

from torch_mlir import ir

from kiln.dialects.tt import base


class MakeRangeOp(base.Operation, name="make_range", traits=[base.Pure]):
    """`start, start + 1, ..., end - 1` as a 1-D block of i32.

    ```mlir
    %0 = "tt.make_range"() {start = 0 : i32, end = 1024 : i32} : () -> tensor<1024xi32>
    ```
    """

    start: ir.IntegerAttr
    end: ir.IntegerAttr
    result: base.Result[Any]

    @base.verified
    def verify_invariants(self: Any) -> None:
        """Check that the result is a block of `end - start` i32."""
        length = self.end.value - self.start.value
        base.check_block("result", self.result.type)
        base.require(base.shape_of(self.result.type) == [length], "result sizes", [length], self.result.type)
        base.element_is("result", self.result, "i32")


class SplatOp(base.Operation, name="splat", traits=[base.Pure]):
    """A block with one scalar (number or pointer) everywhere.

    ```mlir
    %p = "test.value"() : () -> !tt.ptr<f32>
    %0 = "tt.splat"(%p) : (!tt.ptr<f32>) -> tensor<64x!tt.ptr<f32>>
    ```
    """

    src: ir.Value[Any]
    result: base.Result[Any]

    @base.verified
    def verify_invariants(self: Any) -> None:
        """Check that the operand is a scalar and the result a block of its type."""
        base.require(not base.is_block(self.src.type), "operand", "a scalar", self.src.type)
        base.require(base.is_block(self.result.type), "result", "a block", self.result.type)
        base.check_block("result", self.result.type)
        found = base.element_of(self.result.type)
        base.require(found == self.src.type, "result element type", self.src.type, found)


class ExpandDimsOp(base.Operation, name="expand_dims", traits=[base.Pure]):
    """A dim of size 1 at position `axis`.

    ```mlir
    %x = "test.value"() : () -> tensor<64xf32>
    %0 = "tt.expand_dims"(%x) {axis = 1 : i32} : (tensor<64xf32>) -> tensor<64x1xf32>
    ```
    """

    src: ir.Value[Any]
    result: base.Result[Any]
    axis: ir.IntegerAttr

    @base.verified
    def verify_invariants(self: Any) -> None:
        """Check that the result has one more dim, of size 1, at `axis`."""
        shape = base.shape_of(self.src.type)
        base.integer(self, "axis", 0, len(shape) + 1)
        shape.insert(self.axis.value, 1)
        expected = base.with_shape(shape, base.element_of(self.src.type))
        base.same_type("result", self.result, expected)


class BroadcastOp(base.Operation, name="broadcast", traits=[base.Pure]):
    """Dims of size 1 grow; the rank stays.

    ```mlir
    %x = "test.value"() : () -> tensor<64x1xf32>
    %0 = "tt.broadcast"(%x) : (tensor<64x1xf32>) -> tensor<64x32xf32>
    ```
    """

    src: ir.Value[Any]
    result: base.Result[Any]

    @base.verified
    def verify_invariants(self: Any) -> None:
        """Check that the result's sizes are the operand's, but for ones that grow."""
        base.check_block("result", self.result.type)
        source, target = base.shape_of(self.src.type), base.shape_of(self.result.type)
        fits = len(source) == len(target) and all(s in (1, t) for s, t in zip(source, target, strict=True))
        base.require(fits, "result sizes", f"{source} with the ones grown", target)
        found, expected = base.element_of(self.result.type), base.element_of(self.src.type)
        base.require(found == expected, "result element type", expected, found)


class ReshapeOp(base.Operation, name="reshape", traits=[base.Pure]):
    """The same elements in row-major order in another shape.

    ```mlir
    %x = "test.value"() : () -> tensor<64x2xf32>
    %0 = "tt.reshape"(%x) : (tensor<64x2xf32>) -> tensor<128xf32>
    ```
    """

    src: ir.Value[Any]
    result: base.Result[Any]

    @base.verified
    def verify_invariants(self: Any) -> None:
        """Check that the result has as many elements of the same type."""
        base.check_block("result", self.result.type)
        source, target = prod(base.shape_of(self.src.type)), prod(base.shape_of(self.result.type))
        base.require(source == target, "result elements", source, target)
        found, expected = base.element_of(self.result.type), base.element_of(self.src.type)
        base.require(found == expected, "result element type", expected, found)


class TransOp(base.Operation, name="trans", traits=[base.Pure]):
    """Dim i of the result is dim `order[i]` of the operand.

    ```mlir
    %x = "test.value"() : () -> tensor<64x32xf32>
    %0 = "tt.trans"(%x) {order = array<i32: 1, 0>} : (tensor<64x32xf32>) -> tensor<32x64xf32>
    ```
    """

    src: ir.Value[Any]
    result: base.Result[Any]
    order: base.DenseArray

    @base.verified
    def verify_invariants(self: Any) -> None:
        """Check that `order` is a permutation and the result's sizes follow it."""
        shape, order = base.shape_of(self.src.type), list(ir.DenseI32ArrayAttr(self.attributes["order"]))
        base.require(sorted(order) == list(range(len(shape))), "attribute order", "a permutation", order)
        expected = base.with_shape([shape[i] for i in order], base.element_of(self.src.type))
        base.same_type("result", self.result, expected)


class JoinOp(base.Operation, name="join", traits=[base.Pure]):
    """Two blocks side by side along a new last dim of size 2.

    ```mlir
    %x = "test.value"() : () -> tensor<64xf32>
    %0 = "tt.join"(%x, %x) : (tensor<64xf32>, tensor<64xf32>) -> tensor<64x2xf32>
    ```
    """

    lhs: ir.Value[Any]
    rhs: ir.Value[Any]
    result: base.Result[Any]

    @base.verified
    def verify_invariants(self: Any) -> None:
        """Check that the operands have one type and the result a last dim of 2."""
        base.same_type("rhs", self.rhs, self.lhs.type)
        expected = base.with_shape([*base.shape_of(self.lhs.type), 2], base.element_of(self.lhs.type))
        base.same_type("result", self.result, expected)


class SplitOp(base.Operation, name="split", traits=[base.Pure]):
    """The two halves of a block along its last dim, which has size 2: the inverse of `tt.join`.

    ```mlir
    %x = "test.value"() : () -> tensor<64x2xf32>
    %0, %1 = "tt.split"(%x) : (tensor<64x2xf32>) -> (tensor<64xf32>, tensor<64xf32>)
    ```
    """

    src: ir.Value[Any]
    first: base.Result[Any]
    second: base.Result[Any]

    @base.verified
    def verify_invariants(self: Any) -> None:
        """Check that the operand's last size is 2 and the results lack it."""
        shape = base.shape_of(self.src.type)
        base.require(shape[-1:] == [2], "operand last size", 2, shape)
        expected = base.with_shape(shape[:-1], base.element_of(self.src.type))
        base.same_type("first result", self.first, expected)
        base.same_type("second result", self.second, expected)
