// Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// RUN: kiln-opt %s --split-input-file --verify-diagnostics --remarks --mlir-print-local-scope "--pass-pipeline=propagate-layouts{target=cuda}" | filecheck %s

// Larger windows over single channels have a kernel where the image is channels-last. For a planar one there is a library
// alone, which takes longer than that kernel and copies.

// CHECK-LABEL: func.func @large_windows
// CHECK: strides = affine_map<() -> (75264, 1, 2688, 96)>
#s = affine_map<() -> (32, 96, 28, 28)>
#r = affine_map<() -> (75264, 784, 28, 1)>
func.func @large_windows(%x: tensor<32x96x28x28xbf16>, %w: tensor<96x1x7x7xbf16>) -> (tensor<32x96x28x28xbf16> {kiln.strides = #r}) {
  // expected-remark @+1 {{channels-last: saves 0 bytes of reordering in 1 convolutions, costs 0}}
  %0 = "kiln.conv"(%x, %w) {dilation = array<i64: 1, 1>, groups = 96 : i64, output_padding = array<i64: 0, 0>, padding = array<i64: 3, 3>, shape = #s, stride = array<i64: 1, 1>, strides = #r, transposed = false} : (tensor<32x96x28x28xbf16>, tensor<96x1x7x7xbf16>) -> tensor<32x96x28x28xbf16>
  return %0 : tensor<32x96x28x28xbf16>
}

// -----

// Windows of nine elements have a kernel for planar images, too.

// CHECK-LABEL: func.func @small_windows
// CHECK: strides = affine_map<() -> (75264, 784, 28, 1)>
#s = affine_map<() -> (32, 96, 28, 28)>
#r = affine_map<() -> (75264, 784, 28, 1)>
func.func @small_windows(%x: tensor<32x96x28x28xbf16>, %w: tensor<96x1x3x3xbf16>) -> (tensor<32x96x28x28xbf16> {kiln.strides = #r}) {
  // expected-remark @+1 {{row-major: channels-last saves 0 bytes of reordering in 1 convolutions, costs 19,267,584 (argument 0 is row-major, result 0 is row-major)}}
  %0 = "kiln.conv"(%x, %w) {dilation = array<i64: 1, 1>, groups = 96 : i64, output_padding = array<i64: 0, 0>, padding = array<i64: 1, 1>, shape = #s, stride = array<i64: 1, 1>, strides = #r, transposed = false} : (tensor<32x96x28x28xbf16>, tensor<96x1x3x3xbf16>) -> tensor<32x96x28x28xbf16>
  return %0 : tensor<32x96x28x28xbf16>
}

// -----

// Nor has a library a fast one for strided windows over the three channels of an image: `space-to-depth` makes pixels
// channels, where the result is channels-last.

// CHECK-LABEL: func.func @first_convolution
// CHECK: strides = affine_map<() -> (802816, 1, 7168, 64)>
#s = affine_map<() -> (8, 64, 112, 112)>
#r = affine_map<() -> (802816, 12544, 112, 1)>
func.func @first_convolution(%x: tensor<8x3x224x224xbf16>, %w: tensor<64x3x7x7xbf16>) -> (tensor<8x64x112x112xbf16> {kiln.strides = #r}) {
  // expected-remark @+1 {{channels-last: saves 0 bytes of reordering in 1 convolutions, costs 0}}
  %0 = "kiln.conv"(%x, %w) {dilation = array<i64: 1, 1>, groups = 1 : i64, output_padding = array<i64: 0, 0>, padding = array<i64: 3, 3>, shape = #s, stride = array<i64: 2, 2>, strides = #r, transposed = false} : (tensor<8x3x224x224xbf16>, tensor<64x3x7x7xbf16>) -> tensor<8x64x112x112xbf16>
  return %0 : tensor<8x64x112x112xbf16>
}

// -----

// In 32 bits there is a library alone.

// CHECK-LABEL: func.func @wide_floats
// CHECK: strides = affine_map<() -> (75264, 784, 28, 1)>
#s = affine_map<() -> (32, 96, 28, 28)>
#r = affine_map<() -> (75264, 784, 28, 1)>
func.func @wide_floats(%x: tensor<32x96x28x28xf32>, %w: tensor<96x1x7x7xf32>) -> (tensor<32x96x28x28xf32> {kiln.strides = #r}) {
  // expected-remark @+1 {{row-major: channels-last saves 0 bytes of reordering in 1 convolutions, costs 38,535,168 (argument 0 is row-major, result 0 is row-major)}}
  %0 = "kiln.conv"(%x, %w) {dilation = array<i64: 1, 1>, groups = 96 : i64, output_padding = array<i64: 0, 0>, padding = array<i64: 3, 3>, shape = #s, stride = array<i64: 1, 1>, strides = #r, transposed = false} : (tensor<32x96x28x28xf32>, tensor<96x1x7x7xf32>) -> tensor<32x96x28x28xf32>
  return %0 : tensor<32x96x28x28xf32>
}
