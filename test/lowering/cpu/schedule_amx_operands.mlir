// Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// RUN: kiln-opt %s --cpu=x86-64-v4+amx-bf16+amx-int8+amx-tile+avx512bf16+avx512vnni+l2=2097152+library=32 --pass-pipeline="fuse{row-blocks=false},assign-layouts,schedule-cpu" | filecheck %s

// Which operand of a product AMX reads where it lies: `transposed` says that it is the weight.

// Few rows: the weight is read where it lies, and the input is packed.
// CHECK-LABEL: func.func @of_16x768x768(
// CHECK: kernel = "cpu.gemm.amx_bf16", {{.*}}transposed = true
func.func @of_16x768x768(%x: tensor<16x768xbf16>, %w: tensor<768x768xbf16>) -> tensor<16x768xbf16> {
  %0 = "kiln.matmul"(%x, %w) {transpose_lhs = false, transpose_rhs = true}
    : (tensor<16x768xbf16>, tensor<768x768xbf16>) -> tensor<16x768xbf16>
  return %0 : tensor<16x768xbf16>
}

// CHECK-LABEL: func.func @of_128x768x768(
// CHECK: kernel = "cpu.gemm.amx_bf16", {{.*}}transposed = true
func.func @of_128x768x768(%x: tensor<128x768xbf16>, %w: tensor<768x768xbf16>) -> tensor<128x768xbf16> {
  %0 = "kiln.matmul"(%x, %w) {transpose_lhs = false, transpose_rhs = true}
    : (tensor<128x768xbf16>, tensor<768x768xbf16>) -> tensor<128x768xbf16>
  return %0 : tensor<128x768xbf16>
}

// Many short rows: the weight is packed once.
// CHECK-LABEL: func.func @of_512x768x768(
// CHECK: kernel = "cpu.gemm.amx_bf16", {{.*}}pack_lhs = {{true|false}}, width
func.func @of_512x768x768(%x: tensor<512x768xbf16>, %w: tensor<768x768xbf16>) -> tensor<512x768xbf16> {
  %0 = "kiln.matmul"(%x, %w) {transpose_lhs = false, transpose_rhs = true}
    : (tensor<512x768xbf16>, tensor<768x768xbf16>) -> tensor<512x768xbf16>
  return %0 : tensor<512x768xbf16>
}

// Long rows of a weight.
// CHECK-LABEL: func.func @of_128x768x3072(
// CHECK: kernel = "cpu.gemm.amx_bf16", {{.*}}transposed = true
func.func @of_128x768x3072(%x: tensor<128x3072xbf16>, %w: tensor<768x3072xbf16>) -> tensor<128x768xbf16> {
  %0 = "kiln.matmul"(%x, %w) {transpose_lhs = false, transpose_rhs = true}
    : (tensor<128x3072xbf16>, tensor<768x3072xbf16>) -> tensor<128x768xbf16>
  return %0 : tensor<128x768xbf16>
}

// CHECK-LABEL: func.func @of_512x768x3072(
// CHECK: kernel = "cpu.gemm.amx_bf16", {{.*}}transposed = true
func.func @of_512x768x3072(%x: tensor<512x3072xbf16>, %w: tensor<768x3072xbf16>) -> tensor<512x768xbf16> {
  %0 = "kiln.matmul"(%x, %w) {transpose_lhs = false, transpose_rhs = true}
    : (tensor<512x3072xbf16>, tensor<768x3072xbf16>) -> tensor<512x768xbf16>
  return %0 : tensor<512x768xbf16>
}

// CHECK-LABEL: func.func @of_2048x768x3072(
// CHECK: kernel = "cpu.gemm.amx_bf16", {{.*}}transposed = true
func.func @of_2048x768x3072(%x: tensor<2048x3072xbf16>, %w: tensor<768x3072xbf16>) -> tensor<2048x768xbf16> {
  %0 = "kiln.matmul"(%x, %w) {transpose_lhs = false, transpose_rhs = true}
    : (tensor<2048x3072xbf16>, tensor<768x3072xbf16>) -> tensor<2048x768xbf16>
  return %0 : tensor<2048x768xbf16>
}

// A weight [k, n] has to be packed.
// CHECK-LABEL: func.func @of_128x768x768_kn(
// CHECK: kernel = "cpu.gemm.amx_bf16", {{.*}}pack_lhs = {{true|false}}, width
func.func @of_128x768x768_kn(%x: tensor<128x768xbf16>, %w: tensor<768x768xbf16>) -> tensor<128x768xbf16> {
  %0 = "kiln.matmul"(%x, %w) {transpose_lhs = false, transpose_rhs = false}
    : (tensor<128x768xbf16>, tensor<768x768xbf16>) -> tensor<128x768xbf16>
  return %0 : tensor<128x768xbf16>
}

// So has one whose rows fill no tile.
// CHECK-LABEL: func.func @of_128x768x760(
// CHECK: kernel = "cpu.gemm.amx_bf16", {{.*}}pack_lhs = {{true|false}}, width
func.func @of_128x768x760(%x: tensor<128x760xbf16>, %w: tensor<768x760xbf16>) -> tensor<128x768xbf16> {
  %0 = "kiln.matmul"(%x, %w) {transpose_lhs = false, transpose_rhs = true}
    : (tensor<128x760xbf16>, tensor<768x760xbf16>) -> tensor<128x768xbf16>
  return %0 : tensor<128x768xbf16>
}

// CHECK-LABEL: func.func @of_3136x64x64(
// CHECK: kernel = "cpu.gemm.amx_bf16", {{.*}}pack_lhs = {{true|false}}, width
func.func @of_3136x64x64(%x: tensor<3136x64xbf16>, %w: tensor<64x64xbf16>) -> tensor<3136x64xbf16> {
  %0 = "kiln.matmul"(%x, %w) {transpose_lhs = false, transpose_rhs = true}
    : (tensor<3136x64xbf16>, tensor<64x64xbf16>) -> tensor<3136x64xbf16>
  return %0 : tensor<3136x64xbf16>
}
