// Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// RUN: kiln-opt %s --split-input-file --mlir-print-local-scope --pass-pipeline="split-products" | filecheck %s

// 64 x 64 sums of 16384 terms: one tile for the whole GPU, unless the sums are split. Parts are f32.

// CHECK-LABEL: func.func @long_sums
// CHECK: %[[X:.*]] = "kiln.view"(%arg0) {map = affine_map<(d0, d1, d2) -> (d1, d0 * 512 + d2)>, shape = affine_map<() -> (32, 64, 512)>}
// CHECK: %[[W:.*]] = "kiln.view"(%arg1) {map = affine_map<(d0, d1, d2) -> (d0 * 512 + d1, d2)>, shape = affine_map<() -> (32, 512, 64)>}
// CHECK: %[[P:.*]] = "kiln.matmul"(%[[X]], %[[W]]) {{.*}} -> tensor<32x64x64xf32>
// CHECK: linalg.generic {{.*}} iterator_types = ["reduction", "parallel", "parallel"]} ins(%[[P]] : tensor<32x64x64xf32>)
// CHECK: arith.addf
// CHECK: linalg.generic
// CHECK: arith.truncf
func.func @long_sums(%x: tensor<64x16384xbf16>, %w: tensor<16384x64xbf16>) -> tensor<64x64xbf16> {
  %0 = "kiln.matmul"(%x, %w) {transpose_lhs = false, transpose_rhs = false}
    : (tensor<64x16384xbf16>, tensor<16384x64xbf16>) -> tensor<64x64xbf16>
  return %0 : tensor<64x64xbf16>
}

// -----

// Tiles for all multiprocessors, weights whose memory decides, f32: as they are.

// CHECK-LABEL: func.func @kept
// CHECK-COUNT-3: "kiln.matmul"(%arg{{.*}}, %arg
// CHECK-NOT: linalg.generic
func.func @kept(%x: tensor<1024x1024xbf16>, %w: tensor<1024x1024xbf16>, %y: tensor<16x4096xbf16>,
    %v: tensor<4096x4096xbf16>, %z: tensor<64x16384xf32>, %u: tensor<16384x64xf32>)
    -> (tensor<1024x1024xbf16>, tensor<16x4096xbf16>, tensor<64x64xf32>) {
  %0 = "kiln.matmul"(%x, %w) {transpose_lhs = false, transpose_rhs = false}
    : (tensor<1024x1024xbf16>, tensor<1024x1024xbf16>) -> tensor<1024x1024xbf16>
  %1 = "kiln.matmul"(%y, %v) {transpose_lhs = false, transpose_rhs = false}
    : (tensor<16x4096xbf16>, tensor<4096x4096xbf16>) -> tensor<16x4096xbf16>
  %2 = "kiln.matmul"(%z, %u) {transpose_lhs = false, transpose_rhs = false}
    : (tensor<64x16384xf32>, tensor<16384x64xf32>) -> tensor<64x64xf32>
  return %0, %1, %2 : tensor<1024x1024xbf16>, tensor<16x4096xbf16>, tensor<64x64xf32>
}
