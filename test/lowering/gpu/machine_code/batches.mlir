// Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// REQUIRES: triton
// RUN: kiln-opt %s --split-input-file --pass-pipeline=fuse --pipeline=gpu --from=fused --until=ptx | filecheck %s

// Batches inside of rows, as heads are in a projection's result: tensor maps of four dims.

// CHECK-LABEL: // kernel matmul
// CHECK: cp.async.bulk.tensor.4d
// CHECK: wgmma.mma_async
func.func @main(%x: tensor<2x3x1000x88xbf16> {kiln.strides = affine_map<() -> (264000, 88, 264, 1)>},
    %w: tensor<2x3x72x88xbf16>) -> tensor<2x3x1000x72xbf16> {
  %0 = "kiln.matmul"(%x, %w) {transpose_lhs = false, transpose_rhs = true}
    : (tensor<2x3x1000x88xbf16>, tensor<2x3x72x88xbf16>) -> tensor<2x3x1000x72xbf16>
  return %0 : tensor<2x3x1000x72xbf16>
}
