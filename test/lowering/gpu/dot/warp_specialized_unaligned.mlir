// Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// RUN: kiln-opt %s --pass-pipeline="emit-gpu-kernels" | filecheck %s

// A schedule of attention with warp specialization is for buffers of 16 bytes. A result that may be at any address
// (operand 3 of `unaligned`) has no tensor map, so the kernel becomes the one for all GPUs.

#tokens = affine_map<(d0, d1, d2, d3) -> (d0 * 1048576 + d1 * 128 + d2 * 1024 + d3)>

// CHECK: "tt.descriptor_store"(%arg3
// CHECK: kiln.specialized = {
// CHECK-SAME: sym_name = "aligned
func.func @aligned(%q: tensor<2x8x1024x128xbf16>, %k: tensor<2x8x1024x128xbf16>, %v: tensor<2x8x1024x128xbf16>) -> tensor<2x8x1024x128xbf16> {
  %0 = "kiln.fusion"(%q, %k, %v) ({
  ^bb0(%q_: tensor<2x8x1024x128xbf16>, %k_: tensor<2x8x1024x128xbf16>, %v_: tensor<2x8x1024x128xbf16>):
    %1 = "kiln.attention"(%q_, %k_, %v_) {scale = 0.125 : f64, causal = false} : (tensor<2x8x1024x128xbf16>, tensor<2x8x1024x128xbf16>, tensor<2x8x1024x128xbf16>) -> tensor<2x8x1024x128xbf16>
    "kiln.yield"(%1) : (tensor<2x8x1024x128xbf16>) -> ()
  }) {kind = "attention", name = "aligned", layouts = [#tokens, #tokens, #tokens, #tokens],
      schedule = {block_m = 128 : i64, block_n = 128 : i64, heads_together = 1 : i64, num_stages = 2 : i64,
      num_warps = 4 : i64, pingpong = false, programs = 132 : i64, kernel = "gpu.attention.warp_specialized"}}
    : (tensor<2x8x1024x128xbf16>, tensor<2x8x1024x128xbf16>, tensor<2x8x1024x128xbf16>) -> tensor<2x8x1024x128xbf16>
  return %0 : tensor<2x8x1024x128xbf16>
}

// CHECK: "tt.func"
// CHECK-NOT: kiln.specialized
// CHECK: sym_name = "unaligned
func.func @unaligned(%q: tensor<2x8x1024x128xbf16>, %k: tensor<2x8x1024x128xbf16>, %v: tensor<2x8x1024x128xbf16>) -> tensor<2x8x1024x128xbf16> {
  %0 = "kiln.fusion"(%q, %k, %v) ({
  ^bb0(%q_: tensor<2x8x1024x128xbf16>, %k_: tensor<2x8x1024x128xbf16>, %v_: tensor<2x8x1024x128xbf16>):
    %1 = "kiln.attention"(%q_, %k_, %v_) {scale = 0.125 : f64, causal = false} : (tensor<2x8x1024x128xbf16>, tensor<2x8x1024x128xbf16>, tensor<2x8x1024x128xbf16>) -> tensor<2x8x1024x128xbf16>
    "kiln.yield"(%1) : (tensor<2x8x1024x128xbf16>) -> ()
  }) {kind = "attention", name = "unaligned", layouts = [#tokens, #tokens, #tokens, #tokens], unaligned = array<i64: 3>,
      schedule = {block_m = 128 : i64, block_n = 128 : i64, heads_together = 1 : i64, num_stages = 2 : i64,
      num_warps = 4 : i64, pingpong = false, programs = 132 : i64, kernel = "gpu.attention.warp_specialized"}}
    : (tensor<2x8x1024x128xbf16>, tensor<2x8x1024x128xbf16>, tensor<2x8x1024x128xbf16>) -> tensor<2x8x1024x128xbf16>
  return %0 : tensor<2x8x1024x128xbf16>
}
