// Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// RUN: kiln-opt %s --split-input-file --pass-pipeline=narrow-attention --remarks 2> %t.remarks | filecheck %s
// RUN: filecheck %s --check-prefix=WHY --input-file %t.remarks

// Keys are transposed between the conversion and the attention; the mask was a boolean one, and broadcasts.

// CHECK-DAG: #[[HEADS:.*]] = affine_map<(d0, d1, d2) -> (d1, d0, d2)>
// CHECK-DAG: #[[ROW:.*]] = affine_map<(d0, d1, d2) -> (d2)>
// CHECK-LABEL: func.func @masked
// CHECK-NOT: linalg.generic
// CHECK-DAG: %[[M:.*]] = "kiln.view"(%arg3) {map = #[[ROW]]
// CHECK-DAG: %[[K:.*]] = "kiln.view"(%arg1) {map = #[[HEADS]]
// CHECK: %[[R:.*]] = "kiln.attention"(%arg0, %[[K]], %arg2, %[[M]])
// CHECK-SAME: (tensor<2x4x8xbf16>, tensor<2x6x8xbf16>, tensor<2x6x8xbf16>, tensor<1x4x6xi1>) -> tensor<2x4x8xbf16>
// CHECK-NEXT: return %[[R]]
#id = affine_map<(d0, d1, d2) -> (d0, d1, d2)>
#row = affine_map<(d0, d1, d2) -> (d2)>

func.func @masked(%q: tensor<2x4x8xbf16>, %k: tensor<6x2x8xbf16>, %v: tensor<2x6x8xbf16>, %m: tensor<6xi1>) -> tensor<2x4x8xbf16> {
  %e0 = "kiln.empty"() {shape = affine_map<() -> (2, 4, 8)>} : () -> tensor<2x4x8xf32>
  %0 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel", "parallel"]} ins(%q : tensor<2x4x8xbf16>) outs(%e0 : tensor<2x4x8xf32>) {
  ^bb0(%in: bf16, %out: f32):
    %w = arith.extf %in : bf16 to f32
    linalg.yield %w : f32
  } -> tensor<2x4x8xf32>
  %e1 = "kiln.empty"() {shape = affine_map<() -> (6, 2, 8)>} : () -> tensor<6x2x8xf32>
  %1 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel", "parallel"]} ins(%k : tensor<6x2x8xbf16>) outs(%e1 : tensor<6x2x8xf32>) {
  ^bb0(%in: bf16, %out: f32):
    %w = arith.extf %in : bf16 to f32
    linalg.yield %w : f32
  } -> tensor<6x2x8xf32>
  %2 = "kiln.view"(%1) {map = affine_map<(d0, d1, d2) -> (d1, d0, d2)>, shape = affine_map<() -> (2, 6, 8)>} : (tensor<6x2x8xf32>) -> tensor<2x6x8xf32>
  %e2 = "kiln.empty"() {shape = affine_map<() -> (2, 6, 8)>} : () -> tensor<2x6x8xf32>
  %3 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel", "parallel"]} ins(%v : tensor<2x6x8xbf16>) outs(%e2 : tensor<2x6x8xf32>) {
  ^bb0(%in: bf16, %out: f32):
    %w = arith.extf %in : bf16 to f32
    linalg.yield %w : f32
  } -> tensor<2x6x8xf32>
  %e3 = "kiln.empty"() {shape = affine_map<() -> (1, 4, 6)>} : () -> tensor<1x4x6xf32>
  %4 = linalg.generic {indexing_maps = [#row, #id], iterator_types = ["parallel", "parallel", "parallel"]} ins(%m : tensor<6xi1>) outs(%e3 : tensor<1x4x6xf32>) {
  ^bb0(%in: i1, %out: f32):
    %zero = arith.constant 0.0 : f32
    %lowest = arith.constant 0xFF800000 : f32
    %s = arith.select %in, %zero, %lowest : f32
    linalg.yield %s : f32
  } -> tensor<1x4x6xf32>
  %5 = "kiln.attention"(%0, %2, %3, %4) {causal = false, scale = 0.5 : f64} : (tensor<2x4x8xf32>, tensor<2x6x8xf32>, tensor<2x6x8xf32>, tensor<1x4x6xf32>) -> tensor<2x4x8xf32>
  %e4 = "kiln.empty"() {shape = affine_map<() -> (2, 4, 8)>} : () -> tensor<2x4x8xbf16>
  %6 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel", "parallel"]} ins(%5 : tensor<2x4x8xf32>) outs(%e4 : tensor<2x4x8xbf16>) {
  ^bb0(%in: f32, %out: bf16):
    %n = arith.truncf %in : f32 to bf16
    linalg.yield %n : bf16
  } -> tensor<2x4x8xbf16>
  return %6 : tensor<2x4x8xbf16>
}

// -----

// A result that is read in f32 is computed in f32; a mask with numbers is no boolean one.

// CHECK-LABEL: func.func @wide
// CHECK: arith.select
// CHECK: "kiln.attention"
// CHECK-SAME: -> tensor<2x4x8xf32>
// WHY: kiln.attention: the result is read in f32, or becomes another type than bf16 [narrow-attention]
#id = affine_map<(d0, d1, d2) -> (d0, d1, d2)>
func.func @wide(%q: tensor<2x4x8xbf16>, %m: tensor<2x4x4xi1>) -> tensor<2x4x8xf32> {
  %e0 = "kiln.empty"() {shape = affine_map<() -> (2, 4, 8)>} : () -> tensor<2x4x8xf32>
  %0 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel", "parallel"]} ins(%q : tensor<2x4x8xbf16>) outs(%e0 : tensor<2x4x8xf32>) {
  ^bb0(%in: bf16, %out: f32):
    %w = arith.extf %in : bf16 to f32
    linalg.yield %w : f32
  } -> tensor<2x4x8xf32>
  %e1 = "kiln.empty"() {shape = affine_map<() -> (2, 4, 4)>} : () -> tensor<2x4x4xf32>
  %1 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel", "parallel"]} ins(%m : tensor<2x4x4xi1>) outs(%e1 : tensor<2x4x4xf32>) {
  ^bb0(%in: i1, %out: f32):
    %zero = arith.constant 0.0 : f32
    %lowest = arith.constant -10000.0 : f32
    %s = arith.select %in, %zero, %lowest : f32
    linalg.yield %s : f32
  } -> tensor<2x4x4xf32>
  %2 = "kiln.attention"(%0, %0, %0, %1) {causal = false, scale = 0.5 : f64} : (tensor<2x4x8xf32>, tensor<2x4x8xf32>, tensor<2x4x8xf32>, tensor<2x4x4xf32>) -> tensor<2x4x8xf32>
  return %2 : tensor<2x4x8xf32>
}
