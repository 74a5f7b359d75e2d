// Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// REQUIRES: triton
// RUN: kiln-opt %s --split-input-file --pass-pipeline="fuse,assign-layouts,schedule-gpu,outline-kernels{gpu=true},emit-kernels{target=gpu},assemble{arch=sm_90}" --print-kernels=ptx | filecheck %s

// Convolutions, channels last: tensor cores but for single channels, and no sums that leave the registers.

// CHECK-LABEL: // kernel conv
// CHECK-NOT: ld.local
// CHECK: mma
// CHECK-NOT: ld.local
func.func @channels_64(%x: tensor<8x64x56x56xbf16> {kiln.strides = affine_map<() -> (200704, 1, 3584, 64)>},
    %w: tensor<64x64x3x3xbf16>)
    -> (tensor<8x64x56x56xbf16> {kiln.strides = affine_map<() -> (200704, 1, 3584, 64)>}) {
  %0 = "kiln.conv"(%x, %w) {stride = array<i64: 1, 1>, padding = array<i64: 1, 1>, dilation = array<i64: 1, 1>,
    groups = 1, transposed = false, output_padding = array<i64: 0, 0>} : (tensor<8x64x56x56xbf16>, tensor<64x64x3x3xbf16>) -> tensor<8x64x56x56xbf16>
  return %0 : tensor<8x64x56x56xbf16>
}

// -----

// CHECK-LABEL: // kernel conv
// CHECK-NOT: ld.local
// CHECK: mma
// CHECK-NOT: ld.local
func.func @channels_3(%x: tensor<8x3x56x56xbf16> {kiln.strides = affine_map<() -> (9408, 1, 168, 3)>},
    %w: tensor<64x3x3x3xbf16>)
    -> (tensor<8x64x56x56xbf16> {kiln.strides = affine_map<() -> (200704, 1, 3584, 64)>}) {
  %0 = "kiln.conv"(%x, %w) {stride = array<i64: 1, 1>, padding = array<i64: 1, 1>, dilation = array<i64: 1, 1>,
    groups = 1, transposed = false, output_padding = array<i64: 0, 0>} : (tensor<8x3x56x56xbf16>, tensor<64x3x3x3xbf16>) -> tensor<8x64x56x56xbf16>
  return %0 : tensor<8x64x56x56xbf16>
}

// -----

// CHECK-LABEL: // kernel conv
// CHECK-NOT: ld.local
// CHECK-NOT: mma
// CHECK: .entry
// CHECK-NOT: mma
// CHECK-NOT: ld.local
func.func @depthwise(%x: tensor<8x64x56x56xbf16> {kiln.strides = affine_map<() -> (200704, 1, 3584, 64)>},
    %w: tensor<64x1x3x3xbf16>)
    -> (tensor<8x64x56x56xbf16> {kiln.strides = affine_map<() -> (200704, 1, 3584, 64)>}) {
  %0 = "kiln.conv"(%x, %w) {stride = array<i64: 1, 1>, padding = array<i64: 1, 1>, dilation = array<i64: 1, 1>,
    groups = 64, transposed = false, output_padding = array<i64: 0, 0>} : (tensor<8x64x56x56xbf16>, tensor<64x1x3x3xbf16>) -> tensor<8x64x56x56xbf16>
  return %0 : tensor<8x64x56x56xbf16>
}
