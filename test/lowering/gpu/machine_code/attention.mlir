// Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// REQUIRES: triton
// RUN: kiln-opt %s --split-input-file --pass-pipeline="fuse,assign-layouts,schedule-gpu,outline-kernels{gpu=true},emit-kernels{target=gpu},assemble{arch=sm_90}" --print-kernels=ptx | filecheck %s

// Attention through pointers: tensor cores for 16-bit floats, and no sums that leave the registers.

// CHECK-LABEL: // kernel attention
// CHECK-NOT: ld.local
// CHECK: wgmma.mma_async
// CHECK-NOT: ld.local
func.func @bf16_causal(%q: tensor<8x1024x64xbf16>,
    %k: tensor<8x1024x64xbf16>,
    %v: tensor<8x1024x64xbf16>) -> tensor<8x1024x64xbf16> {
  %0 = "kiln.attention"(%q, %k, %v) {scale = 0.125 : f64, causal = true}
    : (tensor<8x1024x64xbf16>, tensor<8x1024x64xbf16>, tensor<8x1024x64xbf16>) -> tensor<8x1024x64xbf16>
  return %0 : tensor<8x1024x64xbf16>
}

// -----

// CHECK-LABEL: // kernel attention
// CHECK-NOT: ld.local
// CHECK: wgmma.mma_async
// CHECK-NOT: ld.local
func.func @f16_masked(%q: tensor<8x1024x80xf16>,
    %k: tensor<8x1024x80xf16>,
    %v: tensor<8x1024x80xf16>,
    %m: tensor<1024x1024xi1>) -> tensor<8x1024x80xf16> {
  %0 = "kiln.attention"(%q, %k, %v, %m) {scale = 0.125 : f64, causal = false}
    : (tensor<8x1024x80xf16>, tensor<8x1024x80xf16>, tensor<8x1024x80xf16>, tensor<1024x1024xi1>) -> tensor<8x1024x80xf16>
  return %0 : tensor<8x1024x80xf16>
}

// -----

// CHECK-LABEL: // kernel attention
// CHECK-NOT: ld.local
// CHECK-NOT: wgmma.mma_async
// CHECK: .entry
// CHECK-NOT: ld.local
// CHECK-NOT: wgmma.mma_async
func.func @f32(%q: tensor<8x1024x32xf32>,
    %k: tensor<8x1024x32xf32>,
    %v: tensor<8x1024x32xf32>) -> tensor<8x1024x32xf32> {
  %0 = "kiln.attention"(%q, %k, %v) {scale = 0.125 : f64, causal = false}
    : (tensor<8x1024x32xf32>, tensor<8x1024x32xf32>, tensor<8x1024x32xf32>) -> tensor<8x1024x32xf32>
  return %0 : tensor<8x1024x32xf32>
}
