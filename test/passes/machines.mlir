// Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// Each GPU by its own file of lowering/gpu/machines: A100, L4, H200, B200.

// RUN: kiln-opt %s --mlir-print-local-scope --pass-pipeline="choose-vendor{target=cuda arch=sm_80},fuse,assign-layouts,schedule-gpu{arch=sm_80}" | filecheck %s --check-prefix=A100
// RUN: kiln-opt %s --mlir-print-local-scope --pass-pipeline="choose-vendor{target=cuda arch=sm_89},fuse,assign-layouts,schedule-gpu{arch=sm_89}" | filecheck %s --check-prefix=L4
// RUN: kiln-opt %s --mlir-print-local-scope --pass-pipeline="choose-vendor{target=cuda arch=sm_90 tensor-maps=true},fuse,assign-layouts,schedule-gpu{arch=sm_90 descriptors=true}" | filecheck %s --check-prefix=H200
// RUN: kiln-opt %s --mlir-print-local-scope --pass-pipeline="choose-vendor{target=cuda arch=sm_100 tensor-maps=true},fuse,assign-layouts,schedule-gpu{arch=sm_100 descriptors=true}" | filecheck %s --check-prefix=B200

// A product that is over on a fast chip before a call would be is the library's on slower ones: 201 million
// multiply-adds take an L4 as long as 1.6 billion take an H200.

// A100-LABEL: func.func @alone
// A100: reason = "cuBLAS: a product with nothing behind it is faster there"
// L4-LABEL: func.func @alone
// L4: reason = "cuBLAS: a product with nothing behind it is faster there"
// H200-LABEL: func.func @alone
// H200-NOT: kiln.aten
// H200: schedule = {{.*}}kernel = "gpu.gemm.tma"
// B200-LABEL: func.func @alone
// B200-NOT: kiln.aten
// B200: schedule = {{.*}}kernel = "gpu.gemm.tma"
func.func @alone(%x: tensor<256x768xbf16>, %w: tensor<1024x768xbf16>) -> tensor<256x1024xbf16> {
  %p = "kiln.matmul"(%x, %w) {transpose_lhs = false, transpose_rhs = true} : (tensor<256x768xbf16>, tensor<1024x768xbf16>) -> tensor<256x1024xbf16>
  return %p : tensor<256x1024xbf16>
}

// Long sums of few tiles: a call costs a slower chip a smaller part of the time.

// A100-LABEL: func.func @few_tiles
// A100: reason = "cuBLAS
// L4-LABEL: func.func @few_tiles
// L4: reason = "cuBLAS
// H200-LABEL: func.func @few_tiles
// H200-NOT: kiln.aten
// H200: return
// B200-LABEL: func.func @few_tiles
// B200-NOT: kiln.aten
// B200: return
func.func @few_tiles(%x: tensor<256x4096xbf16>, %w: tensor<512x4096xbf16>) -> tensor<256x512xbf16> {
  %p = "kiln.matmul"(%x, %w) {transpose_lhs = false, transpose_rhs = true} : (tensor<256x4096xbf16>, tensor<512x4096xbf16>) -> tensor<256x512xbf16>
  return %p : tensor<256x512xbf16>
}

// Tiles by multiprocessors and rates, stages by shared memory, programs of tensor maps by multiprocessors.

// A100-LABEL: func.func @gelu
// A100: schedule = {block_k = 64 : i64, block_m = 128 : i64, block_n = 128 : i64, {{.*}}kernel = "gpu.gemm.tile", num_stages = 4 : i64
// L4-LABEL: func.func @gelu
// L4: schedule = {block_k = 64 : i64, block_m = 128 : i64, block_n = 128 : i64, {{.*}}kernel = "gpu.gemm.tile", num_stages = 3 : i64
// H200-LABEL: func.func @gelu
// H200: schedule = {block_k = 64 : i64, block_m = 128 : i64, block_n = 256 : i64, {{.*}}kernel = "gpu.gemm.tma", num_stages = 4 : i64{{.*}}programs = 132 : i64
// B200-LABEL: func.func @gelu
// B200: schedule = {block_k = 64 : i64, block_m = 128 : i64, block_n = 256 : i64, {{.*}}kernel = "gpu.gemm.tma", num_stages = 4 : i64{{.*}}programs = 148 : i64
func.func @gelu(%x: tensor<2048x512xbf16>, %w: tensor<2048x512xbf16>) -> tensor<2048x2048xbf16> {
  %p = "kiln.matmul"(%x, %w) {transpose_lhs = false, transpose_rhs = true} : (tensor<2048x512xbf16>, tensor<2048x512xbf16>) -> tensor<2048x2048xbf16>
  %e = "kiln.empty"() {shape = affine_map<() -> (2048, 2048)>} : () -> tensor<2048x2048xbf16>
  %r = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0, d1)>],
      iterator_types = ["parallel", "parallel"]} ins(%p : tensor<2048x2048xbf16>) outs(%e : tensor<2048x2048xbf16>) {
  ^bb0(%i: bf16, %o: bf16):
    %s = math.tanh %i : bf16
    linalg.yield %s : bf16
  } -> tensor<2048x2048xbf16>
  return %r : tensor<2048x2048xbf16>
}
