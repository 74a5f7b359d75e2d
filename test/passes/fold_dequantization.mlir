// Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// RUN: kiln-opt %s --split-input-file --pass-pipeline=fold-dequantization --remarks 2> %t.remarks | filecheck %s
// RUN: filecheck %s --check-prefix=WHY --input-file %t.remarks

// A weight [k, n] in bf16, converted by way of f32; the conversion stays for its other reader.

// CHECK-LABEL: func.func @converted
// CHECK: %[[F:.*]] = linalg.generic
// CHECK: %[[P:.*]] = "kiln.matmul"(%arg0, %arg1) {{.*}} : (tensor<?x8xbf16>, tensor<8x16xi8>) -> tensor<?x16xbf16>
// CHECK: return %[[P]], %[[F]]
func.func @converted(%x: tensor<?x8xbf16>, %w: tensor<8x16xi8>) -> (tensor<?x16xbf16>, tensor<8x16xbf16>) {
  %e = "kiln.empty"() {shape = affine_map<() -> (8, 16)>} : () -> tensor<8x16xbf16>
  %0 = linalg.generic {indexing_maps = [affine_map<(k, n) -> (k, n)>, affine_map<(k, n) -> (k, n)>],
      iterator_types = ["parallel", "parallel"]} ins(%w : tensor<8x16xi8>) outs(%e : tensor<8x16xbf16>) {
  ^bb0(%a: i8, %out: bf16):
    %f = arith.sitofp %a : i8 to f32
    %g = arith.truncf %f : f32 to bf16
    linalg.yield %g : bf16
  } -> tensor<8x16xbf16>
  %1 = "kiln.matmul"(%x, %0) {transpose_lhs = false, transpose_rhs = false} : (tensor<?x8xbf16>, tensor<8x16xbf16>) -> tensor<?x16xbf16>
  return %1, %0 : tensor<?x16xbf16>, tensor<8x16xbf16>
}

// -----

// Unsigned numbers, and factors along k, are left.

// CHECK-LABEL: func.func @left
// CHECK: arith.uitofp
// CHECK: arith.mulf
// CHECK-COUNT-2: (tensor<4x8xf32>, tensor<16x8xf32>)
func.func @left(%x: tensor<4x8xf32>, %w: tensor<16x8xi8>, %v: tensor<16x8xf32>, %s: tensor<8xf32>) -> (tensor<4x16xf32>, tensor<4x16xf32>) {
  %e = "kiln.empty"() {shape = affine_map<() -> (16, 8)>} : () -> tensor<16x8xf32>
  %0 = linalg.generic {indexing_maps = [affine_map<(n, k) -> (n, k)>, affine_map<(n, k) -> (n, k)>],
      iterator_types = ["parallel", "parallel"]} ins(%w : tensor<16x8xi8>) outs(%e : tensor<16x8xf32>) {
  ^bb0(%a: i8, %out: f32):
    %f = arith.uitofp %a : i8 to f32
    linalg.yield %f : f32
  } -> tensor<16x8xf32>
  %c = linalg.generic {indexing_maps = [affine_map<(n, k) -> (n, k)>, affine_map<(n, k) -> (n, k)>],
      iterator_types = ["parallel", "parallel"]} ins(%w : tensor<16x8xi8>) outs(%e : tensor<16x8xf32>) {
  ^bb0(%a: i8, %out: f32):
    %f = arith.sitofp %a : i8 to f32
    linalg.yield %f : f32
  } -> tensor<16x8xf32>
  %1 = linalg.generic {indexing_maps = [affine_map<(n, k) -> (n, k)>, affine_map<(n, k) -> (k)>, affine_map<(n, k) -> (n, k)>],
      iterator_types = ["parallel", "parallel"]} ins(%c, %s : tensor<16x8xf32>, tensor<8xf32>) outs(%e : tensor<16x8xf32>) {
  ^bb0(%a: f32, %b: f32, %out: f32):
    %f = arith.mulf %a, %b : f32
    linalg.yield %f : f32
  } -> tensor<16x8xf32>
  %2 = "kiln.matmul"(%x, %0) {transpose_lhs = false, transpose_rhs = true} : (tensor<4x8xf32>, tensor<16x8xf32>) -> tensor<4x16xf32>
  %3 = "kiln.matmul"(%x, %1) {transpose_lhs = false, transpose_rhs = true} : (tensor<4x8xf32>, tensor<16x8xf32>) -> tensor<4x16xf32>
  return %2, %3 : tensor<4x16xf32>, tensor<4x16xf32>
}

// -----

// WHY: factors stay with the weights: sums of products with integers could leave the range of f16
// CHECK-LABEL: func.func @half
// CHECK: (tensor<4x8xf16>, tensor<16x8xf16>)
func.func @half(%x: tensor<4x8xf16>, %w: tensor<16x8xi8>, %s: tensor<16xf16>) -> tensor<4x16xf16> {
  %e = "kiln.empty"() {shape = affine_map<() -> (16, 8)>} : () -> tensor<16x8xf16>
  %c = linalg.generic {indexing_maps = [affine_map<(n, k) -> (n, k)>, affine_map<(n, k) -> (n, k)>],
      iterator_types = ["parallel", "parallel"]} ins(%w : tensor<16x8xi8>) outs(%e : tensor<16x8xf16>) {
  ^bb0(%a: i8, %out: f16):
    %f = arith.sitofp %a : i8 to f16
    linalg.yield %f : f16
  } -> tensor<16x8xf16>
  %1 = linalg.generic {indexing_maps = [affine_map<(n, k) -> (n, k)>, affine_map<(n, k) -> (n)>, affine_map<(n, k) -> (n, k)>],
      iterator_types = ["parallel", "parallel"]} ins(%c, %s : tensor<16x8xf16>, tensor<16xf16>) outs(%e : tensor<16x8xf16>) {
  ^bb0(%a: f16, %b: f16, %out: f16):
    %g = arith.extf %a : f16 to f32
    %h = arith.extf %b : f16 to f32
    %f = arith.mulf %g, %h : f32
    %r = arith.truncf %f : f32 to f16
    linalg.yield %r : f16
  } -> tensor<16x8xf16>
  %2 = "kiln.matmul"(%x, %1) {transpose_lhs = false, transpose_rhs = true} : (tensor<4x8xf16>, tensor<16x8xf16>) -> tensor<4x16xf16>
  return %2 : tensor<4x16xf16>
}
