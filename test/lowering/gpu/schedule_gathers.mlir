// Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// RUN: kiln-opt %s --pass-pipeline="expand-named-ops{target=cuda},canonicalize,cse,fuse,assign-layouts,schedule-gpu" | filecheck %s

// A kernel that loads from where loaded indices say has twice the elements a program, so that more loads are under way.

// CHECK-LABEL: func.func @many_rows(
// CHECK: nests = [{num_warps = 4 : i64, tile = [2048]}]
func.func @many_rows(%w: tensor<50000x1024xbf16>, %i: tensor<8192xi64>) -> tensor<8192x1024xbf16> {
  %0 = "kiln.embedding"(%w, %i) : (tensor<50000x1024xbf16>, tensor<8192xi64>) -> tensor<8192x1024xbf16>
  return %0 : tensor<8192x1024xbf16>
}

// CHECK-LABEL: func.func @any_number_of_rows(
// CHECK: nests = [{num_warps = 4 : i64, tile = [2048]}]
func.func @any_number_of_rows(%n: index {kiln.symbol = "s0"},
    %w: tensor<50000x1024xbf16>,
    %i: tensor<?xi64> {kiln.shape = affine_map<()[s0] -> (s0)>}) -> tensor<?x1024xbf16> attributes {kiln.symbols = ["s0"]} {
  %0 = "kiln.embedding"(%w, %i) : (tensor<50000x1024xbf16>, tensor<?xi64>) -> tensor<?x1024xbf16>
  return %0 : tensor<?x1024xbf16>
}

// CHECK-LABEL: func.func @few_elements(
// CHECK: tile = [128]
func.func @few_elements(%w: tensor<50000x100xbf16>, %i: tensor<10xi64>) -> tensor<10x100xbf16> {
  %0 = "kiln.embedding"(%w, %i) : (tensor<50000x100xbf16>, tensor<10xi64>) -> tensor<10x100xbf16>
  return %0 : tensor<10x100xbf16>
}
