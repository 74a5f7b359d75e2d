// Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// RUN: kiln-opt %s --cpu=x86-64-v4 --split-input-file --pass-pipeline="fuse,assign-layouts,emit-cpu-kernels" | filecheck %s

#id = affine_map<(d0, d1, d2, d3) -> (d0, d1, d2, d3)>
#channel = affine_map<(d0, d1, d2, d3) -> (d1)>

// The weights of a block of channels are packed once; sums stay in registers over the window; the bias is loaded before
// the loop over pixels that adds it.

// CHECK-LABEL: func.func @conv
// CHECK: scf.for
// CHECK: vector.shuffle
// CHECK: scf.for {{.*}} iter_args
// CHECK: memref.load %arg0[
// CHECK: vector.broadcast
// CHECK: vector.fma
// CHECK: scf.yield
// CHECK: %[[B:.*]] = vector.load %arg2[
// CHECK: scf.for
// CHECK: arith.addf %{{.*}}, %[[B]]
// CHECK: vector.store %{{.*}}, %arg3[
func.func @bias(%x: tensor<2x16x20x20xf32> {kiln.strides = affine_map<() -> (6400, 1, 320, 16)>}, %w: tensor<32x16x3x3xf32>, %b: tensor<32xf32>)
    -> (tensor<2x32x20x20xf32> {kiln.strides = affine_map<() -> (12800, 1, 640, 32)>}) {
  %0 = "kiln.conv"(%x, %w) {stride = array<i64: 1, 1>, padding = array<i64: 1, 1>, dilation = array<i64: 1, 1>, groups = 1,
    transposed = false, output_padding = array<i64: 0, 0>} : (tensor<2x16x20x20xf32>, tensor<32x16x3x3xf32>) -> tensor<2x32x20x20xf32>
  %e = "kiln.empty"() {shape = affine_map<() -> (2, 32, 20, 20)>} : () -> tensor<2x32x20x20xf32>
  %1 = linalg.generic {indexing_maps = [#id, #channel, #id], iterator_types = ["parallel", "parallel", "parallel", "parallel"]}
      ins(%0, %b : tensor<2x32x20x20xf32>, tensor<32xf32>) outs(%e : tensor<2x32x20x20xf32>) {
  ^bb0(%c: f32, %d: f32, %o: f32):
    %s = arith.addf %c, %d : f32
    linalg.yield %s : f32
  } -> tensor<2x32x20x20xf32>
  return %1 : tensor<2x32x20x20xf32>
}

// -----

// Depthwise: no broadcast, an input vector serves all windows that hold it: 10 loads for 8 pixels.

// CHECK-LABEL: func.func @conv
// CHECK: scf.for {{.*}} iter_args
// CHECK-COUNT-24: vector.fma
// CHECK: scf.yield
// CHECK: vector.store %{{.*}}, %arg2[
func.func @depthwise(%x: tensor<2x32x18x18xf32> {kiln.strides = affine_map<() -> (10368, 1, 576, 32)>}, %w: tensor<32x1x3x3xf32>)
    -> (tensor<2x32x16x16xf32> {kiln.strides = affine_map<() -> (8192, 1, 512, 32)>}) {
  %0 = "kiln.conv"(%x, %w) {stride = array<i64: 1, 1>, padding = array<i64: 0, 0>, dilation = array<i64: 1, 1>, groups = 32,
    transposed = false, output_padding = array<i64: 0, 0>} : (tensor<2x32x18x18xf32>, tensor<32x1x3x3xf32>) -> tensor<2x32x16x16xf32>
  return %0 : tensor<2x32x16x16xf32>
}
