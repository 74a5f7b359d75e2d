// Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// RUN: kiln-opt %s --pass-pipeline="split-products" | filecheck %s

// Into how many parts the rule splits the sums of a product that has too few tiles for all multiprocessors.

// CHECK-LABEL: func.func @of_64x64x16384(
// CHECK: kiln.matmul{{.*}} -> tensor<32x64x64xf32>
func.func @of_64x64x16384(%x: tensor<64x16384xbf16>, %w: tensor<64x16384xbf16>) -> tensor<64x64xbf16> {
  %0 = "kiln.matmul"(%x, %w) {transpose_lhs = false, transpose_rhs = true}
    : (tensor<64x16384xbf16>, tensor<64x16384xbf16>) -> tensor<64x64xbf16>
  return %0 : tensor<64x64xbf16>
}

// CHECK-LABEL: func.func @of_128x256x8192(
// CHECK: kiln.matmul{{.*}} -> tensor<8x128x256xf32>
func.func @of_128x256x8192(%x: tensor<128x8192xbf16>, %w: tensor<256x8192xbf16>) -> tensor<128x256xbf16> {
  %0 = "kiln.matmul"(%x, %w) {transpose_lhs = false, transpose_rhs = true}
    : (tensor<128x8192xbf16>, tensor<256x8192xbf16>) -> tensor<128x256xbf16>
  return %0 : tensor<128x256xbf16>
}

// CHECK-LABEL: func.func @of_512x512x8192(
// CHECK: kiln.matmul{{.*}} -> tensor<4x512x512xf32>
func.func @of_512x512x8192(%x: tensor<512x8192xbf16>, %w: tensor<512x8192xbf16>) -> tensor<512x512xbf16> {
  %0 = "kiln.matmul"(%x, %w) {transpose_lhs = false, transpose_rhs = true}
    : (tensor<512x8192xbf16>, tensor<512x8192xbf16>) -> tensor<512x512xbf16>
  return %0 : tensor<512x512xbf16>
}

// CHECK-LABEL: func.func @of_256x1024x4096(
// CHECK: kiln.matmul{{.*}} -> tensor<256x1024xbf16>
func.func @of_256x1024x4096(%x: tensor<256x4096xbf16>, %w: tensor<1024x4096xbf16>) -> tensor<256x1024xbf16> {
  %0 = "kiln.matmul"(%x, %w) {transpose_lhs = false, transpose_rhs = true}
    : (tensor<256x4096xbf16>, tensor<1024x4096xbf16>) -> tensor<256x1024xbf16>
  return %0 : tensor<256x1024xbf16>
}

// CHECK-LABEL: func.func @of_1024x1024x1024(
// CHECK: kiln.matmul{{.*}} -> tensor<1024x1024xbf16>
func.func @of_1024x1024x1024(%x: tensor<1024x1024xbf16>, %w: tensor<1024x1024xbf16>) -> tensor<1024x1024xbf16> {
  %0 = "kiln.matmul"(%x, %w) {transpose_lhs = false, transpose_rhs = true}
    : (tensor<1024x1024xbf16>, tensor<1024x1024xbf16>) -> tensor<1024x1024xbf16>
  return %0 : tensor<1024x1024xbf16>
}
