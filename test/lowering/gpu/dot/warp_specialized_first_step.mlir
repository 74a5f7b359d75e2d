// Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// RUN: kiln-opt %s --pass-pipeline="emit-gpu-kernels" | filecheck %s

// A first step that masks whole rows is not made: scores would be minus infinity, and their differences NaN. A causal kernel
// with blocks of 64 keys for 128 queries is another one.

#tokens = affine_map<(d0, d1, d2, d3) -> (d0 * 76800 + d1 * 128 + d2 * 256 + d3)>

// CHECK: kiln.specialized = {
// CHECK-SAME: sym_name = "full
func.func @full(%q: tensor<2x2x300x128xbf16>, %k: tensor<2x2x300x128xbf16>, %v: tensor<2x2x300x128xbf16>) -> tensor<2x2x300x128xbf16> {
  %0 = "kiln.fusion"(%q, %k, %v) ({
  ^bb0(%q_: tensor<2x2x300x128xbf16>, %k_: tensor<2x2x300x128xbf16>, %v_: tensor<2x2x300x128xbf16>):
    %1 = "kiln.attention"(%q_, %k_, %v_) {scale = 0.125 : f64, causal = false} : (tensor<2x2x300x128xbf16>, tensor<2x2x300x128xbf16>, tensor<2x2x300x128xbf16>) -> tensor<2x2x300x128xbf16>
    "kiln.yield"(%1) : (tensor<2x2x300x128xbf16>) -> ()
  }) {kind = "attention", name = "full", layouts = [#tokens, #tokens, #tokens, #tokens],
      schedule = {block_m = 128 : i64, block_n = 64 : i64, heads_together = 2 : i64, num_stages = 2 : i64,
      num_warps = 4 : i64, pingpong = false, programs = 3 : i64, kernel = "gpu.attention.warp_specialized"}}
    : (tensor<2x2x300x128xbf16>, tensor<2x2x300x128xbf16>, tensor<2x2x300x128xbf16>) -> tensor<2x2x300x128xbf16>
  return %0 : tensor<2x2x300x128xbf16>
}

// CHECK-NOT: kiln.specialized
// CHECK: sym_name = "causal
func.func @causal(%q: tensor<2x2x300x128xbf16>, %k: tensor<2x2x300x128xbf16>, %v: tensor<2x2x300x128xbf16>) -> tensor<2x2x300x128xbf16> {
  %0 = "kiln.fusion"(%q, %k, %v) ({
  ^bb0(%q_: tensor<2x2x300x128xbf16>, %k_: tensor<2x2x300x128xbf16>, %v_: tensor<2x2x300x128xbf16>):
    %1 = "kiln.attention"(%q_, %k_, %v_) {scale = 0.125 : f64, causal = true} : (tensor<2x2x300x128xbf16>, tensor<2x2x300x128xbf16>, tensor<2x2x300x128xbf16>) -> tensor<2x2x300x128xbf16>
    "kiln.yield"(%1) : (tensor<2x2x300x128xbf16>) -> ()
  }) {kind = "attention", name = "causal", layouts = [#tokens, #tokens, #tokens, #tokens],
      schedule = {block_m = 128 : i64, block_n = 64 : i64, heads_together = 2 : i64, num_stages = 2 : i64,
      num_warps = 4 : i64, pingpong = false, programs = 3 : i64, kernel = "gpu.attention.warp_specialized"}}
    : (tensor<2x2x300x128xbf16>, tensor<2x2x300x128xbf16>, tensor<2x2x300x128xbf16>) -> tensor<2x2x300x128xbf16>
  return %0 : tensor<2x2x300x128xbf16>
}
