// Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// RUN: kiln-opt %s --pass-pipeline="fuse{row-blocks=false},assign-layouts,schedule-gpu{descriptors=true}" | filecheck %s
// RUN: kiln-opt %s --pass-pipeline="fuse{row-blocks=false},assign-layouts,schedule-gpu" | filecheck %s --check-prefix=POINTERS
// RUN: kiln-opt %s --pass-pipeline="fuse{row-blocks=false},assign-layouts,schedule-gpu{descriptors=true arch=sm_80}" | filecheck %s --check-prefix=SM80

// Windows of one element, channels last: the matrix of all positions comes through tensor maps, if there are any.
// SM80-NOT: gpu.conv.tma
// SM80: gpu.conv.implicit
// SM80-NOT: gpu.conv.tma
// POINTERS-NOT: gpu.conv.tma

// CHECK-LABEL: func.func @outputs_1024(
// CHECK: kernel = "gpu.conv.tma"
func.func @outputs_1024(%x: tensor<32x256x28x28xbf16> {kiln.strides = affine_map<() -> (200704, 1, 7168, 256)>},
    %w: tensor<1024x256x1x1xbf16>)
    -> (tensor<32x1024x28x28xbf16> {kiln.strides = affine_map<() -> (802816, 1, 28672, 1024)>}) {
  %0 = "kiln.conv"(%x, %w) {stride = array<i64: 1, 1>, padding = array<i64: 0, 0>, dilation = array<i64: 1, 1>,
    groups = 1, transposed = false, output_padding = array<i64: 0, 0>} : (tensor<32x256x28x28xbf16>, tensor<1024x256x1x1xbf16>) -> tensor<32x1024x28x28xbf16>
  return %0 : tensor<32x1024x28x28xbf16>
}

// Rows of 504 bytes: a tensor map needs a multiple of 16.
// CHECK-LABEL: func.func @channels_252(
// CHECK: kernel = "gpu.conv.implicit"
func.func @channels_252(%x: tensor<32x252x28x28xbf16> {kiln.strides = affine_map<() -> (197568, 1, 7056, 252)>},
    %w: tensor<1024x252x1x1xbf16>)
    -> (tensor<32x1024x28x28xbf16> {kiln.strides = affine_map<() -> (802816, 1, 28672, 1024)>}) {
  %0 = "kiln.conv"(%x, %w) {stride = array<i64: 1, 1>, padding = array<i64: 0, 0>, dilation = array<i64: 1, 1>,
    groups = 1, transposed = false, output_padding = array<i64: 0, 0>} : (tensor<32x252x28x28xbf16>, tensor<1024x252x1x1xbf16>) -> tensor<32x1024x28x28xbf16>
  return %0 : tensor<32x1024x28x28xbf16>
}

// CHECK-LABEL: func.func @any_number_of_images(
// CHECK: kernel = "gpu.conv.tma"
func.func @any_number_of_images(%n: index {kiln.symbol = "s0"},
    %x: tensor<?x256x28x28xbf16> {kiln.shape = affine_map<()[s0] -> (s0, 256, 28, 28)>, kiln.strides = affine_map<() -> (200704, 1, 7168, 256)>},
    %w: tensor<1024x256x1x1xbf16>) -> tensor<?x1024x28x28xbf16> attributes {kiln.symbols = ["s0"]} {
  %0 = "kiln.conv"(%x, %w) {stride = array<i64: 1, 1>, padding = array<i64: 0, 0>, dilation = array<i64: 1, 1>,
    groups = 1, transposed = false, output_padding = array<i64: 0, 0>} : (tensor<?x256x28x28xbf16>, tensor<1024x256x1x1xbf16>) -> tensor<?x1024x28x28xbf16>
  return %0 : tensor<?x1024x28x28xbf16>
}

