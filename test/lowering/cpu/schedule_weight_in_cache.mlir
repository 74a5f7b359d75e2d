// Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// RUN: kiln-opt %s --cpu=x86-64-v4+l2=1048576 --pass-pipeline="fuse{row-blocks=false},assign-layouts,schedule-cpu" | filecheck %s
// RUN: kiln-opt %s --cpu=x86-64-v4+l2=262144 --pass-pipeline="fuse{row-blocks=false},assign-layouts,schedule-cpu" | filecheck %s --check-prefix=SMALL

// A cell of a recurrent layer reads the same weight at each step: where that stays in the second-level cache, dot products
// read it as it is, and nothing is packed.

// CHECK-LABEL: func.func @rows_8(
// CHECK: kernel = "cpu.gemm.dot"
// SMALL-LABEL: func.func @rows_8(
// SMALL: kernel = "cpu.gemm.blocked"
func.func @rows_8(%x: tensor<8x256xf32>, %w: tensor<512x256xf32>) -> tensor<8x512xf32> {
  %0 = "kiln.matmul"(%x, %w) {transpose_lhs = false, transpose_rhs = true}
    : (tensor<8x256xf32>, tensor<512x256xf32>) -> tensor<8x512xf32>
  return %0 : tensor<8x512xf32>
}

// CHECK-LABEL: func.func @rows_40(
// CHECK: kernel = "cpu.gemm.{{blocked|vendor}}"
func.func @rows_40(%x: tensor<40x256xf32>, %w: tensor<512x256xf32>) -> tensor<40x512xf32> {
  %0 = "kiln.matmul"(%x, %w) {transpose_lhs = false, transpose_rhs = true}
    : (tensor<40x256xf32>, tensor<512x256xf32>) -> tensor<40x512xf32>
  return %0 : tensor<40x512xf32>
}
