// Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// RUN: kiln-opt %s --mlir-print-local-scope --pass-pipeline="keep-references" | filecheck %s

// A fusion and a call of ATen keep a module that computes the same, with locations. A decomposition keeps none: its results
// are not unique.

// CHECK-LABEL: func.func @main
// CHECK: {kind = "pointwise", name = "copy", reference = "
// CHECK-SAME: func.func @main(%arg0: tensor<8x8xf32>
// CHECK-SAME: kiln.fusion
// CHECK-SAME: loc(
// CHECK: op = "aten.mm.default"
// CHECK-SAME: reference = "
// CHECK-SAME: func.func @main(%arg0: tensor<8x8xf32> {{.*}}, %arg1: tensor<8x8xf32>
// CHECK: op = "aten._linalg_eigvals.default"
// CHECK-NOT: reference
// CHECK: return
func.func @main(%x: tensor<8x8xf32>) -> (tensor<8x8xf32>, tensor<8x8xf32>, tensor<8x8xf32>) {
  %0 = "kiln.fusion"(%x) ({
  ^bb0(%a: tensor<8x8xf32>):
    "kiln.yield"(%a) : (tensor<8x8xf32>) -> ()
  }) {kind = "pointwise", name = "copy"} : (tensor<8x8xf32>) -> tensor<8x8xf32>
  %1 = "kiln.aten"(%x, %0) {op = "aten.mm.default", args = "[{\22operand\22: 0}, {\22operand\22: 1}]", kwargs = "{}", shapes = [affine_map<() -> (8, 8)>], strides = [affine_map<() -> (8, 1)>], pure = true} : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
  %2 = "kiln.aten"(%1) {op = "aten._linalg_eigvals.default", args = "[{\22operand\22: 0}]", kwargs = "{}", shapes = [affine_map<() -> (8, 8)>], strides = [affine_map<() -> (8, 1)>], pure = true} : (tensor<8x8xf32>) -> tensor<8x8xf32>
  return %0, %1, %2 : tensor<8x8xf32>, tensor<8x8xf32>, tensor<8x8xf32>
}
