// Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// RUN: kiln-opt %s --split-input-file --mlir-print-local-scope --pass-pipeline="split-reductions{parts=8 min-elements=64}" | filecheck %s

// A part's positions are those of its own extremum; the second step reads partial results alone.

// CHECK-LABEL: func.func @positions
// CHECK-SAME: (%[[X:.*]]: tensor<2x40xbf16>)
// CHECK: %[[M:.*]] = linalg.generic {{.*}} ins(%[[X]], %{{.*}}) outs(%{{.*}} : tensor<2x8xf32>)
// CHECK: arith.maximumf
// CHECK: %[[ALL:.*]] = linalg.generic {{.*}} ins(%[[M]] : tensor<2x8xf32>)
// CHECK: arith.maximumf
// CHECK: %[[P:.*]] = linalg.generic {{.*}} ins(%[[X]], %[[M]], %{{.*}} : tensor<2x40xbf16>, tensor<2x8xf32>, {{.*}}) outs(%{{.*}} : tensor<2x8xi64>)
// CHECK: %[[D:.*]] = linalg.index 1
// CHECK: %[[N:.*]] = linalg.index 2
// CHECK: %[[START:.*]] = arith.muli %[[N]], %c5
// CHECK: arith.addi %[[D]], %[[START]]
// CHECK: %[[R:.*]] = linalg.generic {{.*}} ins(%[[M]], %[[ALL]], %[[P]] : tensor<2x8xf32>, tensor<2xf32>, tensor<2x8xi64>)
// CHECK: ^bb0(%[[OWN:.*]]: f32, %[[BEST:.*]]: f32, %[[AT:.*]]: i64, %{{.*}}: i64):
// CHECK: arith.cmpf oeq, %[[OWN]], %[[BEST]]
// CHECK: arith.select %{{.*}}, %[[AT]]
// CHECK: return %[[R]]
func.func @positions(%x: tensor<2x40xbf16>) -> tensor<2xi64> {
  %low = arith.constant 0xFF800000 : f32
  %none = arith.constant 9223372036854775807 : i64
  %e = "kiln.empty"() {shape = affine_map<() -> (2)>} : () -> tensor<2xf32>
  %i = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>], iterator_types = ["parallel"]} outs(%e : tensor<2xf32>) {
  ^bb0(%o: f32):
    linalg.yield %low : f32
  } -> tensor<2xf32>
  %m = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0)>], iterator_types = ["parallel", "reduction"]} ins(%x : tensor<2x40xbf16>) outs(%i : tensor<2xf32>) {
  ^bb0(%a: bf16, %o: f32):
    %0 = arith.extf %a : bf16 to f32
    %1 = arith.maximumf %o, %0 : f32
    linalg.yield %1 : f32
  } -> tensor<2xf32>
  %f = "kiln.empty"() {shape = affine_map<() -> (2)>} : () -> tensor<2xi64>
  %j = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>], iterator_types = ["parallel"]} outs(%f : tensor<2xi64>) {
  ^bb0(%o: i64):
    linalg.yield %none : i64
  } -> tensor<2xi64>
  %r = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0)>, affine_map<(d0, d1) -> (d0)>], iterator_types = ["parallel", "reduction"]} ins(%x, %m : tensor<2x40xbf16>, tensor<2xf32>) outs(%j : tensor<2xi64>) {
  ^bb0(%a: bf16, %b: f32, %o: i64):
    %0 = linalg.index 1 : index
    %1 = arith.index_cast %0 : index to i64
    %2 = arith.extf %a : bf16 to f32
    %3 = arith.cmpf oeq, %2, %b : f32
    %4 = arith.cmpf uno, %2, %2 : f32
    %5 = arith.ori %3, %4 : i1
    %6 = arith.select %5, %1, %none : i64
    %7 = arith.minsi %o, %6 : i64
    linalg.yield %7 : i64
  } -> tensor<2xi64>
  return %r : tensor<2xi64>
}

// -----

// The position of the first element above a limit is no extremum's: each part looks for it, with its own indices.

// CHECK-LABEL: func.func @first_above
// CHECK: linalg.generic {{.*}} ins(%{{.*}}, %{{.*}}) outs(%{{.*}} : tensor<2x8xi64>)
// CHECK: arith.muli %{{.*}}, %c5
// CHECK: arith.cmpf ogt
// CHECK: linalg.generic {{.*}} ins(%{{.*}} : tensor<2x8xi64>)
// CHECK-NOT: arith.cmpf
// CHECK: return
func.func @first_above(%x: tensor<2x40xf32>) -> tensor<2xi64> {
  %none = arith.constant 9223372036854775807 : i64
  %limit = arith.constant 1.0 : f32
  %f = "kiln.empty"() {shape = affine_map<() -> (2)>} : () -> tensor<2xi64>
  %j = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>], iterator_types = ["parallel"]} outs(%f : tensor<2xi64>) {
  ^bb0(%o: i64):
    linalg.yield %none : i64
  } -> tensor<2xi64>
  %r = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0)>], iterator_types = ["parallel", "reduction"]} ins(%x : tensor<2x40xf32>) outs(%j : tensor<2xi64>) {
  ^bb0(%a: f32, %o: i64):
    %0 = linalg.index 1 : index
    %1 = arith.index_cast %0 : index to i64
    %2 = arith.cmpf ogt, %a, %limit : f32
    %3 = arith.select %2, %1, %none : i64
    %4 = arith.minsi %o, %3 : i64
    linalg.yield %4 : i64
  } -> tensor<2xi64>
  return %r : tensor<2xi64>
}
