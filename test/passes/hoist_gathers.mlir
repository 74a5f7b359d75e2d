// Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// RUN: kiln-opt %s --split-input-file --mlir-print-local-scope --pass-pipeline="hoist-gathers" | filecheck %s

// A loss picks one logit of each row. Through the view and the cast, so that nothing is stored in f32.

// CHECK-LABEL: func.func @label
// CHECK: %[[V:.*]] = "kiln.view"(%arg0) {{.*}} : (tensor<2x4x8xbf16>) -> tensor<8x8xbf16>
// CHECK: linalg.generic
// CHECK: %[[E:.*]] = tensor.extract %[[V]][%{{.*}}, %{{.*}}] : tensor<8x8xbf16>
// CHECK-NEXT: arith.extf %[[E]] : bf16 to f32
// CHECK-NOT: linalg.generic
// CHECK: return
func.func @label(%x: tensor<2x4x8xbf16>, %labels: tensor<8xi64>) -> tensor<8xf32> {
  %e = "kiln.empty"() {shape = affine_map<() -> (2, 4, 8)>} : () -> tensor<2x4x8xf32>
  %wide = linalg.generic {indexing_maps = [affine_map<(d0, d1, d2) -> (d0, d1, d2)>, affine_map<(d0, d1, d2) -> (d0, d1, d2)>], iterator_types = ["parallel", "parallel", "parallel"]} ins(%x : tensor<2x4x8xbf16>) outs(%e : tensor<2x4x8xf32>) {
  ^bb0(%a: bf16, %o: f32):
    %0 = arith.extf %a : bf16 to f32
    linalg.yield %0 : f32
  } -> tensor<2x4x8xf32>
  %rows = "kiln.view"(%wide) {map = affine_map<(d0, d1) -> (d0 floordiv 4, d0 mod 4, d1)>, shape = affine_map<() -> (8, 8)>} : (tensor<2x4x8xf32>) -> tensor<8x8xf32>
  %f = "kiln.empty"() {shape = affine_map<() -> (8)>} : () -> tensor<8xf32>
  %picked = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>], iterator_types = ["parallel"]} ins(%labels : tensor<8xi64>) outs(%f : tensor<8xf32>) {
  ^bb0(%l: i64, %o: f32):
    %row = linalg.index 0 : index
    %column = arith.index_cast %l : i64 to index
    %0 = tensor.extract %rows[%row, %column] : tensor<8x8xf32>
    linalg.yield %0 : f32
  } -> tensor<8xf32>
  return %picked : tensor<8xf32>
}

// -----

// Two casts, one on top of the other, of arguments: both are computed on what is gathered.

// CHECK-LABEL: func.func @chain
// CHECK: linalg.generic
// CHECK: %[[A:.*]] = tensor.extract %arg0
// CHECK: %[[B:.*]] = tensor.extract %arg1
// CHECK: %[[S:.*]] = arith.addf %[[A]], %[[B]] : f32
// CHECK: arith.truncf %[[S]] : f32 to bf16
// CHECK-NOT: linalg.generic
// CHECK: return
func.func @chain(%x: tensor<8xf32>, %y: tensor<8xf32>, %i: tensor<4xi64>) -> tensor<4xbf16> {
  %e = "kiln.empty"() {shape = affine_map<() -> (8)>} : () -> tensor<8xf32>
  %sum = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>], iterator_types = ["parallel"]} ins(%x, %y : tensor<8xf32>, tensor<8xf32>) outs(%e : tensor<8xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %0 = arith.addf %a, %b : f32
    linalg.yield %0 : f32
  } -> tensor<8xf32>
  %f = "kiln.empty"() {shape = affine_map<() -> (8)>} : () -> tensor<8xbf16>
  %half = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>], iterator_types = ["parallel"]} ins(%sum : tensor<8xf32>) outs(%f : tensor<8xbf16>) {
  ^bb0(%a: f32, %o: bf16):
    %0 = arith.truncf %a : f32 to bf16
    linalg.yield %0 : bf16
  } -> tensor<8xbf16>
  %g = "kiln.empty"() {shape = affine_map<() -> (4)>} : () -> tensor<4xbf16>
  %picked = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>], iterator_types = ["parallel"]} ins(%i : tensor<4xi64>) outs(%g : tensor<4xbf16>) {
  ^bb0(%l: i64, %o: bf16):
    %at = arith.index_cast %l : i64 to index
    %0 = tensor.extract %half[%at] : tensor<8xbf16>
    linalg.yield %0 : bf16
  } -> tensor<4xbf16>
  return %picked : tensor<4xbf16>
}

// -----

// What another op computes would have to be stored in place of the result, and is no smaller.

// CHECK-LABEL: func.func @as_large
// CHECK-COUNT-3: linalg.generic
// CHECK: tensor.extract %{{.*}} : tensor<8xf32>
func.func @as_large(%x: tensor<8x4xf32>, %i: tensor<4xi64>) -> tensor<4xf32> {
  %zero = arith.constant dense<0.0> : tensor<8xf32>
  %sum = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0)>], iterator_types = ["parallel", "reduction"]} ins(%x : tensor<8x4xf32>) outs(%zero : tensor<8xf32>) {
  ^bb0(%a: f32, %o: f32):
    %0 = arith.addf %a, %o : f32
    linalg.yield %0 : f32
  } -> tensor<8xf32>
  %e = "kiln.empty"() {shape = affine_map<() -> (8)>} : () -> tensor<8xf32>
  %root = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>], iterator_types = ["parallel"]} ins(%sum : tensor<8xf32>) outs(%e : tensor<8xf32>) {
  ^bb0(%a: f32, %o: f32):
    %0 = math.sqrt %a : f32
    linalg.yield %0 : f32
  } -> tensor<8xf32>
  %g = "kiln.empty"() {shape = affine_map<() -> (4)>} : () -> tensor<4xf32>
  %picked = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>], iterator_types = ["parallel"]} ins(%i : tensor<4xi64>) outs(%g : tensor<4xf32>) {
  ^bb0(%l: i64, %o: f32):
    %at = arith.index_cast %l : i64 to index
    %0 = tensor.extract %root[%at] : tensor<8xf32>
    linalg.yield %0 : f32
  } -> tensor<4xf32>
  return %picked : tensor<4xf32>
}
