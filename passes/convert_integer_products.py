# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Products of 8-bit integers as products, not as calls."""

import json
from dataclasses import dataclass
from typing import Any, cast

from torch_mlir import ir

from kiln.dialects import kiln
from kiln.passes.core import Pass, register_pass
from kiln.passes.rewrites import may_rewrite

__all__ = ["ConvertIntegerProducts"]

_CALL = "aten._int_mm.default"


@register_pass
@dataclass
class ConvertIntegerProducts(Pass):
    """Calls of ``torch._int_mm`` become ``kiln.matmul`` with a result of 32-bit integers, for the CPU's own kernels.

    Quantised layers convert and scale the result at once (torchao's ``int8_dynamic_activation_int8_weight``): as a
    product, its kernel takes that with it, and the integers never get to memory. A transposed operand becomes a flag.
    GPUs keep the call: cuBLASLt has kernels for their units of integers.

    Before::

        func.func @main(%x: tensor<4x8xi8>, %w: tensor<16x8xi8>) -> tensor<4x16xi32> {
          %t = "kiln.view"(%w) {map = affine_map<(k, n) -> (n, k)>, shape = affine_map<() -> (8, 16)>}
            : (tensor<16x8xi8>) -> tensor<8x16xi8>
          %0 = "kiln.aten"(%x, %t) {args = "[{\\"operand\\": 0}, {\\"operand\\": 1}]", kwargs = "{}",
            op = "aten._int_mm.default", pure = true, shapes = [affine_map<() -> (4, 16)>], strides = [unit]}
            : (tensor<4x8xi8>, tensor<8x16xi8>) -> tensor<4x16xi32>
          return %0 : tensor<4x16xi32>
        }

    After::

        func.func @main(%arg0: tensor<4x8xi8>, %arg1: tensor<16x8xi8>) -> tensor<4x16xi32> {
          %0 = "kiln.matmul"(%arg0, %arg1) {transpose_lhs = false, transpose_rhs = true}
            : (tensor<4x8xi8>, tensor<16x8xi8>) -> tensor<4x16xi32>
          return %0 : tensor<4x16xi32>
        }
    """

    name = "convert-integer-products"

    def run(self, module: ir.Module) -> None:
        """Rewrite the calls of every function."""
        for function in [op.operation for op in module.body.operations if op.operation.name == "func.func"]:
            if not function.regions[0].blocks:
                continue
            for op in [op.operation for op in function.regions[0].blocks[0].operations]:
                is_call = kiln.name_of(op) == "kiln.aten" and "elsewhere" not in op.attributes
                if is_call and ir.StringAttr(op.attributes["op"]).value == _CALL:
                    self._convert(op)

    def _convert(self, op: ir.Operation) -> None:
        given: list[Any] = json.loads(ir.StringAttr(op.attributes["args"]).value)
        # A kernel takes any strides, a library's may not: `strides` beside an operand are for the call.
        if [cast("dict[str, Any]", x).get("operand") if isinstance(x, dict) else x for x in given] != [0, 1]:
            self.note(op, "a call: its operands are no two tensors")
            self.count("failed")
            return
        if not may_rewrite(op):
            return
        (lhs, turned_lhs), (rhs, turned_rhs) = (_matrix(op.operands[i]) for i in range(2))
        views = [op.operands[i] for i in range(2)]
        with ir.InsertionPoint(op), op.location:
            product = kiln.matmul(lhs, rhs, op.results[0].type, turned_lhs, turned_rhs)
        op.results[0].replace_all_uses_with(product)
        op.erase()
        for view in dict.fromkeys(v for v in views if v not in (lhs, rhs)):
            if not list(view.uses):
                view.owner.operation.erase()
        self.count("matched")


def _matrix(value: ir.Value) -> tuple[ir.Value, bool]:
    """The matrix that `value` is, or is the transpose of, and which of them."""
    if not isinstance(value.owner, ir.Block) and kiln.name_of(value.owner) == "kiln.view":
        swapped = ir.AffineMap.get(2, 0, [ir.AffineExpr.get_dim(1), ir.AffineExpr.get_dim(0)])
        if ir.AffineMapAttr(value.owner.operation.attributes["map"]).value == swapped:
            return value.owner.operation.operands[0], True
    return value, False
