// Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// RUN: kiln-opt %s --pass-pipeline="fuse{row-blocks=false},assign-layouts,schedule-gpu" | filecheck %s

// Windows of one element, on an H200: tiles of 4 warps and short pipelines, which leave room for other programs of a
// multiprocessor.

// CHECK-LABEL: func.func @of_401408x64_to_256(
// CHECK: block_m = 128 : i64, block_n = 128 : i64, {{.*}}kernel = "gpu.conv.implicit", num_stages = 2 : i64, num_warps = 4 : i64
func.func @of_401408x64_to_256(%x: tensor<32x64x112x112xbf16> {kiln.strides = affine_map<() -> (802816, 1, 7168, 64)>},
    %w: tensor<256x64x1x1xbf16>)
    -> (tensor<32x256x112x112xbf16> {kiln.strides = affine_map<() -> (3211264, 1, 28672, 256)>}) {
  %0 = "kiln.conv"(%x, %w) {stride = array<i64: 1, 1>, padding = array<i64: 0, 0>, dilation = array<i64: 1, 1>,
    groups = 1, transposed = false, output_padding = array<i64: 0, 0>} : (tensor<32x64x112x112xbf16>, tensor<256x64x1x1xbf16>) -> tensor<32x256x112x112xbf16>
  return %0 : tensor<32x256x112x112xbf16>
}

// CHECK-LABEL: func.func @of_401408x256_to_128(
// CHECK: block_m = 128 : i64, block_n = 128 : i64, {{.*}}kernel = "gpu.conv.implicit", num_stages = 3 : i64, num_warps = 4 : i64
func.func @of_401408x256_to_128(%x: tensor<32x256x112x112xbf16> {kiln.strides = affine_map<() -> (3211264, 1, 28672, 256)>},
    %w: tensor<128x256x1x1xbf16>)
    -> (tensor<32x128x112x112xbf16> {kiln.strides = affine_map<() -> (1605632, 1, 14336, 128)>}) {
  %0 = "kiln.conv"(%x, %w) {stride = array<i64: 1, 1>, padding = array<i64: 0, 0>, dilation = array<i64: 1, 1>,
    groups = 1, transposed = false, output_padding = array<i64: 0, 0>} : (tensor<32x256x112x112xbf16>, tensor<128x256x1x1xbf16>) -> tensor<32x128x112x112xbf16>
  return %0 : tensor<32x128x112x112xbf16>
}

// CHECK-LABEL: func.func @of_401408x256_to_64(
// CHECK: block_m = 128 : i64, block_n = 64 : i64, {{.*}}kernel = "gpu.conv.implicit", num_stages = 2 : i64, num_warps = 4 : i64
func.func @of_401408x256_to_64(%x: tensor<32x256x112x112xbf16> {kiln.strides = affine_map<() -> (3211264, 1, 28672, 256)>},
    %w: tensor<64x256x1x1xbf16>)
    -> (tensor<32x64x112x112xbf16> {kiln.strides = affine_map<() -> (802816, 1, 7168, 64)>}) {
  %0 = "kiln.conv"(%x, %w) {stride = array<i64: 1, 1>, padding = array<i64: 0, 0>, dilation = array<i64: 1, 1>,
    groups = 1, transposed = false, output_padding = array<i64: 0, 0>} : (tensor<32x256x112x112xbf16>, tensor<64x256x1x1xbf16>) -> tensor<32x64x112x112xbf16>
  return %0 : tensor<32x64x112x112xbf16>
}

