// Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// MKL, in wheels of PyTorch for x86, takes what parts of bf16 cannot hold.
// REQUIRES: x86
// RUN: kiln-opt %s --cpu=x86-64-v4+amx-bf16+amx-tile+avx512bf16+l2=2097152+float-parts --pass-pipeline="fuse,assign-layouts,schedule-cpu,emit-cpu-kernels" | filecheck %s

// f32 by tiles, where the user allows it: each operand is the sum of three parts of bf16, and six products of parts make
// a product, for each of four tiles of sums.

// CHECK-LABEL: func.func @matmul(
// CHECK: "llvm.x86.ldtilecfg"
// CHECK-COUNT-4: "llvm.x86.tilezero"
// CHECK: scf.for {{.*}} step %c32 {
// CHECK-COUNT-24: "llvm.x86.tdpbf16ps"
// CHECK-NOT: "llvm.x86.t
// CHECK: }
// CHECK-COUNT-4: "llvm.x86.tilestored64"
func.func @main(%x: tensor<128x768xf32>, %w: tensor<768x768xf32>) -> tensor<128x768xf32> {
  %0 = "kiln.matmul"(%x, %w) {transpose_lhs = false, transpose_rhs = true} : (tensor<128x768xf32>, tensor<768x768xf32>) -> tensor<128x768xf32>
  return %0 : tensor<128x768xf32>
}
