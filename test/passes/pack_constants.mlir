// Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// RUN: kiln-opt %s --split-input-file --remarks --verify-diagnostics --mlir-print-local-scope --pass-pipeline="fuse,assign-layouts,schedule-cpu,pack-constants" --check-stage=sched | filecheck %s

// Two kernels that want one weight in one order share its copy; an argument that is no constant stays.

// CHECK-LABEL: func.func @shared
// CHECK: %[[P:.*]] = "kiln.pack"(%arg1) {elements = {{[0-9]+}} : i64, layout = [[MAP:affine_map<.* floordiv .*>]]}
// CHECK-NOT: "kiln.pack"
// CHECK: "kiln.fusion"(%arg0, %[[P]])
// CHECK: "kiln.fusion"(%{{.*}}, %[[P]])
// CHECK: "kiln.fusion"(%{{.*}}, %arg2)
func.func @shared(%x: tensor<1x6x8x8xf32>, %w: tensor<6x6x3x3xf32> {kiln.constant = "w"}, %v: tensor<6x6x3x3xf32>) -> tensor<1x6x8x8xf32> {
  %0 = "kiln.conv"(%x, %w) {dilation = array<i64: 1, 1>, groups = 1 : i64, output_padding = array<i64: 0, 0>, padding = array<i64: 1, 1>, stride = array<i64: 1, 1>, transposed = false} : (tensor<1x6x8x8xf32>, tensor<6x6x3x3xf32>) -> tensor<1x6x8x8xf32>
  %1 = "kiln.conv"(%0, %w) {dilation = array<i64: 1, 1>, groups = 1 : i64, output_padding = array<i64: 0, 0>, padding = array<i64: 1, 1>, stride = array<i64: 1, 1>, transposed = false} : (tensor<1x6x8x8xf32>, tensor<6x6x3x3xf32>) -> tensor<1x6x8x8xf32>
  // expected-remark @+1 {{the weight is no constant: packed at every call}}
  %2 = "kiln.conv"(%1, %v) {dilation = array<i64: 1, 1>, groups = 1 : i64, output_padding = array<i64: 0, 0>, padding = array<i64: 1, 1>, stride = array<i64: 1, 1>, transposed = false} : (tensor<1x6x8x8xf32>, tensor<6x6x3x3xf32>) -> tensor<1x6x8x8xf32>
  return %2 : tensor<1x6x8x8xf32>
}

// -----

// The right matrix of a product, in panels of whole registers; for one row it is read as it is.

// CHECK-LABEL: func.func @products
// CHECK: %[[P:.*]] = "kiln.pack"(%arg2) {elements = {{[0-9]+}} : i64, layout = affine_map<(d0, d1) -> (((d0 floordiv [[LANES:[0-9]+]]) * 64 + d1) * [[LANES]] + d0 mod [[LANES]])>}
// CHECK-NOT: "kiln.pack"
// CHECK: "kiln.fusion"(%arg0, %[[P]])
// CHECK: packed = true
// CHECK: "kiln.fusion"(%arg1, %arg2)
func.func @products(%x: tensor<16x64xf32>, %y: tensor<1x64xf32>, %w: tensor<100x64xf32> {kiln.constant = "w"}) -> (tensor<16x100xf32>, tensor<1x100xf32>) {
  // expected-remark @+1 {{[schedule-cpu]}}
  %0 = "kiln.matmul"(%x, %w) {transpose_lhs = false, transpose_rhs = true} : (tensor<16x64xf32>, tensor<100x64xf32>) -> tensor<16x100xf32>
  // expected-remark @+1 {{[schedule-cpu]}}
  %1 = "kiln.matmul"(%y, %w) {transpose_lhs = false, transpose_rhs = true} : (tensor<1x64xf32>, tensor<100x64xf32>) -> tensor<1x100xf32>
  return %0, %1 : tensor<16x100xf32>, tensor<1x100xf32>
}

// -----

// Products of integers read their constant in groups of steps of k (as many as the CPU's instruction takes), the last
// of which is filled up.

// CHECK-LABEL: func.func @integers
// CHECK: %[[P:.*]] = "kiln.pack"(%arg1) {elements = {{[0-9]+}} : i64, layout = affine_map<(d0, d1) -> ((((d0 floordiv [[LANES:[0-9]+]]) * {{[0-9]+}} + d1 floordiv [[GROUP:[24]]]) * [[LANES]] + d0 mod [[LANES]]) * [[GROUP]] + d1 mod [[GROUP]])>}
// CHECK: "kiln.fusion"(%arg0, %[[P]])
// CHECK: kernel = "cpu.gemm.{{(amx_)?}}int8"
// CHECK-SAME: packed = true
func.func @integers(%x: tensor<16x63xi8>, %w: tensor<100x63xi8> {kiln.constant = "w"}) -> tensor<16x100xi32> {
  // expected-remark @+1 {{rhs a packed constant}}
  %0 = "kiln.matmul"(%x, %w) {transpose_lhs = false, transpose_rhs = true} : (tensor<16x63xi8>, tensor<100x63xi8>) -> tensor<16x100xi32>
  return %0 : tensor<16x100xi32>
}
