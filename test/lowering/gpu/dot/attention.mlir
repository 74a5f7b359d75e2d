// Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// RUN: kiln-opt %s --split-input-file --mlir-print-local-scope --pass-pipeline="fuse{row-blocks=false},assign-layouts,schedule-gpu,emit-gpu-kernels" | filecheck %s

// Causal: one loop over the keys up to the last query; a branch masks the blocks at the diagonal.

// CHECK: "tt.func"
// CHECK: scf.for %[[T:.*]] = %{{.*}} to
// CHECK: %[[AT:.*]] = arith.cmpi sge, %[[T]], %{{.*}} : i32
// CHECK: %[[S:.*]] = "tt.dot"{{.*}} -> tensor<64x64xf32>
// CHECK: scf.if %[[AT]]
// CHECK: %[[KEPT:.*]] = arith.select %{{.*}}, %[[S]],
// CHECK: scf.yield %[[KEPT]]
// CHECK: else
// CHECK: scf.yield %[[S]]
// CHECK: ex2.approx.ftz.f32
// CHECK: "tt.dot"{{.*}} -> tensor<64x64xf32>
// CHECK: {tt.num_stages = 3 : i32}
// CHECK-NOT: scf.for
// CHECK: "tt.store"
// CHECK: kiln.grid = affine_map<() -> (256, 1, 1)>
func.func @causal(%q: tensor<2x8x1024x64xbf16>, %k: tensor<2x2x1024x64xbf16>) -> tensor<2x8x1024x64xbf16> {
  %0 = "kiln.attention"(%q, %k, %k) {scale = 1.250000e-01 : f64, causal = true}
    : (tensor<2x8x1024x64xbf16>, tensor<2x2x1024x64xbf16>, tensor<2x2x1024x64xbf16>) -> tensor<2x8x1024x64xbf16>
  return %0 : tensor<2x8x1024x64xbf16>
}

// -----

// Keys that fill their blocks need one loop; a boolean mask is read by its own strides and selects.

// CHECK: "tt.func"
// CHECK-COUNT-1: scf.for
// CHECK: "tt.load"{{.*}} -> tensor<64x128xi8>
// CHECK: arith.cmpi ne
// CHECK: arith.select
// CHECK-NOT: scf.for
// CHECK: kiln.grid
func.func @masked(%q: tensor<2x8x256x64xf16>, %m: tensor<256x256xi1>) -> tensor<2x8x256x64xf16> {
  %0 = "kiln.attention"(%q, %q, %q, %m) {scale = 1.250000e-01 : f64, causal = false}
    : (tensor<2x8x256x64xf16>, tensor<2x8x256x64xf16>, tensor<2x8x256x64xf16>, tensor<256x256xi1>) -> tensor<2x8x256x64xf16>
  return %0 : tensor<2x8x256x64xf16>
}
