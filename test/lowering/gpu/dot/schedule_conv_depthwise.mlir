// Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// RUN: kiln-opt %s --pass-pipeline="fuse{row-blocks=false},assign-layouts,schedule-gpu" | filecheck %s

// Depthwise convolutions: positions and channels of a program, each of which loads its weights once.

// A program's weights serve 64 positions where programs are many.
// CHECK-LABEL: func.func @many_positions(
// CHECK: block_m = 64 : i64, block_n = 64 : i64, {{.*}}kernel = "gpu.conv.depthwise"
func.func @many_positions(%x: tensor<64x96x112x112xbf16> {kiln.strides = affine_map<() -> (1204224, 1, 10752, 96)>},
    %w: tensor<96x1x3x3xbf16>)
    -> (tensor<64x96x112x112xbf16> {kiln.strides = affine_map<() -> (1204224, 1, 10752, 96)>}) {
  %0 = "kiln.conv"(%x, %w) {stride = array<i64: 1, 1>, padding = array<i64: 1, 1>, dilation = array<i64: 1, 1>,
    groups = 96, transposed = false, output_padding = array<i64: 0, 0>} : (tensor<64x96x112x112xbf16>, tensor<96x1x3x3xbf16>) -> tensor<64x96x112x112xbf16>
  return %0 : tensor<64x96x112x112xbf16>
}

// CHECK-LABEL: func.func @small_images(
// CHECK: block_m = 64 : i64, block_n = 64 : i64, {{.*}}kernel = "gpu.conv.depthwise"
func.func @small_images(%x: tensor<64x960x7x7xbf16> {kiln.strides = affine_map<() -> (47040, 1, 6720, 960)>},
    %w: tensor<960x1x3x3xbf16>)
    -> (tensor<64x960x7x7xbf16> {kiln.strides = affine_map<() -> (47040, 1, 6720, 960)>}) {
  %0 = "kiln.conv"(%x, %w) {stride = array<i64: 1, 1>, padding = array<i64: 1, 1>, dilation = array<i64: 1, 1>,
    groups = 960, transposed = false, output_padding = array<i64: 0, 0>} : (tensor<64x960x7x7xbf16>, tensor<960x1x3x3xbf16>) -> tensor<64x960x7x7xbf16>
  return %0 : tensor<64x960x7x7xbf16>
}

// Fewer positions a program, so that all multiprocessors have one.
// CHECK-LABEL: func.func @one_image(
// CHECK: block_m = 16 : i64, block_n = 64 : i64, {{.*}}kernel = "gpu.conv.depthwise"
func.func @one_image(%x: tensor<1x384x14x14xbf16> {kiln.strides = affine_map<() -> (75264, 1, 5376, 384)>},
    %w: tensor<384x1x3x3xbf16>)
    -> (tensor<1x384x14x14xbf16> {kiln.strides = affine_map<() -> (75264, 1, 5376, 384)>}) {
  %0 = "kiln.conv"(%x, %w) {stride = array<i64: 1, 1>, padding = array<i64: 1, 1>, dilation = array<i64: 1, 1>,
    groups = 384, transposed = false, output_padding = array<i64: 0, 0>} : (tensor<1x384x14x14xbf16>, tensor<384x1x3x3xbf16>) -> tensor<1x384x14x14xbf16>
  return %0 : tensor<1x384x14x14xbf16>
}

// CHECK-LABEL: func.func @one_image_of_few_channels(
// CHECK: block_m = 32 : i64, block_n = 32 : i64, {{.*}}kernel = "gpu.conv.depthwise"
func.func @one_image_of_few_channels(%x: tensor<1x32x112x112xbf16> {kiln.strides = affine_map<() -> (401408, 1, 3584, 32)>},
    %w: tensor<32x1x3x3xbf16>)
    -> (tensor<1x32x112x112xbf16> {kiln.strides = affine_map<() -> (401408, 1, 3584, 32)>}) {
  %0 = "kiln.conv"(%x, %w) {stride = array<i64: 1, 1>, padding = array<i64: 1, 1>, dilation = array<i64: 1, 1>,
    groups = 32, transposed = false, output_padding = array<i64: 0, 0>} : (tensor<1x32x112x112xbf16>, tensor<32x1x3x3xbf16>) -> tensor<1x32x112x112xbf16>
  return %0 : tensor<1x32x112x112xbf16>
}

