// Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// RUN: kiln-opt %s --pass-pipeline="choose-vendor{target=cuda tensor-maps=true}" | filecheck %s
// RUN: kiln-opt %s --pass-pipeline="choose-vendor{target=cuda tensor-maps=true arch=sm_80}" | filecheck %s --check-prefix=A100
// RUN: kiln-opt %s --pass-pipeline="choose-vendor{target=cuda tensor-maps=true arch=sm_100}" | filecheck %s --check-prefix=B200

// Products that are calls of cuBLAS, or stay Kiln's: points of the tables in lowering/gpu/choices/matmul.toml.

#both = affine_map<(d0, d1) -> (d0, d1)>
#column = affine_map<(d0, d1) -> (d1)>

// CHECK-LABEL: func.func @bf16_4096x4096x4096(
// CHECK: kiln.aten
func.func @bf16_4096x4096x4096(%x: tensor<4096x4096xbf16>, %w: tensor<4096x4096xbf16>) -> tensor<4096x4096xbf16> {
  %0 = "kiln.matmul"(%x, %w) {transpose_lhs = false, transpose_rhs = true}
    : (tensor<4096x4096xbf16>, tensor<4096x4096xbf16>) -> tensor<4096x4096xbf16>
  return %0 : tensor<4096x4096xbf16>
}