// CHECK-LABEL: func.func @of_401408x64_to_64(
// CHECK: block_m = 128 : i64, block_n = 64 : i64, {{.*}}kernel = "gpu.conv.implicit", num_stages = 2 : i64, num_warps = 4 : i64
func.func @of_401408x64_to_64(%x: tensor<32x64x112x112xbf16> {kiln.strides = affine_map<() -> (802816, 1, 7168, 64)>},
    %w: tensor<64x64x1x1xbf16>)
    -> (tensor<32x64x112x112xbf16> {kiln.strides = affine_map<() -> (802816, 1, 7168, 64)>}) {
  %0 = "kiln.conv"(%x, %w) {stride = array<i64: 1, 1>, padding = array<i64: 0, 0>, dilation = array<i64: 1, 1>,
    groups = 1, transposed = false, output_padding = array<i64: 0, 0>} : (tensor<32x64x112x112xbf16>, tensor<64x64x1x1xbf16>) -> tensor<32x64x112x112xbf16>
  return %0 : tensor<32x64x112x112xbf16>
}

// CHECK-LABEL: func.func @of_25088x1024_to_256(
// CHECK: block_m = 128 : i64, block_n = 128 : i64, {{.*}}kernel = "gpu.conv.implicit", num_stages = 3 : i64, num_warps = 4 : i64
func.func @of_25088x1024_to_256(%x: tensor<2x1024x112x112xbf16> {kiln.strides = affine_map<() -> (12845056, 1, 114688, 1024)>},
    %w: tensor<256x1024x1x1xbf16>)
    -> (tensor<2x256x112x112xbf16> {kiln.strides = affine_map<() -> (3211264, 1, 28672, 256)>}) {
  %0 = "kiln.conv"(%x, %w) {stride = array<i64: 1, 1>, padding = array<i64: 0, 0>, dilation = array<i64: 1, 1>,
    groups = 1, transposed = false, output_padding = array<i64: 0, 0>} : (tensor<2x1024x112x112xbf16>, tensor<256x1024x1x1xbf16>) -> tensor<2x256x112x112xbf16>
  return %0 : tensor<2x256x112x112xbf16>
}

// CHECK-LABEL: func.func @of_6272x2048_to_512(
// CHECK: block_m = 128 : i64, block_n = 128 : i64, {{.*}}kernel = "gpu.conv.implicit", num_stages = 3 : i64, num_warps = 4 : i64
func.func @of_6272x2048_to_512(%x: tensor<2x2048x56x56xbf16> {kiln.strides = affine_map<() -> (6422528, 1, 114688, 2048)>},
    %w: tensor<512x2048x1x1xbf16>)
    -> (tensor<2x512x56x56xbf16> {kiln.strides = affine_map<() -> (1605632, 1, 28672, 512)>}) {
  %0 = "kiln.conv"(%x, %w) {stride = array<i64: 1, 1>, padding = array<i64: 0, 0>, dilation = array<i64: 1, 1>,
    groups = 1, transposed = false, output_padding = array<i64: 0, 0>} : (tensor<2x2048x56x56xbf16>, tensor<512x2048x1x1xbf16>) -> tensor<2x512x56x56xbf16>
  return %0 : tensor<2x512x56x56xbf16>
}

// Fewer programs than multiprocessors: there are no neighbours.
// CHECK-LABEL: func.func @of_49x2048_to_512(
// CHECK: block_m = 16 : i64, block_n = 16 : i64, {{.*}}kernel = "gpu.conv.implicit", num_stages = 8 : i64, num_warps = 4 : i64
func.func @of_49x2048_to_512(%x: tensor<1x2048x7x7xbf16> {kiln.strides = affine_map<() -> (100352, 1, 14336, 2048)>},
    %w: tensor<512x2048x1x1xbf16>)
    -> (tensor<1x512x7x7xbf16> {kiln.strides = affine_map<() -> (25088, 1, 3584, 512)>}) {
  %0 = "kiln.conv"(%x, %w) {stride = array<i64: 1, 1>, padding = array<i64: 0, 0>, dilation = array<i64: 1, 1>,
    groups = 1, transposed = false, output_padding = array<i64: 0, 0>} : (tensor<1x2048x7x7xbf16>, tensor<512x2048x1x1xbf16>) -> tensor<1x512x7x7xbf16>
  return %0 : tensor<1x512x7x7xbf16>
}
