// Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// RUN: kiln-opt %s --split-input-file --pass-pipeline="expand-named-ops{keep=matmul,attention,scan}" | filecheck %s

// Ops with a kernel are kept, those of types and sizes that no kernel takes are expanded all the same.

// CHECK-LABEL: func.func @products
// CHECK: "kiln.matmul"(%arg0, %arg0)
// CHECK-NOT: kiln.matmul
// CHECK: iterator_types = ["parallel", "parallel", "reduction"]
// CHECK: arith.muli
func.func @products(%x: tensor<4x4xf32>, %i: tensor<4x4xi64>) -> (tensor<4x4xf32>, tensor<4x4xi64>) {
  %0 = "kiln.matmul"(%x, %x) {transpose_lhs = false, transpose_rhs = false} : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
  %1 = "kiln.matmul"(%i, %i) {transpose_lhs = false, transpose_rhs = false} : (tensor<4x4xi64>, tensor<4x4xi64>) -> tensor<4x4xi64>
  return %0, %1 : tensor<4x4xf32>, tensor<4x4xi64>
}

// -----

// CHECK-LABEL: func.func @attention
// CHECK: "kiln.attention"(%arg0, %arg0, %arg0)
// CHECK-NOT: kiln.attention
// CHECK: math.exp {{.*}} : f64
func.func @attention(%x: tensor<1x2x4x8xf32>, %y: tensor<1x2x4x8xf64>) -> (tensor<1x2x4x8xf32>, tensor<1x2x4x8xf64>) {
  %0 = "kiln.attention"(%x, %x, %x) {scale = 1.0 : f64, causal = false} : (tensor<1x2x4x8xf32>, tensor<1x2x4x8xf32>, tensor<1x2x4x8xf32>) -> tensor<1x2x4x8xf32>
  %1 = "kiln.attention"(%y, %y, %y) {scale = 1.0 : f64, causal = false} : (tensor<1x2x4x8xf64>, tensor<1x2x4x8xf64>, tensor<1x2x4x8xf64>) -> tensor<1x2x4x8xf64>
  return %0, %1 : tensor<1x2x4x8xf32>, tensor<1x2x4x8xf64>
}

// -----

// CHECK-LABEL: func.func @scans
// CHECK: "kiln.scan"(%arg0) {dim = 0 : i64, kind = "sum"}
// CHECK-NOT: kiln.scan
// CHECK: return
func.func @scans(%x: tensor<8xf32>) -> (tensor<8xf32>, tensor<8xf32>, tensor<8xi64>) {
  %0 = "kiln.scan"(%x) {dim = 0 : i64, kind = "sum"} : (tensor<8xf32>) -> tensor<8xf32>
  %1:2 = "kiln.scan"(%x) {dim = 0 : i64, kind = "max"} : (tensor<8xf32>) -> (tensor<8xf32>, tensor<8xi64>)
  return %0, %1#0, %1#1 : tensor<8xf32>, tensor<8xf32>, tensor<8xi64>
}
