// Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// RUN: kiln-opt %s --pass-pipeline="fuse{row-blocks=false},assign-layouts,schedule-gpu{descriptors=true}" | filecheck %s

// Where attention masks its keys, and the blocks that it then takes, with keys and values through tensor maps.

// One loop, in which a branch masks the blocks on the diagonal.
// CHECK-LABEL: func.func @causal(
// CHECK: block_m = 64 : i64, block_n = 128 : i64, kernel = "gpu.attention.flash", masks = "branch", num_stages = 2 : i64
func.func @causal(%q: tensor<128x4096x64xbf16>,
    %k: tensor<128x4096x64xbf16>,
    %v: tensor<128x4096x64xbf16>) -> tensor<128x4096x64xbf16> {
  %0 = "kiln.attention"(%q, %k, %v) {scale = 0.125 : f64, causal = true}
    : (tensor<128x4096x64xbf16>, tensor<128x4096x64xbf16>, tensor<128x4096x64xbf16>) -> tensor<128x4096x64xbf16>
  return %0 : tensor<128x4096x64xbf16>
}

// Few keys: blocks of 64, and a third stage.
// CHECK-LABEL: func.func @causal_of_few_keys(
// CHECK: block_n = 64 : i64, kernel = "gpu.attention.flash", masks = "branch", num_stages = 3 : i64
func.func @causal_of_few_keys(%q: tensor<128x1024x64xbf16>,
    %k: tensor<128x1024x64xbf16>,
    %v: tensor<128x1024x64xbf16>) -> tensor<128x1024x64xbf16> {
  %0 = "kiln.attention"(%q, %k, %v) {scale = 0.125 : f64, causal = true}
    : (tensor<128x1024x64xbf16>, tensor<128x1024x64xbf16>, tensor<128x1024x64xbf16>) -> tensor<128x1024x64xbf16>
  return %0 : tensor<128x1024x64xbf16>
}

// All keys in one block, which is masked as a whole.
// CHECK-LABEL: func.func @one_block_of_keys(
// CHECK: block_n = 256 : i64, kernel = "gpu.attention.flash", masks = "all", num_stages = 1 : i64
func.func @one_block_of_keys(%q: tensor<96x197x64xbf16>,
    %k: tensor<96x197x64xbf16>,
    %v: tensor<96x197x64xbf16>) -> tensor<96x197x64xbf16> {
  %0 = "kiln.attention"(%q, %k, %v) {scale = 0.125 : f64, causal = false}
    : (tensor<96x197x64xbf16>, tensor<96x197x64xbf16>, tensor<96x197x64xbf16>) -> tensor<96x197x64xbf16>
  return %0 : tensor<96x197x64xbf16>
}

// Blocks that keys fill are not masked.
// CHECK-LABEL: func.func @nothing_to_mask(
// CHECK-NOT: masks = "
// CHECK: kernel = "gpu.attention.flash"
// CHECK-NOT: masks = "
func.func @nothing_to_mask(%q: tensor<128x4096x64xbf16>,
    %k: tensor<128x4096x64xbf16>,
    %v: tensor<128x4096x64xbf16>) -> tensor<128x4096x64xbf16> {
  %0 = "kiln.attention"(%q, %k, %v) {scale = 0.125 : f64, causal = false}
    : (tensor<128x4096x64xbf16>, tensor<128x4096x64xbf16>, tensor<128x4096x64xbf16>) -> tensor<128x4096x64xbf16>
  return %0 : tensor<128x4096x64xbf16>
}

// A loaded mask: with more programs than run at once, 64 keys leave room for one more on each multiprocessor.
// CHECK-LABEL: func.func @mask_of_768_heads_and_512_tokens(
// CHECK: block_n = 64 : i64
func.func @mask_of_768_heads_and_512_tokens(%q: tensor<768x512x64xbf16>,
    %k: tensor<768x512x64xbf16>,
    %v: tensor<768x512x64xbf16>,
    %m: tensor<512x512xbf16>) -> tensor<768x512x64xbf16> {
  %0 = "kiln.attention"(%q, %k, %v, %m) {scale = 0.125 : f64, causal = false}
    : (tensor<768x512x64xbf16>, tensor<768x512x64xbf16>, tensor<768x512x64xbf16>, tensor<512x512xbf16>) -> tensor<768x512x64xbf16>
  return %0 : tensor<768x512x64xbf16>
}

// CHECK-LABEL: func.func @no_mask_of_768_heads_and_512_tokens(
// CHECK: block_n = 128 : i64
func.func @no_mask_of_768_heads_and_512_tokens(%q: tensor<768x512x64xbf16>,
    %k: tensor<768x512x64xbf16>,
    %v: tensor<768x512x64xbf16>) -> tensor<768x512x64xbf16> {
  %0 = "kiln.attention"(%q, %k, %v) {scale = 0.125 : f64, causal = false}
    : (tensor<768x512x64xbf16>, tensor<768x512x64xbf16>, tensor<768x512x64xbf16>) -> tensor<768x512x64xbf16>
  return %0 : tensor<768x512x64xbf16>
}

