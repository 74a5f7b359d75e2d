// Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// REQUIRES: triton
// RUN: kiln-opt %s --split-input-file --pass-pipeline=fuse --pipeline=gpu --from=fused --until=ptx | filecheck %s

// Products whose operands come through tensor maps, with rows of the result anywhere.

// CHECK-LABEL: // kernel matmul
// CHECK: {{[0-9]+}} bytes of shared memory, 0 bytes of stack, tensor maps of [{{[0-9]+}}, 64] [{{[0-9]+}}, 64]
// CHECK-NOT: ld.local
// CHECK: cp.async.bulk.tensor
// CHECK-NOT: ld.local
// CHECK: wgmma.mma_async
// CHECK-NOT: ld.local
func.func @of_4096x1024(%x: tensor<4096x1024xbf16>, %w: tensor<4096x1024xbf16>) -> tensor<4096x4096xbf16> {
  %0 = "kiln.matmul"(%x, %w) {transpose_lhs = false, transpose_rhs = true}
    : (tensor<4096x1024xbf16>, tensor<4096x1024xbf16>) -> tensor<4096x4096xbf16>
  return %0 : tensor<4096x4096xbf16>
}

// -----

// CHECK-LABEL: // kernel matmul
// CHECK: {{[0-9]+}} bytes of shared memory, 0 bytes of stack, tensor maps of [{{[0-9]+}}, 64] [{{[0-9]+}}, 64]
// CHECK-NOT: ld.local
// CHECK: cp.async.bulk.tensor
// CHECK-NOT: ld.local
// CHECK: wgmma.mma_async
// CHECK-NOT: ld.local
func.func @of_5027x1032(%x: tensor<4096x1032xbf16>, %w: tensor<5027x1032xbf16>) -> tensor<4096x5027xbf16> {
  %0 = "kiln.matmul"(%x, %w) {transpose_lhs = false, transpose_rhs = true}
    : (tensor<4096x1032xbf16>, tensor<5027x1032xbf16>) -> tensor<4096x5027xbf16>
  return %0 : tensor<4096x5027xbf16>
}
