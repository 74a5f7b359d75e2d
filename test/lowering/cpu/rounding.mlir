// Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// RUN: kiln-opt %s --cpu=x86-64-v4+avx512bf16 --split-input-file --pass-pipeline="fuse,assign-layouts,schedule-cpu,emit-cpu-kernels" | filecheck %s --check-prefix=BF16
// RUN: kiln-opt %s --cpu=x86-64-v4 --split-input-file --pass-pipeline="fuse,assign-layouts,schedule-cpu,emit-cpu-kernels" | filecheck %s --check-prefix=AVX512

// Sums of f32 are rounded once to the 16 bits of the result: to bf16 by an instruction, where the CPU has it, else
// and to f16 by a conversion that LLVM expands.

// BF16-LABEL: func.func @matmul(
// BF16: dpbf16ps
// BF16: %[[ROUNDED:.*]] = llvm.call_intrinsic "llvm.x86.avx512bf16.cvtneps2bf16.512"
// BF16: %[[BITS:.*]] = llvm.bitcast %[[ROUNDED]]
// BF16: %[[STORED:.*]] = vector.bitcast %[[BITS]]
// BF16: vector.store %[[STORED]], %arg2
// AVX512-LABEL: func.func @matmul(
// AVX512-NOT: llvm.x86
// AVX512: vector.fma
// AVX512: %[[ROUNDED:.*]] = arith.truncf {{.*}} : vector<16xf32> to vector<16xbf16>
// AVX512: vector.store %[[ROUNDED]], %arg2
// AVX512-NOT: llvm.x86
func.func @main(%x: tensor<4x64xbf16>, %w: tensor<16x64xbf16>) -> tensor<4x16xbf16> {
  %0 = "kiln.matmul"(%x, %w) {transpose_lhs = false, transpose_rhs = true} : (tensor<4x64xbf16>, tensor<16x64xbf16>) -> tensor<4x16xbf16>
  return %0 : tensor<4x16xbf16>
}

// -----

// BF16-LABEL: func.func @matmul(
// BF16-NOT: avx512bf16
// BF16: arith.truncf {{.*}} : vector<16xf32> to vector<16xf16>
// BF16-NOT: avx512bf16
// BF16: return
// AVX512-LABEL: func.func @matmul(
// AVX512: arith.truncf {{.*}} : vector<16xf32> to vector<16xf16>
func.func @main(%x: tensor<4x64xf16>, %w: tensor<16x64xf16>) -> tensor<4x16xf16> {
  %0 = "kiln.matmul"(%x, %w) {transpose_lhs = false, transpose_rhs = true} : (tensor<4x64xf16>, tensor<16x64xf16>) -> tensor<4x16xf16>
  return %0 : tensor<4x16xf16>
}
