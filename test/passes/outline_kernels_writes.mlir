// Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// RUN: kiln-opt %s --pass-pipeline="outline-kernels" | filecheck %s

// Results that are written to different arguments of the function: one kernel, and each launch says to which.

// CHECK-COUNT-1: "kiln.kernel"
// CHECK-NOT: writes
// CHECK-NOT: "kiln.kernel"
// CHECK: func.func @main
// CHECK: "kiln.launch"(%arg0) {in_place = array<i64: 0, 0>, kernel = "one_{{.*}}", name = "one", writes = array<i64: 0, 0>}
// CHECK: "kiln.launch"(%arg1) {in_place = array<i64: 0, 0>, kernel = "one_{{.*}}", name = "two", writes = array<i64: 0, 1>}
func.func @main(%x: tensor<4xf32>, %y: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>) {
  %0 = "kiln.fusion"(%x) ({
  ^bb0(%a: tensor<4xf32>):
    "kiln.yield"(%a) : (tensor<4xf32>) -> ()
  }) {in_place = array<i64: 0, 0>, kind = "pointwise", name = "one", writes = array<i64: 0, 0>} : (tensor<4xf32>) -> tensor<4xf32>
  %1 = "kiln.fusion"(%y) ({
  ^bb0(%a: tensor<4xf32>):
    "kiln.yield"(%a) : (tensor<4xf32>) -> ()
  }) {in_place = array<i64: 0, 0>, kind = "pointwise", name = "two", writes = array<i64: 0, 1>} : (tensor<4xf32>) -> tensor<4xf32>
  return %0, %1 : tensor<4xf32>, tensor<4xf32>
}
