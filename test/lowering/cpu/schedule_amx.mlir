// Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// RUN: kiln-opt %s --cpu=x86-64-v4+amx-bf16+amx-int8+amx-tile+avx512bf16+avx512vnni+l2=2097152+library=32 --pass-pipeline="fuse{row-blocks=false},assign-layouts,schedule-cpu" | filecheck %s
// RUN: kiln-opt %s --cpu=x86-64-v4+avx512bf16 --pass-pipeline="fuse{row-blocks=false},assign-layouts,schedule-cpu" | filecheck %s --check-prefix=VNNI
// RUN: kiln-opt %s --cpu=x86-64-v4+library=32 --pass-pipeline="fuse{row-blocks=false},assign-layouts,schedule-cpu" | filecheck %s --check-prefix=AVX512

// Products of bf16 take AMX from three rows on. A CPU without it multiplies pairs of bf16, or widens them to f32.

// CHECK-LABEL: func.func @rows_1(
// CHECK: kernel = "cpu.gemm.dot"
func.func @rows_1(%x: tensor<1x64xbf16>, %w: tensor<64x64xbf16>) -> tensor<1x64xbf16> {
  %0 = "kiln.matmul"(%x, %w) {transpose_lhs = false, transpose_rhs = true}
    : (tensor<1x64xbf16>, tensor<64x64xbf16>) -> tensor<1x64xbf16>
  return %0 : tensor<1x64xbf16>
}

// CHECK-LABEL: func.func @rows_2(
// CHECK: kernel = "cpu.gemm.dot"
func.func @rows_2(%x: tensor<2x64xbf16>, %w: tensor<64x64xbf16>) -> tensor<2x64xbf16> {
  %0 = "kiln.matmul"(%x, %w) {transpose_lhs = false, transpose_rhs = true}
    : (tensor<2x64xbf16>, tensor<64x64xbf16>) -> tensor<2x64xbf16>
  return %0 : tensor<2x64xbf16>
}

// Rows enough for a tile.
// CHECK-LABEL: func.func @rows_3(
// CHECK: kernel = "cpu.gemm.amx_bf16"
func.func @rows_3(%x: tensor<3x64xbf16>, %w: tensor<64x64xbf16>) -> tensor<3x64xbf16> {
  %0 = "kiln.matmul"(%x, %w) {transpose_lhs = false, transpose_rhs = true}
    : (tensor<3x64xbf16>, tensor<64x64xbf16>) -> tensor<3x64xbf16>
  return %0 : tensor<3x64xbf16>
}

// CHECK-LABEL: func.func @rows_128(
// CHECK: kernel = "cpu.gemm.amx_bf16"
// VNNI-LABEL: func.func @rows_128(
// VNNI: kernel = "cpu.gemm.vnni_bf16"
// AVX512-LABEL: func.func @rows_128(
// AVX512: kernel = "cpu.gemm.blocked"
func.func @rows_128(%x: tensor<128x64xbf16>, %w: tensor<64x64xbf16>) -> tensor<128x64xbf16> {
  %0 = "kiln.matmul"(%x, %w) {transpose_lhs = false, transpose_rhs = true}
    : (tensor<128x64xbf16>, tensor<64x64xbf16>) -> tensor<128x64xbf16>
  return %0 : tensor<128x64xbf16>
}

// A weight [k, n].
// CHECK-LABEL: func.func @columns(
// CHECK: kernel = "cpu.gemm.amx_bf16"
func.func @columns(%x: tensor<128x64xbf16>, %w: tensor<64x64xbf16>) -> tensor<128x64xbf16> {
  %0 = "kiln.matmul"(%x, %w) {transpose_lhs = false, transpose_rhs = false}
    : (tensor<128x64xbf16>, tensor<64x64xbf16>) -> tensor<128x64xbf16>
  return %0 : tensor<128x64xbf16>
}

// CHECK-LABEL: func.func @f32(
// CHECK: kernel = "cpu.gemm.blocked"
func.func @f32(%x: tensor<128x64xf32>, %w: tensor<64x64xf32>) -> tensor<128x64xf32> {
  %0 = "kiln.matmul"(%x, %w) {transpose_lhs = false, transpose_rhs = true}
    : (tensor<128x64xf32>, tensor<64x64xf32>) -> tensor<128x64xf32>
  return %0 : tensor<128x64xf32>
}

// CHECK-LABEL: func.func @f16(
// CHECK: kernel = "cpu.gemm.blocked"
func.func @f16(%x: tensor<128x64xf16>, %w: tensor<64x64xf16>) -> tensor<128x64xf16> {
  %0 = "kiln.matmul"(%x, %w) {transpose_lhs = false, transpose_rhs = true}
    : (tensor<128x64xf16>, tensor<64x64xf16>) -> tensor<128x64xf16>
  return %0 : tensor<128x64xf16>
}
