// Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// RUN: kiln-opt %s --cpu=x86-64-v4+library=32 --pass-pipeline="choose-vendor" | filecheck %s --check-prefix=VECTORS
// RUN: kiln-opt %s --cpu=x86-64-v4+avx512bf16+avx512vnni --pass-pipeline="choose-vendor" | filecheck %s --check-prefix=DOT
// RUN: kiln-opt %s --cpu=x86-64-v4+amx-bf16+amx-int8+amx-tile+avx512bf16+avx512vnni --pass-pipeline="choose-vendor" | filecheck %s --check-prefix=AMX

// Which convolutions of bf16 are oneDNN's: those that its instructions multiply, and ours cannot. Kernels of pairs need an
// even number of channels; kernels of tiles take no transposed convolutions.

// VECTORS-LABEL: func.func @even_channels(
// VECTORS-NOT: kiln.aten
// DOT-LABEL: func.func @even_channels(
// DOT: "kiln.conv"{{.*}} {channels_last_image,
// AMX-LABEL: func.func @even_channels(
// AMX: "kiln.conv"
func.func @even_channels(%x: tensor<1x8x9x9xbf16>, %w: tensor<8x8x3x3xbf16>) -> tensor<1x8x7x7xbf16> {
  %0 = "kiln.conv"(%x, %w) {stride = array<i64: 1, 1>, padding = array<i64: 0, 0>, dilation = array<i64: 1, 1>, groups = 1,
    transposed = false, output_padding = array<i64: 0, 0>} : (tensor<1x8x9x9xbf16>, tensor<8x8x3x3xbf16>) -> tensor<1x8x7x7xbf16>
  return %0 : tensor<1x8x7x7xbf16>
}

// DOT-LABEL: func.func @odd_channels(
// DOT: reason = "oneDNN: an odd number of channels of bf16"
// AMX-LABEL: func.func @odd_channels(
// AMX: "kiln.conv"
func.func @odd_channels(%x: tensor<1x9x9x9xbf16>, %w: tensor<8x9x3x3xbf16>) -> tensor<1x8x7x7xbf16> {
  %0 = "kiln.conv"(%x, %w) {stride = array<i64: 1, 1>, padding = array<i64: 0, 0>, dilation = array<i64: 1, 1>, groups = 1,
    transposed = false, output_padding = array<i64: 0, 0>} : (tensor<1x9x9x9xbf16>, tensor<8x9x3x3xbf16>) -> tensor<1x8x7x7xbf16>
  return %0 : tensor<1x8x7x7xbf16>
}

// DOT-LABEL: func.func @transposed(
// DOT: "kiln.conv"{{.*}} {channels_last_image,
// AMX-LABEL: func.func @transposed(
// AMX: reason = "oneDNN: its products of bf16 run on units for them"
func.func @transposed(%x: tensor<1x64x6x6xbf16>, %w: tensor<64x32x1x1xbf16>) -> tensor<1x32x6x6xbf16> {
  %0 = "kiln.conv"(%x, %w) {stride = array<i64: 1, 1>, padding = array<i64: 0, 0>, dilation = array<i64: 1, 1>, groups = 1,
    transposed = true, output_padding = array<i64: 0, 0>} : (tensor<1x64x6x6xbf16>, tensor<64x32x1x1xbf16>) -> tensor<1x32x6x6xbf16>
  return %0 : tensor<1x32x6x6xbf16>
}

// Vectors are as good as oneDNN's for f32, and for one channel in each group.

// DOT-LABEL: func.func @floats(
// DOT: "kiln.conv"
func.func @floats(%x: tensor<1x9x9x9xf32>, %w: tensor<8x9x3x3xf32>) -> tensor<1x8x7x7xf32> {
  %0 = "kiln.conv"(%x, %w) {stride = array<i64: 1, 1>, padding = array<i64: 0, 0>, dilation = array<i64: 1, 1>, groups = 1,
    transposed = false, output_padding = array<i64: 0, 0>} : (tensor<1x9x9x9xf32>, tensor<8x9x3x3xf32>) -> tensor<1x8x7x7xf32>
  return %0 : tensor<1x8x7x7xf32>
}

// AMX-LABEL: func.func @depthwise(
// AMX: "kiln.conv"
func.func @depthwise(%x: tensor<1x9x9x9xbf16>, %w: tensor<9x1x3x3xbf16>) -> tensor<1x9x7x7xbf16> {
  %0 = "kiln.conv"(%x, %w) {stride = array<i64: 1, 1>, padding = array<i64: 0, 0>, dilation = array<i64: 1, 1>, groups = 9,
    transposed = false, output_padding = array<i64: 0, 0>} : (tensor<1x9x9x9xbf16>, tensor<9x1x3x3xbf16>) -> tensor<1x9x7x7xbf16>
  return %0 : tensor<1x9x7x7xbf16>
}

// Groups of 8 channels are worth tiles, those of 7 are not (lowering/cpu/choices/convolutions.toml, tiles_group).

// AMX-LABEL: func.func @groups_of_eight(
// AMX: "kiln.conv"
func.func @groups_of_eight(%x: tensor<1x16x9x9xbf16>, %w: tensor<16x8x3x3xbf16>) -> tensor<1x16x7x7xbf16> {
  %0 = "kiln.conv"(%x, %w) {stride = array<i64: 1, 1>, padding = array<i64: 0, 0>, dilation = array<i64: 1, 1>, groups = 2,
    transposed = false, output_padding = array<i64: 0, 0>} : (tensor<1x16x9x9xbf16>, tensor<16x8x3x3xbf16>) -> tensor<1x16x7x7xbf16>
  return %0 : tensor<1x16x7x7xbf16>
}

// AMX-LABEL: func.func @groups_of_seven(
// AMX: kiln.aten
func.func @groups_of_seven(%x: tensor<1x14x9x9xbf16>, %w: tensor<16x7x3x3xbf16>) -> tensor<1x16x7x7xbf16> {
  %0 = "kiln.conv"(%x, %w) {stride = array<i64: 1, 1>, padding = array<i64: 0, 0>, dilation = array<i64: 1, 1>, groups = 2,
    transposed = false, output_padding = array<i64: 0, 0>} : (tensor<1x14x9x9xbf16>, tensor<16x7x3x3xbf16>) -> tensor<1x16x7x7xbf16>
  return %0 : tensor<1x16x7x7xbf16>
}
