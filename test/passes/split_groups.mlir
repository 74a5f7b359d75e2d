// Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// RUN: kiln-opt %s --mlir-print-local-scope --verify-numerics --pass-pipeline="split-reductions{group-channels=4 part-bytes=512}" | filecheck %s
// RUN: kiln-opt %s --mlir-print-local-scope --pass-pipeline="split-reductions{group-channels=2 part-bytes=512}" | filecheck %s --check-prefix=WIDE

// RUN: kiln-opt %s --mlir-print-local-scope --verify-numerics --pass-pipeline="split-reductions{group-channels=4 part-bytes=512 sms=132}" | filecheck %s --check-prefix=GPU

// Two parts of three rows: sums of their channels, of the channels, of the groups, and these for each channel.

// CHECK-LABEL: func.func @main
// CHECK: %[[V:.*]] = "kiln.view"
// CHECK: %[[P:.*]] = linalg.generic {{.*}}(d0, d2, d3, d1 * 3 + d4, d5)>{{.*}} ins(%[[V]], %{{.*}}) outs(%{{.*}} : tensor<2x2x4x2xf32>)
// CHECK: %[[C:.*]] = linalg.generic {{.*}} ins(%[[P]] : tensor<2x2x4x2xf32>) outs(%{{.*}} : tensor<2x4x2xf32>)
// CHECK: linalg.generic {{.*}} ins(%[[C]] : tensor<2x4x2xf32>) outs(%{{.*}} : tensor<2x4xf32>)
// CHECK: %[[W:.*]] = linalg.generic {{.*}} ins(%[[C]] : tensor<2x4x2xf32>) outs(%{{.*}} : tensor<2x4x2xf32>)
// CHECK: %[[OWN:.*]] = linalg.generic {{.*}} ins(%[[P]] : tensor<2x2x4x2xf32>)
// CHECK: arith.divf
// CHECK: %[[M:.*]] = linalg.generic {{.*}} ins(%[[W]] : tensor<2x4x2xf32>)
// CHECK: arith.divf

// What reads a group's mean at each pixel reads that of the channel.

// CHECK: %[[D:.*]] = linalg.generic {{.*}}(d0, d1, d2)>{{.*}} ins(%[[V]], %[[M]] : tensor<2x4x2x6x5xf32>, tensor<2x4x2xf32>)

// Squared distances of a part from its own means, and what the means are apart.

// CHECK: %[[Q:.*]] = linalg.generic {{.*}} ins(%[[V]], %[[OWN]], %{{.*}}) outs(%{{.*}} : tensor<2x2x4x2xf32>)
// CHECK: arith.subf %{{.*}} {kiln.exact}
// CHECK: linalg.generic {{.*}} ins(%[[Q]], %[[OWN]], %{{.*}}) outs(%{{.*}} : tensor<2x4x2xf32>)
// CHECK: arith.constant 1.500000e+01
// CHECK: return %{{.*}}, %[[D]]

// A program of a GPU has all parts of all channels of a group.

// GPU-LABEL: func.func @main
// GPU: %[[V:.*]] = "kiln.view"
// GPU: %[[P:.*]] = linalg.generic {{.*}} ins(%[[V]], %{{.*}}) outs(%{{.*}} : tensor<2x2x4x2xf32>)
// GPU: linalg.generic {{.*}}["parallel", "parallel", "reduction", "reduction"]{{.*}} ins(%[[P]] : tensor<2x2x4x2xf32>) outs(%{{.*}} : tensor<2x4xf32>)
// GPU: %[[OWN:.*]] = linalg.generic {{.*}} ins(%[[P]] : tensor<2x2x4x2xf32>)
// GPU: %[[Q:.*]] = linalg.generic {{.*}} ins(%[[V]], %[[OWN]], %{{.*}}) outs(%{{.*}} : tensor<2x2x4x2xf32>)
// GPU: arith.subf %{{.*}} {kiln.exact}
// GPU: linalg.generic {{.*}} ins(%[[Q]], %[[OWN]], %{{.*}} : tensor<2x2x4x2xf32>, tensor<2x2x4x2xf32>, tensor<2x4xf32>) outs(%{{.*}} : tensor<2x4xf32>)
// GPU: arith.constant 1.500000e+01

