// Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// RUN: kiln-opt %s --pass-pipeline="fuse{row-blocks=false},assign-layouts,schedule-gpu{descriptors=true}" | filecheck %s
// RUN: kiln-opt %s --pass-pipeline="fuse{row-blocks=false},assign-layouts,schedule-gpu{descriptors=true arch=sm_80}" | filecheck %s --check-prefix=SM80

// Which products load their operands through tensor maps, and whether their programs are persistent. An A100 has no tensor
// maps.
// SM80-NOT: gpu.gemm.tma
// SM80: gpu.gemm.tile
// SM80-NOT: gpu.gemm.tma

// CHECK-LABEL: func.func @whole_lines(
// CHECK: schedule = {{.*}}kernel = "gpu.gemm.tma", num_stages = 3 : i64,{{.*}}persistent = true
func.func @whole_lines(%x: tensor<4096x4096xbf16>, %w: tensor<4096x4096xbf16>) -> tensor<4096x4096xbf16> {
  %0 = "kiln.matmul"(%x, %w) {transpose_lhs = false, transpose_rhs = true}
    : (tensor<4096x4096xbf16>, tensor<4096x4096xbf16>) -> tensor<4096x4096xbf16>
  return %0 : tensor<4096x4096xbf16>
}

// CHECK-LABEL: func.func @rows_of_8208_bytes(
// CHECK: schedule = {{.*}}kernel = "gpu.gemm.tma"
func.func @rows_of_8208_bytes(%x: tensor<4096x4104xbf16>, %w: tensor<4096x4104xbf16>) -> tensor<4096x4096xbf16> {
  %0 = "kiln.matmul"(%x, %w) {transpose_lhs = false, transpose_rhs = true}
    : (tensor<4096x4104xbf16>, tensor<4096x4104xbf16>) -> tensor<4096x4096xbf16>
  return %0 : tensor<4096x4096xbf16>
}

// A tensor map needs rows of a multiple of 16 bytes.
// CHECK-LABEL: func.func @rows_of_8200_bytes(
// CHECK: schedule = {{.*}}kernel = "gpu.gemm.tile"
func.func @rows_of_8200_bytes(%x: tensor<4096x4100xbf16>, %w: tensor<4096x4100xbf16>) -> tensor<4096x4096xbf16> {
  %0 = "kiln.matmul"(%x, %w) {transpose_lhs = false, transpose_rhs = true}
    : (tensor<4096x4100xbf16>, tensor<4096x4100xbf16>) -> tensor<4096x4096xbf16>
  return %0 : tensor<4096x4096xbf16>
}

// Only operands come through tensor maps: the rows of the result may start anywhere.
// CHECK-LABEL: func.func @odd_columns(
// CHECK: schedule = {{.*}}kernel = "gpu.gemm.tma"
func.func @odd_columns(%x: tensor<1024x1024xbf16>, %w: tensor<50257x1024xbf16>) -> tensor<1024x50257xbf16> {
  %0 = "kiln.matmul"(%x, %w) {transpose_lhs = false, transpose_rhs = true}
    : (tensor<1024x1024xbf16>, tensor<50257x1024xbf16>) -> tensor<1024x50257xbf16>
  return %0 : tensor<1024x50257xbf16>
}

// CHECK-LABEL: func.func @any_number_of_rows(
// CHECK: schedule = {{.*}}kernel = "gpu.gemm.tma"
func.func @any_number_of_rows(%n: index {kiln.symbol = "s0"},
    %x: tensor<?x4096xbf16> {kiln.shape = affine_map<()[s0] -> (s0, 4096)>},
    %w: tensor<4096x4096xbf16>) -> tensor<?x4096xbf16> attributes {kiln.symbols = ["s0"]} {
  %0 = "kiln.matmul"(%x, %w) {transpose_lhs = false, transpose_rhs = true}
    : (tensor<?x4096xbf16>, tensor<4096x4096xbf16>) -> tensor<?x4096xbf16>
  return %0 : tensor<?x4096xbf16>
}

// Persistent programs gain only where tiles outnumber the multiprocessors.
// CHECK-LABEL: func.func @fewer_tiles_than_multiprocessors(
// CHECK: schedule = {{.*}}kernel = "gpu.gemm.tma"{{.*}}persistent = false
func.func @fewer_tiles_than_multiprocessors(%x: tensor<1024x1024xbf16>,
    %w: tensor<1024x1024xbf16>) -> tensor<1024x1024xbf16> {
  %0 = "kiln.matmul"(%x, %w) {transpose_lhs = false, transpose_rhs = true}
    : (tensor<1024x1024xbf16>, tensor<1024x1024xbf16>) -> tensor<1024x1024xbf16>
  return %0 : tensor<1024x1024xbf16>
}

// f32 has no tensor cores here.
// CHECK-LABEL: func.func @f32(
// CHECK: schedule = {{.*}}kernel = "gpu.gemm.tile"
func.func @f32(%x: tensor<4096x4096xf32>, %w: tensor<4096x4096xf32>) -> tensor<4096x4096xf32> {
  %0 = "kiln.matmul"(%x, %w) {transpose_lhs = false, transpose_rhs = true}
    : (tensor<4096x4096xf32>, tensor<4096x4096xf32>) -> tensor<4096x4096xf32>
  return %0 : tensor<4096x4096xf32>
}

// Persistent programs leave shared memory to the epilogue: three stages, where four would fit.
// CHECK-LABEL: func.func @stages_of_32768x3072x768(
// CHECK: kernel = "gpu.gemm.tma", num_stages = 3 : i64, num_warps = {{[0-9]+}} : i64, persistent = true
func.func @stages_of_32768x3072x768(%x: tensor<32768x768xbf16>,
    %w: tensor<3072x768xbf16>) -> tensor<32768x3072xbf16> {
  %0 = "kiln.matmul"(%x, %w) {transpose_lhs = false, transpose_rhs = true}
    : (tensor<32768x768xbf16>, tensor<3072x768xbf16>) -> tensor<32768x3072xbf16>
  return %0 : tensor<32768x3072xbf16>
}

// CHECK-LABEL: func.func @stages_of_8192x8192x4096(
// CHECK: kernel = "gpu.gemm.tma", num_stages = 3 : i64, num_warps = {{[0-9]+}} : i64, persistent = true
func.func @stages_of_8192x8192x4096(%x: tensor<8192x4096xbf16>,
    %w: tensor<8192x4096xbf16>) -> tensor<8192x8192xbf16> {
  %0 = "kiln.matmul"(%x, %w) {transpose_lhs = false, transpose_rhs = true}
    : (tensor<8192x4096xbf16>, tensor<8192x4096xbf16>) -> tensor<8192x8192xbf16>
  return %0 : tensor<8192x8192xbf16>
}

// A persistent program goes on with the next tile, so that a batch of short sums keeps at least three stages.
// CHECK-LABEL: func.func @batch_of_short_sums(
// CHECK: kernel = "gpu.gemm.tma", num_stages = {{[3-9]}} : i64, {{.*}}persistent = true
func.func @batch_of_short_sums(%x: tensor<384x512x64xbf16>, %w: tensor<384x512x64xbf16>) -> tensor<384x512x512xbf16> {
  %0 = "kiln.matmul"(%x, %w) {transpose_lhs = false, transpose_rhs = true}
    : (tensor<384x512x64xbf16>, tensor<384x512x64xbf16>) -> tensor<384x512x512xbf16>
  return %0 : tensor<384x512x512xbf16>
}
