// Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// RUN: kiln-opt %s --pass-pipeline="fuse{row-blocks=false},assign-layouts,schedule-gpu" | filecheck %s

// Blocks of queries and keys, and stages, of attention on an H200: the sizes that were measured.

// CHECK-LABEL: func.func @heads_of_64(
// CHECK: schedule = {block_m = 64 : i64, block_n = 128 : i64, kernel = "gpu.attention.flash", num_stages = 2 : i64
func.func @heads_of_64(%q: tensor<128x4096x64xbf16>,
    %k: tensor<128x4096x64xbf16>,
    %v: tensor<128x4096x64xbf16>) -> tensor<128x4096x64xbf16> {
  %0 = "kiln.attention"(%q, %k, %v) {scale = 0.125 : f64, causal = false}
    : (tensor<128x4096x64xbf16>, tensor<128x4096x64xbf16>, tensor<128x4096x64xbf16>) -> tensor<128x4096x64xbf16>
  return %0 : tensor<128x4096x64xbf16>
}

// CHECK-LABEL: func.func @heads_of_128(
// CHECK: schedule = {block_m = 64 : i64, block_n = 64 : i64, kernel = "gpu.attention.flash", num_stages = 3 : i64
func.func @heads_of_128(%q: tensor<128x4096x128xbf16>,
    %k: tensor<128x4096x128xbf16>,
    %v: tensor<128x4096x128xbf16>) -> tensor<128x4096x128xbf16> {
  %0 = "kiln.attention"(%q, %k, %v) {scale = 0.125 : f64, causal = false}
    : (tensor<128x4096x128xbf16>, tensor<128x4096x128xbf16>, tensor<128x4096x128xbf16>) -> tensor<128x4096x128xbf16>
  return %0 : tensor<128x4096x128xbf16>
}

// CHECK-LABEL: func.func @heads_of_80(
// CHECK: schedule = {block_m = 64 : i64, block_n = 64 : i64, kernel = "gpu.attention.flash", num_stages = 3 : i64
func.func @heads_of_80(%q: tensor<128x4096x80xbf16>,
    %k: tensor<128x4096x80xbf16>,
    %v: tensor<128x4096x80xbf16>) -> tensor<128x4096x80xbf16> {
  %0 = "kiln.attention"(%q, %k, %v) {scale = 0.125 : f64, causal = false}
    : (tensor<128x4096x80xbf16>, tensor<128x4096x80xbf16>, tensor<128x4096x80xbf16>) -> tensor<128x4096x80xbf16>
  return %0 : tensor<128x4096x80xbf16>
}

// CHECK-LABEL: func.func @heads_of_32(
// CHECK: schedule = {block_m = 64 : i64, block_n = 128 : i64, kernel = "gpu.attention.flash", num_stages = 2 : i64
func.func @heads_of_32(%q: tensor<128x4096x32xbf16>,
    %k: tensor<128x4096x32xbf16>,
    %v: tensor<128x4096x32xbf16>) -> tensor<128x4096x32xbf16> {
  %0 = "kiln.attention"(%q, %k, %v) {scale = 0.125 : f64, causal = false}
    : (tensor<128x4096x32xbf16>, tensor<128x4096x32xbf16>, tensor<128x4096x32xbf16>) -> tensor<128x4096x32xbf16>
  return %0 : tensor<128x4096x32xbf16>
}

// A block of one query has the least rows that tensor cores take.
// CHECK-LABEL: func.func @one_query(
// CHECK: schedule = {block_m = 16 : i64
func.func @one_query(%q: tensor<32x1x128xbf16>,
    %k: tensor<32x4096x128xbf16>,
    %v: tensor<32x4096x128xbf16>) -> tensor<32x1x128xbf16> {
  %0 = "kiln.attention"(%q, %k, %v) {scale = 0.125 : f64, causal = false}
    : (tensor<32x1x128xbf16>, tensor<32x4096x128xbf16>, tensor<32x4096x128xbf16>) -> tensor<32x1x128xbf16>
  return %0 : tensor<32x1x128xbf16>
}

// Where all programs fit on the GPU with one stage, and not with two, one stage is taken.
// CHECK-LABEL: func.func @one_stage_of_32_heads(
// CHECK: schedule = {block_m = 64 : i64, block_n = 128 : i64, kernel = "gpu.attention.flash", num_stages = 1 : i64
func.func @one_stage_of_32_heads(%q: tensor<32x1024x64xbf16>,
    %k: tensor<32x1024x64xbf16>,
    %v: tensor<32x1024x64xbf16>) -> tensor<32x1024x64xbf16> {
  %0 = "kiln.attention"(%q, %k, %v) {scale = 0.125 : f64, causal = false}
    : (tensor<32x1024x64xbf16>, tensor<32x1024x64xbf16>, tensor<32x1024x64xbf16>) -> tensor<32x1024x64xbf16>
  return %0 : tensor<32x1024x64xbf16>
}

// CHECK-LABEL: func.func @two_stages_of_16_heads(
// CHECK: schedule = {block_m = 64 : i64, block_n = 128 : i64, kernel = "gpu.attention.flash", num_stages = 2 : i64
func.func @two_stages_of_16_heads(%q: tensor<16x1024x64xbf16>,
    %k: tensor<16x1024x64xbf16>,
    %v: tensor<16x1024x64xbf16>) -> tensor<16x1024x64xbf16> {
  %0 = "kiln.attention"(%q, %k, %v) {scale = 0.125 : f64, causal = false}
    : (tensor<16x1024x64xbf16>, tensor<16x1024x64xbf16>, tensor<16x1024x64xbf16>) -> tensor<16x1024x64xbf16>
  return %0 : tensor<16x1024x64xbf16>
}

// CHECK-LABEL: func.func @two_stages_of_64_heads(
// CHECK: schedule = {block_m = 64 : i64, block_n = 128 : i64, kernel = "gpu.attention.flash", num_stages = 2 : i64
func.func @two_stages_of_64_heads(%q: tensor<64x1024x64xbf16>,
    %k: tensor<64x1024x64xbf16>,
    %v: tensor<64x1024x64xbf16>) -> tensor<64x1024x64xbf16> {
  %0 = "kiln.attention"(%q, %k, %v) {scale = 0.125 : f64, causal = false}
    : (tensor<64x1024x64xbf16>, tensor<64x1024x64xbf16>, tensor<64x1024x64xbf16>) -> tensor<64x1024x64xbf16>
  return %0 : tensor<64x1024x64xbf16>
}

// Too many keys for one block without tensor maps.
// CHECK-LABEL: func.func @tokens_of_an_image(
// CHECK: block_n = 128 : i64
func.func @tokens_of_an_image(%q: tensor<96x197x64xbf16>,
    %k: tensor<96x197x64xbf16>,
    %v: tensor<96x197x64xbf16>) -> tensor<96x197x64xbf16> {
  %0 = "kiln.attention"(%q, %k, %v) {scale = 0.125 : f64, causal = false}
    : (tensor<96x197x64xbf16>, tensor<96x197x64xbf16>, tensor<96x197x64xbf16>) -> tensor<96x197x64xbf16>
  return %0 : tensor<96x197x64xbf16>
}