// WIDE-LABEL: func.func @main
// WIDE-NOT: tensor<2x2x4x2xf32>
func.func @main(%x: tensor<2x8x6x5xf32> {kiln.shape = affine_map<() -> (2, 8, 6, 5)>, kiln.strides = affine_map<() -> (240, 1, 40, 8)>}) -> (tensor<2x4xf32>, tensor<2x4x2x6x5xf32>) {
  %zero = arith.constant 0.0 : f32
  %n = arith.constant 60.0 : f32
  %v = "kiln.view"(%x) {map = affine_map<(d0, d1, d2, d3, d4) -> (d0, d1 * 2 + d2, d3, d4)>, shape = affine_map<() -> (2, 4, 2, 6, 5)>} : (tensor<2x8x6x5xf32>) -> tensor<2x4x2x6x5xf32>
  %e = "kiln.empty"() {shape = affine_map<() -> (2, 4)>} : () -> tensor<2x4xf32>
  %i = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>], iterator_types = ["parallel", "parallel"]} outs(%e : tensor<2x4xf32>) {
  ^bb0(%o: f32):
    linalg.yield %zero : f32
  } -> tensor<2x4xf32>
  %s = linalg.generic {indexing_maps = [affine_map<(d0, d1, d2, d3, d4) -> (d0, d1, d2, d3, d4)>, affine_map<(d0, d1, d2, d3, d4) -> (d0, d1)>], iterator_types = ["parallel", "parallel", "reduction", "reduction", "reduction"]} ins(%v : tensor<2x4x2x6x5xf32>) outs(%i : tensor<2x4xf32>) {
  ^bb0(%a: f32, %o: f32):
    %0 = arith.addf %o, %a : f32
    linalg.yield %0 : f32
  } -> tensor<2x4xf32>
  %m = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0, d1)>], iterator_types = ["parallel", "parallel"]} ins(%s : tensor<2x4xf32>) outs(%e : tensor<2x4xf32>) {
  ^bb0(%a: f32, %o: f32):
    %0 = arith.divf %a, %n : f32
    linalg.yield %0 : f32
  } -> tensor<2x4xf32>
  %f = "kiln.empty"() {shape = affine_map<() -> (2, 4, 2, 6, 5)>} : () -> tensor<2x4x2x6x5xf32>
  %d = linalg.generic {indexing_maps = [affine_map<(d0, d1, d2, d3, d4) -> (d0, d1, d2, d3, d4)>, affine_map<(d0, d1, d2, d3, d4) -> (d0, d1)>, affine_map<(d0, d1, d2, d3, d4) -> (d0, d1, d2, d3, d4)>], iterator_types = ["parallel", "parallel", "parallel", "parallel", "parallel"]} ins(%v, %m : tensor<2x4x2x6x5xf32>, tensor<2x4xf32>) outs(%f : tensor<2x4x2x6x5xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %0 = arith.subf %a, %b {kiln.exact} : f32
    linalg.yield %0 : f32
  } -> tensor<2x4x2x6x5xf32>
  %q = linalg.generic {indexing_maps = [affine_map<(d0, d1, d2, d3, d4) -> (d0, d1, d2, d3, d4)>, affine_map<(d0, d1, d2, d3, d4) -> (d0, d1)>], iterator_types = ["parallel", "parallel", "reduction", "reduction", "reduction"]} ins(%d : tensor<2x4x2x6x5xf32>) outs(%i : tensor<2x4xf32>) {
  ^bb0(%a: f32, %o: f32):
    %0 = arith.mulf %a, %a : f32
    %1 = arith.addf %o, %0 : f32
    linalg.yield %1 : f32
  } -> tensor<2x4xf32>
  return %q, %d : tensor<2x4xf32>, tensor<2x4x2x6x5xf32>
}
