// Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// RUN: kiln-opt %s --cpu=x86-64-v4+amx-bf16+amx-int8+amx-tile+avx512bf16+avx512vnni+l2=2097152+library=32 --pass-pipeline="fuse{row-blocks=false},assign-layouts,schedule-cpu" | filecheck %s --check-prefix=AMX
// RUN: kiln-opt %s --cpu=x86-64-v4+avx512bf16+library=32 --pass-pipeline="fuse{row-blocks=false},assign-layouts,schedule-cpu" | filecheck %s --check-prefix=DOT
// RUN: kiln-opt %s --cpu=x86-64-v4+library=32 --pass-pipeline="fuse{row-blocks=false},assign-layouts,schedule-cpu" | filecheck %s --check-prefix=AVX512

// A constant weight [n, k] is packed once, where the code is loaded, in the order of the unit that multiplies it.

// Few rows and some: the panels of each unit. A CPU without any multiplies what it widened at the call, unpacked before.

// AMX-LABEL: func.func @rows_128(
// AMX: kernel = "cpu.gemm.amx_bf16"{{.*}}packed = true
// DOT-LABEL: func.func @rows_128(
// DOT: kernel = "cpu.gemm.vnni_bf16"{{.*}}packed = true
// AVX512-LABEL: func.func @rows_128(
// AVX512: kernel = "cpu.gemm.blocked"
// AVX512-NOT: packed = true
func.func @rows_128(%x: tensor<128x4096xbf16>, %w: tensor<4096x4096xbf16> {kiln.constant = "w"}) -> tensor<128x4096xbf16> {
  %0 = "kiln.matmul"(%x, %w) {transpose_lhs = false, transpose_rhs = true} : (tensor<128x4096xbf16>, tensor<4096x4096xbf16>) -> tensor<128x4096xbf16>
  return %0 : tensor<128x4096xbf16>
}

// AMX multiplies many rows with the rows of the weight as the rows of tiles, read as they are.

// AMX-LABEL: func.func @rows_512(
// AMX-NOT: packed = true
// AMX: kernel = "cpu.gemm.amx_bf16"{{.*}}transposed = true
// AMX-NOT: packed = true
// DOT-LABEL: func.func @rows_512(
// DOT: kernel = "cpu.gemm.vnni_bf16"{{.*}}packed = true
func.func @rows_512(%x: tensor<512x4096xbf16>, %w: tensor<4096x4096xbf16> {kiln.constant = "w"}) -> tensor<512x4096xbf16> {
  %0 = "kiln.matmul"(%x, %w) {transpose_lhs = false, transpose_rhs = true} : (tensor<512x4096xbf16>, tensor<4096x4096xbf16>) -> tensor<512x4096xbf16>
  return %0 : tensor<512x4096xbf16>
}

// f32: panels of vectors on each of them.

// AMX-LABEL: func.func @f32(
// AMX: kernel = "cpu.gemm.blocked"{{.*}}packed = true
// DOT-LABEL: func.func @f32(
// DOT: kernel = "cpu.gemm.blocked"{{.*}}packed = true
// AVX512-LABEL: func.func @f32(
// AVX512: kernel = "cpu.gemm.blocked"{{.*}}packed = true
func.func @f32(%x: tensor<128x4096xf32>, %w: tensor<4096x4096xf32> {kiln.constant = "w"}) -> tensor<128x4096xf32> {
  %0 = "kiln.matmul"(%x, %w) {transpose_lhs = false, transpose_rhs = true} : (tensor<128x4096xf32>, tensor<4096x4096xf32>) -> tensor<128x4096xf32>
  return %0 : tensor<128x4096xf32>
}
