// Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// REQUIRES: triton
// RUN: kiln-opt %s --split-input-file --pass-pipeline="expand-named-ops{keep=scan},compose-views,canonicalize,cse,fuse,assign-layouts,schedule-gpu,outline-kernels{gpu=true},emit-kernels{target=gpu},assemble{arch=sm_90}" --print-kernels=ptx | filecheck %s

// Kernels of loops and scans, down to machine code.

// A row in registers.
// CHECK-LABEL: // kernel {{.*}} warps
// CHECK: .target sm_90
func.func @main(%x: tensor<64x1000xbf16>) -> tensor<64x1000xbf16> {
  %0 = "kiln.softmax"(%x) {dim = 1 : i64, log = false} : (tensor<64x1000xbf16>) -> tensor<64x1000xbf16>
  return %0 : tensor<64x1000xbf16>
}

// -----

// A row in blocks.
// CHECK-LABEL: // kernel {{.*}} warps
// CHECK: .target sm_90
func.func @main(%x: tensor<8x50000xf32>) -> tensor<8x50000xf32> {
  %0 = "kiln.softmax"(%x) {dim = 1 : i64, log = true} : (tensor<8x50000xf32>) -> tensor<8x50000xf32>
  return %0 : tensor<8x50000xf32>
}

// -----

// Columns.
// CHECK-LABEL: // kernel {{.*}} warps
// CHECK: .target sm_90
func.func @main(%x: tensor<640x100xf32>) -> tensor<640x100xf32> {
  %0 = "kiln.softmax"(%x) {dim = 0 : i64, log = false} : (tensor<640x100xf32>) -> tensor<640x100xf32>
  return %0 : tensor<640x100xf32>
}

// -----

// CHECK-LABEL: // kernel {{.*}} warps
// CHECK: .target sm_90
func.func @main(%x: tensor<8x9000xi64>) -> tensor<8x9000xi64> {
  %0 = "kiln.scan"(%x) {dim = 1 : i64, kind = "sum"} : (tensor<8x9000xi64>) -> tensor<8x9000xi64>
  return %0 : tensor<8x9000xi64>
}

// -----

// CHECK-LABEL: // kernel {{.*}} warps
// CHECK: .target sm_90
func.func @main(%i: tensor<16xi64>, %w: tensor<100x24xf16>) -> tensor<16x24xf16> {
  %0 = "kiln.embedding"(%w, %i) : (tensor<100x24xf16>, tensor<16xi64>) -> tensor<16x24xf16>
  return %0 : tensor<16x24xf16>
}

// -----

// CHECK-LABEL: // kernel {{.*}} warps
// CHECK: .target sm_90
func.func @main(%s: tensor<i64>, %o: tensor<i64>) -> tensor<33x8xf32> {
  %0 = "kiln.random"(%s, %o) {kind = "normal", shape = affine_map<() -> (33, 8)>}
    : (tensor<i64>, tensor<i64>) -> tensor<33x8xf32>
  return %0 : tensor<33x8xf32>
}

// -----

// CHECK-LABEL: // kernel {{.*}} warps
// CHECK: .target sm_90
func.func @main(%x: tensor<37x30xf64>) -> tensor<37x30xf64> {
  %0 = "kiln.softmax"(%x) {dim = 1 : i64, log = true} : (tensor<37x30xf64>) -> tensor<37x30xf64>
  return %0 : tensor<37x30xf64>
}
