// Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// RUN: kiln-opt %s --split-input-file --verify-diagnostics --remarks --mlir-print-local-scope --pass-pipeline=propagate-layouts | filecheck %s

// Three in a row: what lies between them is worth more than the argument and the result.

// CHECK-LABEL: func.func @chain
// CHECK-COUNT-3: strides = affine_map<() -> (1024, 1, 128, 16)>
#s = affine_map<() -> (1, 16, 8, 8)>
#r = affine_map<() -> (1024, 64, 8, 1)>
#c = affine_map<() -> (1024, 1, 128, 16)>
func.func @chain(%x: tensor<1x16x8x8xf32>, %w: tensor<16x16x3x3xf32>) -> tensor<1x16x8x8xf32> {
  // expected-remark @+1 {{channels-last: saves 32,768 bytes of reordering in 3 convolutions, costs 16,384 (argument 0 is row-major, result 0 is row-major)}}
  %0 = "kiln.conv"(%x, %w) {dilation = array<i64: 1, 1>, groups = 1 : i64, output_padding = array<i64: 0, 0>, padding = array<i64: 1, 1>, shape = #s, stride = array<i64: 1, 1>, strides = #r, transposed = false} : (tensor<1x16x8x8xf32>, tensor<16x16x3x3xf32>) -> tensor<1x16x8x8xf32>
  %1 = "kiln.conv"(%0, %w) {dilation = array<i64: 1, 1>, groups = 1 : i64, output_padding = array<i64: 0, 0>, padding = array<i64: 1, 1>, shape = #s, stride = array<i64: 1, 1>, strides = #r, transposed = false} : (tensor<1x16x8x8xf32>, tensor<16x16x3x3xf32>) -> tensor<1x16x8x8xf32>
  %2 = "kiln.conv"(%1, %w) {dilation = array<i64: 1, 1>, groups = 1 : i64, output_padding = array<i64: 0, 0>, padding = array<i64: 1, 1>, shape = #s, stride = array<i64: 1, 1>, strides = #r, transposed = false} : (tensor<1x16x8x8xf32>, tensor<16x16x3x3xf32>) -> tensor<1x16x8x8xf32>
  return %2 : tensor<1x16x8x8xf32>
}

// -----

// Alone, with a caller that has everything row-major: nothing to gain.

// CHECK-LABEL: func.func @alone
// CHECK: strides = affine_map<() -> (1024, 64, 8, 1)>
#s = affine_map<() -> (1, 16, 8, 8)>
#r = affine_map<() -> (1024, 64, 8, 1)>
#c = affine_map<() -> (1024, 1, 128, 16)>
func.func @alone(%x: tensor<1x16x8x8xf32>, %w: tensor<16x16x3x3xf32>) -> tensor<1x16x8x8xf32> {
  // expected-remark @+1 {{row-major: channels-last saves 0 bytes of reordering in 1 convolutions, costs 16,384 (argument 0 is row-major, result 0 is row-major)}}
  %0 = "kiln.conv"(%x, %w) {dilation = array<i64: 1, 1>, groups = 1 : i64, output_padding = array<i64: 0, 0>, padding = array<i64: 1, 1>, shape = #s, stride = array<i64: 1, 1>, strides = #r, transposed = false} : (tensor<1x16x8x8xf32>, tensor<16x16x3x3xf32>) -> tensor<1x16x8x8xf32>
  return %0 : tensor<1x16x8x8xf32>
}

// -----

// The same with a caller that has channels last.

// CHECK-LABEL: func.func @asked_for
// CHECK: strides = affine_map<() -> (1024, 1, 128, 16)>
#s = affine_map<() -> (1, 16, 8, 8)>
#r = affine_map<() -> (1024, 64, 8, 1)>
#c = affine_map<() -> (1024, 1, 128, 16)>
func.func @asked_for(%x: tensor<1x16x8x8xf32> {kiln.strides = #c}, %w: tensor<16x16x3x3xf32>) -> (tensor<1x16x8x8xf32> {kiln.strides = #c}) {
  // expected-remark @+1 {{channels-last: saves 16,384 bytes of reordering in 1 convolutions, costs 0}}
  %0 = "kiln.conv"(%x, %w) {dilation = array<i64: 1, 1>, groups = 1 : i64, output_padding = array<i64: 0, 0>, padding = array<i64: 1, 1>, shape = #s, stride = array<i64: 1, 1>, strides = #r, transposed = false} : (tensor<1x16x8x8xf32>, tensor<16x16x3x3xf32>) -> tensor<1x16x8x8xf32>
  return %0 : tensor<1x16x8x8xf32>
}

// -----

// A pointwise op joins two convolutions; a call between them does not, and wants its operand row-major.

// CHECK-LABEL: func.func @through_call
// CHECK: strides = affine_map<() -> (1024, 64, 8, 1)>
// CHECK: strides = affine_map<() -> (1024, 64, 8, 1)>
#s = affine_map<() -> (1, 16, 8, 8)>
#r = affine_map<() -> (1024, 64, 8, 1)>
#c = affine_map<() -> (1024, 1, 128, 16)>
#i = affine_map<(d0, d1, d2, d3) -> (d0, d1, d2, d3)>
func.func @through_call(%x: tensor<1x16x8x8xf32>, %w: tensor<16x16x3x3xf32>) -> tensor<1x16x8x8xf32> {
  // expected-remark @+1 {{row-major: channels-last saves 0 bytes of reordering in 1 convolutions, costs 16,384 (argument 0 is row-major, aten.sin.default reads a result)}}
  %0 = "kiln.conv"(%x, %w) {dilation = array<i64: 1, 1>, groups = 1 : i64, output_padding = array<i64: 0, 0>, padding = array<i64: 1, 1>, shape = #s, stride = array<i64: 1, 1>, strides = #r, transposed = false} : (tensor<1x16x8x8xf32>, tensor<16x16x3x3xf32>) -> tensor<1x16x8x8xf32>
  %1 = "kiln.aten"(%0) {op = "aten.sin.default", args = "[{\22operand\22: 0}]", kwargs = "{}", shapes = [#s], strides = [unit], pure = true} : (tensor<1x16x8x8xf32>) -> tensor<1x16x8x8xf32>
  // expected-remark @+1 {{row-major: channels-last saves 0 bytes of reordering in 1 convolutions, costs 16,384 (a call makes an operand, result 0 is row-major)}}
  %2 = "kiln.conv"(%1, %w) {dilation = array<i64: 1, 1>, groups = 1 : i64, output_padding = array<i64: 0, 0>, padding = array<i64: 1, 1>, shape = #s, stride = array<i64: 1, 1>, strides = #r, transposed = false} : (tensor<1x16x8x8xf32>, tensor<16x16x3x3xf32>) -> tensor<1x16x8x8xf32>
  return %2 : tensor<1x16x8x8xf32>
}

// -----

// CHECK-LABEL: func.func @through_pointwise
// CHECK-COUNT-3: strides = affine_map<() -> (1024, 1, 128, 16)>
#s = affine_map<() -> (1, 16, 8, 8)>
#r = affine_map<() -> (1024, 64, 8, 1)>
#c = affine_map<() -> (1024, 1, 128, 16)>
#i = affine_map<(d0, d1, d2, d3) -> (d0, d1, d2, d3)>
func.func @through_pointwise(%x: tensor<1x16x8x8xf32>, %w: tensor<16x16x3x3xf32>) -> tensor<1x16x8x8xf32> {
  // expected-remark @+1 {{channels-last: saves 32,768 bytes of reordering in 3 convolutions, costs 16,384 (argument 0 is row-major, result 0 is row-major)}}
  %0 = "kiln.conv"(%x, %w) {dilation = array<i64: 1, 1>, groups = 1 : i64, output_padding = array<i64: 0, 0>, padding = array<i64: 1, 1>, shape = #s, stride = array<i64: 1, 1>, strides = #r, transposed = false} : (tensor<1x16x8x8xf32>, tensor<16x16x3x3xf32>) -> tensor<1x16x8x8xf32>
  %e = "kiln.empty"() {shape = #s} : () -> tensor<1x16x8x8xf32>
  %1 = linalg.generic {indexing_maps = [#i, #i], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%0 : tensor<1x16x8x8xf32>) outs(%e : tensor<1x16x8x8xf32>) {
  ^bb0(%a: f32, %o: f32):
    %n = arith.negf %a : f32
    linalg.yield %n : f32
  } -> tensor<1x16x8x8xf32>
  %2 = "kiln.conv"(%1, %w) {dilation = array<i64: 1, 1>, groups = 1 : i64, output_padding = array<i64: 0, 0>, padding = array<i64: 1, 1>, shape = #s, stride = array<i64: 1, 1>, strides = #r, transposed = false} : (tensor<1x16x8x8xf32>, tensor<16x16x3x3xf32>) -> tensor<1x16x8x8xf32>
  %3 = "kiln.conv"(%2, %w) {dilation = array<i64: 1, 1>, groups = 1 : i64, output_padding = array<i64: 0, 0>, padding = array<i64: 1, 1>, shape = #s, stride = array<i64: 1, 1>, strides = #r, transposed = false} : (tensor<1x16x8x8xf32>, tensor<16x16x3x3xf32>) -> tensor<1x16x8x8xf32>
  return %3 : tensor<1x16x8x8xf32>
}

// -----

// A call that takes images in either order joins two convolutions as well.

// CHECK-LABEL: func.func @through_pool
// CHECK-COUNT-2: strides = affine_map<() -> (1024, 1, 128, 16)>
#s = affine_map<() -> (1, 16, 8, 8)>
#r = affine_map<() -> (1024, 64, 8, 1)>
#c = affine_map<() -> (1024, 1, 128, 16)>
func.func @through_pool(%x: tensor<1x16x8x8xf32> {kiln.strides = #c}, %w: tensor<16x16x3x3xf32>) -> (tensor<1x16x8x8xf32> {kiln.strides = #r}, tensor<1x16x8x8xi64> {kiln.strides = #r}) {
  // expected-remark @+1 {{channels-last: saves 24,576 bytes of reordering in 2 convolutions, costs 8,192 (result 0 is row-major)}}
  %0 = "kiln.conv"(%x, %w) {dilation = array<i64: 1, 1>, groups = 1 : i64, output_padding = array<i64: 0, 0>, padding = array<i64: 1, 1>, shape = #s, stride = array<i64: 1, 1>, strides = #r, transposed = false} : (tensor<1x16x8x8xf32>, tensor<16x16x3x3xf32>) -> tensor<1x16x8x8xf32>
  %1:2 = "kiln.aten"(%0) {op = "aten.max_pool2d_with_indices.default", args = "[{\22operand\22: 0}, [3, 3], [1, 1], [1, 1], [1, 1], false]", kwargs = "{}", shapes = [#s, #s], strides = [unit, unit], pure = true} : (tensor<1x16x8x8xf32>) -> (tensor<1x16x8x8xf32>, tensor<1x16x8x8xi64>)
  %2 = "kiln.conv"(%1#0, %w) {dilation = array<i64: 1, 1>, groups = 1 : i64, output_padding = array<i64: 0, 0>, padding = array<i64: 1, 1>, shape = #s, stride = array<i64: 1, 1>, strides = #r, transposed = false} : (tensor<1x16x8x8xf32>, tensor<16x16x3x3xf32>) -> tensor<1x16x8x8xf32>
  return %2, %1#1 : tensor<1x16x8x8xf32>, tensor<1x16x8x8xi64>
}

// -----

// Channels last, three channels would be three lanes of a vector: a window for each of them stays where rows are vectors.

// CHECK-LABEL: func.func @few_channels
// CHECK: strides = affine_map<() -> (192, 64, 8, 1)>
#s = affine_map<() -> (1, 3, 8, 8)>
#r = affine_map<() -> (192, 64, 8, 1)>
func.func @few_channels(%x: tensor<1x3x8x8xf32>, %w: tensor<3x1x3x3xf32>) -> tensor<3xf32> {
  // expected-remark @+1 {{row-major: channels-last saves 0 bytes of reordering in 1 convolutions, costs 3,072 (few channels have windows of their own)}}
  %0 = "kiln.conv"(%x, %w) {dilation = array<i64: 1, 1>, groups = 3 : i64, output_padding = array<i64: 0, 0>, padding = array<i64: 1, 1>, shape = #s, stride = array<i64: 1, 1>, strides = #r, transposed = false} : (tensor<1x3x8x8xf32>, tensor<3x1x3x3xf32>) -> tensor<1x3x8x8xf32>
  %zero = arith.constant dense<0.0> : tensor<3xf32>
  %1 = linalg.generic {indexing_maps = [affine_map<(d0, d1, d2, d3) -> (d0, d1, d2, d3)>, affine_map<(d0, d1, d2, d3) -> (d1)>], iterator_types = ["reduction", "parallel", "reduction", "reduction"]} ins(%0 : tensor<1x3x8x8xf32>) outs(%zero : tensor<3xf32>) {
  ^bb0(%a: f32, %o: f32):
    %2 = arith.addf %a, %o : f32
    linalg.yield %2 : f32
  } -> tensor<3xf32>
  return %1 : tensor<3xf32>
}
