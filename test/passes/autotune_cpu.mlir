// Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// RUN: kiln-opt %s --split-input-file --remarks --mlir-print-local-scope --pass-pipeline="assign-layouts,schedule-cpu,autotune-cpu{seconds=0.001}" 2> %t.remarks | filecheck %s
// RUN: filecheck %s --check-prefix=WHY --input-file %t.remarks

// Whichever kernel is the fastest: it is a schedule that has a name, and what was tried is told.

// WHY: f: {{.*(tried:|not tuned: calls of one kernel vary)}}
// CHECK-LABEL: func.func @product
// CHECK: kind = "matmul"
// CHECK-SAME: schedule = {{{.*}}kernel = "
func.func @product(%x: tensor<4x64xf32>, %w: tensor<32x64xf32>) -> tensor<4x32xf32> {
  %0 = "kiln.fusion"(%x, %w) ({
  ^bb0(%a: tensor<4x64xf32>, %b: tensor<32x64xf32>):
    %r = "kiln.matmul"(%a, %b) {transpose_lhs = false, transpose_rhs = true} : (tensor<4x64xf32>, tensor<32x64xf32>) -> tensor<4x32xf32>
    "kiln.yield"(%r) : (tensor<4x32xf32>) -> ()
  }) {kind = "matmul", name = "f"} : (tensor<4x64xf32>, tensor<32x64xf32>) -> tensor<4x32xf32>
  return %0 : tensor<4x32xf32>
}

// -----

// Rows known at run time: the schedule stays.

// WHY: g: not tuned: sizes that are known at run time only
// CHECK-LABEL: func.func @dynamic
// CHECK: schedule = {{{.*}}kernel = "cpu.gemm.by_rows"
func.func @dynamic(%x: tensor<?x64xf32> {kiln.shape = affine_map<()[s0] -> (s0, 64)>}, %w: tensor<256x64xf32>, %n: index {kiln.symbol = "s0"}) -> tensor<?x256xf32> attributes {kiln.symbols = ["s0"]} {
  %0 = "kiln.fusion"(%x, %w, %n) ({
  ^bb0(%a: tensor<?x64xf32>, %b: tensor<256x64xf32>, %s: index):
    %r = "kiln.matmul"(%a, %b) {transpose_lhs = false, transpose_rhs = true} : (tensor<?x64xf32>, tensor<256x64xf32>) -> tensor<?x256xf32>
    "kiln.yield"(%r) : (tensor<?x256xf32>) -> ()
  }) {kind = "matmul", name = "g", shapes = [affine_map<()[s0] -> (s0, 64)>, affine_map<()[s0] -> (256, 64)>]} : (tensor<?x64xf32>, tensor<256x64xf32>, index) -> tensor<?x256xf32>
  return %0 : tensor<?x256xf32>
}
