// Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// REQUIRES: triton
// RUN: kiln-opt %s --split-input-file --pass-pipeline=fuse --pipeline=gpu --from=fused --until=ptx | filecheck %s

// Attention with warp specialization: registers move from the warp that copies to those that compute, and nothing is
// spilled.

// CHECK-LABEL: // kernel attention{{.*}}: 12 warps, {{[0-9]+}} bytes of shared memory, 0 bytes of stack, tensor maps of [1, 1, 64, 64] [1, 1, 128, 64] [1, 1, 128, 64] [1, 1, 64, 64]
// CHECK-NOT: ld.local
// CHECK-DAG: setmaxnreg
// CHECK-DAG: wgmma.mma_async
// CHECK-DAG: cp.async.bulk.tensor.4d.shared
// CHECK-NOT: ld.local
func.func @bf16(%q: tensor<2x8x1024x128xbf16> {kiln.strides = affine_map<() -> (1048576, 128, 1024, 1)>},
    %k: tensor<2x4x1024x128xbf16> {kiln.strides = affine_map<() -> (1048576, 128, 1024, 1)>},
    %v: tensor<2x4x1024x128xbf16> {kiln.strides = affine_map<() -> (1048576, 128, 1024, 1)>})
    -> (tensor<2x8x1024x128xbf16> {kiln.strides = affine_map<() -> (1048576, 128, 1024, 1)>}) {
  %0 = "kiln.attention"(%q, %k, %v) {scale = 0.125 : f64, causal = false}
    : (tensor<2x8x1024x128xbf16>, tensor<2x4x1024x128xbf16>, tensor<2x4x1024x128xbf16>) -> tensor<2x8x1024x128xbf16>
  return %0 : tensor<2x8x1024x128xbf16>
}

// -----

// CHECK-LABEL: // kernel attention{{.*}}: 12 warps, {{[0-9]+}} bytes of shared memory, 0 bytes of stack, tensor maps of [1, 1, 64, 64] [1, 1, 128, 64] [1, 1, 128, 64] [1, 1, 64, 64]
// CHECK-NOT: ld.local
// CHECK-DAG: setmaxnreg
// CHECK-DAG: wgmma.mma_async
// CHECK-DAG: cp.async.bulk.tensor.4d.shared
// CHECK-NOT: ld.local
func.func @causal_f16(%q: tensor<2x8x1000x128xf16> {kiln.strides = affine_map<() -> (1024000, 128, 1024, 1)>},
    %k: tensor<2x4x777x128xf16> {kiln.strides = affine_map<() -> (795648, 128, 1024, 1)>},
    %v: tensor<2x4x777x128xf16> {kiln.strides = affine_map<() -> (795648, 128, 1024, 1)>})
    -> (tensor<2x8x1000x128xf16> {kiln.strides = affine_map<() -> (1024000, 128, 1024, 1)>}) {
  %0 = "kiln.attention"(%q, %k, %v) {scale = 0.125 : f64, causal = true}
    : (tensor<2x8x1000x128xf16>, tensor<2x4x777x128xf16>, tensor<2x4x777x128xf16>) -> tensor<2x8x1000x128xf16>
  return %0 : tensor<2x8x1000x128xf16>
}
