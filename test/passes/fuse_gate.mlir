// Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// RUN: kiln-opt %s --split-input-file --pass-pipeline="fuse{row-blocks=false}" | filecheck %s

// Two products of one matrix that are multiplied: one kernel, where programs never wait for each other as well.

// CHECK-LABEL: func.func @gate
// CHECK: "kiln.fusion"
// CHECK-COUNT-2: "kiln.matmul"
// CHECK: linalg.generic
// CHECK: kind = "matmul"
// CHECK-NOT: "kiln.fusion"
// CHECK: return
func.func @gate(%x: tensor<64x48xf32>, %g: tensor<80x48xf32>, %u: tensor<80x48xf32>) -> tensor<64x80xf32> {
  %0 = "kiln.matmul"(%x, %g) {transpose_lhs = false, transpose_rhs = true}
    : (tensor<64x48xf32>, tensor<80x48xf32>) -> tensor<64x80xf32>
  %1 = "kiln.matmul"(%x, %u) {transpose_lhs = false, transpose_rhs = true}
    : (tensor<64x48xf32>, tensor<80x48xf32>) -> tensor<64x80xf32>
  %e = "kiln.empty"() {shape = affine_map<() -> (64, 80)>} : () -> tensor<64x80xf32>
  %2 = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0, d1)>],
      iterator_types = ["parallel", "parallel"]} ins(%0, %1 : tensor<64x80xf32>, tensor<64x80xf32>) outs(%e : tensor<64x80xf32>) {
  ^bb0(%p: f32, %q: f32, %o: f32):
    %s = arith.mulf %p, %q : f32
    linalg.yield %s : f32
  } -> tensor<64x80xf32>
  return %2 : tensor<64x80xf32>
}

// -----

// Products of different matrices are two kernels: each is the epilogue of only one of them.

// CHECK-LABEL: func.func @two_matrices
// CHECK: "kiln.fusion"
// CHECK: "kiln.matmul"
// CHECK: kind = "matmul"
// CHECK: "kiln.fusion"
// CHECK: "kiln.matmul"
// CHECK: kind = "matmul"
func.func @two_matrices(%x: tensor<64x48xf32>, %y: tensor<64x48xf32>, %g: tensor<80x48xf32>) -> tensor<64x80xf32> {
  %0 = "kiln.matmul"(%x, %g) {transpose_lhs = false, transpose_rhs = true}
    : (tensor<64x48xf32>, tensor<80x48xf32>) -> tensor<64x80xf32>
  %1 = "kiln.matmul"(%y, %g) {transpose_lhs = false, transpose_rhs = true}
    : (tensor<64x48xf32>, tensor<80x48xf32>) -> tensor<64x80xf32>
  %e = "kiln.empty"() {shape = affine_map<() -> (64, 80)>} : () -> tensor<64x80xf32>
  %2 = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0, d1)>],
      iterator_types = ["parallel", "parallel"]} ins(%0, %1 : tensor<64x80xf32>, tensor<64x80xf32>) outs(%e : tensor<64x80xf32>) {
  ^bb0(%p: f32, %q: f32, %o: f32):
    %s = arith.mulf %p, %q : f32
    linalg.yield %s : f32
  } -> tensor<64x80xf32>
  return %2 : tensor<64x80xf32>
}
