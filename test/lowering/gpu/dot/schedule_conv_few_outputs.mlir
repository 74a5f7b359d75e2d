// Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// RUN: kiln-opt %s --pass-pipeline="fuse{row-blocks=false},assign-layouts,schedule-gpu" | filecheck %s

// Convolutions with 32 outputs: a step of a window computes addresses, which more rows share.

// Pixels times channels are few columns: twice the rows share what addresses cost.
// CHECK-LABEL: func.func @three_channels(
// CHECK: block_m = 128 : i64, block_n = 32 : i64, {{.*}}kernel = "gpu.conv.implicit"
func.func @three_channels(%x: tensor<16x3x224x224xbf16> {kiln.strides = affine_map<() -> (150528, 1, 672, 3)>},
    %w: tensor<32x3x3x3xbf16>)
    -> (tensor<16x32x224x224xbf16> {kiln.strides = affine_map<() -> (1605632, 1, 7168, 32)>}) {
  %0 = "kiln.conv"(%x, %w) {stride = array<i64: 1, 1>, padding = array<i64: 1, 1>, dilation = array<i64: 1, 1>,
    groups = 1, transposed = false, output_padding = array<i64: 0, 0>} : (tensor<16x3x224x224xbf16>, tensor<32x3x3x3xbf16>) -> tensor<16x32x224x224xbf16>
  return %0 : tensor<16x32x224x224xbf16>
}

// CHECK-LABEL: func.func @many_positions(
// CHECK: block_m = 128 : i64, block_n = 32 : i64, {{.*}}kernel = "gpu.conv.implicit"
func.func @many_positions(%x: tensor<64x32x112x112xbf16> {kiln.strides = affine_map<() -> (401408, 1, 3584, 32)>},
    %w: tensor<32x32x3x3xbf16>)
    -> (tensor<64x32x112x112xbf16> {kiln.strides = affine_map<() -> (401408, 1, 3584, 32)>}) {
  %0 = "kiln.conv"(%x, %w) {stride = array<i64: 1, 1>, padding = array<i64: 1, 1>, dilation = array<i64: 1, 1>,
    groups = 1, transposed = false, output_padding = array<i64: 0, 0>} : (tensor<64x32x112x112xbf16>, tensor<32x32x3x3xbf16>) -> tensor<64x32x112x112xbf16>
  return %0 : tensor<64x32x112x112xbf16>
}

// One tap has no addresses to share.
// CHECK-LABEL: func.func @one_tap(
// CHECK: block_m = 64 : i64, block_n = 32 : i64, {{.*}}kernel = "gpu.conv.implicit"
func.func @one_tap(%x: tensor<16x144x56x56xbf16> {kiln.strides = affine_map<() -> (451584, 1, 8064, 144)>},
    %w: tensor<32x144x1x1xbf16>)
    -> (tensor<16x32x56x56xbf16> {kiln.strides = affine_map<() -> (100352, 1, 1792, 32)>}) {
  %0 = "kiln.conv"(%x, %w) {stride = array<i64: 1, 1>, padding = array<i64: 0, 0>, dilation = array<i64: 1, 1>,
    groups = 1, transposed = false, output_padding = array<i64: 0, 0>} : (tensor<16x144x56x56xbf16>, tensor<32x144x1x1xbf16>) -> tensor<16x32x56x56xbf16>
  return %0 : tensor<16x32x56x56xbf16>
}

// There would not be programs for all multiprocessors.
// CHECK-LABEL: func.func @few_programs(
// CHECK: block_m = 64 : i64, block_n = 32 : i64, {{.*}}kernel = "gpu.conv.implicit"
func.func @few_programs(%x: tensor<1x32x112x112xbf16> {kiln.strides = affine_map<() -> (401408, 1, 3584, 32)>},
    %w: tensor<32x32x3x3xbf16>)
    -> (tensor<1x32x112x112xbf16> {kiln.strides = affine_map<() -> (401408, 1, 3584, 32)>}) {
  %0 = "kiln.conv"(%x, %w) {stride = array<i64: 1, 1>, padding = array<i64: 1, 1>, dilation = array<i64: 1, 1>,
    groups = 1, transposed = false, output_padding = array<i64: 0, 0>} : (tensor<1x32x112x112xbf16>, tensor<32x32x3x3xbf16>) -> tensor<1x32x112x112xbf16>
  return %0 : tensor<1x32x112x112xbf16>
}
