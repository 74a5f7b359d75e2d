// Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// RUN: kiln-opt %s --cpu=x86-64-v4 --split-input-file --mlir-print-local-scope --pass-pipeline="fuse,assign-layouts,emit-cpu-kernels" | filecheck %s

// A running sum walks the scanned dim in order; the lanes are columns, their sums stay in registers, in f64. Threads
// share blocks of lanes.

// CHECK-LABEL: func.func @scan
// CHECK: %[[LO:.*]] = arith.divui
// CHECK: %[[HI:.*]] = arith.divui
// CHECK: scf.for %[[BLOCK:.*]] = %[[LO]] to %[[HI]]
// CHECK: scf.for {{.*}} = %c0 to %c100 step %c1 iter_args(%[[SUM:.*]] = %{{.*}}) -> (vector<{{[0-9]+}}xf64>)
// CHECK: %[[X:.*]] = vector.load %arg0[%[[AT:.*]]] : memref
// CHECK-NEXT: %[[WIDE:.*]] = arith.extf %[[X]]
// CHECK-NEXT: %[[NEXT:.*]] = arith.addf %[[SUM]], %[[WIDE]]
// CHECK-NEXT: %[[ROUNDED:.*]] = arith.truncf %[[NEXT]]
// CHECK-NEXT: vector.store %[[ROUNDED]], %arg1[%[[AT]]]
// CHECK-NEXT: scf.yield %[[NEXT]]
func.func @scan(%x: tensor<100x64xf32>) -> tensor<100x64xf32> {
  %y = "kiln.scan"(%x) {dim = 0 : i64, kind = "sum"} : (tensor<100x64xf32>) -> tensor<100x64xf32>
  return %y : tensor<100x64xf32>
}

// -----

// Along the last dim a vector is combined with itself shifted, then with what came before, which is carried in f64. What
// comes before the scan is computed on the way.

// CHECK-LABEL: func.func @generic_scan
// CHECK: scf.for {{.*}} iter_args(%[[BEFORE:.*]] = %{{.*}}) -> (f64)
// CHECK: %[[X:.*]] = vector.load %arg0
// CHECK-NEXT: %[[SQUARE:.*]] = arith.mulf %[[X]], %[[X]]
// CHECK-NEXT: %[[SHIFTED:.*]] = vector.shuffle %{{.*}}, %[[SQUARE]] [0,
// CHECK-NEXT: arith.addf %[[SHIFTED]], %[[SQUARE]]
// CHECK: arith.truncf %[[BEFORE]] : f64 to f32
// CHECK: vector.store %{{.*}}, %arg1
// CHECK: %[[LAST:.*]] = arith.extf {{.*}} : f32 to f64
// CHECK-NEXT: arith.addf %[[BEFORE]], %[[LAST]]
func.func @scan_last(%x: tensor<8x?xf32> {kiln.shape = affine_map<()[s0] -> (8, s0)>}, %n: index {kiln.symbol = "s0"}) -> tensor<8x?xf32> attributes {kiln.symbols = ["s0"]} {
  %e = "kiln.empty"(%n) {shape = affine_map<()[s0] -> (8, s0)>} : (index) -> tensor<8x?xf32>
  %t = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0, d1)>], iterator_types = ["parallel", "parallel"]} ins(%x : tensor<8x?xf32>) outs(%e : tensor<8x?xf32>) {
  ^bb0(%a: f32, %o: f32):
    %0 = arith.mulf %a, %a : f32
    linalg.yield %0 : f32
  } -> tensor<8x?xf32>
  %y = "kiln.scan"(%t) {dim = 1 : i64, kind = "sum"} : (tensor<8x?xf32>) -> tensor<8x?xf32>
  return %y : tensor<8x?xf32>
}

// -----

// The epilogue of a product: the bias is loaded beside the sums, and the result is written once.

