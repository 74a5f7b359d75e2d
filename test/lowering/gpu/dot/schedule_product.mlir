// Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// RUN: kiln-opt %s --pass-pipeline="fuse{row-blocks=false},assign-layouts,schedule-gpu" | filecheck %s

// The tiles of products on an H200, with operands through pointers: the sizes that were measured.

// CHECK-LABEL: func.func @of_16x4096x4096(
// CHECK: schedule = {block_k = 128 : i64, block_m = 16 : i64, block_n = 32 : i64,
// CHECK-SAME: num_stages = 8 : i64, num_warps = 4 : i64
func.func @of_16x4096x4096(%x: tensor<16x4096xbf16>, %w: tensor<4096x4096xbf16>) -> tensor<16x4096xbf16> {
  %0 = "kiln.matmul"(%x, %w) {transpose_lhs = false, transpose_rhs = true}
    : (tensor<16x4096xbf16>, tensor<4096x4096xbf16>) -> tensor<16x4096xbf16>
  return %0 : tensor<16x4096xbf16>
}

// CHECK-LABEL: func.func @of_64x4096x4096(
// CHECK: schedule = {block_k = 256 : i64, block_m = 64 : i64, block_n = 32 : i64,
// CHECK-SAME: num_stages = 4 : i64, num_warps = 4 : i64
func.func @of_64x4096x4096(%x: tensor<64x4096xbf16>, %w: tensor<4096x4096xbf16>) -> tensor<64x4096xbf16> {
  %0 = "kiln.matmul"(%x, %w) {transpose_lhs = false, transpose_rhs = true}
    : (tensor<64x4096xbf16>, tensor<4096x4096xbf16>) -> tensor<64x4096xbf16>
  return %0 : tensor<64x4096xbf16>
}

// CHECK-LABEL: func.func @of_128x4096x4096(
// CHECK: schedule = {block_k = 128 : i64, block_m = 64 : i64, block_n = 64 : i64,
// CHECK-SAME: num_stages = 5 : i64, num_warps = 4 : i64
func.func @of_128x4096x4096(%x: tensor<128x4096xbf16>, %w: tensor<4096x4096xbf16>) -> tensor<128x4096xbf16> {
  %0 = "kiln.matmul"(%x, %w) {transpose_lhs = false, transpose_rhs = true}
    : (tensor<128x4096xbf16>, tensor<4096x4096xbf16>) -> tensor<128x4096xbf16>
  return %0 : tensor<128x4096xbf16>
}

// CHECK-LABEL: func.func @of_256x4096x4096(
// CHECK: schedule = {block_k = 128 : i64, block_m = 64 : i64, block_n = 128 : i64,
// CHECK-SAME: num_stages = 4 : i64, num_warps = 4 : i64
func.func @of_256x4096x4096(%x: tensor<256x4096xbf16>, %w: tensor<4096x4096xbf16>) -> tensor<256x4096xbf16> {
  %0 = "kiln.matmul"(%x, %w) {transpose_lhs = false, transpose_rhs = true}
    : (tensor<256x4096xbf16>, tensor<4096x4096xbf16>) -> tensor<256x4096xbf16>
  return %0 : tensor<256x4096xbf16>
}

// CHECK-LABEL: func.func @of_1024x1024x1024(
// CHECK: schedule = {block_k = 128 : i64, block_m = 64 : i64, block_n = 128 : i64,
// CHECK-SAME: num_stages = 4 : i64, num_warps = 4 : i64
func.func @of_1024x1024x1024(%x: tensor<1024x1024xbf16>, %w: tensor<1024x1024xbf16>) -> tensor<1024x1024xbf16> {
  %0 = "kiln.matmul"(%x, %w) {transpose_lhs = false, transpose_rhs = true}
    : (tensor<1024x1024xbf16>, tensor<1024x1024xbf16>) -> tensor<1024x1024xbf16>
  return %0 : tensor<1024x1024xbf16>
}

// CHECK-LABEL: func.func @of_512x4096x4096(
// CHECK: schedule = {block_k = 64 : i64, block_m = 128 : i64, block_n = 128 : i64,
// CHECK-SAME: num_stages = 4 : i64, num_warps = 4 : i64
func.func @of_512x4096x4096(%x: tensor<512x4096xbf16>, %w: tensor<4096x4096xbf16>) -> tensor<512x4096xbf16> {
  %0 = "kiln.matmul"(%x, %w) {transpose_lhs = false, transpose_rhs = true}
    : (tensor<512x4096xbf16>, tensor<4096x4096xbf16>) -> tensor<512x4096xbf16>
  return %0 : tensor<512x4096xbf16>
}

