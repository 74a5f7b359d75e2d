// Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// RUN: kiln-opt %s --split-input-file --mlir-print-local-scope --pass-pipeline="bound-positions" | filecheck %s

// A table of constants inside of the tensor: one minimum in place of a wrap and a clamp, and 32 bits.

// CHECK-LABEL: func.func @table
// CHECK: arith.constant dense<[6, 4, 2, 0]> : tensor<4xi32>
// CHECK: linalg.generic
// CHECK-NEXT: ^bb0(%[[I:.*]]: i32, %{{.*}}: f32):
// CHECK-NEXT: %[[W:.*]] = arith.extsi %[[I]] : i32 to i64
// CHECK-NEXT: %[[N:.*]] = arith.trunci %[[W]] : i64 to i32
// CHECK: %[[M:.*]] = arith.minui %[[N]], %{{.*}} : i32
// CHECK-NEXT: %[[P:.*]] = arith.index_cast %[[M]] : i32 to index
// CHECK-NEXT: tensor.extract %{{.*}}[%[[P]]]
func.func @table(%x: tensor<8xf32>) -> tensor<4xf32> {
  %table = arith.constant dense<[6, 4, 2, 0]> : tensor<4xi64>
  %e = "kiln.empty"() {shape = affine_map<() -> (4)>} : () -> tensor<4xf32>
  %0 = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>], iterator_types = ["parallel"]} ins(%table : tensor<4xi64>) outs(%e : tensor<4xf32>) {
  ^bb0(%i: i64, %o: f32):
    %size = arith.constant 8 : i64
    %last = arith.constant 7 : i64
    %zero = arith.constant 0 : i64
    %from_end = arith.addi %i, %size : i64
    %is_negative = arith.cmpi slt, %i, %zero : i64
    %wrapped = arith.select %is_negative, %from_end, %i : i64
    %low = arith.maxsi %wrapped, %zero : i64
    %high = arith.minsi %low, %last {kiln.checked = "index"} : i64
    %position = arith.index_cast %high : i64 to index
    %1 = tensor.extract %x[%position] : tensor<8xf32>
    linalg.yield %1 : f32
  } -> tensor<4xf32>
  return %0 : tensor<4xf32>
}

// -----

// Negative entries of a table are counted from the end: all stays.

// CHECK-LABEL: func.func @negative
// CHECK: arith.constant dense<[-1, 4, -8, 0]> : tensor<4xi64>
// CHECK: %[[W:.*]] = arith.select
// CHECK: arith.maxsi %[[W]]
func.func @negative(%x: tensor<8xf32>) -> tensor<4xf32> {
  %table = arith.constant dense<[-1, 4, -8, 0]> : tensor<4xi64>
  %e = "kiln.empty"() {shape = affine_map<() -> (4)>} : () -> tensor<4xf32>
  %0 = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>], iterator_types = ["parallel"]} ins(%table : tensor<4xi64>) outs(%e : tensor<4xf32>) {
  ^bb0(%i: i64, %o: f32):
    %size = arith.constant 8 : i64
    %zero = arith.constant 0 : i64
    %from_end = arith.addi %i, %size : i64
    %is_negative = arith.cmpi slt, %i, %zero : i64
    %wrapped = arith.select %is_negative, %from_end, %i : i64
    %low = arith.maxsi %wrapped, %zero : i64
    %position = arith.index_cast %low : i64 to index
    %1 = tensor.extract %x[%position] : tensor<8xf32>
    linalg.yield %1 : f32
  } -> tensor<4xf32>
  return %0 : tensor<4xf32>
}

// -----

// The caller's positions may be anything: all stays, with the check, which compares with what the clamp was given.

// CHECK-LABEL: func.func @given
// CHECK: ^bb0(%[[I:.*]]: i64, %{{.*}}: f32):
// CHECK: arith.andi
// CHECK: %[[L:.*]] = arith.maxsi
// CHECK: arith.minsi %[[L]], %{{.*}} {kiln.checked = "index"}
func.func @given(%x: tensor<8xf32>, %positions: tensor<4xi64>) -> tensor<4xf32> {
  %e = "kiln.empty"() {shape = affine_map<() -> (4)>} : () -> tensor<4xf32>
  %0 = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>], iterator_types = ["parallel"]} ins(%positions : tensor<4xi64>) outs(%e : tensor<4xf32>) {
  ^bb0(%i: i64, %o: f32):
    %mask = arith.constant 15 : i64
    %last = arith.constant 7 : i64
    %zero = arith.constant 0 : i64
    %even = arith.andi %i, %mask : i64
    %low = arith.maxsi %even, %zero : i64
    %high = arith.minsi %low, %last {kiln.checked = "index"} : i64
    %position = arith.index_cast %high : i64 to index
    %1 = tensor.extract %x[%position] : tensor<8xf32>
    linalg.yield %1 : f32
  } -> tensor<4xf32>
  return %0 : tensor<4xf32>
}

// -----

// An interpolation's positions, computed from the loop in floats: 4 pixels from 3, at (i + 0.5) * 0.75 - 0.5, not below 0.
// The pixel before is in bounds; the one after is not, in the last place: the minimum is its upper bound, too.

// CHECK-LABEL: func.func @interpolated
// CHECK: %[[F:.*]] = arith.fptosi
// CHECK-NEXT: %[[T:.*]] = arith.trunci %[[F]] : i64 to i32
// CHECK: arith.minui %[[T]], %{{.*}} : i32
// CHECK: %[[N:.*]] = arith.addi %[[F]]
// CHECK-NEXT: %[[U:.*]] = arith.trunci %[[N]] : i64 to i32
// CHECK: arith.minui %[[U]], %{{.*}} : i32
// CHECK-NOT: arith.maxsi
// CHECK-NOT: arith.minsi
// CHECK: return
func.func @interpolated(%x: tensor<3xf32>) -> tensor<4xf32> {
  %e = "kiln.empty"() {shape = affine_map<() -> (4)>} : () -> tensor<4xf32>
  %0 = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>], iterator_types = ["parallel"]} outs(%e : tensor<4xf32>) {
  ^bb0(%o: f32):
    %half = arith.constant 0.5 : f32
    %scale = arith.constant 0.75 : f32
    %none = arith.constant 0.0 : f32
    %zero = arith.constant 0 : i64
    %one = arith.constant 1 : i64
    %last = arith.constant 2 : i64
    %i = linalg.index 0 : index
    %j = arith.index_cast %i : index to i64
    %f = arith.sitofp %j : i64 to f32
    %g = arith.addf %f, %half : f32
    %h = arith.mulf %g, %scale : f32
    %k = arith.subf %h, %half : f32
    %at = arith.maximumf %k, %none : f32
    %before = arith.fptosi %at : f32 to i64
    %1 = arith.maxsi %before, %zero : i64
    %2 = arith.minsi %1, %last : i64
    %3 = arith.index_cast %2 : i64 to index
    %a = tensor.extract %x[%3] : tensor<3xf32>
    %next = arith.addi %before, %one : i64
    %4 = arith.minsi %next, %last : i64
    %5 = arith.maxsi %4, %zero : i64
    %6 = arith.index_cast %5 : i64 to index
    %b = tensor.extract %x[%6] : tensor<3xf32>
    %c = arith.addf %a, %b : f32
    linalg.yield %c : f32
  } -> tensor<4xf32>
  return %0 : tensor<4xf32>
}
