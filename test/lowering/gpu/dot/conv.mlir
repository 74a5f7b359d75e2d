// Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// RUN: kiln-opt %s --split-input-file --mlir-print-local-scope --pass-pipeline="fuse{row-blocks=false},assign-layouts,schedule-gpu,emit-gpu-kernels" | filecheck %s

// Nine taps of 64 channels: a step of the loop has one tap, whose place in the image decides which rows are inside.

// CHECK: "tt.func"
// CHECK: scf.for %[[STEP:.*]] = %{{.*}} to %{{.*}}
// CHECK: arith.cmpi sge
// CHECK: arith.cmpi slt
// CHECK: "tt.load"(%{{.*}}, %{{.*}}, %{{.*}}) {operandSegmentSizes = array<i32: 1, 1, 1>}
// CHECK: "tt.load"
// CHECK: "tt.dot"
// CHECK: "tt.store"
func.func @window(%x: tensor<8x64x28x28xbf16>, %w: tensor<128x64x3x3xbf16>) -> tensor<8x128x28x28xbf16> {
  %0 = "kiln.conv"(%x, %w) {stride = array<i64: 1, 1>, padding = array<i64: 1, 1>, dilation = array<i64: 1, 1>, groups = 1,
    transposed = false, output_padding = array<i64: 0, 0>}
    : (tensor<8x64x28x28xbf16>, tensor<128x64x3x3xbf16>) -> tensor<8x128x28x28xbf16>
  return %0 : tensor<8x128x28x28xbf16>
}

// -----

// One channel a group: no product, a multiplication and an addition per tap. The nine taps are written out.

// CHECK: "tt.func"
// CHECK-NOT: tt.dot
// CHECK-NOT: scf.for
// CHECK-COUNT-9: arith.mulf {{.*}} : tensor<{{[0-9x]*}}xf32>
// CHECK: arith.addf
// CHECK: "tt.store"
func.func @depthwise(%x: tensor<8x64x28x28xf32>, %w: tensor<64x1x3x3xf32>) -> tensor<8x64x28x28xf32> {
  %0 = "kiln.conv"(%x, %w) {stride = array<i64: 1, 1>, padding = array<i64: 1, 1>, dilation = array<i64: 1, 1>, groups = 64,
    transposed = false, output_padding = array<i64: 0, 0>}
    : (tensor<8x64x28x28xf32>, tensor<64x1x3x3xf32>) -> tensor<8x64x28x28xf32>
  return %0 : tensor<8x64x28x28xf32>
}