// CHECK-LABEL: func.func @of_2048x4096x4096(
// CHECK: schedule = {block_k = 64 : i64, block_m = 128 : i64, block_n = 256 : i64,
// CHECK-SAME: num_stages = 3 : i64, num_warps = 8 : i64
func.func @of_2048x4096x4096(%x: tensor<2048x4096xbf16>, %w: tensor<4096x4096xbf16>) -> tensor<2048x4096xbf16> {
  %0 = "kiln.matmul"(%x, %w) {transpose_lhs = false, transpose_rhs = true}
    : (tensor<2048x4096xbf16>, tensor<4096x4096xbf16>) -> tensor<2048x4096xbf16>
  return %0 : tensor<2048x4096xbf16>
}

// CHECK-LABEL: func.func @of_8192x8192x8192(
// CHECK: schedule = {block_k = 64 : i64, block_m = 128 : i64, block_n = 256 : i64,
// CHECK-SAME: num_stages = 3 : i64, num_warps = 8 : i64
func.func @of_8192x8192x8192(%x: tensor<8192x8192xbf16>, %w: tensor<8192x8192xbf16>) -> tensor<8192x8192xbf16> {
  %0 = "kiln.matmul"(%x, %w) {transpose_lhs = false, transpose_rhs = true}
    : (tensor<8192x8192xbf16>, tensor<8192x8192xbf16>) -> tensor<8192x8192xbf16>
  return %0 : tensor<8192x8192xbf16>
}

// CHECK-LABEL: func.func @of_4000x4104x4104(
// CHECK: schedule = {block_k = 64 : i64, block_m = 256 : i64, block_n = 128 : i64,
// CHECK-SAME: num_stages = 3 : i64, num_warps = 8 : i64
func.func @of_4000x4104x4104(%x: tensor<4000x4104xbf16>, %w: tensor<4104x4104xbf16>) -> tensor<4000x4104xbf16> {
  %0 = "kiln.matmul"(%x, %w) {transpose_lhs = false, transpose_rhs = true}
    : (tensor<4000x4104xbf16>, tensor<4104x4104xbf16>) -> tensor<4000x4104xbf16>
  return %0 : tensor<4000x4104xbf16>
}

// Rows of the result that start anywhere are stored in long pieces.
// CHECK-LABEL: func.func @of_16384x50257x1024(
// CHECK: schedule = {block_k = 64 : i64, block_m = 128 : i64, block_n = 256 : i64,
// CHECK-SAME: num_stages = 3 : i64, num_warps = 8 : i64
func.func @of_16384x50257x1024(%x: tensor<16384x1024xbf16>, %w: tensor<50257x1024xbf16>) -> tensor<16384x50257xbf16> {
  %0 = "kiln.matmul"(%x, %w) {transpose_lhs = false, transpose_rhs = true}
    : (tensor<16384x1024xbf16>, tensor<50257x1024xbf16>) -> tensor<16384x50257xbf16>
  return %0 : tensor<16384x50257xbf16>
}

// One row: the sums run along the columns of a weight [n, k], whole rows of it at a time.
// CHECK-LABEL: func.func @one_row(
// CHECK: schedule = {block_k = 4096 : i64, block_n = 1 : i64,
// CHECK-SAME: kernel = "gpu.gemm.gemv"
func.func @one_row(%x: tensor<1x4096xbf16>, %w: tensor<4096x4096xbf16>) -> tensor<1x4096xbf16> {
  %0 = "kiln.matmul"(%x, %w) {transpose_lhs = false, transpose_rhs = true}
    : (tensor<1x4096xbf16>, tensor<4096x4096xbf16>) -> tensor<1x4096xbf16>
  return %0 : tensor<1x4096xbf16>
}

// A weight [k, n] has its columns side by side, so a program takes several.
// CHECK-LABEL: func.func @one_row_of_columns(
// CHECK: schedule = {block_k = 64 : i64, block_n = 64 : i64, kernel = "gpu.gemm.gemv"
func.func @one_row_of_columns(%x: tensor<1x4096xbf16>, %w: tensor<4096x4096xbf16>) -> tensor<1x4096xbf16> {
  %0 = "kiln.matmul"(%x, %w) {transpose_lhs = false, transpose_rhs = false}
    : (tensor<1x4096xbf16>, tensor<4096x4096xbf16>) -> tensor<1x4096xbf16>
  return %0 : tensor<1x4096xbf16>
}
