// Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// RUN: kiln-opt %s --cpu=x86-64-v4+amx-bf16+amx-int8+amx-tile+avx512bf16+avx512vnni+l2=2097152+library=32 --pass-pipeline="fuse{row-blocks=false},assign-layouts,schedule-cpu" | filecheck %s

// Attention takes AMX for bf16 and queries enough for a tile.

// CHECK-LABEL: func.func @queries_40(
// CHECK: kernel = "cpu.attention.amx_bf16"
func.func @queries_40(%q: tensor<4x40x64xbf16>,
    %k: tensor<4x100x64xbf16>,
    %v: tensor<4x100x64xbf16>) -> tensor<4x40x64xbf16> {
  %0 = "kiln.attention"(%q, %k, %v) {scale = 0.125 : f64, causal = false}
    : (tensor<4x40x64xbf16>, tensor<4x100x64xbf16>, tensor<4x100x64xbf16>) -> tensor<4x40x64xbf16>
  return %0 : tensor<4x40x64xbf16>
}

// CHECK-LABEL: func.func @any_number(
// CHECK: kernel = "cpu.attention.amx_bf16"
func.func @any_number(%n: index {kiln.symbol = "s0"},
    %q: tensor<4x?x64xbf16> {kiln.shape = affine_map<()[s0] -> (4, s0, 64)>},
    %k: tensor<4x100x64xbf16>,
    %v: tensor<4x100x64xbf16>) -> tensor<4x?x64xbf16> attributes {kiln.symbols = ["s0"]} {
  %0 = "kiln.attention"(%q, %k, %v) {scale = 0.125 : f64, causal = false}
    : (tensor<4x?x64xbf16>, tensor<4x100x64xbf16>, tensor<4x100x64xbf16>) -> tensor<4x?x64xbf16>
  return %0 : tensor<4x?x64xbf16>
}

// CHECK-LABEL: func.func @queries_4(
// CHECK: kernel = "cpu.attention.flash"
func.func @queries_4(%q: tensor<4x4x64xbf16>,
    %k: tensor<4x100x64xbf16>,
    %v: tensor<4x100x64xbf16>) -> tensor<4x4x64xbf16> {
  %0 = "kiln.attention"(%q, %k, %v) {scale = 0.125 : f64, causal = false}
    : (tensor<4x4x64xbf16>, tensor<4x100x64xbf16>, tensor<4x100x64xbf16>) -> tensor<4x4x64xbf16>
  return %0 : tensor<4x4x64xbf16>
}

// CHECK-LABEL: func.func @f32(
// CHECK: kernel = "cpu.attention.flash"
func.func @f32(%q: tensor<4x40x64xf32>, %k: tensor<4x100x64xf32>, %v: tensor<4x100x64xf32>) -> tensor<4x40x64xf32> {
  %0 = "kiln.attention"(%q, %k, %v) {scale = 0.125 : f64, causal = false}
    : (tensor<4x40x64xf32>, tensor<4x100x64xf32>, tensor<4x100x64xf32>) -> tensor<4x40x64xf32>
  return %0 : tensor<4x40x64xf32>
}
