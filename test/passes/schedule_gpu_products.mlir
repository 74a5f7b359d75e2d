// Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// RUN: kiln-opt %s --mlir-print-local-scope --pass-pipeline="fuse,assign-layouts,schedule-gpu" | filecheck %s
// RUN: kiln-opt %s --mlir-print-local-scope --pass-pipeline="fuse,assign-layouts,schedule-gpu{descriptors=true}" | filecheck %s --check-prefix=MAPS

// Functions behind a product of one tile a program get twice the warps.

// CHECK-LABEL: func.func @gelu
// CHECK: block_m = 64 : i64, block_n = 128 : i64
// CHECK-SAME: num_warps = 8 : i64
// CHECK-LABEL: func.func @plain
// CHECK: block_m = 64 : i64, block_n = 128 : i64
// CHECK-SAME: num_warps = 4 : i64
func.func @gelu(%x: tensor<1024x1024xbf16>, %w: tensor<1024x1024xbf16>) -> tensor<1024x1024xbf16> {
  %p = "kiln.matmul"(%x, %w) {transpose_lhs = false, transpose_rhs = true} : (tensor<1024x1024xbf16>, tensor<1024x1024xbf16>) -> tensor<1024x1024xbf16>
  %e = "kiln.empty"() {shape = affine_map<() -> (1024, 1024)>} : () -> tensor<1024x1024xbf16>
  %r = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0, d1)>],
      iterator_types = ["parallel", "parallel"]} ins(%p : tensor<1024x1024xbf16>) outs(%e : tensor<1024x1024xbf16>) {
  ^bb0(%i: bf16, %o: bf16):
    %s = math.tanh %i : bf16
    linalg.yield %s : bf16
  } -> tensor<1024x1024xbf16>
  return %r : tensor<1024x1024xbf16>
}
func.func @plain(%x: tensor<1024x1024xbf16>, %w: tensor<1024x1024xbf16>) -> tensor<1024x1024xbf16> {
  %p = "kiln.matmul"(%x, %w) {transpose_lhs = false, transpose_rhs = true} : (tensor<1024x1024xbf16>, tensor<1024x1024xbf16>) -> tensor<1024x1024xbf16>
  return %p : tensor<1024x1024xbf16>
}

// Behind large tiles whose program takes another one, four pieces in place of two.

// MAPS-LABEL: func.func @large_gelu
// MAPS: block_m = 128 : i64, block_n = 256 : i64
// MAPS-SAME: epilogue_pieces = 4 : i64{{.*}}persistent = true
// MAPS-LABEL: func.func @large
// MAPS: block_m = 128 : i64, block_n = 256 : i64
// MAPS-SAME: epilogue_pieces = 2 : i64{{.*}}persistent = true
func.func @large_gelu(%x: tensor<8192x1024xbf16>, %w: tensor<4096x1024xbf16>) -> tensor<8192x4096xbf16> {
  %p = "kiln.matmul"(%x, %w) {transpose_lhs = false, transpose_rhs = true} : (tensor<8192x1024xbf16>, tensor<4096x1024xbf16>) -> tensor<8192x4096xbf16>
  %e = "kiln.empty"() {shape = affine_map<() -> (8192, 4096)>} : () -> tensor<8192x4096xbf16>
  %r = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0, d1)>],
      iterator_types = ["parallel", "parallel"]} ins(%p : tensor<8192x4096xbf16>) outs(%e : tensor<8192x4096xbf16>) {
  ^bb0(%i: bf16, %o: bf16):
    %s = math.erf %i : bf16
    linalg.yield %s : bf16
  } -> tensor<8192x4096xbf16>
  return %r : tensor<8192x4096xbf16>
}
func.func @large(%x: tensor<8192x1024xbf16>, %w: tensor<4096x1024xbf16>) -> tensor<8192x4096xbf16> {
  %p = "kiln.matmul"(%x, %w) {transpose_lhs = false, transpose_rhs = true} : (tensor<8192x1024xbf16>, tensor<4096x1024xbf16>) -> tensor<8192x4096xbf16>
  return %p : tensor<8192x4096xbf16>
}
