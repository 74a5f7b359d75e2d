// Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// MKL is in wheels of PyTorch for x86.
// REQUIRES: x86
// RUN: kiln-opt %s --cpu=x86-64-v4+amx-bf16+amx-int8+amx-tile+avx512bf16+avx512vnni+l2=2097152+float-parts --pass-pipeline="fuse{row-blocks=false},assign-layouts,schedule-cpu" | filecheck %s
// RUN: kiln-opt %s --cpu=x86-64-v4+amx-bf16+amx-int8+amx-tile+avx512bf16+avx512vnni+l2=2097152 --pass-pipeline="fuse{row-blocks=false},assign-layouts,schedule-cpu" | filecheck %s --check-prefix=USUAL
// RUN: kiln-opt %s --cpu=x86-64-v4+float-parts --pass-pipeline="fuse{row-blocks=false},assign-layouts,schedule-cpu" | filecheck %s --check-prefix=USUAL

// Products of f32 as three products of bf16 on AMX, from some size on, where the user allows it.
// USUAL-NOT: amx_bf16x3
// USUAL: kernel = "cpu.gemm.
// USUAL-NOT: amx_bf16x3

// CHECK-LABEL: func.func @f32_128x768x768(
// CHECK: kernel = "cpu.gemm.amx_bf16x3"
func.func @f32_128x768x768(%x: tensor<128x768xf32>, %w: tensor<768x768xf32>) -> tensor<128x768xf32> {
  %0 = "kiln.matmul"(%x, %w) {transpose_lhs = false, transpose_rhs = true}
    : (tensor<128x768xf32>, tensor<768x768xf32>) -> tensor<128x768xf32>
  return %0 : tensor<128x768xf32>
}

// CHECK-LABEL: func.func @f32_48x768x768(
// CHECK: kernel = "cpu.gemm.amx_bf16x3"
func.func @f32_48x768x768(%x: tensor<48x768xf32>, %w: tensor<768x768xf32>) -> tensor<48x768xf32> {
  %0 = "kiln.matmul"(%x, %w) {transpose_lhs = false, transpose_rhs = true}
    : (tensor<48x768xf32>, tensor<768x768xf32>) -> tensor<48x768xf32>
  return %0 : tensor<48x768xf32>
}

// CHECK-LABEL: func.func @f32_128x768x768_kn(
// CHECK: kernel = "cpu.gemm.amx_bf16x3"
func.func @f32_128x768x768_kn(%x: tensor<128x768xf32>, %w: tensor<768x768xf32>) -> tensor<128x768xf32> {
  %0 = "kiln.matmul"(%x, %w) {transpose_lhs = false, transpose_rhs = false}
    : (tensor<128x768xf32>, tensor<768x768xf32>) -> tensor<128x768xf32>
  return %0 : tensor<128x768xf32>
}

// CHECK-LABEL: func.func @f32_40x768x768(
// CHECK-NOT: amx_bf16x3
// CHECK: kernel = "cpu.gemm.
// CHECK-NOT: amx_bf16x3
func.func @f32_40x768x768(%x: tensor<40x768xf32>, %w: tensor<768x768xf32>) -> tensor<40x768xf32> {
  %0 = "kiln.matmul"(%x, %w) {transpose_lhs = false, transpose_rhs = true}
    : (tensor<40x768xf32>, tensor<768x768xf32>) -> tensor<40x768xf32>
  return %0 : tensor<40x768xf32>
}

// CHECK-LABEL: func.func @f32_64x768x768_kn(
// CHECK-NOT: amx_bf16x3
// CHECK: kernel = "cpu.gemm.
// CHECK-NOT: amx_bf16x3
func.func @f32_64x768x768_kn(%x: tensor<64x768xf32>, %w: tensor<768x768xf32>) -> tensor<64x768xf32> {
  %0 = "kiln.matmul"(%x, %w) {transpose_lhs = false, transpose_rhs = false}
    : (tensor<64x768xf32>, tensor<768x768xf32>) -> tensor<64x768xf32>
  return %0 : tensor<64x768xf32>
}

// CHECK-LABEL: func.func @f32_128x64x768(
// CHECK-NOT: amx_bf16x3
// CHECK: kernel = "cpu.gemm.
// CHECK-NOT: amx_bf16x3
func.func @f32_128x64x768(%x: tensor<128x768xf32>, %w: tensor<64x768xf32>) -> tensor<128x64xf32> {
  %0 = "kiln.matmul"(%x, %w) {transpose_lhs = false, transpose_rhs = true}
    : (tensor<128x768xf32>, tensor<64x768xf32>) -> tensor<128x64xf32>
  return %0 : tensor<128x64xf32>
}

// CHECK-LABEL: func.func @f32_128x768x64(
// CHECK-NOT: amx_bf16x3
// CHECK: kernel = "cpu.gemm.
// CHECK-NOT: amx_bf16x3
func.func @f32_128x768x64(%x: tensor<128x64xf32>, %w: tensor<768x64xf32>) -> tensor<128x768xf32> {
  %0 = "kiln.matmul"(%x, %w) {transpose_lhs = false, transpose_rhs = true}
    : (tensor<128x64xf32>, tensor<768x64xf32>) -> tensor<128x768xf32>
  return %0 : tensor<128x768xf32>
}

// CHECK-LABEL: func.func @f64_128x768x768(
// CHECK-NOT: amx_bf16x3
// CHECK: kernel = "cpu.gemm.
// CHECK-NOT: amx_bf16x3
func.func @f64_128x768x768(%x: tensor<128x768xf64>, %w: tensor<768x768xf64>) -> tensor<128x768xf64> {
  %0 = "kiln.matmul"(%x, %w) {transpose_lhs = false, transpose_rhs = true}
    : (tensor<128x768xf64>, tensor<768x768xf64>) -> tensor<128x768xf64>
  return %0 : tensor<128x768xf64>
}

// CHECK-LABEL: func.func @bf16_128x768x768(
// CHECK-NOT: amx_bf16x3
// CHECK: kernel = "cpu.gemm.
// CHECK-NOT: amx_bf16x3
func.func @bf16_128x768x768(%x: tensor<128x768xbf16>, %w: tensor<768x768xbf16>) -> tensor<128x768xbf16> {
  %0 = "kiln.matmul"(%x, %w) {transpose_lhs = false, transpose_rhs = true}
    : (tensor<128x768xbf16>, tensor<768x768xbf16>) -> tensor<128x768xbf16>
  return %0 : tensor<128x768xbf16>
}
