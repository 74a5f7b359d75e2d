# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Element-wise ops that `arith` and `math` do not have, and the matrix product."""

from typing import Any

from torch_mlir import ir
from typing_extensions import override

from kiln.dialects.tt import base
from kiln.dialects.tt.base import Family

PRECISION = {"tf32": 0, "tf32x3": 1, "ieee": 2}
"""Values of the attribute `inputPrecision` of `tt.dot`."""

ROUNDING = {"rtz": 0, "rtne": 1}
"""Values of the attribute `rounding` of `tt.fp_to_fp`."""


class DotOp(base.Operation, name="dot", traits=[base.Pure]):
    """`acc + lhs @ rhs` of blocks `[M, K]` and `[K, N]` (or with a batch dim in front).

    `inputPrecision` says how f32 operands are taken (`PRECISION`); other types ignore it.  Sizes are at least 16 (K of
    8-bit types 32) on tensor cores.

    ```mlir
    %a, %b, %c = "test.value"() : () -> (tensor<64x32xbf16>, tensor<32x16xbf16>, tensor<64x16xf32>)
    %0 = "tt.dot"(%a, %b, %c) {inputPrecision = 2 : i32, maxNumImpreciseAcc = 0 : i32}
      : (tensor<64x32xbf16>, tensor<32x16xbf16>, tensor<64x16xf32>) -> tensor<64x16xf32>
    ```
    """

    lhs: ir.Value[Any]
    rhs: ir.Value[Any]
    acc: ir.Value[Any]
    result: base.Result[Any]
    inputPrecision: ir.IntegerAttr
    maxNumImpreciseAcc: ir.IntegerAttr

    @base.verified
    def verify_invariants(self: Any) -> None:
        """Check ranks, that inner and batch sizes agree, and that the accumulator has the result's type."""
        lhs, rhs, acc = (base.shape_of(v.type) for v in (self.lhs, self.rhs, self.acc))
        base.require(len(lhs) in (2, 3) and len(rhs) == len(lhs), "operand ranks", "2, or 3 with a batch", [lhs, rhs])
        base.require(lhs[-1] == rhs[-2], "rhs rows", lhs[-1], rhs[-2])
        base.require(acc == [*lhs[:-1], rhs[-1]] and rhs[:-2] == lhs[:-2], "acc sizes", [*lhs[:-1], rhs[-1]], acc)
        base.same_type("result", self.result, self.acc.type)
        left, right = base.element_of(self.lhs.type), base.element_of(self.rhs.type)
        base.require(left == right, "rhs element type", left, right)
        base.integer(self, "inputPrecision", 0, 3)


class BitcastOp(base.Operation, name="bitcast", traits=[base.Pure]):
    """The same bits as another type of the same width; also between pointer types.

    ```mlir
    %x = "test.value"() : () -> tensor<64xf32>
    %0 = "tt.bitcast"(%x) : (tensor<64xf32>) -> tensor<64xi32>
    ```
    """

    src: ir.Value[Any]
    result: base.Result[Any]

    @base.verified
    def verify_invariants(self: Any) -> None:
        """Check that the result has the operand's sizes."""
        base.same_shape("result", self.result, self.src)


class FpToFpOp(base.Operation, name="fp_to_fp", traits=[base.Pure]):
    """A conversion between float types of which one is an 8-bit one; `rounding` (`ROUNDING`) where it narrows.

    ```mlir
    %x = "test.value"() : () -> tensor<64xf32>
    %0 = "tt.fp_to_fp"(%x) {rounding = 1 : i32} : (tensor<64xf32>) -> tensor<64xf8E4M3FN>
    ```
    """

    src: ir.Value[Any]
    result: base.Result[Any]

    @base.verified
    def verify_invariants(self: Any) -> None:
        """Check that the result has the operand's sizes."""
        base.same_shape("result", self.result, self.src)


