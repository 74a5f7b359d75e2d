// Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// RUN: kiln-opt %s --mlir-print-local-scope --pass-pipeline="fuse,assign-layouts,schedule-gpu{descriptors=true}" | filecheck %s --check-prefix=SCHEDULE
// RUN: kiln-opt %s --mlir-print-local-scope --pass-pipeline="fuse,assign-layouts,schedule-gpu{descriptors=true},emit-gpu-kernels" | filecheck %s

// Attention with heads of 128 on Hopper: programs that take tiles of 128 queries in turn, each in two halves. The first
// step, of the last keys, is the one with a mask. What the TTGIR is written from is an attribute.

// SCHEDULE: kernel = "gpu.attention.warp_specialized"
// SCHEDULE-SAME: programs = 132

// CHECK: "tt.func"()
// CHECK: scf.for %{{.*}} = %{{.*}} to %c256_i32 step %c132_i32
// CHECK: "tt.descriptor_load"(%arg0
// CHECK: arith.cmpi sle
// CHECK: scf.for
// CHECK-NOT: arith.cmpi sle
// CHECK: "tt.descriptor_store"(%arg3
// CHECK: "tt.descriptor_load"(%arg0
// CHECK: "tt.descriptor_store"(%arg3
// CHECK: kiln.descriptors = [{arg = 0 : i64
// CHECK-SAME: kiln.grid = affine_map<() -> (132, 1, 1)>
// CHECK-SAME: kiln.specialized = {batch = [2], block_n = 128 : i64, causal = true
func.func @main(%q: tensor<2x16x1024x128xbf16>, %k: tensor<2x4x1024x128xbf16>, %v: tensor<2x4x1024x128xbf16>)
    -> tensor<2x16x1024x128xbf16> {
  %0 = "kiln.attention"(%q, %k, %v) {scale = 1.250000e-01 : f64, causal = true}
    : (tensor<2x16x1024x128xbf16>, tensor<2x4x1024x128xbf16>, tensor<2x4x1024x128xbf16>) -> tensor<2x16x1024x128xbf16>
  return %0 : tensor<2x16x1024x128xbf16>
}
