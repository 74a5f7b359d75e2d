// Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// RUN: kiln-opt %s --pass-pipeline="fuse{row-blocks=false},assign-layouts,schedule-gpu{descriptors=true}" | filecheck %s
// RUN: kiln-opt %s --pass-pipeline="fuse{row-blocks=false},assign-layouts,schedule-gpu" | filecheck %s --check-prefix=OTHERS
// RUN: kiln-opt %s --pass-pipeline="fuse{row-blocks=false},assign-layouts,schedule-gpu{descriptors=true arch=sm_100}" | filecheck %s --check-prefix=OTHERS

// Which attention has warps with different jobs: 16-bit heads of 65 to 128 elements on Hopper, through tensor maps.
// OTHERS-NOT: warp_specialized
// OTHERS: gpu.attention.flash
// OTHERS-NOT: warp_specialized

// CHECK-LABEL: func.func @heads_of_128(
// CHECK: kernel = "gpu.attention.warp_specialized"
func.func @heads_of_128(%q: tensor<2x8x1024x128xbf16> {kiln.strides = affine_map<() -> (1048576, 128, 1024, 1)>},
    %k: tensor<2x8x1024x128xbf16> {kiln.strides = affine_map<() -> (2097152, 128, 2048, 1)>},
    %v: tensor<2x8x1024x128xbf16> {kiln.strides = affine_map<() -> (2097152, 128, 2048, 1)>})
    -> (tensor<2x8x1024x128xbf16> {kiln.strides = affine_map<() -> (1048576, 128, 1024, 1)>}) {
  %0 = "kiln.attention"(%q, %k, %v) {scale = 0.125 : f64, causal = false}
    : (tensor<2x8x1024x128xbf16>, tensor<2x8x1024x128xbf16>, tensor<2x8x1024x128xbf16>) -> tensor<2x8x1024x128xbf16>
  return %0 : tensor<2x8x1024x128xbf16>
}

// CHECK-LABEL: func.func @causal_f16(
// CHECK: kernel = "gpu.attention.warp_specialized"
func.func @causal_f16(%q: tensor<2x8x1024x128xf16> {kiln.strides = affine_map<() -> (1048576, 128, 1024, 1)>},
    %k: tensor<2x8x1024x128xf16> {kiln.strides = affine_map<() -> (2097152, 128, 2048, 1)>},
    %v: tensor<2x8x1024x128xf16> {kiln.strides = affine_map<() -> (2097152, 128, 2048, 1)>})
    -> (tensor<2x8x1024x128xf16> {kiln.strides = affine_map<() -> (1048576, 128, 1024, 1)>}) {
  %0 = "kiln.attention"(%q, %k, %v) {scale = 0.125 : f64, causal = true}
    : (tensor<2x8x1024x128xf16>, tensor<2x8x1024x128xf16>, tensor<2x8x1024x128xf16>) -> tensor<2x8x1024x128xf16>
  return %0 : tensor<2x8x1024x128xf16>
}

// Tensor maps pad heads of 65 to 127 elements.
// CHECK-LABEL: func.func @heads_of_80(
// CHECK: kernel = "gpu.attention.warp_specialized"
func.func @heads_of_80(%q: tensor<2x8x1024x80xbf16> {kiln.strides = affine_map<() -> (655360, 80, 640, 1)>},
    %k: tensor<2x8x1024x80xbf16> {kiln.strides = affine_map<() -> (1310720, 80, 1280, 1)>},
    %v: tensor<2x8x1024x80xbf16> {kiln.strides = affine_map<() -> (1310720, 80, 1280, 1)>})
    -> (tensor<2x8x1024x80xbf16> {kiln.strides = affine_map<() -> (655360, 80, 640, 1)>}) {
  %0 = "kiln.attention"(%q, %k, %v) {scale = 0.125 : f64, causal = false}
    : (tensor<2x8x1024x80xbf16>, tensor<2x8x1024x80xbf16>, tensor<2x8x1024x80xbf16>) -> tensor<2x8x1024x80xbf16>
  return %0 : tensor<2x8x1024x80xbf16>
}

