// Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// RUN: kiln-opt %s --cpu=x86-64-v4 --pass-pipeline="emit-cpu-kernels" | filecheck %s

// The leaves of convolutions behind schedules that are given, so that the code is that of no particular CPU.

// Transposed, stride 2: columns of one phase are a dense convolution, whose tiles add every second row of the window,
// beginning with the one that the row's phase meets. Sums lie in the order of the result: nothing is scattered.

// CHECK-LABEL: func.func @transposed
// CHECK: %[[SCRATCH:.*]] = memref.view
// CHECK: %[[FIRST:.*]] = arith.remui %{{.*}}, %c2
// CHECK: scf.for %{{.*}} = %{{.*}} to %{{.*}} step %c2 iter_args({{.*}}) -> (vector<8xf32>, vector<8xf32>)
// CHECK: arith.divui %{{.*}}, %c2
// CHECK: scf.for {{.*}} = %c0 to %c16 step %c1 iter_args
// CHECK: memref.load %arg0[
// CHECK: vector.broadcast
// CHECK-NEXT: vector.fma
// CHECK-NOT: vector.scatter
// CHECK: vector.store %{{.*}}, %arg2[
// CHECK-NOT: vector.scatter
// CHECK: return
func.func @main(%x: tensor<1x16x9x9xf32>, %w: tensor<16x8x4x4xf32>) -> tensor<1x8x18x18xf32> {
  %0 = "kiln.fusion"(%x, %w) ({
  ^bb0(%a: tensor<1x16x9x9xf32>, %b: tensor<16x8x4x4xf32>):
    %r = "kiln.conv"(%a, %b) {dilation = array<i64: 1, 1>, groups = 1 : i64, output_padding = array<i64: 0, 0>, padding = array<i64: 1, 1>, stride = array<i64: 2, 2>, transposed = true} : (tensor<1x16x9x9xf32>, tensor<16x8x4x4xf32>) -> tensor<1x8x18x18xf32>
    "kiln.yield"(%r) : (tensor<1x8x18x18xf32>) -> ()
  }) {kind = "conv", name = "transposed", layouts = [affine_map<(d0, d1, d2, d3) -> (d0 * 1296 + d1 + d2 * 144 + d3 * 16)>, affine_map<(d0, d1, d2, d3) -> (d0 * 128 + d1 * 16 + d2 * 4 + d3)>, affine_map<(d0, d1, d2, d3) -> (d0 * 2592 + d1 + d2 * 144 + d3 * 8)>], schedule = {kernel = "cpu.conv.direct", mr = 2 : i64, nv = 1 : i64, width = 8 : i64, piece = 256 : i64, tiles = 1 : i64}}
      : (tensor<1x16x9x9xf32>, tensor<16x8x4x4xf32>) -> tensor<1x8x18x18xf32>
  return %0 : tensor<1x8x18x18xf32>
}
