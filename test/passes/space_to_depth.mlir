// Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// RUN: kiln-opt %s --split-input-file --mlir-print-local-scope --pass-pipeline="space-to-depth" | filecheck %s
// RUN: kiln-opt %s --split-input-file --mlir-print-local-scope --pass-pipeline="space-to-depth,choose-vendor{target=cuda tensor-maps=true},expand-named-ops{keep=conv},compose-views,canonicalize,cse,fuse{row-blocks=false},assign-layouts,schedule-gpu{arch=sm_90 descriptors=true}" | filecheck %s --check-prefix=FUSED

// 7 x 7 with a stride of 2: 115 rows and columns of 16 channels, 12 of which are there. A kernel for each copy, and one
// of Kiln's for the convolution, each of whose steps is a row of the window.

// CHECK-LABEL: func.func @stem
// CHECK: "kiln.pad"(%arg0, %{{.*}}) {high = affine_map<()[s0] -> (0, 0, 3, 3)>, low = affine_map<()[s0] -> (0, 0, 3, 3)>{{.*}} -> tensor<?x3x230x230xbf16>
// CHECK: "kiln.view"{{.*}} -> tensor<?x115x115x12xbf16>
// CHECK: "kiln.pad"{{.*}} {high = affine_map<()[s0] -> (0, 0, 0, 4)>{{.*}} -> tensor<?x115x115x16xbf16>
// CHECK: %[[X:.*]] = "kiln.view"{{.*}} -> tensor<?x16x115x115xbf16>
// CHECK: "kiln.pad"(%arg1, %{{.*}}) {high = affine_map<() -> (0, 0, 1, 1)>
// CHECK: %[[W:.*]] = "kiln.view"{{.*}} -> tensor<64x16x4x4xbf16>
// CHECK: "kiln.conv"(%[[X]], %[[W]]) {{.*}}padding = array<i64: 0, 0>{{.*}}stride = array<i64: 1, 1>
// FUSED-LABEL: func.func @stem
// FUSED-COUNT-2: kind = "pointwise"
// FUSED: kind = "conv"{{.*}}block_k = 64 : i64
func.func @stem(%x: tensor<?x3x224x224xbf16> {kiln.shape = affine_map<()[s0] -> (s0, 3, 224, 224)>,
      kiln.strides = affine_map<()[s0] -> (150528, 1, 672, 3)>}, %w: tensor<64x3x7x7xbf16>,
    %s: index {kiln.symbol = "s0"}) -> tensor<?x64x112x112xbf16> attributes {kiln.symbols = ["s0"]} {
  %0 = "kiln.conv"(%x, %w) {dilation = array<i64: 1, 1>, groups = 1 : i64, output_padding = array<i64: 0, 0>,
    padding = array<i64: 3, 3>, stride = array<i64: 2, 2>, transposed = false,
    shape = affine_map<()[s0] -> (s0, 64, 112, 112)>, strides = affine_map<()[s0] -> (802816, 1, 7168, 64)>}
    : (tensor<?x3x224x224xbf16>, tensor<64x3x7x7xbf16>) -> tensor<?x64x112x112xbf16>
  return %0 : tensor<?x64x112x112xbf16>
}

// -----

// Windows that do not overlap, small ones, planar results, f32, and little work.

// CHECK-LABEL: func.func @kept
// CHECK-NOT: kiln.pad
// CHECK: return
func.func @kept(%x: tensor<64x3x224x224xbf16>, %a: tensor<768x3x16x16xbf16>, %b: tensor<32x3x3x3xbf16>,
    %c: tensor<64x3x7x7xbf16>, %y: tensor<64x3x224x224xf32>, %d: tensor<64x3x7x7xf32>, %z: tensor<1x3x16x16xbf16>)
    -> (tensor<64x768x14x14xbf16>, tensor<64x32x112x112xbf16>, tensor<64x64x112x112xbf16>, tensor<64x64x112x112xf32>,
        tensor<1x64x8x8xbf16>) {
  %0 = "kiln.conv"(%x, %a) {dilation = array<i64: 1, 1>, groups = 1 : i64, output_padding = array<i64: 0, 0>,
    padding = array<i64: 0, 0>, stride = array<i64: 16, 16>, transposed = false,
    strides = affine_map<() -> (150528, 1, 10752, 768)>}
    : (tensor<64x3x224x224xbf16>, tensor<768x3x16x16xbf16>) -> tensor<64x768x14x14xbf16>
  %1 = "kiln.conv"(%x, %b) {dilation = array<i64: 1, 1>, groups = 1 : i64, output_padding = array<i64: 0, 0>,
    padding = array<i64: 1, 1>, stride = array<i64: 2, 2>, transposed = false,
    strides = affine_map<() -> (401408, 1, 3584, 32)>}
    : (tensor<64x3x224x224xbf16>, tensor<32x3x3x3xbf16>) -> tensor<64x32x112x112xbf16>
  %2 = "kiln.conv"(%x, %c) {dilation = array<i64: 1, 1>, groups = 1 : i64, output_padding = array<i64: 0, 0>,
    padding = array<i64: 3, 3>, stride = array<i64: 2, 2>, transposed = false,
    strides = affine_map<() -> (802816, 12544, 112, 1)>}
    : (tensor<64x3x224x224xbf16>, tensor<64x3x7x7xbf16>) -> tensor<64x64x112x112xbf16>
  %3 = "kiln.conv"(%y, %d) {dilation = array<i64: 1, 1>, groups = 1 : i64, output_padding = array<i64: 0, 0>,
    padding = array<i64: 3, 3>, stride = array<i64: 2, 2>, transposed = false,
    strides = affine_map<() -> (802816, 1, 7168, 64)>}
    : (tensor<64x3x224x224xf32>, tensor<64x3x7x7xf32>) -> tensor<64x64x112x112xf32>
  %4 = "kiln.conv"(%z, %c) {dilation = array<i64: 1, 1>, groups = 1 : i64, output_padding = array<i64: 0, 0>,
    padding = array<i64: 3, 3>, stride = array<i64: 2, 2>, transposed = false,
    strides = affine_map<() -> (4096, 1, 512, 64)>}
    : (tensor<1x3x16x16xbf16>, tensor<64x3x7x7xbf16>) -> tensor<1x64x8x8xbf16>
  return %0, %1, %2, %3, %4 : tensor<64x768x14x14xbf16>, tensor<64x32x112x112xbf16>, tensor<64x64x112x112xbf16>,
    tensor<64x64x112x112xf32>, tensor<1x64x8x8xbf16>
}
