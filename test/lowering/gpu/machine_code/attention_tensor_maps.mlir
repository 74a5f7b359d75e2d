// Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// REQUIRES: triton
// RUN: kiln-opt %s --split-input-file --pass-pipeline=fuse --pipeline=gpu --from=fused --until=ptx | filecheck %s
// RUN: kiln-opt %s --split-input-file --pass-pipeline="fuse,assign-layouts,schedule-gpu{arch=sm_100 descriptors=true},outline-kernels{gpu=true},emit-kernels{target=gpu},assemble{arch=sm_100}" --print-kernels=ptx | filecheck %s --check-prefix=B200
// RUN: kiln-opt %s --split-input-file --pass-pipeline="fuse,assign-layouts,schedule-gpu,outline-kernels{gpu=true},emit-kernels{target=gpu},assemble{arch=sm_90}" --print-kernels=ptx | filecheck %s --check-prefix=POINTERS

// Keys and values inside of a token's row, through tensor maps of four dims.

// Slices of one projection; the last block of 197 keys is not full.
// CHECK-LABEL: // kernel attention{{.*}} tensor maps of [{{[^,]*}}, {{[^,]*}}, {{[^,]*}}, 32] [{{[^,]*}}, {{[^,]*}}, {{[^,]*}}, 32]
// CHECK: cp.async.bulk.tensor.4d
// B200-LABEL: // kernel attention{{.*}} tensor maps of [{{[^,]*}}, {{[^,]*}}, {{[^,]*}}, 32] [{{[^,]*}}, {{[^,]*}}, {{[^,]*}}, 32]
// B200: cp.async.bulk.tensor.4d
func.func @packed(%q: tensor<2x4x100x32xbf16>,
    %k: tensor<2x4x197x32xbf16> {kiln.strides = affine_map<() -> (75648, 32, 384, 1)>},
    %v: tensor<2x4x197x32xbf16> {kiln.strides = affine_map<() -> (75648, 32, 384, 1)>})
    -> tensor<2x4x100x32xbf16> {
  %0 = "kiln.attention"(%q, %k, %v) {scale = 0.25 : f64, causal = true}
    : (tensor<2x4x100x32xbf16>, tensor<2x4x197x32xbf16>, tensor<2x4x197x32xbf16>) -> tensor<2x4x100x32xbf16>
  return %0 : tensor<2x4x100x32xbf16>
}

// -----

// CHECK-LABEL: // kernel attention
// CHECK: cp.async.bulk.tensor
// CHECK: wgmma.mma_async
// POINTERS-NOT: cp.async.bulk.tensor
func.func @tokens(%q: tensor<2x4x100x32xbf16>,
    %k: tensor<2x4x256x32xbf16> {kiln.strides = affine_map<() -> (32768, 32, 128, 1)>},
    %v: tensor<2x4x256x32xbf16> {kiln.strides = affine_map<() -> (32768, 32, 128, 1)>})
    -> tensor<2x4x100x32xbf16> {
  %0 = "kiln.attention"(%q, %k, %v) {scale = 0.25 : f64, causal = true}
    : (tensor<2x4x100x32xbf16>, tensor<2x4x256x32xbf16>, tensor<2x4x256x32xbf16>) -> tensor<2x4x100x32xbf16>
  return %0 : tensor<2x4x100x32xbf16>
}
