// Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// REQUIRES: triton
// RUN: kiln-opt %s --pass-pipeline=expand-named-ops,fuse --pipeline=gpu --from=fused --until=ptx | filecheck %s

// A group of one number has the distance 0 from its mean, also where the number is a product that this kernel computes: a
// fused multiply-add would leave the product's rounding, times 1 / sqrt(eps) = 316.

// CHECK-LABEL: // kernel
// CHECK: mul.f32 %[[X:r[0-9]+]], %{{.*}}, 0f3E99999A;
// CHECK: sub.rn.f32 %{{.*}}, %[[X]], %{{.*}};
// CHECK: rsqrt.approx.f32
func.func @one_number(%x: tensor<4x4xf32>, %w: tensor<4xf32>, %b: tensor<4xf32>) -> tensor<4x4xf32> {
  %e = "kiln.empty"() {shape = affine_map<() -> (4, 4)>} : () -> tensor<4x4xf32>
  %c = arith.constant 3.000000e-01 : f32
  %0 = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0, d1)>], iterator_types = ["parallel", "parallel"]} ins(%x : tensor<4x4xf32>) outs(%e : tensor<4x4xf32>) {
  ^bb0(%p: f32, %o: f32):
    %y = arith.mulf %p, %c : f32
    linalg.yield %y : f32
  } -> tensor<4x4xf32>
  %1 = "kiln.group_norm"(%0, %w, %b) {groups = 4 : i64, eps = 1.0e-05 : f64} : (tensor<4x4xf32>, tensor<4xf32>, tensor<4xf32>) -> tensor<4x4xf32>
  return %1 : tensor<4x4xf32>
}