// A tensor map needs rows of a multiple of 16 bytes.
// CHECK-LABEL: func.func @heads_of_84(
// CHECK: kernel = "gpu.attention.flash"
func.func @heads_of_84(%q: tensor<2x8x1024x84xbf16> {kiln.strides = affine_map<() -> (688128, 84, 672, 1)>},
    %k: tensor<2x8x1024x84xbf16> {kiln.strides = affine_map<() -> (1376256, 84, 1344, 1)>},
    %v: tensor<2x8x1024x84xbf16> {kiln.strides = affine_map<() -> (1376256, 84, 1344, 1)>})
    -> (tensor<2x8x1024x84xbf16> {kiln.strides = affine_map<() -> (688128, 84, 672, 1)>}) {
  %0 = "kiln.attention"(%q, %k, %v) {scale = 0.125 : f64, causal = false}
    : (tensor<2x8x1024x84xbf16>, tensor<2x8x1024x84xbf16>, tensor<2x8x1024x84xbf16>) -> tensor<2x8x1024x84xbf16>
  return %0 : tensor<2x8x1024x84xbf16>
}

// CHECK-LABEL: func.func @heads_of_64(
// CHECK: kernel = "gpu.attention.flash"
func.func @heads_of_64(%q: tensor<2x8x1024x64xbf16> {kiln.strides = affine_map<() -> (524288, 64, 512, 1)>},
    %k: tensor<2x8x1024x64xbf16> {kiln.strides = affine_map<() -> (1048576, 64, 1024, 1)>},
    %v: tensor<2x8x1024x64xbf16> {kiln.strides = affine_map<() -> (1048576, 64, 1024, 1)>})
    -> (tensor<2x8x1024x64xbf16> {kiln.strides = affine_map<() -> (524288, 64, 512, 1)>}) {
  %0 = "kiln.attention"(%q, %k, %v) {scale = 0.125 : f64, causal = false}
    : (tensor<2x8x1024x64xbf16>, tensor<2x8x1024x64xbf16>, tensor<2x8x1024x64xbf16>) -> tensor<2x8x1024x64xbf16>
  return %0 : tensor<2x8x1024x64xbf16>
}

// CHECK-LABEL: func.func @f32(
// CHECK: kernel = "gpu.attention.flash"
func.func @f32(%q: tensor<2x8x1024x128xf32> {kiln.strides = affine_map<() -> (1048576, 128, 1024, 1)>},
    %k: tensor<2x8x1024x128xf32> {kiln.strides = affine_map<() -> (2097152, 128, 2048, 1)>},
    %v: tensor<2x8x1024x128xf32> {kiln.strides = affine_map<() -> (2097152, 128, 2048, 1)>})
    -> (tensor<2x8x1024x128xf32> {kiln.strides = affine_map<() -> (1048576, 128, 1024, 1)>}) {
  %0 = "kiln.attention"(%q, %k, %v) {scale = 0.125 : f64, causal = false}
    : (tensor<2x8x1024x128xf32>, tensor<2x8x1024x128xf32>, tensor<2x8x1024x128xf32>) -> tensor<2x8x1024x128xf32>
  return %0 : tensor<2x8x1024x128xf32>
}

// Small programs are faster where each 64 queries have a multiprocessor.
// CHECK-LABEL: func.func @a_multiprocessor_for_each_64_queries(
// CHECK: kernel = "gpu.attention.flash"
func.func @a_multiprocessor_for_each_64_queries(%q: tensor<1x8x512x128xbf16> {kiln.strides = affine_map<() -> (524288, 128, 1024, 1)>},
    %k: tensor<1x8x512x128xbf16> {kiln.strides = affine_map<() -> (1048576, 128, 2048, 1)>},
    %v: tensor<1x8x512x128xbf16> {kiln.strides = affine_map<() -> (1048576, 128, 2048, 1)>})
    -> (tensor<1x8x512x128xbf16> {kiln.strides = affine_map<() -> (524288, 128, 1024, 1)>}) {
  %0 = "kiln.attention"(%q, %k, %v) {scale = 0.125 : f64, causal = false}
    : (tensor<1x8x512x128xbf16>, tensor<1x8x512x128xbf16>, tensor<1x8x512x128xbf16>) -> tensor<1x8x512x128xbf16>
  return %0 : tensor<1x8x512x128xbf16>
}