// No tensor cores.
// CHECK-LABEL: func.func @f32(
// CHECK: kernel = "gpu.conv.implicit"
func.func @f32(%x: tensor<32x256x28x28xf32> {kiln.strides = affine_map<() -> (200704, 1, 7168, 256)>},
    %w: tensor<1024x256x1x1xf32>)
    -> (tensor<32x1024x28x28xf32> {kiln.strides = affine_map<() -> (802816, 1, 28672, 1024)>}) {
  %0 = "kiln.conv"(%x, %w) {stride = array<i64: 1, 1>, padding = array<i64: 0, 0>, dilation = array<i64: 1, 1>,
    groups = 1, transposed = false, output_padding = array<i64: 0, 0>} : (tensor<32x256x28x28xf32>, tensor<1024x256x1x1xf32>) -> tensor<32x1024x28x28xf32>
  return %0 : tensor<32x1024x28x28xf32>
}

// Small tiles gain nothing.
// CHECK-LABEL: func.func @one_image(
// CHECK: kernel = "gpu.conv.implicit"
func.func @one_image(%x: tensor<1x256x7x7xbf16> {kiln.strides = affine_map<() -> (12544, 1, 1792, 256)>},
    %w: tensor<64x256x1x1xbf16>)
    -> (tensor<1x64x7x7xbf16> {kiln.strides = affine_map<() -> (3136, 1, 448, 64)>}) {
  %0 = "kiln.conv"(%x, %w) {stride = array<i64: 1, 1>, padding = array<i64: 0, 0>, dilation = array<i64: 1, 1>,
    groups = 1, transposed = false, output_padding = array<i64: 0, 0>} : (tensor<1x256x7x7xbf16>, tensor<64x256x1x1xbf16>) -> tensor<1x64x7x7xbf16>
  return %0 : tensor<1x64x7x7xbf16>
}

// 392 tiles on 132 multiprocessors: three programs of two stages each fit one; with more tiles, two programs of three.
// CHECK-LABEL: func.func @all_programs_at_once(
// CHECK: kernel = "gpu.conv.tma", num_stages = 2 : i64
// POINTERS-LABEL: func.func @all_programs_at_once(
// POINTERS: num_stages = 3 : i64
func.func @all_programs_at_once(%x: tensor<32x1024x28x28xbf16> {kiln.strides = affine_map<() -> (802816, 1, 28672, 1024)>},
    %w: tensor<256x1024x1x1xbf16>)
    -> (tensor<32x256x28x28xbf16> {kiln.strides = affine_map<() -> (200704, 1, 7168, 256)>}) {
  %0 = "kiln.conv"(%x, %w) {stride = array<i64: 1, 1>, padding = array<i64: 0, 0>, dilation = array<i64: 1, 1>,
    groups = 1, transposed = false, output_padding = array<i64: 0, 0>} : (tensor<32x1024x28x28xbf16>, tensor<256x1024x1x1xbf16>) -> tensor<32x256x28x28xbf16>
  return %0 : tensor<32x256x28x28xbf16>
}

// CHECK-LABEL: func.func @more_programs_than_at_once(
// CHECK: kernel = "gpu.conv.tma", num_stages = 3 : i64
func.func @more_programs_than_at_once(%x: tensor<128x512x28x28xbf16> {kiln.strides = affine_map<() -> (401408, 1, 14336, 512)>},
    %w: tensor<256x512x1x1xbf16>)
    -> (tensor<128x256x28x28xbf16> {kiln.strides = affine_map<() -> (200704, 1, 7168, 256)>}) {
  %0 = "kiln.conv"(%x, %w) {stride = array<i64: 1, 1>, padding = array<i64: 0, 0>, dilation = array<i64: 1, 1>,
    groups = 1, transposed = false, output_padding = array<i64: 0, 0>} : (tensor<128x512x28x28xbf16>, tensor<256x512x1x1xbf16>) -> tensor<128x256x28x28xbf16>
  return %0 : tensor<128x256x28x28xbf16>
}
