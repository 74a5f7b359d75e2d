// Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// RUN: kiln-opt %s --split-input-file --mlir-print-local-scope --pass-pipeline="fuse,assign-layouts,schedule-gpu" | filecheck %s

// Windows that move by two: neighbours are loaded one by one, nine for each, and a thread has two elements.

// CHECK-LABEL: func.func @by_two
// CHECK: nests = [{num_warps = 8 : i64, tile = [512]}]
func.func @by_two(%x: tensor<4096x225x225xbf16>) -> tensor<4096x112x112xbf16> {
  %e = "kiln.empty"() {shape = affine_map<() -> (4096, 112, 112)>} : () -> tensor<4096x112x112xbf16>
  %w = "kiln.empty"() {shape = affine_map<() -> (3, 3)>} : () -> tensor<3x3xbf16>
  %low = arith.constant 0xFF80 : bf16
  %i = linalg.generic {indexing_maps = [affine_map<(d0, d1, d2) -> (d0, d1, d2)>], iterator_types = ["parallel", "parallel", "parallel"]}
      outs(%e : tensor<4096x112x112xbf16>) {
  ^bb0(%o: bf16):
    linalg.yield %low : bf16
  } -> tensor<4096x112x112xbf16>
  %r = linalg.generic {indexing_maps = [affine_map<(d0, d1, d2, d3, d4) -> (d0, d1 * 2 + d3, d2 * 2 + d4)>, affine_map<(d0, d1, d2, d3, d4) -> (d3, d4)>, affine_map<(d0, d1, d2, d3, d4) -> (d0, d1, d2)>],
      iterator_types = ["parallel", "parallel", "parallel", "reduction", "reduction"]} ins(%x, %w : tensor<4096x225x225xbf16>, tensor<3x3xbf16>) outs(%i : tensor<4096x112x112xbf16>) {
  ^bb0(%a: bf16, %n: bf16, %o: bf16):
    %m = arith.maximumf %a, %o : bf16
    linalg.yield %m : bf16
  } -> tensor<4096x112x112xbf16>
  return %r : tensor<4096x112x112xbf16>
}

// -----

// Every second column: one load, and a thread has four elements.

// CHECK-LABEL: func.func @every_second
// CHECK: nests = [{num_warps = 8 : i64, tile = [1024]}]
func.func @every_second(%x: tensor<4096x8192xbf16>) -> tensor<4096x4096xbf16> {
  %e = "kiln.empty"() {shape = affine_map<() -> (4096, 4096)>} : () -> tensor<4096x4096xbf16>
  %v = "kiln.view"(%x) {map = affine_map<(d0, d1) -> (d0, d1 * 2)>, shape = affine_map<() -> (4096, 4096)>} : (tensor<4096x8192xbf16>) -> tensor<4096x4096xbf16>
  %r = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0, d1)>], iterator_types = ["parallel", "parallel"]}
      ins(%v : tensor<4096x4096xbf16>) outs(%e : tensor<4096x4096xbf16>) {
  ^bb0(%a: bf16, %o: bf16):
    %m = arith.mulf %a, %a : bf16
    linalg.yield %m : bf16
  } -> tensor<4096x4096xbf16>
  return %r : tensor<4096x4096xbf16>
}

// -----

// Whole vectors: as many elements as a load of 16 bytes has.

// CHECK-LABEL: func.func @half
// CHECK: nests = [{num_warps = 4 : i64, tile = [1024]}]
func.func @half(%x: tensor<4096x8192xbf16>) -> tensor<4096x4096xbf16> {
  %e = "kiln.empty"() {shape = affine_map<() -> (4096, 4096)>} : () -> tensor<4096x4096xbf16>
  %v = "kiln.view"(%x) {map = affine_map<(d0, d1) -> (d0, d1 + 4096)>, shape = affine_map<() -> (4096, 4096)>} : (tensor<4096x8192xbf16>) -> tensor<4096x4096xbf16>
  %r = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0, d1)>], iterator_types = ["parallel", "parallel"]}
      ins(%v : tensor<4096x4096xbf16>) outs(%e : tensor<4096x4096xbf16>) {
  ^bb0(%a: bf16, %o: bf16):
    %m = arith.mulf %a, %a : bf16
    linalg.yield %m : bf16
  } -> tensor<4096x4096xbf16>
  return %r : tensor<4096x4096xbf16>
}

// -----

// Columns that a table says, of half as many: four elements to a thread. With rows that it says, whole vectors are loaded.

// CHECK-LABEL: func.func @columns
// CHECK: nests = [{num_warps = 8 : i64, tile = [1024]}]
func.func @columns(%x: tensor<4096x2048xbf16>, %p: tensor<4096xi64>) -> tensor<4096x4096xbf16> {
  %e = "kiln.empty"() {shape = affine_map<() -> (4096, 4096)>} : () -> tensor<4096x4096xbf16>
  %r = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d1)>, affine_map<(d0, d1) -> (d0, d1)>], iterator_types = ["parallel", "parallel"]}
      ins(%p : tensor<4096xi64>) outs(%e : tensor<4096x4096xbf16>) {
  ^bb0(%a: i64, %o: bf16):
    %i = linalg.index 0 : index
    %j = arith.index_cast %a : i64 to index
    %m = tensor.extract %x[%i, %j] : tensor<4096x2048xbf16>
    linalg.yield %m : bf16
  } -> tensor<4096x4096xbf16>
  return %r : tensor<4096x4096xbf16>
}

// CHECK-LABEL: func.func @rows
// CHECK: nests = [{num_warps = 4 : i64, tile = [2048]}]
func.func @rows(%x: tensor<2048x4096xbf16>, %p: tensor<4096xi64>) -> tensor<4096x4096xbf16> {
  %e = "kiln.empty"() {shape = affine_map<() -> (4096, 4096)>} : () -> tensor<4096x4096xbf16>
  %r = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0)>, affine_map<(d0, d1) -> (d0, d1)>], iterator_types = ["parallel", "parallel"]}
      ins(%p : tensor<4096xi64>) outs(%e : tensor<4096x4096xbf16>) {
  ^bb0(%a: i64, %o: bf16):
    %i = arith.index_cast %a : i64 to index
    %j = linalg.index 1 : index
    %m = tensor.extract %x[%i, %j] : tensor<2048x4096xbf16>
    linalg.yield %m : bf16
  } -> tensor<4096x4096xbf16>
  return %r : tensor<4096x4096xbf16>
}