// One query a head would leave most of a tile empty.
// CHECK-LABEL: func.func @one_query(
// CHECK: kernel = "gpu.attention.flash"
func.func @one_query(%q: tensor<32x8x1x128xbf16> {kiln.strides = affine_map<() -> (1024, 128, 1024, 1)>},
    %k: tensor<32x8x512x128xbf16> {kiln.strides = affine_map<() -> (1048576, 128, 2048, 1)>},
    %v: tensor<32x8x512x128xbf16> {kiln.strides = affine_map<() -> (1048576, 128, 2048, 1)>})
    -> (tensor<32x8x1x128xbf16> {kiln.strides = affine_map<() -> (1024, 128, 1024, 1)>}) {
  %0 = "kiln.attention"(%q, %k, %v) {scale = 0.125 : f64, causal = false}
    : (tensor<32x8x1x128xbf16>, tensor<32x8x512x128xbf16>, tensor<32x8x512x128xbf16>) -> tensor<32x8x1x128xbf16>
  return %0 : tensor<32x8x1x128xbf16>
}

// Causal heads of many keys: as many heads together as stay in the second-level cache; the groups of warps take no turns.
// CHECK-LABEL: func.func @causal_of_4096_keys(
// CHECK: heads_together = 16 : i64, kernel = "gpu.attention.warp_specialized", {{.*}}pingpong = false, programs = 132 : i64
func.func @causal_of_4096_keys(%q: tensor<4x32x4096x128xbf16> {kiln.strides = affine_map<() -> (16777216, 128, 4096, 1)>},
    %k: tensor<4x32x4096x128xbf16> {kiln.strides = affine_map<() -> (33554432, 128, 8192, 1)>},
    %v: tensor<4x32x4096x128xbf16> {kiln.strides = affine_map<() -> (33554432, 128, 8192, 1)>})
    -> (tensor<4x32x4096x128xbf16> {kiln.strides = affine_map<() -> (16777216, 128, 4096, 1)>}) {
  %0 = "kiln.attention"(%q, %k, %v) {scale = 0.125 : f64, causal = true}
    : (tensor<4x32x4096x128xbf16>, tensor<4x32x4096x128xbf16>, tensor<4x32x4096x128xbf16>) -> tensor<4x32x4096x128xbf16>
  return %0 : tensor<4x32x4096x128xbf16>
}

// CHECK-LABEL: func.func @causal_of_2048_keys(
// CHECK: heads_together = 14 : i64, kernel = "gpu.attention.warp_specialized", {{.*}}pingpong = true
func.func @causal_of_2048_keys(%q: tensor<1x14x2048x128xf16> {kiln.strides = affine_map<() -> (3670016, 128, 1792, 1)>},
    %k: tensor<1x14x2048x128xf16> {kiln.strides = affine_map<() -> (7340032, 128, 3584, 1)>},
    %v: tensor<1x14x2048x128xf16> {kiln.strides = affine_map<() -> (7340032, 128, 3584, 1)>})
    -> (tensor<1x14x2048x128xf16> {kiln.strides = affine_map<() -> (3670016, 128, 1792, 1)>}) {
  %0 = "kiln.attention"(%q, %k, %v) {scale = 0.125 : f64, causal = true}
    : (tensor<1x14x2048x128xf16>, tensor<1x14x2048x128xf16>, tensor<1x14x2048x128xf16>) -> tensor<1x14x2048x128xf16>
  return %0 : tensor<1x14x2048x128xf16>
}
