// Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// RUN: kiln-opt %s --split-input-file --pass-pipeline=fold-attention-views --remarks 2> %t.remarks | filecheck %s
// RUN: filecheck %s --check-prefix=WHY --input-file %t.remarks

// Keys are heads of their own; values lie in a projection's result: its view without the repetition is strided.

// CHECK: #[[HEADS:.*]] = affine_map<(d0, d1, d2, d3) -> (d0, d2, d1 * 8 + d3)>
// CHECK-LABEL: func.func @grouped
// CHECK-NEXT: %[[V:.*]] = "kiln.view"(%arg2) {map = #[[HEADS]]
// CHECK-NEXT: "kiln.attention"(%arg0, %arg1, %[[V]])
// CHECK-SAME: (tensor<2x4x16x8xf32>, tensor<2x2x16x8xf32>, tensor<2x2x16x8xf32>) -> tensor<2x4x16x8xf32>
func.func @grouped(%q: tensor<2x4x16x8xf32>, %k: tensor<2x2x16x8xf32>, %p: tensor<2x16x16xf32>) -> tensor<2x4x16x8xf32> {
  %0 = "kiln.view"(%k) {map = affine_map<(d0, d1, d2, d3) -> (d0, d1 floordiv 2, d2, d3)>, shape = affine_map<() -> (2, 4, 16, 8)>} : (tensor<2x2x16x8xf32>) -> tensor<2x4x16x8xf32>
  %1 = "kiln.view"(%p) {map = affine_map<(d0, d1, d2, d3) -> (d0, d2, (d1 floordiv 2) * 8 + d3)>, shape = affine_map<() -> (2, 4, 16, 8)>} : (tensor<2x16x16xf32>) -> tensor<2x4x16x8xf32>
  %2 = "kiln.attention"(%q, %0, %1) {causal = true, scale = 1.000000e+00 : f64} : (tensor<2x4x16x8xf32>, tensor<2x4x16x8xf32>, tensor<2x4x16x8xf32>) -> tensor<2x4x16x8xf32>
  return %2 : tensor<2x4x16x8xf32>
}

// -----

// One head for all queries.

// CHECK-LABEL: func.func @single
// CHECK: "kiln.attention"(%arg0, %arg1, %arg2)
// CHECK-SAME: (tensor<2x4x16x8xf32>, tensor<2x1x16x8xf32>, tensor<2x1x16x8xf32>)
func.func @single(%q: tensor<2x4x16x8xf32>, %k: tensor<2x1x16x8xf32>, %v: tensor<2x1x16x8xf32>) -> tensor<2x4x16x8xf32> {
  %0 = "kiln.view"(%k) {map = affine_map<(d0, d1, d2, d3) -> (d0, 0, d2, d3)>, shape = affine_map<() -> (2, 4, 16, 8)>} : (tensor<2x1x16x8xf32>) -> tensor<2x4x16x8xf32>
  %1 = "kiln.view"(%v) {map = affine_map<(d0, d1, d2, d3) -> (d0, 0, d2, d3)>, shape = affine_map<() -> (2, 4, 16, 8)>} : (tensor<2x1x16x8xf32>) -> tensor<2x4x16x8xf32>
  %2 = "kiln.attention"(%q, %0, %1) {causal = true, scale = 1.000000e+00 : f64} : (tensor<2x4x16x8xf32>, tensor<2x4x16x8xf32>, tensor<2x4x16x8xf32>) -> tensor<2x4x16x8xf32>
  return %2 : tensor<2x4x16x8xf32>
}

// -----

// Values that are not repeated keep the keys as they are; tiled heads (0, 1, 0, 1) are no groups.

// CHECK-LABEL: func.func @keys_alone
// CHECK: kiln.view
// CHECK: "kiln.attention"{{.*}}(tensor<2x4x16x8xf32>, tensor<2x4x16x8xf32>, tensor<2x4x16x8xf32>)
// WHY: key and value heads are not repeated in the same way
func.func @keys_alone(%q: tensor<2x4x16x8xf32>, %k: tensor<2x2x16x8xf32>, %v: tensor<2x4x16x8xf32>) -> tensor<2x4x16x8xf32> {
  %0 = "kiln.view"(%k) {map = affine_map<(d0, d1, d2, d3) -> (d0, d1 floordiv 2, d2, d3)>, shape = affine_map<() -> (2, 4, 16, 8)>} : (tensor<2x2x16x8xf32>) -> tensor<2x4x16x8xf32>
  %2 = "kiln.attention"(%q, %0, %v) {causal = true, scale = 1.000000e+00 : f64} : (tensor<2x4x16x8xf32>, tensor<2x4x16x8xf32>, tensor<2x4x16x8xf32>) -> tensor<2x4x16x8xf32>
  return %2 : tensor<2x4x16x8xf32>
}

// -----

// CHECK-LABEL: func.func @tiled
// CHECK-COUNT-2: kiln.view
// CHECK: "kiln.attention"
func.func @tiled(%q: tensor<2x4x16x8xf32>, %k: tensor<2x2x16x8xf32>, %v: tensor<2x2x16x8xf32>) -> tensor<2x4x16x8xf32> {
  %0 = "kiln.view"(%k) {map = affine_map<(d0, d1, d2, d3) -> (d0, d1 mod 2, d2, d3)>, shape = affine_map<() -> (2, 4, 16, 8)>} : (tensor<2x2x16x8xf32>) -> tensor<2x4x16x8xf32>
  %1 = "kiln.view"(%v) {map = affine_map<(d0, d1, d2, d3) -> (d0, d1 mod 2, d2, d3)>, shape = affine_map<() -> (2, 4, 16, 8)>} : (tensor<2x2x16x8xf32>) -> tensor<2x4x16x8xf32>
  %2 = "kiln.attention"(%q, %0, %1) {causal = true, scale = 1.000000e+00 : f64} : (tensor<2x4x16x8xf32>, tensor<2x4x16x8xf32>, tensor<2x4x16x8xf32>) -> tensor<2x4x16x8xf32>
  return %2 : tensor<2x4x16x8xf32>
}
