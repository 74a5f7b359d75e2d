// Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// RUN: kiln-opt %s --split-input-file --mlir-print-local-scope --pass-pipeline="fuse,assign-layouts" | filecheck %s

// A convolution that is channels-last, a pointwise kernel behind it, and a result that the caller wants row-major.

// CHECK-LABEL: func.func @pointwise_follows
// CHECK: kind = "conv", layouts = [affine_map<(d0, d1, d2, d3) -> (d0 * 1024 + d1 * 64 + d2 * 8 + d3)>,
// CHECK-SAME: affine_map<(d0, d1, d2, d3) -> (d0 * 1024 + d1 + d2 * 128 + d3 * 16)>]
// CHECK: kind = "scan", layouts = [affine_map<(d0, d1, d2, d3) -> (d0 * 1024 + d1 + d2 * 128 + d3 * 16)>,
// CHECK-SAME: affine_map<(d0, d1, d2, d3) -> (d0 * 1024 + d1 + d2 * 128 + d3 * 16)>]
// CHECK: kind = "pointwise", layouts = [affine_map<(d0, d1, d2, d3) -> (d0 * 1024 + d1 + d2 * 128 + d3 * 16)>,
// CHECK-SAME: affine_map<(d0, d1, d2, d3) -> (d0 * 1024 + d1 * 64 + d2 * 8 + d3)>]
#s = affine_map<() -> (2, 16, 8, 8)>
#r = affine_map<() -> (1024, 64, 8, 1)>
#c = affine_map<() -> (1024, 1, 128, 16)>
#i = affine_map<(d0, d1, d2, d3) -> (d0, d1, d2, d3)>
func.func @pointwise_follows(%x: tensor<2x16x8x8xf32>, %w: tensor<16x16x3x3xf32>) -> tensor<2x16x8x8xf32> {
  %0 = "kiln.conv"(%x, %w) {dilation = array<i64: 1, 1>, groups = 1 : i64, output_padding = array<i64: 0, 0>, padding = array<i64: 1, 1>, shape = #s, stride = array<i64: 1, 1>, strides = #c, transposed = false} : (tensor<2x16x8x8xf32>, tensor<16x16x3x3xf32>) -> tensor<2x16x8x8xf32>
  %1 = "kiln.scan"(%0) {dim = 2 : i64, kind = "sum"} : (tensor<2x16x8x8xf32>) -> tensor<2x16x8x8xf32>
  %e = "kiln.empty"() {shape = #s} : () -> tensor<2x16x8x8xf32>
  %2 = linalg.generic {indexing_maps = [#i, #i], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%1 : tensor<2x16x8x8xf32>) outs(%e : tensor<2x16x8x8xf32>) {
  ^bb0(%a: f32, %o: f32):
    %n = arith.negf %a : f32
    linalg.yield %n : f32
  } -> tensor<2x16x8x8xf32>
  return %2 : tensor<2x16x8x8xf32>
}

// -----

// Flattened behind the convolution: written row-major, since a copy would cost more than lanes along columns.

// CHECK-LABEL: func.func @flattened
// CHECK: kind = "conv", layouts = [{{.*}}, affine_map<(d0, d1, d2, d3) -> (d0 * 1024 + d1 * 64 + d2 * 8 + d3)>]
// CHECK-NOT: name = "copy"
// CHECK: kind = "matmul"
#s = affine_map<() -> (2, 16, 8, 8)>
#r = affine_map<() -> (1024, 64, 8, 1)>
#c = affine_map<() -> (1024, 1, 128, 16)>
func.func @flattened(%x: tensor<2x16x8x8xf32>, %w: tensor<16x16x3x3xf32>, %m: tensor<1024x4xf32>) -> tensor<2x4xf32> {
  %0 = "kiln.conv"(%x, %w) {dilation = array<i64: 1, 1>, groups = 1 : i64, output_padding = array<i64: 0, 0>, padding = array<i64: 1, 1>, shape = #s, stride = array<i64: 1, 1>, strides = #c, transposed = false} : (tensor<2x16x8x8xf32>, tensor<16x16x3x3xf32>) -> tensor<2x16x8x8xf32>
  %1 = "kiln.view"(%0) {map = affine_map<(d0, d1) -> (d0, d1 floordiv 64, (d1 mod 64) floordiv 8, d1 mod 8)>, shape = affine_map<() -> (2, 1024)>} : (tensor<2x16x8x8xf32>) -> tensor<2x1024xf32>
  %2 = "kiln.matmul"(%1, %m) {transpose_lhs = false, transpose_rhs = false} : (tensor<2x1024xf32>, tensor<1024x4xf32>) -> tensor<2x4xf32>
  return %2 : tensor<2x4xf32>
}

// -----

// Pixels as rows of channels, as vision transformers read them: a view of a channels-last result.

// CHECK-LABEL: func.func @patches
// CHECK: kind = "conv", layouts = [{{.*}}, affine_map<(d0, d1, d2, d3) -> (d0 * 1024 + d1 + d2 * 128 + d3 * 16)>]
// CHECK-NOT: name = "copy"
// CHECK: kind = "matmul", layouts = [affine_map<(d0, d1, d2) -> (d0 * 1024 + d1 * 16 + d2)>
#s = affine_map<() -> (2, 16, 8, 8)>
#r = affine_map<() -> (1024, 64, 8, 1)>
#c = affine_map<() -> (1024, 1, 128, 16)>
func.func @patches(%x: tensor<2x16x8x8xf32>, %w: tensor<16x16x3x3xf32>, %m: tensor<16x4xf32>) -> tensor<2x64x4xf32> {
  %0 = "kiln.conv"(%x, %w) {dilation = array<i64: 1, 1>, groups = 1 : i64, output_padding = array<i64: 0, 0>, padding = array<i64: 1, 1>, shape = #s, stride = array<i64: 1, 1>, strides = #c, transposed = false} : (tensor<2x16x8x8xf32>, tensor<16x16x3x3xf32>) -> tensor<2x16x8x8xf32>
  %1 = "kiln.view"(%0) {map = affine_map<(d0, d1, d2) -> (d0, d2, d1 floordiv 8, d1 mod 8)>, shape = affine_map<() -> (2, 64, 16)>} : (tensor<2x16x8x8xf32>) -> tensor<2x64x16xf32>
  %2 = "kiln.matmul"(%1, %m) {transpose_lhs = false, transpose_rhs = false} : (tensor<2x64x16xf32>, tensor<16x4xf32>) -> tensor<2x64x4xf32>
  return %2 : tensor<2x64x4xf32>
}

// -----

// Convolution calls give their results the order of their inputs; a kernel in front of one that should be channels-last
// writes so. Another call gets its operand row-major.

// CHECK-LABEL: func.func @calls
// CHECK: kind = "pointwise", layouts = [affine_map<(d0, d1, d2, d3) -> (d0 * 1024 + d1 * 64 + d2 * 8 + d3)>,
// CHECK-SAME: affine_map<(d0, d1, d2, d3) -> (d0 * 1024 + d1 + d2 * 128 + d3 * 16)>]
// CHECK: op = "aten.convolution.default"
// CHECK-SAME: strides = [affine_map<() -> (1024, 1, 128, 16)>]
// CHECK: kind = "pointwise", layouts = [affine_map<(d0, d1, d2, d3) -> (d0 * 1024 + d1 + d2 * 128 + d3 * 16)>,
// CHECK-SAME: affine_map<(d0, d1, d2, d3) -> (d0 * 1024 + d1 * 64 + d2 * 8 + d3)>]
// CHECK: op = "aten.sin.default"
// CHECK: op = "aten.convolution.default"
// CHECK-SAME: strides = [unit]
#s = affine_map<() -> (2, 16, 8, 8)>
#r = affine_map<() -> (1024, 64, 8, 1)>
#c = affine_map<() -> (1024, 1, 128, 16)>
#i = affine_map<(d0, d1, d2, d3) -> (d0, d1, d2, d3)>
func.func @calls(%x: tensor<2x16x8x8xf32>, %w: tensor<16x16x3x3xf32>) -> tensor<2x16x8x8xf32> {
  %e = "kiln.empty"() {shape = #s} : () -> tensor<2x16x8x8xf32>
  %0 = linalg.generic {indexing_maps = [#i, #i], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%x : tensor<2x16x8x8xf32>) outs(%e : tensor<2x16x8x8xf32>) {
  ^bb0(%a: f32, %o: f32):
    %n = arith.negf %a : f32
    linalg.yield %n : f32
  } -> tensor<2x16x8x8xf32>
  %1 = "kiln.aten"(%0, %w) {op = "aten.convolution.default", args = "[]", kwargs = "{}", shapes = [#s], strides = [#c], pure = true} : (tensor<2x16x8x8xf32>, tensor<16x16x3x3xf32>) -> tensor<2x16x8x8xf32>
  %2 = linalg.generic {indexing_maps = [#i, #i], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%1 : tensor<2x16x8x8xf32>) outs(%e : tensor<2x16x8x8xf32>) {
  ^bb0(%a: f32, %o: f32):
    %n = arith.negf %a : f32
    linalg.yield %n : f32
  } -> tensor<2x16x8x8xf32>
  %3 = "kiln.aten"(%2) {op = "aten.sin.default", args = "[]", kwargs = "{}", shapes = [#s], strides = [unit], pure = true} : (tensor<2x16x8x8xf32>) -> tensor<2x16x8x8xf32>
  %4 = "kiln.aten"(%3, %w) {op = "aten.convolution.default", args = "[]", kwargs = "{}", shapes = [#s], strides = [#c], pure = true} : (tensor<2x16x8x8xf32>, tensor<16x16x3x3xf32>) -> tensor<2x16x8x8xf32>
  return %4 : tensor<2x16x8x8xf32>
}

// -----

// Channels in groups, as a group norm writes them, follow the convolution that reads them as one dim if they are of 16
// bits, whose kernel multiplies pairs of neighbouring channels. In f32 they are written as they are read.

// CHECK-LABEL: func.func @groups
// CHECK: kind = "pointwise", layouts = [affine_map<(d0, d1, d2, d3, d4) -> (d0 * 1024 + d1 * 256 + d2 * 64 + d3 * 8 + d4)>,
// CHECK-SAME: affine_map<(d0, d1, d2, d3, d4) -> (d0 * 1024 + d1 * 4 + d2 + d3 * 128 + d4 * 16)>]
// CHECK-NOT: name = "copy"
// CHECK: kind = "conv", layouts = [affine_map<(d0, d1, d2, d3) -> (d0 * 1024 + d1 + d2 * 128 + d3 * 16)>
// CHECK-LABEL: func.func @wide_groups
// CHECK: kind = "pointwise", layouts = [affine_map<(d0, d1, d2, d3, d4) -> (d0 * 1024 + d1 * 256 + d2 * 64 + d3 * 8 + d4)>,
// CHECK-SAME: affine_map<(d0, d1, d2, d3, d4) -> (d0 * 1024 + d1 * 256 + d2 * 64 + d3 * 8 + d4)>]
#s = affine_map<() -> (2, 16, 8, 8)>
#c = affine_map<() -> (1024, 1, 128, 16)>
#v = affine_map<(d0, d1, d2, d3) -> (d0, d1 floordiv 4, d1 mod 4, d2, d3)>
func.func @groups(%x: tensor<2x4x4x8x8xbf16>, %w: tensor<16x16x3x3xbf16>) -> tensor<2x16x8x8xbf16> {
  %0 = "kiln.scan"(%x) {dim = 3 : i64, kind = "sum"} : (tensor<2x4x4x8x8xbf16>) -> tensor<2x4x4x8x8xbf16>
  %e = "kiln.empty"() {shape = affine_map<() -> (2, 4, 4, 8, 8)>} : () -> tensor<2x4x4x8x8xbf16>
  %1 = linalg.generic {indexing_maps = [affine_map<(d0, d1, d2, d3, d4) -> (d0, d1, d2, d3, d4)>, affine_map<(d0, d1, d2, d3, d4) -> (d0, d1, d2, d3, d4)>], iterator_types = ["parallel", "parallel", "parallel", "parallel", "parallel"]} ins(%0 : tensor<2x4x4x8x8xbf16>) outs(%e : tensor<2x4x4x8x8xbf16>) {
  ^bb0(%a: bf16, %o: bf16):
    %n = arith.negf %a : bf16
    linalg.yield %n : bf16
  } -> tensor<2x4x4x8x8xbf16>
  %2 = "kiln.view"(%1) {map = #v, shape = #s} : (tensor<2x4x4x8x8xbf16>) -> tensor<2x16x8x8xbf16>
  %3 = "kiln.conv"(%2, %w) {dilation = array<i64: 1, 1>, groups = 1 : i64, output_padding = array<i64: 0, 0>, padding = array<i64: 1, 1>, shape = #s, stride = array<i64: 1, 1>, strides = #c, transposed = false} : (tensor<2x16x8x8xbf16>, tensor<16x16x3x3xbf16>) -> tensor<2x16x8x8xbf16>
  return %3 : tensor<2x16x8x8xbf16>
}
func.func @wide_groups(%x: tensor<2x4x4x8x8xf32>, %w: tensor<16x16x3x3xf32>) -> tensor<2x16x8x8xf32> {
  %0 = "kiln.scan"(%x) {dim = 3 : i64, kind = "sum"} : (tensor<2x4x4x8x8xf32>) -> tensor<2x4x4x8x8xf32>
  %e = "kiln.empty"() {shape = affine_map<() -> (2, 4, 4, 8, 8)>} : () -> tensor<2x4x4x8x8xf32>
  %1 = linalg.generic {indexing_maps = [affine_map<(d0, d1, d2, d3, d4) -> (d0, d1, d2, d3, d4)>, affine_map<(d0, d1, d2, d3, d4) -> (d0, d1, d2, d3, d4)>], iterator_types = ["parallel", "parallel", "parallel", "parallel", "parallel"]} ins(%0 : tensor<2x4x4x8x8xf32>) outs(%e : tensor<2x4x4x8x8xf32>) {
  ^bb0(%a: f32, %o: f32):
    %n = arith.negf %a : f32
    linalg.yield %n : f32
  } -> tensor<2x4x4x8x8xf32>
  %2 = "kiln.view"(%1) {map = #v, shape = #s} : (tensor<2x4x4x8x8xf32>) -> tensor<2x16x8x8xf32>
  %3 = "kiln.conv"(%2, %w) {dilation = array<i64: 1, 1>, groups = 1 : i64, output_padding = array<i64: 0, 0>, padding = array<i64: 1, 1>, shape = #s, stride = array<i64: 1, 1>, strides = #c, transposed = false} : (tensor<2x16x8x8xf32>, tensor<16x16x3x3xf32>) -> tensor<2x16x8x8xf32>
  return %3 : tensor<2x16x8x8xf32>
}

// -----

// Convolutions that need their image channels-last: an argument is copied, once for both; what lies between two
// convolutions is written so, and results are as the caller wants them.

// CHECK-LABEL: func.func @images
// CHECK: %[[IMAGE:.*]] = "kiln.fusion"(%arg0)
// CHECK: kind = "pointwise", layouts = [affine_map<(d0, d1, d2, d3) -> (d0 * 1024 + d1 * 64 + d2 * 8 + d3)>,
// CHECK-SAME: affine_map<(d0, d1, d2, d3) -> (d0 * 1024 + d1 + d2 * 128 + d3 * 16)>], name = "copy"
// CHECK: %[[FIRST:.*]] = "kiln.fusion"(%[[IMAGE]], %arg1)
// CHECK: layouts = [affine_map<(d0, d1, d2, d3) -> (d0 * 1024 + d1 + d2 * 128 + d3 * 16)>,
// CHECK-SAME: affine_map<(d0, d1, d2, d3) -> (d0 * 1024 + d1 + d2 * 128 + d3 * 16)>]
// CHECK-NOT: name = "copy"
// CHECK: "kiln.fusion"(%[[FIRST]], %arg1)
// CHECK: layouts = [affine_map<(d0, d1, d2, d3) -> (d0 * 1024 + d1 + d2 * 128 + d3 * 16)>,
// CHECK-SAME: affine_map<(d0, d1, d2, d3) -> (d0 * 1024 + d1 * 64 + d2 * 8 + d3)>]
// CHECK: "kiln.fusion"(%[[IMAGE]], %arg2)
#s = affine_map<() -> (2, 16, 8, 8)>
#r = affine_map<() -> (1024, 64, 8, 1)>
func.func @images(%x: tensor<2x16x8x8xf32>, %w: tensor<16x16x3x3xf32>, %v: tensor<16x16x3x3xf32>) -> (tensor<2x16x8x8xf32> {kiln.strides = #r}, tensor<2x16x8x8xf32> {kiln.strides = #r}) {
  %0 = "kiln.conv"(%x, %w) {channels_last_image, dilation = array<i64: 1, 1>, groups = 1 : i64, output_padding = array<i64: 0, 0>, padding = array<i64: 1, 1>, shape = #s, stride = array<i64: 1, 1>, strides = #r, transposed = false} : (tensor<2x16x8x8xf32>, tensor<16x16x3x3xf32>) -> tensor<2x16x8x8xf32>
  %1 = "kiln.conv"(%0, %w) {channels_last_image, dilation = array<i64: 1, 1>, groups = 1 : i64, output_padding = array<i64: 0, 0>, padding = array<i64: 1, 1>, shape = #s, stride = array<i64: 1, 1>, strides = #r, transposed = false} : (tensor<2x16x8x8xf32>, tensor<16x16x3x3xf32>) -> tensor<2x16x8x8xf32>
  %2 = "kiln.conv"(%x, %v) {channels_last_image, dilation = array<i64: 1, 1>, groups = 1 : i64, output_padding = array<i64: 0, 0>, padding = array<i64: 1, 1>, shape = #s, stride = array<i64: 1, 1>, strides = #r, transposed = false} : (tensor<2x16x8x8xf32>, tensor<16x16x3x3xf32>) -> tensor<2x16x8x8xf32>
  return %1, %2 : tensor<2x16x8x8xf32>, tensor<2x16x8x8xf32>
}

// -----

// Bytes that a kernel walks along their channels, behind padding, are written so, though what they are made of is
// row-major; those that are also walked along their columns are not.

// CHECK-LABEL: func.func @bytes
// CHECK: kind = "scan", layouts = [affine_map<(d0, d1, d2, d3) -> (d0 * 1024 + d1 * 64 + d2 * 8 + d3)>,
// CHECK-SAME: affine_map<(d0, d1, d2, d3) -> (d0 * 1024 + d1 + d2 * 128 + d3 * 16)>]
// CHECK: kind = "pointwise", layouts = [affine_map<(d0, d1, d2, d3) -> (d0 * 1024 + d1 + d2 * 128 + d3 * 16)>,
// CHECK-SAME: affine_map<(d0, d1, d2, d3) -> (d0 * 1600 + d1 * 160 + d2 * 16 + d3)>]
// CHECK-LABEL: func.func @bytes_both_ways
// CHECK: kind = "scan", layouts = [affine_map<(d0, d1, d2, d3) -> (d0 * 1024 + d1 * 64 + d2 * 8 + d3)>,
// CHECK-SAME: affine_map<(d0, d1, d2, d3) -> (d0 * 1024 + d1 * 64 + d2 * 8 + d3)>]
#p = affine_map<() -> (0, 1, 1, 0)>
func.func @bytes(%x: tensor<2x16x8x8xi8>) -> tensor<2x10x10x16xi8> {
  %zero = arith.constant 0 : i8
  %0 = "kiln.scan"(%x) {dim = 2 : i64, kind = "sum"} : (tensor<2x16x8x8xi8>) -> tensor<2x16x8x8xi8>
  %1 = "kiln.view"(%0) {map = affine_map<(d0, d1, d2, d3) -> (d0, d3, d1, d2)>, shape = affine_map<() -> (2, 8, 8, 16)>} : (tensor<2x16x8x8xi8>) -> tensor<2x8x8x16xi8>
  %2 = "kiln.pad"(%1, %zero) {high = #p, low = #p, shape = affine_map<() -> (2, 10, 10, 16)>} : (tensor<2x8x8x16xi8>, i8) -> tensor<2x10x10x16xi8>
  return %2 : tensor<2x10x10x16xi8>
}
func.func @bytes_both_ways(%x: tensor<2x16x8x8xi8>) -> (tensor<2x10x10x16xi8>, tensor<2x16x8x8xi8>) {
  %zero = arith.constant 0 : i8
  %0 = "kiln.scan"(%x) {dim = 2 : i64, kind = "sum"} : (tensor<2x16x8x8xi8>) -> tensor<2x16x8x8xi8>
  %1 = "kiln.view"(%0) {map = affine_map<(d0, d1, d2, d3) -> (d0, d3, d1, d2)>, shape = affine_map<() -> (2, 8, 8, 16)>} : (tensor<2x16x8x8xi8>) -> tensor<2x8x8x16xi8>
  %2 = "kiln.pad"(%1, %zero) {high = #p, low = #p, shape = affine_map<() -> (2, 10, 10, 16)>} : (tensor<2x8x8x16xi8>, i8) -> tensor<2x10x10x16xi8>
  %3 = "kiln.scan"(%0) {dim = 3 : i64, kind = "sum"} : (tensor<2x16x8x8xi8>) -> tensor<2x16x8x8xi8>
  return %2, %3 : tensor<2x10x10x16xi8>, tensor<2x16x8x8xi8>
}

// -----

// Gradients of a convolution and of pooling lie as the image does, here what a kernel writes channels last for the caller;
// kernels write what such calls read in that order.

// CHECK-LABEL: func.func @gradients
// CHECK: kind = "pointwise", layouts = [affine_map<(d0, d1, d2, d3) -> (d0 * 1024 + d1 * 64 + d2 * 8 + d3)>,
// CHECK-SAME: affine_map<(d0, d1, d2, d3) -> (d0 * 1024 + d1 + d2 * 128 + d3 * 16)>,
// CHECK-SAME: affine_map<(d0, d1, d2, d3) -> (d0 * 1024 + d1 + d2 * 128 + d3 * 16)>]
// CHECK: "kiln.aten"
// CHECK-SAME: max_pool2d_with_indices_backward
// CHECK-SAME: strides = [affine_map<() -> (1024, 1, 128, 16)>]
// CHECK: kind = "scan", layouts = [affine_map<(d0, d1, d2, d3) -> (d0 * 1024 + d1 * 64 + d2 * 8 + d3)>,
// CHECK-SAME: affine_map<(d0, d1, d2, d3) -> (d0 * 1024 + d1 + d2 * 128 + d3 * 16)>]
// CHECK: "kiln.aten"
// CHECK-SAME: convolution_backward
// CHECK-SAME: strides = [affine_map<() -> (1024, 1, 128, 16)>, affine_map<() -> (144, 1, 48, 16)>, unit]
// CHECK-NOT: name = "copy"
#s = affine_map<() -> (2, 16, 8, 8)>
#r = affine_map<() -> (1024, 64, 8, 1)>
#c = affine_map<() -> (1024, 1, 128, 16)>
#w = affine_map<() -> (16, 16, 3, 3)>
#b = affine_map<() -> (16)>
#i = affine_map<(d0, d1, d2, d3) -> (d0, d1, d2, d3)>
func.func @gradients(%g: tensor<2x16x8x8xf32>, %x: tensor<2x16x8x8xf32> {kiln.strides = #c}, %n: tensor<2x16x8x8xi64> {kiln.strides = #c}, %w: tensor<16x16x3x3xf32>) -> (tensor<2x16x8x8xf32> {kiln.strides = #c}, tensor<2x16x8x8xf32> {kiln.strides = #c}, tensor<16xf32>) {
  %e = "kiln.empty"() {shape = #s} : () -> tensor<2x16x8x8xf32>
  %0 = linalg.generic {indexing_maps = [#i, #i, #i], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%g, %x : tensor<2x16x8x8xf32>, tensor<2x16x8x8xf32>) outs(%e : tensor<2x16x8x8xf32>) {
  ^bb0(%a: f32, %f: f32, %o: f32):
    %n0 = arith.mulf %a, %f : f32
    linalg.yield %n0 : f32
  } -> tensor<2x16x8x8xf32>
  %1 = "kiln.aten"(%0, %x, %n) {op = "aten.max_pool2d_with_indices_backward.default", args = "[{\22operand\22: 0}, {\22operand\22: 1}, [3, 3], [1, 1], [1, 1], [1, 1], false, {\22operand\22: 2}]", kwargs = "{}", shapes = [#s], strides = [unit], pure = true} : (tensor<2x16x8x8xf32>, tensor<2x16x8x8xf32>, tensor<2x16x8x8xi64>) -> tensor<2x16x8x8xf32>
  %2 = "kiln.scan"(%g) {dim = 2 : i64, kind = "sum"} : (tensor<2x16x8x8xf32>) -> tensor<2x16x8x8xf32>
  %3:3 = "kiln.aten"(%1, %2, %w) {op = "aten.convolution_backward.default", args = "[{\22operand\22: 0}, {\22operand\22: 1}, {\22operand\22: 2}, [16], [1, 1], [1, 1], [1, 1], false, [0, 0], 1, [true, true, true]]", kwargs = "{}", shapes = [#s, #w, #b], strides = [unit, unit, unit], pure = true} : (tensor<2x16x8x8xf32>, tensor<2x16x8x8xf32>, tensor<16x16x3x3xf32>) -> (tensor<2x16x8x8xf32>, tensor<16x16x3x3xf32>, tensor<16xf32>)
  return %3#0, %2, %3#2 : tensor<2x16x8x8xf32>, tensor<2x16x8x8xf32>, tensor<16xf32>
}

// -----

// A gradient that is channels last, of a planar image: the image is copied, not the gradient turned.

// CHECK-LABEL: func.func @gradient_of_planar
// CHECK: kind = "pointwise", layouts = [affine_map<(d0, d1, d2, d3) -> (d0 * 192 + d1 * 64 + d2 * 8 + d3)>,
// CHECK-SAME: affine_map<(d0, d1, d2, d3) -> (d0 * 192 + d1 + d2 * 24 + d3 * 3)>], name = "copy"
// CHECK: "kiln.aten"
// CHECK-SAME: strides = [affine_map<() -> (27, 1, 9, 3)>]
// CHECK: layouts = [affine_map<(d0, d1, d2, d3) -> (d0 * 27 + d1 + d2 * 9 + d3 * 3)>,
// CHECK-SAME: affine_map<(d0, d1, d2, d3) -> (d0 * 27 + d1 * 9 + d2 * 3 + d3)>], name = "copy"
#c = affine_map<() -> (1024, 1, 128, 16)>
#w = affine_map<() -> (16, 3, 3, 3)>
#r = affine_map<() -> (27, 9, 3, 1)>
func.func @gradient_of_planar(%g: tensor<2x16x8x8xf32> {kiln.strides = #c}, %x: tensor<2x3x8x8xf32>, %w: tensor<16x3x3x3xf32>) -> (tensor<16x3x3x3xf32> {kiln.strides = #r}) {
  %0 = "kiln.aten"(%g, %x, %w) {op = "aten.convolution_backward.default", args = "[{\22operand\22: 0}, {\22operand\22: 1}, {\22operand\22: 2}, [0], [1, 1], [1, 1], [1, 1], false, [0, 0], 1, [false, true, false]]", kwargs = "{}", shapes = [#w], strides = [unit], pure = true} : (tensor<2x16x8x8xf32>, tensor<2x3x8x8xf32>, tensor<16x3x3x3xf32>) -> tensor<16x3x3x3xf32>
  return %0 : tensor<16x3x3x3xf32>
}
