// Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// RUN: kiln-opt %s --pass-pipeline="expand-named-ops{target=cuda},canonicalize,cse,fuse,assign-layouts,schedule-gpu" | filecheck %s

// Rows that are read again behind their reduction: in registers while they fit there.

// The whole row is in registers, a warp for each 512 elements.
// CHECK-LABEL: func.func @rows_of_1024(
// CHECK: nests = [{num_warps = 2 : i64, persistent = true, row = 1024 : i64, tile = [1]}]
func.func @rows_of_1024(%x: tensor<4096x1024xf32>) -> tensor<4096x1024xf32> {
  %0 = "kiln.softmax"(%x) {dim = 1 : i64, log = false} : (tensor<4096x1024xf32>) -> tensor<4096x1024xf32>
  return %0 : tensor<4096x1024xf32>
}

// CHECK-LABEL: func.func @rows_of_4096(
// CHECK: nests = [{num_warps = 8 : i64, persistent = true, row = 4096 : i64, tile = [1]}]
func.func @rows_of_4096(%x: tensor<4096x4096xf32>) -> tensor<4096x4096xf32> {
  %0 = "kiln.softmax"(%x) {dim = 1 : i64, log = false} : (tensor<4096x4096xf32>) -> tensor<4096x4096xf32>
  return %0 : tensor<4096x4096xf32>
}

// CHECK-LABEL: func.func @rows_of_8192(
// CHECK: nests = [{num_warps = 16 : i64, persistent = true, row = 8192 : i64, tile = [1]}]
func.func @rows_of_8192(%x: tensor<4096x8192xf32>) -> tensor<4096x8192xf32> {
  %0 = "kiln.softmax"(%x) {dim = 1 : i64, log = false} : (tensor<4096x8192xf32>) -> tensor<4096x8192xf32>
  return %0 : tensor<4096x8192xf32>
}

// CHECK-LABEL: func.func @rows_of_32768(
// CHECK: nests = [{num_warps = 32 : i64, persistent = true, row = 32768 : i64, tile = [1]}]
func.func @rows_of_32768(%x: tensor<4096x32768xf32>) -> tensor<4096x32768xf32> {
  %0 = "kiln.softmax"(%x) {dim = 1 : i64, log = false} : (tensor<4096x32768xf32>) -> tensor<4096x32768xf32>
  return %0 : tensor<4096x32768xf32>
}

// A row that is too long for registers is walked in blocks.
// CHECK-LABEL: func.func @rows_of_32769(
// CHECK: nests = [{num_warps = 8 : i64, row = 4096 : i64
func.func @rows_of_32769(%x: tensor<64x32769xf32>) -> tensor<64x32769xf32> {
  %0 = "kiln.softmax"(%x) {dim = 1 : i64, log = false} : (tensor<64x32769xf32>) -> tensor<64x32769xf32>
  return %0 : tensor<64x32769xf32>
}

// More loads of an element leave less room: here of rows that lie apart in six ways.
// CHECK-LABEL: func.func @two_inputs(
// CHECK: persistent = true, row = 16384 : i64
func.func @two_inputs(%x0: tensor<64x16384xf32> {kiln.strides = affine_map<() -> (16384, 1)>},
    %x1: tensor<64x16384xf32> {kiln.strides = affine_map<() -> (16448, 1)>}) -> tensor<64x16384xf32> {
  %e = "kiln.empty"() {shape = affine_map<() -> (64, 16384)>} : () -> tensor<64x16384xf32>
  %0 = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0, d1)>], iterator_types = ["parallel", "parallel"]}
      ins(%x0, %x1 : tensor<64x16384xf32>, tensor<64x16384xf32>) outs(%e : tensor<64x16384xf32>) {
  ^bb0(%a0: f32, %a1: f32, %out: f32):
    %s1 = arith.addf %a0, %a1 : f32
    linalg.yield %s1 : f32
  } -> tensor<64x16384xf32>
  %1 = "kiln.softmax"(%0) {dim = 1 : i64, log = false} : (tensor<64x16384xf32>) -> tensor<64x16384xf32>
  return %1 : tensor<64x16384xf32>
}

// CHECK-LABEL: func.func @six_inputs(
// CHECK: nests = [{num_warps = 8 : i64, row = 4096 : i64
func.func @six_inputs(%x0: tensor<64x16384xf32> {kiln.strides = affine_map<() -> (16384, 1)>},
    %x1: tensor<64x16384xf32> {kiln.strides = affine_map<() -> (16448, 1)>},
    %x2: tensor<64x16384xf32> {kiln.strides = affine_map<() -> (16512, 1)>},
    %x3: tensor<64x16384xf32> {kiln.strides = affine_map<() -> (16576, 1)>},
    %x4: tensor<64x16384xf32> {kiln.strides = affine_map<() -> (16640, 1)>},
    %x5: tensor<64x16384xf32> {kiln.strides = affine_map<() -> (16704, 1)>}) -> tensor<64x16384xf32> {
  %e = "kiln.empty"() {shape = affine_map<() -> (64, 16384)>} : () -> tensor<64x16384xf32>
  %0 = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0, d1)>], iterator_types = ["parallel", "parallel"]}
      ins(%x0, %x1, %x2, %x3, %x4, %x5 : tensor<64x16384xf32>, tensor<64x16384xf32>, tensor<64x16384xf32>, tensor<64x16384xf32>, tensor<64x16384xf32>, tensor<64x16384xf32>) outs(%e : tensor<64x16384xf32>) {
  ^bb0(%a0: f32, %a1: f32, %a2: f32, %a3: f32, %a4: f32, %a5: f32, %out: f32):
    %s1 = arith.addf %a0, %a1 : f32
    %s2 = arith.addf %s1, %a2 : f32
    %s3 = arith.addf %s2, %a3 : f32
    %s4 = arith.addf %s3, %a4 : f32
    %s5 = arith.addf %s4, %a5 : f32
    linalg.yield %s5 : f32
  } -> tensor<64x16384xf32>
  %1 = "kiln.softmax"(%0) {dim = 1 : i64, log = false} : (tensor<64x16384xf32>) -> tensor<64x16384xf32>
  return %1 : tensor<64x16384xf32>
}
