// Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// REQUIRES: triton
// RUN: kiln-opt %s --split-input-file --pass-pipeline="fuse,assign-layouts,schedule-gpu,outline-kernels{gpu=true},emit-kernels{target=gpu},assemble{arch=sm_90}" --print-kernels=ptx | filecheck %s

// Products through pointers, on an H200: asynchronous copies and the tensor cores' instruction for 16-bit floats, and no
// sums that leave the registers.

// CHECK-LABEL: // kernel matmul
// CHECK-NOT: ld.local
// CHECK: cp.async
// CHECK-NOT: ld.local
// CHECK: wgmma.mma_async
// CHECK-NOT: ld.local
func.func @bf16_64x4096x1024(%x: tensor<64x1024xbf16>, %w: tensor<4096x1024xbf16>) -> tensor<64x4096xbf16> {
  %0 = "kiln.matmul"(%x, %w) {transpose_lhs = false, transpose_rhs = true}
    : (tensor<64x1024xbf16>, tensor<4096x1024xbf16>) -> tensor<64x4096xbf16>
  return %0 : tensor<64x4096xbf16>
}

// -----

// CHECK-LABEL: // kernel matmul
// CHECK-NOT: ld.local
// CHECK: cp.async
// CHECK-NOT: ld.local
// CHECK: wgmma.mma_async
// CHECK-NOT: ld.local
func.func @bf16_4000x4104x1032(%x: tensor<4000x1032xbf16>, %w: tensor<4104x1032xbf16>) -> tensor<4000x4104xbf16> {
  %0 = "kiln.matmul"(%x, %w) {transpose_lhs = false, transpose_rhs = true}
    : (tensor<4000x1032xbf16>, tensor<4104x1032xbf16>) -> tensor<4000x4104xbf16>
  return %0 : tensor<4000x4104xbf16>
}

// -----

// Any number of rows.
// CHECK-LABEL: // kernel matmul
// CHECK-NOT: ld.local
// CHECK: cp.async
// CHECK-NOT: ld.local
// CHECK: wgmma.mma_async
// CHECK-NOT: ld.local
func.func @f16_anyx768x768(%n: index {kiln.symbol = "s0"},
    %x: tensor<?x768xf16> {kiln.shape = affine_map<()[s0] -> (s0, 768)>},
    %w: tensor<768x768xf16>) -> tensor<?x768xf16> attributes {kiln.symbols = ["s0"]} {
  %0 = "kiln.matmul"(%x, %w) {transpose_lhs = false, transpose_rhs = true}
    : (tensor<?x768xf16>, tensor<768x768xf16>) -> tensor<?x768xf16>
  return %0 : tensor<?x768xf16>
}

// -----

// Sums on the plain cores.
// CHECK-LABEL: // kernel matmul
// CHECK-NOT: ld.local
// CHECK: .entry
// CHECK-NOT: ld.local
func.func @f32_100x77x33(%x: tensor<100x33xf32>, %w: tensor<77x33xf32>) -> tensor<100x77xf32> {
  %0 = "kiln.matmul"(%x, %w) {transpose_lhs = false, transpose_rhs = true}
    : (tensor<100x33xf32>, tensor<77x33xf32>) -> tensor<100x77xf32>
  return %0 : tensor<100x77xf32>
}

// -----

// CHECK-LABEL: // kernel matmul
// CHECK-NOT: ld.local
// CHECK: .entry
// CHECK-NOT: ld.local
func.func @i8_100x70x50(%x: tensor<100x50xi8>, %w: tensor<70x50xi8>) -> tensor<100x70xi8> {
  %0 = "kiln.matmul"(%x, %w) {transpose_lhs = false, transpose_rhs = true}
    : (tensor<100x50xi8>, tensor<70x50xi8>) -> tensor<100x70xi8>
  return %0 : tensor<100x70xi8>
}

// -----

// CHECK-LABEL: // kernel matmul
// CHECK-NOT: ld.local
// CHECK: .entry
// CHECK-NOT: ld.local
func.func @f64_100x70x50(%x: tensor<100x50xf64>, %w: tensor<70x50xf64>) -> tensor<100x70xf64> {
  %0 = "kiln.matmul"(%x, %w) {transpose_lhs = false, transpose_rhs = true}
    : (tensor<100x50xf64>, tensor<70x50xf64>) -> tensor<100x70xf64>
  return %0 : tensor<100x70xf64>
}

// -----

// One row.
// CHECK-LABEL: // kernel matmul
// CHECK-NOT: ld.local
// CHECK: .entry
// CHECK-NOT: ld.local
func.func @bf16_1x1024x1024(%x: tensor<1x1024xbf16>, %w: tensor<1024x1024xbf16>) -> tensor<1x1024xbf16> {
  %0 = "kiln.matmul"(%x, %w) {transpose_lhs = false, transpose_rhs = true}
    : (tensor<1x1024xbf16>, tensor<1024x1024xbf16>) -> tensor<1x1024xbf16>
  return %0 : tensor<1x1024xbf16>
}
