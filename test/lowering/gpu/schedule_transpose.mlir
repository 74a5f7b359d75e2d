// Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// RUN: kiln-opt %s --pass-pipeline="fuse{row-blocks=false},assign-layouts,schedule-gpu" | filecheck %s

// A kernel that reads along one dim and writes along another one has a tile of both, at most 64 elements along each.

// CHECK-LABEL: func.func @of_any_size(
// CHECK: nests = [{num_warps = 8 : i64, tile = [64, 64]}]
func.func @of_any_size(%n: index {kiln.symbol = "s0"},
    %x: tensor<?x?xf32> {kiln.shape = affine_map<()[s0] -> (s0, s0)>}) -> tensor<?x?xf32> attributes {kiln.symbols = ["s0"]} {
  %e = "kiln.empty"(%n) {shape = affine_map<()[s0] -> (s0, s0)>} : (index) -> tensor<?x?xf32>
  %0 = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d1, d0)>, affine_map<(d0, d1) -> (d0, d1)>],
      iterator_types = ["parallel", "parallel"]} ins(%x : tensor<?x?xf32>) outs(%e : tensor<?x?xf32>) {
  ^bb0(%in: f32, %out: f32):
    %a = arith.negf %in : f32
    linalg.yield %a : f32
  } -> tensor<?x?xf32>
  return %0 : tensor<?x?xf32>
}

// CHECK-LABEL: func.func @of_8x4096(
// CHECK: nests = [{num_warps = 1 : i64, tile = [64, 8]}]
func.func @of_8x4096(%x: tensor<8x4096xf32>) -> tensor<4096x8xf32> {
  %e = "kiln.empty"() {shape = affine_map<() -> (4096, 8)>} : () -> tensor<4096x8xf32>
  %0 = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d1, d0)>, affine_map<(d0, d1) -> (d0, d1)>],
      iterator_types = ["parallel", "parallel"]} ins(%x : tensor<8x4096xf32>) outs(%e : tensor<4096x8xf32>) {
  ^bb0(%in: f32, %out: f32):
    %a = arith.negf %in : f32
    linalg.yield %a : f32
  } -> tensor<4096x8xf32>
  return %0 : tensor<4096x8xf32>
}

// CHECK-LABEL: func.func @of_4096x9(
// CHECK: nests = [{num_warps = 2 : i64, tile = [16, 64]}]
func.func @of_4096x9(%x: tensor<4096x9xf32>) -> tensor<9x4096xf32> {
  %e = "kiln.empty"() {shape = affine_map<() -> (9, 4096)>} : () -> tensor<9x4096xf32>
  %0 = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d1, d0)>, affine_map<(d0, d1) -> (d0, d1)>],
      iterator_types = ["parallel", "parallel"]} ins(%x : tensor<4096x9xf32>) outs(%e : tensor<9x4096xf32>) {
  ^bb0(%in: f32, %out: f32):
    %a = arith.negf %in : f32
    linalg.yield %a : f32
  } -> tensor<9x4096xf32>
  return %0 : tensor<9x4096xf32>
}

// CHECK-LABEL: func.func @of_64x64(
// CHECK: nests = [{num_warps = 8 : i64, tile = [64, 64]}]
func.func @of_64x64(%x: tensor<64x64xf32>) -> tensor<64x64xf32> {
  %e = "kiln.empty"() {shape = affine_map<() -> (64, 64)>} : () -> tensor<64x64xf32>
  %0 = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d1, d0)>, affine_map<(d0, d1) -> (d0, d1)>],
      iterator_types = ["parallel", "parallel"]} ins(%x : tensor<64x64xf32>) outs(%e : tensor<64x64xf32>) {
  ^bb0(%in: f32, %out: f32):
    %a = arith.negf %in : f32
    linalg.yield %a : f32
  } -> tensor<64x64xf32>
  return %0 : tensor<64x64xf32>
}
