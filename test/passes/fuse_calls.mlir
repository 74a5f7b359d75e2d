// Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// RUN: kiln-opt %s --split-input-file --mlir-print-local-scope --pass-pipeline="fuse" | filecheck %s

// Kernels that are parts of one have calls without effects where their operands allow it; calls with effects keep their
// order, so that what comes before one and behind another stays apart.

// CHECK-LABEL: func.func @pure
// CHECK: "kiln.aten"(%arg0) {{.*}} op = "test.second"
// CHECK: "kiln.fusion"
// CHECK: "kiln.aten"(%{{.*}}) {{.*}} op = "test.first"
// CHECK-NOT: "kiln.fusion"(
// CHECK: return
func.func @pure(%x: tensor<8xf32>, %y: tensor<4096xf64>) -> (tensor<8xf32>, tensor<8xf32>, tensor<4096xf64>) {
  %e = "kiln.empty"() {shape = affine_map<() -> (8)>} : () -> tensor<8xf32>
  %0 = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>], iterator_types = ["parallel"]} ins(%x : tensor<8xf32>) outs(%e : tensor<8xf32>) {
  ^bb0(%a: f32, %o: f32):
    %n = arith.negf %a : f32
    linalg.yield %n : f32
  } -> tensor<8xf32>
  %1 = "kiln.aten"(%0) {args = "[{\22operand\22: 0}]", kwargs = "{}", op = "test.first", pure = true, reason = "test", shapes = [affine_map<() -> (8)>], strides = [affine_map<() -> (1)>]} : (tensor<8xf32>) -> tensor<8xf32>
  %2 = "kiln.aten"(%x) {args = "[{\22operand\22: 0}]", kwargs = "{}", op = "test.second", pure = true, reason = "test", shapes = [affine_map<() -> (8)>], strides = [affine_map<() -> (1)>]} : (tensor<8xf32>) -> tensor<8xf32>
  %3 = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>], iterator_types = ["parallel"]} ins(%2 : tensor<8xf32>) outs(%e : tensor<8xf32>) {
  ^bb0(%a: f32, %o: f32):
    %n = arith.addf %a, %a : f32
    linalg.yield %n : f32
  } -> tensor<8xf32>
  %4 = "kiln.aten"(%y) {args = "[{\22operand\22: 0}]", kwargs = "{}", op = "test.large", pure = true, reason = "test", shapes = [affine_map<() -> (4096)>], strides = [affine_map<() -> (1)>]} : (tensor<4096xf64>) -> tensor<4096xf64>
  return %1, %3, %4 : tensor<8xf32>, tensor<8xf32>, tensor<4096xf64>
}

// -----

// CHECK-LABEL: func.func @effects
// CHECK: "kiln.fusion"
// CHECK: "kiln.aten"(%{{.*}}) {{.*}} op = "test.first"
// CHECK: "kiln.aten"(%arg0) {{.*}} op = "test.second"
// CHECK: "kiln.fusion"
func.func @effects(%x: tensor<8xf32>, %y: tensor<4096xf64>) -> (tensor<8xf32>, tensor<8xf32>, tensor<4096xf64>) {
  %e = "kiln.empty"() {shape = affine_map<() -> (8)>} : () -> tensor<8xf32>
  %0 = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>], iterator_types = ["parallel"]} ins(%x : tensor<8xf32>) outs(%e : tensor<8xf32>) {
  ^bb0(%a: f32, %o: f32):
    %n = arith.negf %a : f32
    linalg.yield %n : f32
  } -> tensor<8xf32>
  %1 = "kiln.aten"(%0) {args = "[{\22operand\22: 0}]", kwargs = "{}", op = "test.first", pure = false, reason = "test", shapes = [affine_map<() -> (8)>], strides = [affine_map<() -> (1)>]} : (tensor<8xf32>) -> tensor<8xf32>
  %2 = "kiln.aten"(%x) {args = "[{\22operand\22: 0}]", kwargs = "{}", op = "test.second", pure = false, reason = "test", shapes = [affine_map<() -> (8)>], strides = [affine_map<() -> (1)>]} : (tensor<8xf32>) -> tensor<8xf32>
  %3 = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>], iterator_types = ["parallel"]} ins(%2 : tensor<8xf32>) outs(%e : tensor<8xf32>) {
  ^bb0(%a: f32, %o: f32):
    %n = arith.addf %a, %a : f32
    linalg.yield %n : f32
  } -> tensor<8xf32>
  %4 = "kiln.aten"(%y) {args = "[{\22operand\22: 0}]", kwargs = "{}", op = "test.large", pure = true, reason = "test", shapes = [affine_map<() -> (4096)>], strides = [affine_map<() -> (1)>]} : (tensor<4096xf64>) -> tensor<4096xf64>
  return %1, %3, %4 : tensor<8xf32>, tensor<8xf32>, tensor<4096xf64>
}
