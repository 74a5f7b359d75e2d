// Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// REQUIRES: triton
// RUN: kiln-opt %s --split-input-file --pass-pipeline="fuse,assign-layouts,schedule-gpu{arch=gfx942},outline-kernels{gpu=true},emit-kernels{target=gpu backend=hip},assemble{arch=gfx942}" --print-kernels=ptx | filecheck %s --check-prefix=MI300
// RUN: kiln-opt %s --split-input-file --pass-pipeline="fuse,assign-layouts,schedule-gpu{arch=sm_80},outline-kernels{gpu=true},emit-kernels{target=gpu},assemble{arch=sm_80}" --print-kernels=ptx | filecheck %s --check-prefix=A100
// RUN: kiln-opt %s --split-input-file --pass-pipeline="fuse,assign-layouts,schedule-gpu{arch=sm_100},outline-kernels{gpu=true},emit-kernels{target=gpu},assemble{arch=sm_100}" --print-kernels=ptx | filecheck %s --check-prefix=B200

// Tensor cores of other chips, in a convolution and in a gated unit.

// MI300-LABEL: // kernel conv
// MI300: v_mfma
// A100-LABEL: // kernel conv
// A100: mma.sync
// B200-LABEL: // kernel conv
// B200: mma
func.func @main(%x: tensor<2x32x9x7xbf16> {kiln.strides = affine_map<() -> (2016, 1, 224, 32)>},
    %w: tensor<64x32x3x3xbf16>) -> (tensor<2x64x5x4xbf16> {kiln.strides = affine_map<() -> (1280, 1, 256, 64)>}) {
  %0 = "kiln.conv"(%x, %w) {stride = array<i64: 2, 2>, padding = array<i64: 1, 1>, dilation = array<i64: 1, 1>,
    groups = 1, transposed = false, output_padding = array<i64: 0, 0>} : (tensor<2x32x9x7xbf16>, tensor<64x32x3x3xbf16>) -> tensor<2x64x5x4xbf16>
  return %0 : tensor<2x64x5x4xbf16>
}

// -----

// MI300-LABEL: // kernel matmul
// MI300: v_mfma
// A100-LABEL: // kernel matmul
// A100: mma.sync
// B200-LABEL: // kernel matmul
// B200: mma
#both = affine_map<(d0, d1) -> (d0, d1)>
func.func @main(%x: tensor<64x128xf16>, %g: tensor<64x128xf16>, %u: tensor<64x128xf16>) -> tensor<64x64xf16> {
  %1 = "kiln.matmul"(%x, %g) {transpose_lhs = false, transpose_rhs = true} : (tensor<64x128xf16>, tensor<64x128xf16>) -> tensor<64x64xf16>
  %2 = "kiln.matmul"(%x, %u) {transpose_lhs = false, transpose_rhs = true} : (tensor<64x128xf16>, tensor<64x128xf16>) -> tensor<64x64xf16>
  %e = "kiln.empty"() {shape = affine_map<() -> (64, 64)>} : () -> tensor<64x64xf16>
  %3 = linalg.generic {indexing_maps = [#both, #both, #both], iterator_types = ["parallel", "parallel"]}
      ins(%1, %2 : tensor<64x64xf16>, tensor<64x64xf16>) outs(%e : tensor<64x64xf16>) {
  ^bb0(%p: f16, %q: f16, %out: f16):
    %zero = arith.constant 0.0 : f16
    %7 = arith.maximumf %p, %zero : f16
    %8 = arith.mulf %7, %q : f16
    linalg.yield %8 : f16
  } -> tensor<64x64xf16>
  return %3 : tensor<64x64xf16>
}
