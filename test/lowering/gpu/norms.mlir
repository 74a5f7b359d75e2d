// Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// RUN: kiln-opt %s --split-input-file --mlir-print-local-scope --pass-pipeline="expand-named-ops{keep=scan},compose-views,canonicalize,cse,fuse,assign-layouts,schedule-gpu,emit-gpu-kernels" | filecheck %s

// A residual and its layer norm: what is added is loaded once, rounded as in eager, and stays in registers for the mean, the
// variance and the result.

// CHECK: "tt.func"
// CHECK-COUNT-2: "tt.load"
// CHECK: %[[S:.*]] = arith.addf
// CHECK: arith.truncf %[[S]] : tensor<1024xf32> to tensor<1024xbf16>
// CHECK: "tt.reduce"
// CHECK: arith.divf
// CHECK: %[[D:.*]] = "tt.elementwise_inline_asm"(%{{.*}}, %{{.*}}) {asm_string = "sub.rn.f32 $0, $1, $2;"
// CHECK: arith.mulf %[[D]], %[[D]]
// CHECK: "tt.reduce"
// CHECK: rsqrt.approx.f32
// CHECK-COUNT-2: "tt.load"
// CHECK-NOT: "tt.load"
// CHECK: "tt.store"
// CHECK: kiln.grid = affine_map<() -> (4096, 1, 1)>
func.func @layer(%x: tensor<4096x768xbf16>, %y: tensor<4096x768xbf16>, %w: tensor<768xbf16>, %b: tensor<768xbf16>) -> tensor<4096x768xbf16> {
  %e = "kiln.empty"() {shape = affine_map<() -> (4096, 768)>} : () -> tensor<4096x768xbf16>
  %s = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0, d1)>], iterator_types = ["parallel", "parallel"]} ins(%x, %y : tensor<4096x768xbf16>, tensor<4096x768xbf16>) outs(%e : tensor<4096x768xbf16>) {
  ^bb0(%p: bf16, %q: bf16, %o: bf16):
    %pf = arith.extf %p : bf16 to f32
    %qf = arith.extf %q : bf16 to f32
    %a = arith.addf %pf, %qf : f32
    %t = arith.truncf %a : f32 to bf16
    linalg.yield %t : bf16
  } -> tensor<4096x768xbf16>
  %0 = "kiln.layer_norm"(%s, %w, %b) {axes = array<i64: 1>, eps = 1.0e-05 : f64} : (tensor<4096x768xbf16>, tensor<768xbf16>, tensor<768xbf16>) -> tensor<4096x768xbf16>
  return %0 : tensor<4096x768xbf16>
}

// -----

// A row that is too long for registers is walked twice: squares are added up lane by lane, and what lies past the end is
// left out.

// CHECK: "tt.func"
// CHECK: %[[SUM:.*]] = scf.for %{{.*}} iter_args(%[[BEFORE:.*]] = %{{.*}}) -> (tensor<4096xf32>)
// CHECK: %[[X:.*]] = "tt.load"
// CHECK: %[[SQUARE:.*]] = arith.mulf %[[X]], %[[X]]
// CHECK: %[[MORE:.*]] = arith.addf %[[BEFORE]], %[[SQUARE]]
// CHECK: arith.select %{{.*}}, %[[MORE]], %[[BEFORE]]
// CHECK: "tt.reduce"(%[[SUM]])
// CHECK: rsqrt.approx.f32
// CHECK: scf.for
// CHECK-COUNT-2: "tt.load"
// CHECK: "tt.store"
// CHECK: kiln.grid = affine_map<() -> (4096, 1, 1)>
func.func @rms(%x: tensor<4096x50000xf32>, %w: tensor<50000xf32>) -> tensor<4096x50000xf32> {
  %0 = "kiln.rms_norm"(%x, %w) {axes = array<i64: 1>, eps = 1.0e-05 : f64} : (tensor<4096x50000xf32>, tensor<50000xf32>) -> tensor<4096x50000xf32>
  return %0 : tensor<4096x50000xf32>
}

// -----

// A group is a row of 8 channels of 196 elements: its statistics are one kernel, and what is scaled by channel another.

// CHECK: "tt.func"
// CHECK: "tt.reduce"
// CHECK: sub.rn.f32
// CHECK: "tt.reduce"
// CHECK: kiln.grid = affine_map<() -> (64, 1, 1)>
// CHECK: "tt.func"
// CHECK: rsqrt.approx.f32
// CHECK: %[[C:.*]] = arith.divui %{{.*}}, %[[AREA:.*]] : tensor<512xi32>
// CHECK: arith.remui %[[C]]
// CHECK: "tt.store"
func.func @group(%x: tensor<8x64x14x14xf32>, %w: tensor<64xf32>, %b: tensor<64xf32>) -> tensor<8x64x14x14xf32> {
  %0 = "kiln.group_norm"(%x, %w, %b) {groups = 8 : i64, eps = 1.0e-05 : f64} : (tensor<8x64x14x14xf32>, tensor<64xf32>, tensor<64xf32>) -> tensor<8x64x14x14xf32>
  return %0 : tensor<8x64x14x14xf32>
}
