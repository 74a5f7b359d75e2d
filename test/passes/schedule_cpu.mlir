// Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// RUN: kiln-opt %s --split-input-file --mlir-print-local-scope --pass-pipeline="assign-layouts,schedule-cpu" | filecheck %s

// RUN: kiln-opt %s --split-input-file --remarks --pass-pipeline="assign-layouts,schedule-cpu" 2>&1 | filecheck %s --check-prefix=WHY

// WHY: remark: kiln.fusion{{.*}}: dot 4x{{[0-9]+}} [schedule-cpu]
// WHY: remark: kiln.fusion{{.*}}: up to {{[0-9]+}} rows {{.*}}; above, {{.*}} [schedule-cpu]

// Few rows of a weight stored [n, k]: dot products along k. Whatever the machine, the rule names a kernel and its tiles.

// CHECK-LABEL: func.func @dot
// CHECK: kind = "matmul"
// CHECK-SAME: schedule = {{{.*}}kernel = "cpu.gemm.dot"{{.*}}mr = {{[0-9]+}} : i64
func.func @dot(%x: tensor<4x1024xf32>, %w: tensor<512x1024xf32>) -> tensor<4x512xf32> {
  %0 = "kiln.fusion"(%x, %w) ({
  ^bb0(%a: tensor<4x1024xf32>, %b: tensor<512x1024xf32>):
    %r = "kiln.matmul"(%a, %b) {transpose_lhs = false, transpose_rhs = true} : (tensor<4x1024xf32>, tensor<512x1024xf32>) -> tensor<4x512xf32>
    "kiln.yield"(%r) : (tensor<4x512xf32>) -> ()
  }) {kind = "matmul", name = "f"} : (tensor<4x1024xf32>, tensor<512x1024xf32>) -> tensor<4x512xf32>
  return %0 : tensor<4x512xf32>
}

// -----

// A schedule that is there is kept.

// CHECK-LABEL: func.func @kept
// CHECK: schedule = {kc = 8 : i64, kernel = "cpu.gemm.blocked", mc = 1 : i64, mr = 1 : i64, nc = 64 : i64, nv = 2 : i64, pack_lhs = false, pack_rhs = false, width = 16 : i64}
func.func @kept(%x: tensor<1x64xf32>, %w: tensor<64x64xf32>) -> tensor<1x64xf32> {
  %0 = "kiln.fusion"(%x, %w) ({
  ^bb0(%a: tensor<1x64xf32>, %b: tensor<64x64xf32>):
    %r = "kiln.matmul"(%a, %b) {transpose_lhs = false, transpose_rhs = false} : (tensor<1x64xf32>, tensor<64x64xf32>) -> tensor<1x64xf32>
    "kiln.yield"(%r) : (tensor<1x64xf32>) -> ()
  }) {kind = "matmul", name = "f", schedule = {kc = 8 : i64, kernel = "cpu.gemm.blocked", mc = 1 : i64, mr = 1 : i64, nc = 64 : i64, nv = 2 : i64, pack_lhs = false, pack_rhs = false, width = 16 : i64}} : (tensor<1x64xf32>, tensor<64x64xf32>) -> tensor<1x64xf32>
  return %0 : tensor<1x64xf32>
}

// -----

// Rows known at run time: the schedule holds one for few rows and one for many. A pointwise kernel needs none.

// CHECK-LABEL: func.func @dynamic
// CHECK: schedule = {{{.*}}kernel = "cpu.gemm.by_rows"{{.*}}large = {{.*}}small = {
// CHECK-NOT: schedule
// CHECK: return
func.func @dynamic(%x: tensor<?x512xf32> {kiln.shape = affine_map<()[s0] -> (s0, 512)>}, %w: tensor<512x512xf32>, %n: index {kiln.symbol = "s0"}) -> tensor<512x512xf32> attributes {kiln.symbols = ["s0"]} {
  %0 = "kiln.fusion"(%x, %w, %n) ({
  ^bb0(%a: tensor<?x512xf32>, %b: tensor<512x512xf32>, %s: index):
    %r = "kiln.matmul"(%a, %b) {transpose_lhs = false, transpose_rhs = true} : (tensor<?x512xf32>, tensor<512x512xf32>) -> tensor<?x512xf32>
    "kiln.yield"(%r) : (tensor<?x512xf32>) -> ()
  }) {kind = "matmul", name = "f", shapes = [affine_map<()[s0] -> (s0, 512)>, affine_map<()[s0] -> (512, 512)>]} : (tensor<?x512xf32>, tensor<512x512xf32>, index) -> tensor<?x512xf32>
  %1 = "kiln.fusion"(%w) ({
  ^bb0(%a: tensor<512x512xf32>):
    "kiln.yield"(%a) : (tensor<512x512xf32>) -> ()
  }) {kind = "pointwise", name = "g"} : (tensor<512x512xf32>) -> tensor<512x512xf32>
  return %1 : tensor<512x512xf32>
}