// What follows would be a kernel of its own behind a call.
// CHECK-LABEL: func.func @bf16_4096x4096x4096_relu(
// CHECK: kiln.matmul
func.func @bf16_4096x4096x4096_relu(%x: tensor<4096x4096xbf16>,
    %w: tensor<4096x4096xbf16>,
    %b: tensor<4096xbf16>) -> tensor<4096x4096xbf16> {
  %0 = "kiln.matmul"(%x, %w) {transpose_lhs = false, transpose_rhs = true}
    : (tensor<4096x4096xbf16>, tensor<4096x4096xbf16>) -> tensor<4096x4096xbf16>
  %e = "kiln.empty"() {shape = affine_map<() -> (4096, 4096)>} : () -> tensor<4096x4096xbf16>
  %1 = linalg.generic {indexing_maps = [#both, #column, #both], iterator_types = ["parallel", "parallel"]}
      ins(%0, %b : tensor<4096x4096xbf16>, tensor<4096xbf16>) outs(%e : tensor<4096x4096xbf16>) {
  ^bb0(%p: bf16, %q: bf16, %o: bf16):
    %zero = arith.constant 0.0 : bf16
    %s = arith.addf %p, %q : bf16
    %y = arith.maximumf %s, %zero : bf16
    linalg.yield %y : bf16
  } -> tensor<4096x4096xbf16>
  return %1 : tensor<4096x4096xbf16>
}

// Rows that are no whole lines of the cache.
// CHECK-LABEL: func.func @bf16_4104x4104x4104_relu(
// CHECK: kiln.aten
func.func @bf16_4104x4104x4104_relu(%x: tensor<4104x4104xbf16>,
    %w: tensor<4104x4104xbf16>,
    %b: tensor<4104xbf16>) -> tensor<4104x4104xbf16> {
  %0 = "kiln.matmul"(%x, %w) {transpose_lhs = false, transpose_rhs = true}
    : (tensor<4104x4104xbf16>, tensor<4104x4104xbf16>) -> tensor<4104x4104xbf16>
  %e = "kiln.empty"() {shape = affine_map<() -> (4104, 4104)>} : () -> tensor<4104x4104xbf16>
  %1 = linalg.generic {indexing_maps = [#both, #column, #both], iterator_types = ["parallel", "parallel"]}
      ins(%0, %b : tensor<4104x4104xbf16>, tensor<4104xbf16>) outs(%e : tensor<4104x4104xbf16>) {
  ^bb0(%p: bf16, %q: bf16, %o: bf16):
    %zero = arith.constant 0.0 : bf16
    %s = arith.addf %p, %q : bf16
    %y = arith.maximumf %s, %zero : bf16
    linalg.yield %y : bf16
  } -> tensor<4104x4104xbf16>
  return %1 : tensor<4104x4104xbf16>
}

// CHECK-LABEL: func.func @bf16_64x4096x4096_relu(
// CHECK: kiln.matmul
func.func @bf16_64x4096x4096_relu(%x: tensor<64x4096xbf16>,
    %w: tensor<4096x4096xbf16>,
    %b: tensor<4096xbf16>) -> tensor<64x4096xbf16> {
  %0 = "kiln.matmul"(%x, %w) {transpose_lhs = false, transpose_rhs = true}
    : (tensor<64x4096xbf16>, tensor<4096x4096xbf16>) -> tensor<64x4096xbf16>
  %e = "kiln.empty"() {shape = affine_map<() -> (64, 4096)>} : () -> tensor<64x4096xbf16>
  %1 = linalg.generic {indexing_maps = [#both, #column, #both], iterator_types = ["parallel", "parallel"]}
      ins(%0, %b : tensor<64x4096xbf16>, tensor<4096xbf16>) outs(%e : tensor<64x4096xbf16>) {
  ^bb0(%p: bf16, %q: bf16, %o: bf16):
    %zero = arith.constant 0.0 : bf16
    %s = arith.addf %p, %q : bf16
    %y = arith.maximumf %s, %zero : bf16
    linalg.yield %y : bf16
  } -> tensor<64x4096xbf16>
  return %1 : tensor<64x4096xbf16>
}

// Weights decide the time of few rows.
// CHECK-LABEL: func.func @bf16_16x4096x4096(
// CHECK: kiln.matmul
func.func @bf16_16x4096x4096(%x: tensor<16x4096xbf16>, %w: tensor<4096x4096xbf16>) -> tensor<16x4096xbf16> {
  %0 = "kiln.matmul"(%x, %w) {transpose_lhs = false, transpose_rhs = true}
    : (tensor<16x4096xbf16>, tensor<4096x4096xbf16>) -> tensor<16x4096xbf16>
  return %0 : tensor<16x4096xbf16>
}

// Rows that start anywhere.
// CHECK-LABEL: func.func @bf16_4096x50257x768(
// CHECK: kiln.matmul
func.func @bf16_4096x50257x768(%x: tensor<4096x768xbf16>, %w: tensor<50257x768xbf16>) -> tensor<4096x50257xbf16> {
  %0 = "kiln.matmul"(%x, %w) {transpose_lhs = false, transpose_rhs = true}
    : (tensor<4096x768xbf16>, tensor<50257x768xbf16>) -> tensor<4096x50257xbf16>
  return %0 : tensor<4096x50257xbf16>
}

// Few tiles: the sums are split.
// CHECK-LABEL: func.func @bf16_128x256x8192(
// CHECK: kiln.matmul
func.func @bf16_128x256x8192(%x: tensor<128x8192xbf16>, %w: tensor<256x8192xbf16>) -> tensor<128x256xbf16> {
  %0 = "kiln.matmul"(%x, %w) {transpose_lhs = false, transpose_rhs = true}
    : (tensor<128x8192xbf16>, tensor<256x8192xbf16>) -> tensor<128x256xbf16>
  return %0 : tensor<128x256xbf16>
}

// f32 without tf32 has no tensor cores.
// CHECK-LABEL: func.func @f32_1024x1024x1024(
// CHECK: kiln.aten
func.func @f32_1024x1024x1024(%x: tensor<1024x1024xf32>, %w: tensor<1024x1024xf32>) -> tensor<1024x1024xf32> {
  %0 = "kiln.matmul"(%x, %w) {transpose_lhs = false, transpose_rhs = true}
    : (tensor<1024x1024xf32>, tensor<1024x1024xf32>) -> tensor<1024x1024xf32>
  return %0 : tensor<1024x1024xf32>
}

// A call costs more than the product.
// CHECK-LABEL: func.func @f32_64x32x16(
// CHECK: kiln.matmul
func.func @f32_64x32x16(%x: tensor<64x16xf32>, %w: tensor<32x16xf32>) -> tensor<64x32xf32> {
  %0 = "kiln.matmul"(%x, %w) {transpose_lhs = false, transpose_rhs = true}
    : (tensor<64x16xf32>, tensor<32x16xf32>) -> tensor<64x32xf32>
  return %0 : tensor<64x32xf32>
}

// A call's fixed costs are a larger part of the time on a faster chip.
// CHECK-LABEL: func.func @bf16_512x512x512(
// CHECK: kiln.matmul
// A100-LABEL: func.func @bf16_512x512x512(
// A100: kiln.aten
// B200-LABEL: func.func @bf16_512x512x512(
// B200: kiln.matmul
func.func @bf16_512x512x512(%x: tensor<512x512xbf16>, %w: tensor<512x512xbf16>) -> tensor<512x512xbf16> {
  %0 = "kiln.matmul"(%x, %w) {transpose_lhs = false, transpose_rhs = true}
    : (tensor<512x512xbf16>, tensor<512x512xbf16>) -> tensor<512x512xbf16>
  return %0 : tensor<512x512xbf16>
}