// CHECK-LABEL: func.func @mask_of_256_heads_and_1024_tokens(
// CHECK: block_n = 64 : i64
func.func @mask_of_256_heads_and_1024_tokens(%q: tensor<256x1024x64xbf16>,
    %k: tensor<256x1024x64xbf16>,
    %v: tensor<256x1024x64xbf16>,
    %m: tensor<1024x1024xbf16>) -> tensor<256x1024x64xbf16> {
  %0 = "kiln.attention"(%q, %k, %v, %m) {scale = 0.125 : f64, causal = false}
    : (tensor<256x1024x64xbf16>, tensor<256x1024x64xbf16>, tensor<256x1024x64xbf16>, tensor<1024x1024xbf16>) -> tensor<256x1024x64xbf16>
  return %0 : tensor<256x1024x64xbf16>
}

// CHECK-LABEL: func.func @no_mask_of_256_heads_and_1024_tokens(
// CHECK: block_n = 128 : i64
func.func @no_mask_of_256_heads_and_1024_tokens(%q: tensor<256x1024x64xbf16>,
    %k: tensor<256x1024x64xbf16>,
    %v: tensor<256x1024x64xbf16>) -> tensor<256x1024x64xbf16> {
  %0 = "kiln.attention"(%q, %k, %v) {scale = 0.125 : f64, causal = false}
    : (tensor<256x1024x64xbf16>, tensor<256x1024x64xbf16>, tensor<256x1024x64xbf16>) -> tensor<256x1024x64xbf16>
  return %0 : tensor<256x1024x64xbf16>
}

// CHECK-LABEL: func.func @mask_of_12_heads_and_512_tokens(
// CHECK: block_n = 128 : i64
func.func @mask_of_12_heads_and_512_tokens(%q: tensor<12x512x64xbf16>,
    %k: tensor<12x512x64xbf16>,
    %v: tensor<12x512x64xbf16>,
    %m: tensor<512x512xbf16>) -> tensor<12x512x64xbf16> {
  %0 = "kiln.attention"(%q, %k, %v, %m) {scale = 0.125 : f64, causal = false}
    : (tensor<12x512x64xbf16>, tensor<12x512x64xbf16>, tensor<12x512x64xbf16>, tensor<512x512xbf16>) -> tensor<12x512x64xbf16>
  return %0 : tensor<12x512x64xbf16>
}

// CHECK-LABEL: func.func @no_mask_of_12_heads_and_512_tokens(
// CHECK: block_n = 128 : i64
func.func @no_mask_of_12_heads_and_512_tokens(%q: tensor<12x512x64xbf16>,
    %k: tensor<12x512x64xbf16>,
    %v: tensor<12x512x64xbf16>) -> tensor<12x512x64xbf16> {
  %0 = "kiln.attention"(%q, %k, %v) {scale = 0.125 : f64, causal = false}
    : (tensor<12x512x64xbf16>, tensor<12x512x64xbf16>, tensor<12x512x64xbf16>) -> tensor<12x512x64xbf16>
  return %0 : tensor<12x512x64xbf16>
}

// CHECK-LABEL: func.func @mask_of_16_heads_and_1024_tokens(
// CHECK: block_n = 128 : i64
func.func @mask_of_16_heads_and_1024_tokens(%q: tensor<16x1024x64xbf16>,
    %k: tensor<16x1024x64xbf16>,
    %v: tensor<16x1024x64xbf16>,
    %m: tensor<1024x1024xbf16>) -> tensor<16x1024x64xbf16> {
  %0 = "kiln.attention"(%q, %k, %v, %m) {scale = 0.125 : f64, causal = false}
    : (tensor<16x1024x64xbf16>, tensor<16x1024x64xbf16>, tensor<16x1024x64xbf16>, tensor<1024x1024xbf16>) -> tensor<16x1024x64xbf16>
  return %0 : tensor<16x1024x64xbf16>
}

// CHECK-LABEL: func.func @no_mask_of_16_heads_and_1024_tokens(
// CHECK: block_n = 128 : i64
func.func @no_mask_of_16_heads_and_1024_tokens(%q: tensor<16x1024x64xbf16>,
    %k: tensor<16x1024x64xbf16>,
    %v: tensor<16x1024x64xbf16>) -> tensor<16x1024x64xbf16> {
  %0 = "kiln.attention"(%q, %k, %v) {scale = 0.125 : f64, causal = false}
    : (tensor<16x1024x64xbf16>, tensor<16x1024x64xbf16>, tensor<16x1024x64xbf16>) -> tensor<16x1024x64xbf16>
  return %0 : tensor<16x1024x64xbf16>
}
