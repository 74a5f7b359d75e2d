// Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// REQUIRES: triton
// RUN: kiln-opt %s --split-input-file --pass-pipeline="fuse,assign-layouts,schedule-gpu,outline-kernels{gpu=true},emit-kernels{target=gpu},assemble{arch=sm_90}" --print-kernels=ptx | filecheck %s

// Three products of one matrix, one behind the other in a kernel: the loop of each is still pipelined.

// CHECK-LABEL: // kernel matmul
// CHECK: cp.async
// CHECK-NOT: // kernel
func.func @main(%x: tensor<512x96xf32>, %q: tensor<64x96xf32>, %k: tensor<24x96xf32>, %v: tensor<24x96xf32>)
    -> (tensor<512x64xf32>, tensor<512x24xf32>, tensor<512x24xf32>) {
  %1 = "kiln.matmul"(%x, %q) {transpose_lhs = false, transpose_rhs = true}
    : (tensor<512x96xf32>, tensor<64x96xf32>) -> tensor<512x64xf32>
  %2 = "kiln.matmul"(%x, %k) {transpose_lhs = false, transpose_rhs = true}
    : (tensor<512x96xf32>, tensor<24x96xf32>) -> tensor<512x24xf32>
  %3 = "kiln.matmul"(%x, %v) {transpose_lhs = false, transpose_rhs = true}
    : (tensor<512x96xf32>, tensor<24x96xf32>) -> tensor<512x24xf32>
  return %1, %2, %3 : tensor<512x64xf32>, tensor<512x24xf32>, tensor<512x24xf32>
}