class ClampfOp(base.Operation, name="clampf", traits=[base.Pure]):
    """`min(max(x, low), high)`; `propagateNan` 0 gives a bound for a NaN, 0xffff the NaN.

    ```mlir
    %x, %l, %h = "test.value"() : () -> (tensor<64xf32>, tensor<64xf32>, tensor<64xf32>)
    %0 = "tt.clampf"(%x, %l, %h) {propagateNan = 65535 : i32}
      : (tensor<64xf32>, tensor<64xf32>, tensor<64xf32>) -> tensor<64xf32>
    ```
    """

    x: ir.Value[Any]
    min: ir.Value[Any]
    max: ir.Value[Any]
    result: base.Result[Any]
    propagateNan: ir.IntegerAttr

    @base.verified
    def verify_invariants(self: Any) -> None:
        """Check that bounds and result have the operand's type."""
        for what, value in (("min", self.min), ("max", self.max), ("result", self.result)):
            base.same_type(what, value, self.x.type)


class MulhiUiOp(base.Operation, name="mulhiui", traits=[base.Pure]):
    """The high half of the product of unsigned integers.

    ```mlir
    %x = "test.value"() : () -> tensor<64xi32>
    %0 = "tt.mulhiui"(%x, %x) : (tensor<64xi32>, tensor<64xi32>) -> tensor<64xi32>
    ```
    """

    x: ir.Value[Any]
    y: ir.Value[Any]
    result: base.Result[Any]

    @base.verified
    def verify_invariants(self: Any) -> None:
        """Check that both operands and the result have one type."""
        base.same_type("y", self.y, self.x.type)
        base.same_type("result", self.result, self.x.type)


class PreciseDivfOp(base.Operation, name="precise_divf", traits=[base.Pure]):
    """f32 division rounded to nearest, as in eager; `arith.divf` on f32 blocks is within two units in the last place.

    ```mlir
    %x = "test.value"() : () -> tensor<64xf32>
    %0 = "tt.precise_divf"(%x, %x) : (tensor<64xf32>, tensor<64xf32>) -> tensor<64xf32>
    ```
    """

    x: ir.Value[Any]
    y: ir.Value[Any]
    result: base.Result[Any]

    @base.verified
    def verify_invariants(self: Any) -> None:
        """Check that both operands and the result have one type."""
        base.same_type("y", self.y, self.x.type)
        base.same_type("result", self.result, self.x.type)


class PreciseSqrtOp(base.Operation, name="precise_sqrt", traits=[base.Pure]):
    """f32 square root rounded to nearest, as in eager; `math.sqrt` on f32 blocks is an approximation.

    ```mlir
    %x = "test.value"() : () -> tensor<64xf32>
    %0 = "tt.precise_sqrt"(%x) : (tensor<64xf32>) -> tensor<64xf32>
    ```
    """

    x: ir.Value[Any]
    result: base.Result[Any]

    @base.verified
    def verify_invariants(self: Any) -> None:
        """Check that the result has the operand's type."""
        base.same_type("result", self.result, self.x.type)


class ExternElementwiseOp(Family):
    """A function of the device's math library for each element: `__nv_tanhf` on NVIDIA, `__ocml_tanh_f32` on AMD.

    ```mlir
    %x = "test.value"() : () -> tensor<64xf32>
    %0 = "tt.extern_elementwise"(%x) {libname = "", libpath = "", symbol = "__nv_tanhf", pure = true}
      : (tensor<64xf32>) -> tensor<64xf32>
    ```
    """

    NAME = "extern_elementwise"
    ATTRIBUTES = {
        "libname": "#builtin.string",
        "libpath": "#builtin.string",
        "symbol": "#builtin.string",
        "pure": "#builtin.integer",
    }

    @staticmethod
    @override
    def check(op: Any) -> None:
        for i, value in enumerate(op.operands):
            base.same_shape(f"operand {i}", value, op.results[0])


class ElementwiseInlineAsmOp(Family):
    """Assembly for each group of `packed_element` elements.

    ```mlir
    %x = "test.value"() : () -> tensor<64xf32>
    %0 = "tt.elementwise_inline_asm"(%x) {asm_string = "tanh.approx.f32 $0, $1;", constraints = "=f,f", pure = true,
      packed_element = 1 : i32} : (tensor<64xf32>) -> tensor<64xf32>
    ```
    """

    NAME = "elementwise_inline_asm"
    ATTRIBUTES = {
        "asm_string": "#builtin.string",
        "constraints": "#builtin.string",
        "pure": "#builtin.integer",
        "packed_element": "#builtin.integer",
    }

    @staticmethod
    @override
    def check(op: Any) -> None:
        for i, value in enumerate(op.operands):
            base.same_shape(f"operand {i}", value, op.results[0])
