// Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// RUN: kiln-opt %s --split-input-file --mlir-print-local-scope --pass-pipeline="fuse,assign-layouts" | filecheck %s

// Attention gives [b, heads, s, v]; the product behind it reads [b, s, heads * v]. Written as [b, s, heads, v] that is
// the same memory, and no copy.

// CHECK-LABEL: func.func @merged_heads
// CHECK: %[[A:.*]] = "kiln.fusion"(%arg0)
// CHECK: kind = "attention"
// CHECK-SAME: affine_map<(d0, d1, d2, d3) -> (d0 * 1024 + d1 * 16 + d2 * 64 + d3)>], name = "attention"
// CHECK: %[[V:.*]] = "kiln.view"(%[[A]])
// CHECK: "kiln.fusion"(%[[V]], %arg1)
// CHECK-NOT: name = "copy"
// CHECK: kind = "matmul", layouts = [affine_map<(d0, d1, d2) -> (d0 * 1024 + d1 * 64 + d2)>
func.func @merged_heads(%q: tensor<2x4x16x16xf32>, %w: tensor<64x64xf32>) -> tensor<2x16x64xf32> {
  %a = "kiln.attention"(%q, %q, %q) {scale = 0.25 : f64, causal = false} : (tensor<2x4x16x16xf32>, tensor<2x4x16x16xf32>, tensor<2x4x16x16xf32>) -> tensor<2x4x16x16xf32>
  %v = "kiln.view"(%a) {map = affine_map<(d0, d1, d2) -> (d0, d2 floordiv 16, d1, d2 mod 16)>, shape = affine_map<() -> (2, 16, 64)>} : (tensor<2x4x16x16xf32>) -> tensor<2x16x64xf32>
  %r = "kiln.matmul"(%v, %w) {transpose_lhs = false, transpose_rhs = true} : (tensor<2x16x64xf32>, tensor<64x64xf32>) -> tensor<2x16x64xf32>
  return %r : tensor<2x16x64xf32>
}

// -----

// Two readers that want different orders: the first has its way, the other reads a copy.

// CHECK-LABEL: func.func @two_orders
// CHECK: name = "copy"
func.func @two_orders(%q: tensor<2x4x16x16xf32>, %w: tensor<64x64xf32>) -> (tensor<2x16x64xf32>, tensor<2x64x16xf32>) {
  %a = "kiln.attention"(%q, %q, %q) {scale = 0.25 : f64, causal = false} : (tensor<2x4x16x16xf32>, tensor<2x4x16x16xf32>, tensor<2x4x16x16xf32>) -> tensor<2x4x16x16xf32>
  %v = "kiln.view"(%a) {map = affine_map<(d0, d1, d2) -> (d0, d2 floordiv 16, d1, d2 mod 16)>, shape = affine_map<() -> (2, 16, 64)>} : (tensor<2x4x16x16xf32>) -> tensor<2x16x64xf32>
  %u = "kiln.view"(%a) {map = affine_map<(d0, d1, d2) -> (d0, d1 floordiv 16, d1 mod 16, d2)>, shape = affine_map<() -> (2, 64, 16)>} : (tensor<2x4x16x16xf32>) -> tensor<2x64x16xf32>
  %r = "kiln.matmul"(%v, %w) {transpose_lhs = false, transpose_rhs = true} : (tensor<2x16x64xf32>, tensor<64x64xf32>) -> tensor<2x16x64xf32>
  %s = "kiln.scan"(%u) {dim = 1 : i64, kind = "sum"} : (tensor<2x64x16xf32>) -> tensor<2x64x16xf32>
  return %r, %s : tensor<2x16x64xf32>, tensor<2x64x16xf32>
}

// -----

// A result [N, G, C / G, H, W] that is returned as [N, C, H, W] and channels last: the kernel writes it so, as both dims of
// channels can be joined in that order.

// CHECK-LABEL: func.func @groups
// CHECK: kind = "scan", layouts = [affine_map<(d0, d1, d2, d3, d4) -> (d0 * 384 + d1 * 128 + d2 * 16 + d3 * 4 + d4)>,
// CHECK-SAME: affine_map<(d0, d1, d2, d3, d4) -> (d0 * 384 + d1 * 8 + d2 + d3 * 96 + d4 * 24)>]
// CHECK-NOT: name = "copy"
func.func @groups(%x: tensor<2x3x8x4x4xf32>) -> (tensor<2x24x4x4xf32> {kiln.strides = affine_map<() -> (384, 1, 96, 24)>}) {
  %s = "kiln.scan"(%x) {dim = 4 : i64, kind = "sum"} : (tensor<2x3x8x4x4xf32>) -> tensor<2x3x8x4x4xf32>
  %v = "kiln.view"(%s) {map = affine_map<(d0, d1, d2, d3) -> (d0, d1 floordiv 8, d1 mod 8, d2, d3)>, shape = affine_map<() -> (2, 24, 4, 4)>} : (tensor<2x3x8x4x4xf32>) -> tensor<2x24x4x4xf32>
  return %v : tensor<2x24x4x4xf32>
}

// -----

// A part of the result cannot say where all of it lies.

// CHECK-LABEL: func.func @part_of_a_result
// CHECK: name = "copy"
func.func @part_of_a_result(%x: tensor<2x3x8x4x4xf32>) -> (tensor<2x16x4x4xf32> {kiln.strides = affine_map<() -> (256, 1, 64, 16)>}) {
  %s = "kiln.scan"(%x) {dim = 4 : i64, kind = "sum"} : (tensor<2x3x8x4x4xf32>) -> tensor<2x3x8x4x4xf32>
  %v = "kiln.view"(%s) {map = affine_map<(d0, d1, d2, d3) -> (d0, d1 floordiv 8, d1 mod 8, d2, d3)>, shape = affine_map<() -> (2, 16, 4, 4)>} : (tensor<2x3x8x4x4xf32>) -> tensor<2x16x4x4xf32>
  return %v : tensor<2x16x4x4xf32>
}
