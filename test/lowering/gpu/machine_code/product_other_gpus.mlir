// Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// REQUIRES: triton
// RUN: kiln-opt %s --split-input-file --pass-pipeline="fuse,assign-layouts,schedule-gpu{arch=sm_80},outline-kernels{gpu=true},emit-kernels{target=gpu},assemble{arch=sm_80}" --print-kernels=ptx | filecheck %s --check-prefix=A100
// RUN: kiln-opt %s --split-input-file --pass-pipeline="fuse,assign-layouts,schedule-gpu{arch=sm_100},outline-kernels{gpu=true},emit-kernels{target=gpu},assemble{arch=sm_100}" --print-kernels=ptx | filecheck %s --check-prefix=B200

// The tensor cores of an A100 and of a B200 have instructions of their own.

// A100-LABEL: // kernel matmul
// A100: mma.sync
// B200-LABEL: // kernel matmul
// B200: tcgen05.mma
func.func @main(%x: tensor<512x512xbf16>, %w: tensor<512x512xbf16>) -> tensor<512x512xbf16> {
  %0 = "kiln.matmul"(%x, %w) {transpose_lhs = false, transpose_rhs = true}
    : (tensor<512x512xbf16>, tensor<512x512xbf16>) -> tensor<512x512xbf16>
  return %0 : tensor<512x512xbf16>
}
