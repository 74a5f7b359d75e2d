// Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// RUN: kiln-opt %s --cpu=x86-64-v3 --pass-pipeline="fuse,assign-layouts,schedule-cpu" | filecheck %s --check-prefix=AVX2
// RUN: kiln-opt %s --cpu=x86-64-v4 --pass-pipeline="fuse,assign-layouts,schedule-cpu" | filecheck %s --check-prefix=AVX512
// RUN: not kiln-opt %s --cpu=zen4 2>&1 | filecheck %s --check-prefix=UNKNOWN
// RUN: not kiln-opt %s --cpu=x86-64-v4+l4=1 2>&1 | filecheck %s --check-prefix=FACT

// What is made for a CPU does not depend on the one that it is made on.

// AVX2: kernel = "cpu.gemm.blocked", {{.*}}width = 8 : i64
// AVX512: kernel = "cpu.gemm.blocked", {{.*}}width = 16 : i64
// UNKNOWN: kiln-opt: error: unknown cpu 'zen4'; known are x86-64, x86-64-v2, x86-64-v3, x86-64-v4
// FACT: kiln-opt: error: cpu 'x86-64-v4+l4=1': expected one of l2, cores, library and a number, found 'l4=1'
func.func @main(%x: tensor<1x64xf32>, %w: tensor<64x32xf32>) -> tensor<1x32xf32> {
  %0 = "kiln.matmul"(%x, %w) {transpose_lhs = false, transpose_rhs = false} : (tensor<1x64xf32>, tensor<64x32xf32>) -> tensor<1x32xf32>
  return %0 : tensor<1x32xf32>
}
