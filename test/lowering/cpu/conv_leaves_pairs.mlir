// Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// RUN: kiln-opt %s --cpu=x86-64-v4+avx512bf16 --split-input-file --pass-pipeline="emit-cpu-kernels" | filecheck %s

// The leaves of convolutions that multiply pairs of bf16, behind schedules that are given.

// bf16 in pairs of channels: weights of two input channels next to each other, two channels of a pixel broadcast as one
// 32-bit number; sums are f32, and rounded once.

// CHECK-LABEL: func.func @pairs
// CHECK: vector.shuffle
// CHECK: scf.for {{.*}} = %c0 to %c8 step %c1 iter_args
// CHECK: %[[PAIR:.*]] = vector.load %arg0[{{.*}}] : memref<?xbf16>, vector<2xbf16>
// CHECK: llvm.bitcast %[[PAIR]] : vector<2xbf16> to i32
// CHECK: vector.broadcast {{.*}} : i32 to vector<16xi32>
// CHECK: llvm.call_intrinsic "llvm.x86.avx512bf16.dpbf16ps.512"({{.*}}) : (vector<16xf32>, vector<32xbf16>, vector<32xbf16>) -> vector<16xf32>
// CHECK: vector.store %{{.*}}, %arg2[{{.*}}] : memref<?xbf16>
func.func @main(%x: tensor<1x16x10x10xbf16>, %w: tensor<16x16x3x3xbf16>) -> tensor<1x16x10x10xbf16> {
  %0 = "kiln.fusion"(%x, %w) ({
  ^bb0(%a: tensor<1x16x10x10xbf16>, %b: tensor<16x16x3x3xbf16>):
    %r = "kiln.conv"(%a, %b) {dilation = array<i64: 1, 1>, groups = 1 : i64, output_padding = array<i64: 0, 0>, padding = array<i64: 1, 1>, stride = array<i64: 1, 1>, transposed = false} : (tensor<1x16x10x10xbf16>, tensor<16x16x3x3xbf16>) -> tensor<1x16x10x10xbf16>
    "kiln.yield"(%r) : (tensor<1x16x10x10xbf16>) -> ()
  }) {kind = "conv", name = "pairs", layouts = [affine_map<(d0, d1, d2, d3) -> (d0 * 1600 + d1 + d2 * 160 + d3 * 16)>, affine_map<(d0, d1, d2, d3) -> (d0 * 144 + d1 * 9 + d2 * 3 + d3)>, affine_map<(d0, d1, d2, d3) -> (d0 * 1600 + d1 + d2 * 160 + d3 * 16)>], schedule = {kernel = "cpu.conv.vnni_bf16", mr = 4 : i64, nv = 1 : i64, width = 16 : i64, piece = 256 : i64, tiles = 1 : i64}}
      : (tensor<1x16x10x10xbf16>, tensor<16x16x3x3xbf16>) -> tensor<1x16x10x10xbf16>
  return %0 : tensor<1x16x10x10xbf16>
}

// -----

// Patches of a row-major image: pairs are neighbours along a row of the window: four of
// them in each of three channels, for four pixels at once.

// CHECK-LABEL: func.func @patches
// CHECK: scf.for %{{.*}} = %c0 to %c8 step %c1 iter_args
// CHECK-COUNT-48: dpbf16ps
// CHECK-NOT: dpbf16ps
// CHECK: vector.store %{{.*}}, %arg2[{{.*}}] : memref<?xbf16>
func.func @main(%x: tensor<1x3x32x32xbf16>, %w: tensor<16x3x8x8xbf16>) -> tensor<1x16x4x4xbf16> {
  %0 = "kiln.fusion"(%x, %w) ({
  ^bb0(%a: tensor<1x3x32x32xbf16>, %b: tensor<16x3x8x8xbf16>):
    %r = "kiln.conv"(%a, %b) {dilation = array<i64: 1, 1>, groups = 1 : i64, output_padding = array<i64: 0, 0>, padding = array<i64: 0, 0>, stride = array<i64: 8, 8>, transposed = false} : (tensor<1x3x32x32xbf16>, tensor<16x3x8x8xbf16>) -> tensor<1x16x4x4xbf16>
    "kiln.yield"(%r) : (tensor<1x16x4x4xbf16>) -> ()
  }) {kind = "conv", name = "patches", layouts = [affine_map<(d0, d1, d2, d3) -> (d0 * 3072 + d1 * 1024 + d2 * 32 + d3)>, affine_map<(d0, d1, d2, d3) -> (d0 * 192 + d1 * 64 + d2 * 8 + d3)>, affine_map<(d0, d1, d2, d3) -> (d0 * 256 + d1 + d2 * 64 + d3 * 16)>], schedule = {kernel = "cpu.conv.vnni_bf16_columns", mr = 4 : i64, nv = 1 : i64, width = 16 : i64, piece = 256 : i64, tiles = 1 : i64}}
      : (tensor<1x3x32x32xbf16>, tensor<16x3x8x8xbf16>) -> tensor<1x16x4x4xbf16>
  return %0 : tensor<1x16x4x4xbf16>
}
