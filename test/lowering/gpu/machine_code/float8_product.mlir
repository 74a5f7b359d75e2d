// Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// REQUIRES: triton
// RUN: kiln-opt %s --split-input-file --pass-pipeline=fuse --pipeline=gpu --from=fused --until=ptx | filecheck %s
// RUN: kiln-opt %s --split-input-file --pass-pipeline="fuse,assign-layouts,schedule-gpu{arch=sm_89 descriptors=true},outline-kernels{gpu=true},emit-kernels{target=gpu},assemble{arch=sm_89}" --print-kernels=ptx | filecheck %s --check-prefix=L4
// RUN: kiln-opt %s --split-input-file --pass-pipeline="fuse,assign-layouts,schedule-gpu{arch=sm_100 descriptors=true},outline-kernels{gpu=true},emit-kernels{target=gpu},assemble{arch=sm_100}" --print-kernels=ptx | filecheck %s --check-prefix=B200
// RUN: kiln-opt %s --split-input-file --pass-pipeline="fuse,assign-layouts,schedule-gpu{arch=sm_80}" --remarks 2>&1 | filecheck %s --check-prefix=A100

// Products of 8-bit floats on the tensor cores of an H200, an L4 and a B200. Those of an A100 have none, so that it has no
// kernel.
// A100-COUNT-2: no schedule: sm_80 has no tensor cores for f8E4M3FN

// CHECK-LABEL: // kernel matmul
// CHECK: cp.async.bulk.tensor
// CHECK: wgmma.mma_async{{.*}}e4m3
// L4-LABEL: // kernel matmul
// L4: mma{{.*}}e4m3
// B200-LABEL: // kernel matmul
// B200: tcgen05.mma
func.func @main(%x: tensor<64x4096xf8E4M3FN>, %w: tensor<4096x4096xf8E4M3FN>) -> tensor<64x4096xf32> {
  %0 = "kiln.matmul"(%x, %w) {transpose_lhs = false, transpose_rhs = true} : (tensor<64x4096xf8E4M3FN>, tensor<4096x4096xf8E4M3FN>) -> tensor<64x4096xf32>
  return %0 : tensor<64x4096xf32>
}

// -----

// Sums may stay in the tensor cores' own precision.
// CHECK-LABEL: // kernel matmul
// CHECK: cp.async.bulk.tensor
// CHECK: wgmma.mma_async{{.*}}e4m3
// L4-LABEL: // kernel matmul
// L4: mma{{.*}}e4m3
// B200-LABEL: // kernel matmul
// B200: tcgen05.mma
func.func @main(%x: tensor<64x4096xf8E4M3FN>, %w: tensor<4096x4096xf8E4M3FN>) -> tensor<64x4096xf32> {
  %0 = "kiln.matmul"(%x, %w) {transpose_lhs = false, transpose_rhs = true, fast_sums} : (tensor<64x4096xf8E4M3FN>, tensor<4096x4096xf8E4M3FN>) -> tensor<64x4096xf32>
  return %0 : tensor<64x4096xf32>
}
