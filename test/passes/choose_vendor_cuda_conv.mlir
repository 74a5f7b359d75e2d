// Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// RUN: kiln-opt %s --split-input-file --mlir-print-local-scope --pass-pipeline="choose-vendor{target=cuda tensor-maps=true}" | filecheck %s

// One tap with a stride, 16 bits, channels last: a product of some positions. Planar, or of f32, it is cuDNN's.

// CHECK-LABEL: func.func @strided
// CHECK: "kiln.conv"
// CHECK: "kiln.aten"
// CHECK-SAME: reason = "cuDNN: channels lie too far apart"
// CHECK: "kiln.aten"
// CHECK-SAME: reason = "cuDNN: windows have been measured to be faster in a kernel of their own in 16 bits only"
func.func @strided(%x: tensor<32x256x56x56xbf16>, %w: tensor<512x256x1x1xbf16>, %y: tensor<32x256x56x56xf32>,
    %u: tensor<512x256x1x1xf32>)
    -> (tensor<32x512x28x28xbf16>, tensor<32x512x28x28xbf16>, tensor<32x512x28x28xf32>) {
  %0 = "kiln.conv"(%x, %w) {stride = array<i64: 2, 2>, padding = array<i64: 0, 0>, dilation = array<i64: 1, 1>, groups = 1,
    transposed = false, output_padding = array<i64: 0, 0>, strides = affine_map<() -> (401408, 1, 14336, 512)>}
    : (tensor<32x256x56x56xbf16>, tensor<512x256x1x1xbf16>) -> tensor<32x512x28x28xbf16>
  %1 = "kiln.conv"(%x, %w) {stride = array<i64: 2, 2>, padding = array<i64: 0, 0>, dilation = array<i64: 1, 1>, groups = 1,
    transposed = false, output_padding = array<i64: 0, 0>}
    : (tensor<32x256x56x56xbf16>, tensor<512x256x1x1xbf16>) -> tensor<32x512x28x28xbf16>
  %2 = "kiln.conv"(%y, %u) {stride = array<i64: 2, 2>, padding = array<i64: 0, 0>, dilation = array<i64: 1, 1>, groups = 1,
    transposed = false, output_padding = array<i64: 0, 0>, strides = affine_map<() -> (401408, 1, 14336, 512)>}
    : (tensor<32x256x56x56xf32>, tensor<512x256x1x1xf32>) -> tensor<32x512x28x28xf32>
  return %0, %1, %2 : tensor<32x512x28x28xbf16>, tensor<32x512x28x28xbf16>, tensor<32x512x28x28xf32>
}

// -----

// Sums of 1152 terms with something behind them, by themselves, and of 2304 terms.

// CHECK-LABEL: func.func @windows
// CHECK: "kiln.conv"
// CHECK: linalg.generic
// CHECK: "kiln.aten"
// CHECK-SAME: reason = "cuDNN: faster for windows of many channels and much work"
// CHECK: "kiln.aten"
// CHECK-SAME: reason = "cuDNN: faster for windows of many channels and much work"
// CHECK: linalg.generic
#id = affine_map<(d0, d1, d2, d3) -> (d0, d1, d2, d3)>
func.func @windows(%x: tensor<128x128x28x28xbf16>, %w: tensor<128x128x3x3xbf16>, %y: tensor<128x256x28x28xbf16>,
    %u: tensor<128x256x3x3xbf16>) -> (tensor<128x128x28x28xbf16>, tensor<128x128x28x28xbf16>, tensor<128x128x28x28xbf16>) {
  %e = "kiln.empty"() {shape = affine_map<() -> (128, 128, 28, 28)>} : () -> tensor<128x128x28x28xbf16>
  %0 = "kiln.conv"(%x, %w) {stride = array<i64: 1, 1>, padding = array<i64: 1, 1>, dilation = array<i64: 1, 1>, groups = 1,
    transposed = false, output_padding = array<i64: 0, 0>, strides = affine_map<() -> (100352, 1, 3584, 128)>}
    : (tensor<128x128x28x28xbf16>, tensor<128x128x3x3xbf16>) -> tensor<128x128x28x28xbf16>
  %1 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel", "parallel", "parallel"]}
    ins(%0 : tensor<128x128x28x28xbf16>) outs(%e : tensor<128x128x28x28xbf16>) {
  ^bb0(%in: bf16, %out: bf16):
    %6 = arith.negf %in : bf16
    linalg.yield %6 : bf16
  } -> tensor<128x128x28x28xbf16>
  %2 = "kiln.conv"(%x, %w) {stride = array<i64: 1, 1>, padding = array<i64: 1, 1>, dilation = array<i64: 1, 1>, groups = 1,
    transposed = false, output_padding = array<i64: 0, 0>, strides = affine_map<() -> (100352, 1, 3584, 128)>}
    : (tensor<128x128x28x28xbf16>, tensor<128x128x3x3xbf16>) -> tensor<128x128x28x28xbf16>
  %3 = "kiln.conv"(%y, %u) {stride = array<i64: 1, 1>, padding = array<i64: 1, 1>, dilation = array<i64: 1, 1>, groups = 1,
    transposed = false, output_padding = array<i64: 0, 0>, strides = affine_map<() -> (100352, 1, 3584, 128)>}
    : (tensor<128x256x28x28xbf16>, tensor<128x256x3x3xbf16>) -> tensor<128x128x28x28xbf16>
  %4 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel", "parallel", "parallel"]}
    ins(%3 : tensor<128x128x28x28xbf16>) outs(%e : tensor<128x128x28x28xbf16>) {
  ^bb0(%in: bf16, %out: bf16):
    %6 = arith.negf %in : bf16
    linalg.yield %6 : bf16
  } -> tensor<128x128x28x28xbf16>
  return %1, %2, %4 : tensor<128x128x28x28xbf16>, tensor<128x128x28x28xbf16>, tensor<128x128x28x28xbf16>
}

