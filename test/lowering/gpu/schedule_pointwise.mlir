// Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// RUN: kiln-opt %s --pass-pipeline="fuse{row-blocks=false},assign-layouts,schedule-gpu" | filecheck %s
// RUN: kiln-opt %s --pass-pipeline="fuse{row-blocks=false},assign-layouts,schedule-gpu{arch=sm_89}" | filecheck %s --check-prefix=L4
// RUN: kiln-opt %s --pass-pipeline="fuse{row-blocks=false},assign-layouts,schedule-gpu{arch=gfx942}" | filecheck %s --check-prefix=MI300

// Elements of a pointwise program: few elements are spread over the multiprocessors that the chip has, which are 132 on an
// H200, 58 on an L4 and 304 on an MI300X.

// CHECK-LABEL: func.func @large(
// CHECK: nests = [{num_warps = 4 : i64, tile = [1024]}]
func.func @large(%x: tensor<4096x4096xf32>) -> tensor<4096x4096xf32> {
  %e = "kiln.empty"() {shape = affine_map<() -> (4096, 4096)>} : () -> tensor<4096x4096xf32>
  %0 = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0, d1)>],
      iterator_types = ["parallel", "parallel"]} ins(%x : tensor<4096x4096xf32>) outs(%e : tensor<4096x4096xf32>) {
  ^bb0(%in: f32, %out: f32):
    %a = arith.negf %in : f32
    linalg.yield %a : f32
  } -> tensor<4096x4096xf32>
  return %0 : tensor<4096x4096xf32>
}

// CHECK-LABEL: func.func @any_size(
// CHECK: nests = [{num_warps = 4 : i64, tile = [1024]}]
func.func @any_size(%n: index {kiln.symbol = "s0"},
    %x: tensor<?x4096xf32> {kiln.shape = affine_map<()[s0] -> (s0, 4096)>}) -> tensor<?x4096xf32> attributes {kiln.symbols = ["s0"]} {
  %e = "kiln.empty"(%n) {shape = affine_map<()[s0] -> (s0, 4096)>} : (index) -> tensor<?x4096xf32>
  %0 = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0, d1)>],
      iterator_types = ["parallel", "parallel"]} ins(%x : tensor<?x4096xf32>) outs(%e : tensor<?x4096xf32>) {
  ^bb0(%in: f32, %out: f32):
    %a = arith.negf %in : f32
    linalg.yield %a : f32
  } -> tensor<?x4096xf32>
  return %0 : tensor<?x4096xf32>
}

// CHECK-LABEL: func.func @three_elements(
// CHECK: tile = [4]
func.func @three_elements(%x: tensor<3xf32>) -> tensor<3xf32> {
  %e = "kiln.empty"() {shape = affine_map<() -> (3)>} : () -> tensor<3xf32>
  %0 = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>],
      iterator_types = ["parallel"]} ins(%x : tensor<3xf32>) outs(%e : tensor<3xf32>) {
  ^bb0(%in: f32, %out: f32):
    %a = arith.negf %in : f32
    linalg.yield %a : f32
  } -> tensor<3xf32>
  return %0 : tensor<3xf32>
}

// 131072 elements: as many programs as keep all multiprocessors busy.
// CHECK-LABEL: func.func @spread(
// CHECK: tile = [512]
// L4-LABEL: func.func @spread(
// L4: tile = [1024]
// MI300-LABEL: func.func @spread(
// MI300: tile = [256]
func.func @spread(%x: tensor<131072xf32>) -> tensor<131072xf32> {
  %e = "kiln.empty"() {shape = affine_map<() -> (131072)>} : () -> tensor<131072xf32>
  %0 = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>],
      iterator_types = ["parallel"]} ins(%x : tensor<131072xf32>) outs(%e : tensor<131072xf32>) {
  ^bb0(%in: f32, %out: f32):
    %a = arith.negf %in : f32
    linalg.yield %a : f32
  } -> tensor<131072xf32>
  return %0 : tensor<131072xf32>
}