// CHECK-LABEL: func.func @matmul_generic(%arg0: memref<?xf32>, %arg1: memref<?xf32>, %arg2: memref<?xf32>, %arg3: memref<?xf32>, %arg4: memref<?xi8>
// CHECK-DAG: %[[ZERO:.*]] = arith.constant 0.000000e+00 : f32
// CHECK: vector.fma
// CHECK: %[[BIAS:.*]] = vector.load %arg2
// CHECK-NEXT: %[[SUM:.*]] = arith.addf %{{.*}}, %[[BIAS]] : vector<{{[0-9]+}}xf32>
// CHECK: %[[RELU:.*]] = arith.maximumf %[[SUM]]
// CHECK: vector.store %[[RELU]], %arg3
// CHECK: return
func.func @linear_relu(%x: tensor<64x256xf32>, %w: tensor<128x256xf32>, %b: tensor<128xf32>) -> tensor<64x128xf32> {
  %zero = arith.constant 0.0 : f32
  %p = "kiln.matmul"(%x, %w) {transpose_lhs = false, transpose_rhs = true} : (tensor<64x256xf32>, tensor<128x256xf32>) -> tensor<64x128xf32>
  %e = "kiln.empty"() {shape = affine_map<() -> (64, 128)>} : () -> tensor<64x128xf32>
  %r = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d1)>, affine_map<(d0, d1) -> (d0, d1)>], iterator_types = ["parallel", "parallel"]} ins(%p, %b : tensor<64x128xf32>, tensor<128xf32>) outs(%e : tensor<64x128xf32>) {
  ^bb0(%a: f32, %c: f32, %o: f32):
    %0 = arith.addf %a, %c : f32
    %1 = arith.maximumf %0, %zero : f32
    linalg.yield %1 : f32
  } -> tensor<64x128xf32>
  return %r : tensor<64x128xf32>
}

// -----

// The reader of a product of [batch, rows] may split the rows otherwise: the epilogue finds its index from the row.

// CHECK-LABEL: func.func @matmul_generic
// CHECK: vector.fma
// CHECK: %[[Y:.*]] = vector.load %arg2[%[[AT:.*]]] : memref
// CHECK-NEXT: %[[SUM:.*]] = arith.addf %{{.*}}, %[[Y]] : vector<{{[0-9]+}}xf32>
// CHECK-NEXT: vector.store %[[SUM]], %arg3[%[[AT]]]
func.func @split_rows(%x: tensor<64x256xf32>, %w: tensor<256x128xf32>, %y: tensor<8x8x128xf32>) -> tensor<8x8x128xf32> {
  %p = "kiln.matmul"(%x, %w) {transpose_lhs = false, transpose_rhs = false} : (tensor<64x256xf32>, tensor<256x128xf32>) -> tensor<64x128xf32>
  %v = "kiln.view"(%p) {map = affine_map<(d0, d1, d2) -> (d0 * 8 + d1, d2)>, shape = affine_map<() -> (8, 8, 128)>} : (tensor<64x128xf32>) -> tensor<8x8x128xf32>
  %e = "kiln.empty"() {shape = affine_map<() -> (8, 8, 128)>} : () -> tensor<8x8x128xf32>
  %r = linalg.generic {indexing_maps = [affine_map<(d0, d1, d2) -> (d0, d1, d2)>, affine_map<(d0, d1, d2) -> (d0, d1, d2)>, affine_map<(d0, d1, d2) -> (d0, d1, d2)>], iterator_types = ["parallel", "parallel", "parallel"]} ins(%v, %y : tensor<8x8x128xf32>, tensor<8x8x128xf32>) outs(%e : tensor<8x8x128xf32>) {
  ^bb0(%a: f32, %c: f32, %o: f32):
    %0 = arith.addf %a, %c : f32
    linalg.yield %0 : f32
  } -> tensor<8x8x128xf32>
  return %r : tensor<8x8x128xf32>
}

// -----

// Attention is one kernel: scores, softmax and weighted sum of a tile never leave the core.

// CHECK-LABEL: func.func @attention
// CHECK-NOT: %arg3[
// CHECK: vector.shuffle {{.*}} [1, 0, 1, 0
// CHECK: vector.extract
// CHECK: math.exp2
// CHECK: vector.store {{.*}}, %arg3[
func.func @attention(%q: tensor<1x2x64x16xf32>, %k: tensor<1x2x64x16xf32>, %v: tensor<1x2x64x16xf32>) -> tensor<1x2x64x16xf32> {
  %r = "kiln.attention"(%q, %k, %v) {scale = 0.25 : f64, causal = true} : (tensor<1x2x64x16xf32>, tensor<1x2x64x16xf32>, tensor<1x2x64x16xf32>) -> tensor<1x2x64x16xf32>
  return %r : tensor<1x2x64x16xf32>
}