// -----

// Windows of nine elements of single channels, channels last and planar; larger ones are cuDNN's.

// CHECK-LABEL: func.func @single_channels
// CHECK-COUNT-2: "kiln.conv"
// CHECK: "kiln.aten"
// CHECK-SAME: reason = "cuDNN: groups of channels, and large windows of single ones, are faster there"
func.func @single_channels(%x: tensor<32x96x56x56xbf16>, %w: tensor<96x1x3x3xbf16>, %v: tensor<96x1x5x5xbf16>)
    -> (tensor<32x96x56x56xbf16>, tensor<32x96x56x56xbf16>, tensor<32x96x56x56xbf16>) {
  %0 = "kiln.conv"(%x, %w) {stride = array<i64: 1, 1>, padding = array<i64: 1, 1>, dilation = array<i64: 1, 1>, groups = 96,
    transposed = false, output_padding = array<i64: 0, 0>, strides = affine_map<() -> (301056, 1, 5376, 96)>}
    : (tensor<32x96x56x56xbf16>, tensor<96x1x3x3xbf16>) -> tensor<32x96x56x56xbf16>
  %1 = "kiln.conv"(%x, %w) {stride = array<i64: 1, 1>, padding = array<i64: 1, 1>, dilation = array<i64: 1, 1>, groups = 96,
    transposed = false, output_padding = array<i64: 0, 0>}
    : (tensor<32x96x56x56xbf16>, tensor<96x1x3x3xbf16>) -> tensor<32x96x56x56xbf16>
  %2 = "kiln.conv"(%x, %v) {stride = array<i64: 1, 1>, padding = array<i64: 2, 2>, dilation = array<i64: 1, 1>, groups = 96,
    transposed = false, output_padding = array<i64: 0, 0>}
    : (tensor<32x96x56x56xbf16>, tensor<96x1x5x5xbf16>) -> tensor<32x96x56x56xbf16>
  return %0, %1, %2 : tensor<32x96x56x56xbf16>, tensor<32x96x56x56xbf16>, tensor<32x96x56x56xbf16>
}

// -----

// Windows of single channels that move by one position: own where there is work enough, with a weight and an image whose
// channels are neighbours.

// CHECK-LABEL: func.func @sliding
// CHECK: "kiln.conv"
// CHECK-SAME: channels_last_image
// CHECK-SAME: weight_channels_innermost
// CHECK: "kiln.aten"
func.func @sliding(%x: tensor<4x96x56x56xbf16>, %y: tensor<1x96x14x14xbf16>, %w: tensor<96x1x7x7xbf16>)
    -> (tensor<4x96x56x56xbf16>, tensor<1x96x14x14xbf16>) {
  %0 = "kiln.conv"(%x, %w) {stride = array<i64: 1, 1>, padding = array<i64: 3, 3>, dilation = array<i64: 1, 1>, groups = 96,
    transposed = false, output_padding = array<i64: 0, 0>, strides = affine_map<() -> (301056, 1, 5376, 96)>}
    : (tensor<4x96x56x56xbf16>, tensor<96x1x7x7xbf16>) -> tensor<4x96x56x56xbf16>
  %1 = "kiln.conv"(%y, %w) {stride = array<i64: 1, 1>, padding = array<i64: 3, 3>, dilation = array<i64: 1, 1>, groups = 96,
    transposed = false, output_padding = array<i64: 0, 0>, strides = affine_map<() -> (18816, 1, 1344, 96)>}
    : (tensor<1x96x14x14xbf16>, tensor<96x1x7x7xbf16>) -> tensor<1x96x14x14xbf16>
  return %0, %1 : tensor<4x96x56x56xbf16>, tensor<1x96x14x14xbf16>
}