// Any number of images.
// CHECK-LABEL: func.func @any_number(
// CHECK: block_m = 32 : i64, block_n = 64 : i64, {{.*}}kernel = "gpu.conv.depthwise"
func.func @any_number(%n: index {kiln.symbol = "s0"},
    %x: tensor<?x96x56x56xbf16> {kiln.shape = affine_map<()[s0] -> (s0, 96, 56, 56)>, kiln.strides = affine_map<() -> (301056, 1, 5376, 96)>},
    %w: tensor<96x1x3x3xbf16>) -> tensor<?x96x56x56xbf16> attributes {kiln.symbols = ["s0"]} {
  %0 = "kiln.conv"(%x, %w) {stride = array<i64: 1, 1>, padding = array<i64: 1, 1>, dilation = array<i64: 1, 1>,
    groups = 96, transposed = false, output_padding = array<i64: 0, 0>} : (tensor<?x96x56x56xbf16>, tensor<96x1x3x3xbf16>) -> tensor<?x96x56x56xbf16>
  return %0 : tensor<?x96x56x56xbf16>
}

// Windows that slide: a lane has eight neighbouring positions, or as many as waste none; rows of small windows share rows
// of the image. The weight is copied to have neighbouring channels.
// CHECK-LABEL: func.func @sliding(
// CHECK: "kiln.fusion"(%{{.*}}) ({
// CHECK: name = "copy"
// CHECK: block_m = 8 : i64, block_n = 64 : i64, columns = 7 : i64, {{.*}}kernel = "gpu.conv.sliding", {{.*}}rows = 1 : i64
func.func @sliding(%x: tensor<64x192x14x14xbf16> {kiln.strides = affine_map<() -> (37632, 1, 2688, 192)>},
    %w: tensor<192x1x7x7xbf16>)
    -> (tensor<64x192x14x14xbf16> {kiln.strides = affine_map<() -> (37632, 1, 2688, 192)>}) {
  %0 = "kiln.conv"(%x, %w) {stride = array<i64: 1, 1>, padding = array<i64: 3, 3>, dilation = array<i64: 1, 1>,
    groups = 192, transposed = false, output_padding = array<i64: 0, 0>, weight_channels_innermost} : (tensor<64x192x14x14xbf16>, tensor<192x1x7x7xbf16>) -> tensor<64x192x14x14xbf16>
  return %0 : tensor<64x192x14x14xbf16>
}

// CHECK-LABEL: func.func @sliding_rows(
// CHECK: block_m = 16 : i64, block_n = 32 : i64, columns = 8 : i64, {{.*}}kernel = "gpu.conv.sliding", {{.*}}rows = 2 : i64
func.func @sliding_rows(%x: tensor<64x32x56x56xbf16> {kiln.strides = affine_map<() -> (100352, 1, 1792, 32)>},
    %w: tensor<32x1x3x3xbf16>)
    -> (tensor<64x32x56x56xbf16> {kiln.strides = affine_map<() -> (100352, 1, 1792, 32)>}) {
  %0 = "kiln.conv"(%x, %w) {stride = array<i64: 1, 1>, padding = array<i64: 1, 1>, dilation = array<i64: 1, 1>,
    groups = 32, transposed = false, output_padding = array<i64: 0, 0>, weight_channels_innermost} : (tensor<64x32x56x56xbf16>, tensor<32x1x3x3xbf16>) -> tensor<64x32x56x56xbf16>
  return %0 : tensor<64x32x56x56xbf16>
}
