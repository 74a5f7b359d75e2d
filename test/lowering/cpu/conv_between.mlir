// Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// RUN: kiln-opt %s --cpu=x86-64-v4+avx512bf16 --mlir-print-local-scope --pass-pipeline="propagate-layouts{target=cpu}" | filecheck %s
// RUN: kiln-opt %s --mlir-print-local-scope --pass-pipeline="propagate-layouts{target=cuda}" | filecheck %s --check-prefix=CUDA

// What lies between two convolutions is channels-last for bf16 on a CPU that multiplies pairs: its kernels turn the
// argument in any case, and the result as they write it.

// CHECK-LABEL: func.func @bf16(
// CHECK: kiln.conv{{.*}} strides = affine_map<() -> (1024, 1, 128, 16)>
// CHECK: kiln.conv{{.*}} strides = affine_map<() -> (1024, 1, 128, 16)>
// CUDA-LABEL: func.func @bf16(
// CUDA: kiln.conv{{.*}} strides = affine_map<() -> (1024, 64, 8, 1)>
// CUDA: kiln.conv{{.*}} strides = affine_map<() -> (1024, 64, 8, 1)>
func.func @bf16(%x: tensor<1x16x8x8xbf16>, %w: tensor<16x16x3x3xbf16>) -> tensor<1x16x8x8xbf16> {
  %0 = "kiln.conv"(%x, %w) {dilation = array<i64: 1, 1>, groups = 1 : i64, output_padding = array<i64: 0, 0>, padding = array<i64: 1, 1>,
    shape = affine_map<() -> (1, 16, 8, 8)>, stride = array<i64: 1, 1>, strides = affine_map<() -> (1024, 64, 8, 1)>,
    transposed = false} : (tensor<1x16x8x8xbf16>, tensor<16x16x3x3xbf16>) -> tensor<1x16x8x8xbf16>
  %1 = "kiln.conv"(%0, %w) {dilation = array<i64: 1, 1>, groups = 1 : i64, output_padding = array<i64: 0, 0>, padding = array<i64: 1, 1>,
    shape = affine_map<() -> (1, 16, 8, 8)>, stride = array<i64: 1, 1>, strides = affine_map<() -> (1024, 64, 8, 1)>,
    transposed = false} : (tensor<1x16x8x8xbf16>, tensor<16x16x3x3xbf16>) -> tensor<1x16x8x8xbf16>
  return %1 : tensor<1x16x8x8xbf16>
}

// CHECK-LABEL: func.func @f32(
// CHECK: kiln.conv{{.*}} strides = affine_map<() -> (1024, 64, 8, 1)>
// CHECK: kiln.conv{{.*}} strides = affine_map<() -> (1024, 64, 8, 1)>
func.func @f32(%x: tensor<1x16x8x8xf32>, %w: tensor<16x16x3x3xf32>) -> tensor<1x16x8x8xf32> {
  %0 = "kiln.conv"(%x, %w) {dilation = array<i64: 1, 1>, groups = 1 : i64, output_padding = array<i64: 0, 0>, padding = array<i64: 1, 1>,
    shape = affine_map<() -> (1, 16, 8, 8)>, stride = array<i64: 1, 1>, strides = affine_map<() -> (1024, 64, 8, 1)>,
    transposed = false} : (tensor<1x16x8x8xf32>, tensor<16x16x3x3xf32>) -> tensor<1x16x8x8xf32>
  %1 = "kiln.conv"(%0, %w) {dilation = array<i64: 1, 1>, groups = 1 : i64, output_padding = array<i64: 0, 0>, padding = array<i64: 1, 1>,
    shape = affine_map<() -> (1, 16, 8, 8)>, stride = array<i64: 1, 1>, strides = affine_map<() -> (1024, 64, 8, 1)>,
    transposed = false} : (tensor<1x16x8x8xf32>, tensor<16x16x3x3xf32>) -> tensor<1x16x8x8xf32>
  return %1 : tensor<1x16x8x8xf32>
}
