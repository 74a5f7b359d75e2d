// Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// RUN: kiln-opt %s --pass-pipeline="fuse{row-blocks=false},assign-layouts,schedule-gpu" | filecheck %s
// RUN: kiln-opt %s --pass-pipeline="fuse{row-blocks=false},assign-layouts,schedule-gpu{arch=sm_89}" | filecheck %s --check-prefix=L4
// RUN: kiln-opt %s --pass-pipeline="fuse{row-blocks=false},assign-layouts,schedule-gpu{arch=gfx942}" | filecheck %s --check-prefix=MI300

// Rows that are summed and not read again: how many a program takes.

// Short rows share a program.
// CHECK-LABEL: func.func @many_short_rows(
// CHECK: row = 64 : i64, tile = [16]
func.func @many_short_rows(%x: tensor<1048576x64xf32>) -> tensor<1048576xf32> {
  %zero = arith.constant 0.0 : f32
  %e = "kiln.empty"() {shape = affine_map<() -> (1048576)>} : () -> tensor<1048576xf32>
  %i = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>], iterator_types = ["parallel"]} outs(%e : tensor<1048576xf32>) {
  ^bb0(%o: f32):
    linalg.yield %zero : f32
  } -> tensor<1048576xf32>
  %0 = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0)>], iterator_types = ["parallel", "reduction"]}
      ins(%x : tensor<1048576x64xf32>) outs(%i : tensor<1048576xf32>) {
  ^bb0(%a: f32, %o: f32):
    %s = arith.addf %o, %a : f32
    linalg.yield %s : f32
  } -> tensor<1048576xf32>
  return %0 : tensor<1048576xf32>
}

// A row each where there are few of them.
// CHECK-LABEL: func.func @few_short_rows(
// CHECK: row = 64 : i64, tile = [1]
func.func @few_short_rows(%x: tensor<64x64xf32>) -> tensor<64xf32> {
  %zero = arith.constant 0.0 : f32
  %e = "kiln.empty"() {shape = affine_map<() -> (64)>} : () -> tensor<64xf32>
  %i = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>], iterator_types = ["parallel"]} outs(%e : tensor<64xf32>) {
  ^bb0(%o: f32):
    linalg.yield %zero : f32
  } -> tensor<64xf32>
  %0 = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0)>], iterator_types = ["parallel", "reduction"]}
      ins(%x : tensor<64x64xf32>) outs(%i : tensor<64xf32>) {
  ^bb0(%a: f32, %o: f32):
    %s = arith.addf %o, %a : f32
    linalg.yield %s : f32
  } -> tensor<64xf32>
  return %0 : tensor<64xf32>
}

// 2048 rows: as many programs as keep the chip's multiprocessors busy.
// CHECK-LABEL: func.func @some_short_rows(
// CHECK: tile = [4]
// L4-LABEL: func.func @some_short_rows(
// L4: tile = [16]
// MI300-LABEL: func.func @some_short_rows(
// MI300: tile = [2]
func.func @some_short_rows(%x: tensor<2048x64xf32>) -> tensor<2048xf32> {
  %zero = arith.constant 0.0 : f32
  %e = "kiln.empty"() {shape = affine_map<() -> (2048)>} : () -> tensor<2048xf32>
  %i = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>], iterator_types = ["parallel"]} outs(%e : tensor<2048xf32>) {
  ^bb0(%o: f32):
    linalg.yield %zero : f32
  } -> tensor<2048xf32>
  %0 = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0)>], iterator_types = ["parallel", "reduction"]}
      ins(%x : tensor<2048x64xf32>) outs(%i : tensor<2048xf32>) {
  ^bb0(%a: f32, %o: f32):
    %s = arith.addf %o, %a : f32
    linalg.yield %s : f32
  } -> tensor<2048xf32>
  return %0 : tensor<2048xf32>
}

// An empty row holds nothing: its loop runs zero times.
// CHECK-LABEL: func.func @empty_rows(
// CHECK: nests = [{num_warps = 8 : i64, row = 4096 : i64
func.func @empty_rows(%x: tensor<64x0xf32>) -> tensor<64xf32> {
  %zero = arith.constant 0.0 : f32
  %e = "kiln.empty"() {shape = affine_map<() -> (64)>} : () -> tensor<64xf32>
  %i = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>], iterator_types = ["parallel"]} outs(%e : tensor<64xf32>) {
  ^bb0(%o: f32):
    linalg.yield %zero : f32
  } -> tensor<64xf32>
  %0 = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0)>], iterator_types = ["parallel", "reduction"]}
      ins(%x : tensor<64x0xf32>) outs(%i : tensor<64xf32>) {
  ^bb0(%a: f32, %o: f32):
    %s = arith.addf %o, %a : f32
    linalg.yield %s : f32
  } -> tensor<64xf32>
  return %0 : tensor<64xf32>
}

// All images' pixels of a planar channel are its row, in runs that lie in one piece. The gate that the pixels of an image
// and channel share, whose channels are neighbours, is little beside that.
// CHECK-LABEL: func.func @gated_images(
// CHECK: nests = [{num_warps = 8 : i64, row = 4096 : i64, tile = [1]}]
func.func @gated_images(%x: tensor<8x96x56x56xf32>, %gate: tensor<8x96xf32>, %other: tensor<8x96xf32>) -> tensor<96xf32> {
  %zero = arith.constant 0.0 : f32
  %e = "kiln.empty"() {shape = affine_map<() -> (96)>} : () -> tensor<96xf32>
  %i = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>], iterator_types = ["parallel"]} outs(%e : tensor<96xf32>) {
  ^bb0(%o: f32):
    linalg.yield %zero : f32
  } -> tensor<96xf32>
  %0 = linalg.generic {indexing_maps = [affine_map<(n, c, h, w) -> (n, c, h, w)>, affine_map<(n, c, h, w) -> (n, c)>, affine_map<(n, c, h, w) -> (n, c)>, affine_map<(n, c, h, w) -> (c)>], iterator_types = ["reduction", "parallel", "reduction", "reduction"]}
      ins(%x, %gate, %other : tensor<8x96x56x56xf32>, tensor<8x96xf32>, tensor<8x96xf32>) outs(%i : tensor<96xf32>) {
  ^bb0(%a: f32, %g: f32, %h: f32, %o: f32):
    %m = arith.mulf %a, %g : f32
    %p = arith.addf %m, %h : f32
    %s = arith.addf %o, %p : f32
    linalg.yield %s : f32
  } -> tensor<96xf32>
  return %0 : tensor<96xf32>
}
