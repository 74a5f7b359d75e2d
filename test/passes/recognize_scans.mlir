// Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// RUN: kiln-opt %s --statistics --pass-pipeline=recognize-scans 2>&1 | filecheck %s

// CHECK: recognize-scans: recognized=3
// CHECK: #[[PAIRS:.*]] = affine_map<(d0, d1) -> (d0 * 2 + d1)>

#id = affine_map<(d0) -> (d0)>

// A running maximum in log steps.

// CHECK-LABEL: func.func @maximum
// CHECK-NEXT: %[[R:.*]] = "kiln.recurrence"(%arg0) ({
// CHECK-NEXT: ^bb0(%[[A:.*]]: f32, %[[B:.*]]: f32):
// CHECK-NEXT: %[[M:.*]] = arith.maximumf %[[A]], %[[B]]
// CHECK-NEXT: "kiln.yield"(%[[M]])
// CHECK-NEXT: }) {dim = 0 : i64}
// CHECK-NEXT: return %[[R]]
func.func @maximum(%x: tensor<4xf32>) -> tensor<4xf32> {
  %e1 = "kiln.empty"() {shape = affine_map<() -> (1)>} : () -> tensor<1xf32>
  %e2 = "kiln.empty"() {shape = affine_map<() -> (2)>} : () -> tensor<2xf32>
  %first = "kiln.view"(%x) {map = affine_map<(d0) -> (d0 * 2)>, shape = affine_map<() -> (2)>}
    : (tensor<4xf32>) -> tensor<2xf32>
  %second = "kiln.view"(%x) {map = affine_map<(d0) -> (d0 * 2 + 1)>, shape = affine_map<() -> (2)>}
    : (tensor<4xf32>) -> tensor<2xf32>
  %pairs = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel"]}
      ins(%first, %second : tensor<2xf32>, tensor<2xf32>) outs(%e2 : tensor<2xf32>) {
  ^bb0(%i: f32, %j: f32, %o: f32):
    %m = arith.maximumf %i, %j : f32
    linalg.yield %m : f32
  } -> tensor<2xf32>
  %p0 = "kiln.view"(%pairs) {map = affine_map<(d0) -> (d0)>, shape = affine_map<() -> (1)>}
    : (tensor<2xf32>) -> tensor<1xf32>
  %p1 = "kiln.view"(%pairs) {map = affine_map<(d0) -> (d0 + 1)>, shape = affine_map<() -> (1)>}
    : (tensor<2xf32>) -> tensor<1xf32>
  %all = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel"]}
      ins(%p0, %p1 : tensor<1xf32>, tensor<1xf32>) outs(%e1 : tensor<1xf32>) {
  ^bb0(%i: f32, %j: f32, %o: f32):
    %m = arith.maximumf %i, %j : f32
    linalg.yield %m : f32
  } -> tensor<1xf32>
  %x0 = "kiln.view"(%x) {map = affine_map<(d0) -> (d0)>, shape = affine_map<() -> (1)>}
    : (tensor<4xf32>) -> tensor<1xf32>
  %x2 = "kiln.view"(%x) {map = affine_map<(d0) -> (d0 + 2)>, shape = affine_map<() -> (1)>}
    : (tensor<4xf32>) -> tensor<1xf32>
  %three = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel"]}
      ins(%p0, %x2 : tensor<1xf32>, tensor<1xf32>) outs(%e1 : tensor<1xf32>) {
  ^bb0(%i: f32, %j: f32, %o: f32):
    %m = arith.maximumf %i, %j : f32
    linalg.yield %m : f32
  } -> tensor<1xf32>
  %even = "kiln.cat"(%x0, %three) {dim = 0 : i64, shape = affine_map<() -> (2)>}
    : (tensor<1xf32>, tensor<1xf32>) -> tensor<2xf32>
  %odd = "kiln.cat"(%p0, %all) {dim = 0 : i64, shape = affine_map<() -> (2)>}
    : (tensor<1xf32>, tensor<1xf32>) -> tensor<2xf32>
  %even1 = "kiln.view"(%even) {map = affine_map<(d0, d1) -> (d0)>, shape = affine_map<() -> (2, 1)>}
    : (tensor<2xf32>) -> tensor<2x1xf32>
  %odd1 = "kiln.view"(%odd) {map = affine_map<(d0, d1) -> (d0)>, shape = affine_map<() -> (2, 1)>}
    : (tensor<2xf32>) -> tensor<2x1xf32>
  %both = "kiln.cat"(%even1, %odd1) {dim = 1 : i64, shape = affine_map<() -> (2, 2)>}
    : (tensor<2x1xf32>, tensor<2x1xf32>) -> tensor<2x2xf32>
  %y = "kiln.view"(%both) {map = affine_map<(d0) -> (d0 floordiv 2, d0 mod 2)>, shape = affine_map<() -> (4)>}
    : (tensor<2x2xf32>) -> tensor<4xf32>
  return %y : tensor<4xf32>
}

// A step on the way is a result, too: it is rounded where a recurrence is not.

// CHECK-LABEL: func.func @kept_in_part
// CHECK-NOT: kiln.recurrence
// CHECK: return
func.func @kept_in_part(%x: tensor<4xf32>) -> (tensor<4xf32>, tensor<2xf32>) {
  %e1 = "kiln.empty"() {shape = affine_map<() -> (1)>} : () -> tensor<1xf32>
  %e2 = "kiln.empty"() {shape = affine_map<() -> (2)>} : () -> tensor<2xf32>
  %first = "kiln.view"(%x) {map = affine_map<(d0) -> (d0 * 2)>, shape = affine_map<() -> (2)>}
    : (tensor<4xf32>) -> tensor<2xf32>
  %second = "kiln.view"(%x) {map = affine_map<(d0) -> (d0 * 2 + 1)>, shape = affine_map<() -> (2)>}
    : (tensor<4xf32>) -> tensor<2xf32>
  %pairs = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel"]}
      ins(%first, %second : tensor<2xf32>, tensor<2xf32>) outs(%e2 : tensor<2xf32>) {
  ^bb0(%i: f32, %j: f32, %o: f32):
    %m = arith.maximumf %i, %j : f32
    linalg.yield %m : f32
  } -> tensor<2xf32>
  %p0 = "kiln.view"(%pairs) {map = affine_map<(d0) -> (d0)>, shape = affine_map<() -> (1)>}
    : (tensor<2xf32>) -> tensor<1xf32>
  %p1 = "kiln.view"(%pairs) {map = affine_map<(d0) -> (d0 + 1)>, shape = affine_map<() -> (1)>}
    : (tensor<2xf32>) -> tensor<1xf32>
  %all = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel"]}
      ins(%p0, %p1 : tensor<1xf32>, tensor<1xf32>) outs(%e1 : tensor<1xf32>) {
  ^bb0(%i: f32, %j: f32, %o: f32):
    %m = arith.maximumf %i, %j : f32
    linalg.yield %m : f32
  } -> tensor<1xf32>
  %x0 = "kiln.view"(%x) {map = affine_map<(d0) -> (d0)>, shape = affine_map<() -> (1)>}
    : (tensor<4xf32>) -> tensor<1xf32>
  %x2 = "kiln.view"(%x) {map = affine_map<(d0) -> (d0 + 2)>, shape = affine_map<() -> (1)>}
    : (tensor<4xf32>) -> tensor<1xf32>
  %three = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel"]}
      ins(%p0, %x2 : tensor<1xf32>, tensor<1xf32>) outs(%e1 : tensor<1xf32>) {
  ^bb0(%i: f32, %j: f32, %o: f32):
    %m = arith.maximumf %i, %j : f32
    linalg.yield %m : f32
  } -> tensor<1xf32>
  %even = "kiln.cat"(%x0, %three) {dim = 0 : i64, shape = affine_map<() -> (2)>}
    : (tensor<1xf32>, tensor<1xf32>) -> tensor<2xf32>
  %odd = "kiln.cat"(%p0, %all) {dim = 0 : i64, shape = affine_map<() -> (2)>}
    : (tensor<1xf32>, tensor<1xf32>) -> tensor<2xf32>
  %even1 = "kiln.view"(%even) {map = affine_map<(d0, d1) -> (d0)>, shape = affine_map<() -> (2, 1)>}
    : (tensor<2xf32>) -> tensor<2x1xf32>
  %odd1 = "kiln.view"(%odd) {map = affine_map<(d0, d1) -> (d0)>, shape = affine_map<() -> (2, 1)>}
    : (tensor<2xf32>) -> tensor<2x1xf32>
  %both = "kiln.cat"(%even1, %odd1) {dim = 1 : i64, shape = affine_map<() -> (2, 2)>}
    : (tensor<2x1xf32>, tensor<2x1xf32>) -> tensor<2x2xf32>
  %y = "kiln.view"(%both) {map = affine_map<(d0) -> (d0 floordiv 2, d0 mod 2)>, shape = affine_map<() -> (4)>}
    : (tensor<2x2xf32>) -> tensor<4xf32>
  return %y, %odd : tensor<4xf32>, tensor<2xf32>
}

// What the scan is a reshape of is a view of it.

// CHECK-LABEL: func.func @kept_in_pairs
// CHECK-NEXT: %[[R:.*]] = "kiln.recurrence"(%arg0) ({
// CHECK: %[[P:.*]] = "kiln.view"(%[[R]]) {map = #[[PAIRS]], shape = #{{.*}}} : (tensor<4xf32>) -> tensor<2x2xf32>
// CHECK-NEXT: return %[[R]], %[[P]]
func.func @kept_in_pairs(%x: tensor<4xf32>) -> (tensor<4xf32>, tensor<2x2xf32>) {
  %e1 = "kiln.empty"() {shape = affine_map<() -> (1)>} : () -> tensor<1xf32>
  %e2 = "kiln.empty"() {shape = affine_map<() -> (2)>} : () -> tensor<2xf32>
  %first = "kiln.view"(%x) {map = affine_map<(d0) -> (d0 * 2)>, shape = affine_map<() -> (2)>}
    : (tensor<4xf32>) -> tensor<2xf32>
  %second = "kiln.view"(%x) {map = affine_map<(d0) -> (d0 * 2 + 1)>, shape = affine_map<() -> (2)>}
    : (tensor<4xf32>) -> tensor<2xf32>
  %pairs = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel"]}
      ins(%first, %second : tensor<2xf32>, tensor<2xf32>) outs(%e2 : tensor<2xf32>) {
  ^bb0(%i: f32, %j: f32, %o: f32):
    %m = arith.maximumf %i, %j : f32
    linalg.yield %m : f32
  } -> tensor<2xf32>
  %p0 = "kiln.view"(%pairs) {map = affine_map<(d0) -> (d0)>, shape = affine_map<() -> (1)>}
    : (tensor<2xf32>) -> tensor<1xf32>
  %p1 = "kiln.view"(%pairs) {map = affine_map<(d0) -> (d0 + 1)>, shape = affine_map<() -> (1)>}
    : (tensor<2xf32>) -> tensor<1xf32>
  %all = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel"]}
      ins(%p0, %p1 : tensor<1xf32>, tensor<1xf32>) outs(%e1 : tensor<1xf32>) {
  ^bb0(%i: f32, %j: f32, %o: f32):
    %m = arith.maximumf %i, %j : f32
    linalg.yield %m : f32
  } -> tensor<1xf32>
  %x0 = "kiln.view"(%x) {map = affine_map<(d0) -> (d0)>, shape = affine_map<() -> (1)>}
    : (tensor<4xf32>) -> tensor<1xf32>
  %x2 = "kiln.view"(%x) {map = affine_map<(d0) -> (d0 + 2)>, shape = affine_map<() -> (1)>}
    : (tensor<4xf32>) -> tensor<1xf32>
  %three = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel"]}
      ins(%p0, %x2 : tensor<1xf32>, tensor<1xf32>) outs(%e1 : tensor<1xf32>) {
  ^bb0(%i: f32, %j: f32, %o: f32):
    %m = arith.maximumf %i, %j : f32
    linalg.yield %m : f32
  } -> tensor<1xf32>
  %even = "kiln.cat"(%x0, %three) {dim = 0 : i64, shape = affine_map<() -> (2)>}
    : (tensor<1xf32>, tensor<1xf32>) -> tensor<2xf32>
  %odd = "kiln.cat"(%p0, %all) {dim = 0 : i64, shape = affine_map<() -> (2)>}
    : (tensor<1xf32>, tensor<1xf32>) -> tensor<2xf32>
  %even1 = "kiln.view"(%even) {map = affine_map<(d0, d1) -> (d0)>, shape = affine_map<() -> (2, 1)>}
    : (tensor<2xf32>) -> tensor<2x1xf32>
  %odd1 = "kiln.view"(%odd) {map = affine_map<(d0, d1) -> (d0)>, shape = affine_map<() -> (2, 1)>}
    : (tensor<2xf32>) -> tensor<2x1xf32>
  %both = "kiln.cat"(%even1, %odd1) {dim = 1 : i64, shape = affine_map<() -> (2, 2)>}
    : (tensor<2x1xf32>, tensor<2x1xf32>) -> tensor<2x2xf32>
  %y = "kiln.view"(%both) {map = affine_map<(d0) -> (d0 floordiv 2, d0 mod 2)>, shape = affine_map<() -> (4)>}
    : (tensor<2x2xf32>) -> tensor<4xf32>
  return %y, %both : tensor<4xf32>, tensor<2x2xf32>
}

// A running sum has an op of its own, which carries more digits.

// CHECK-LABEL: func.func @sum
// CHECK-NEXT: "kiln.scan"(%arg0) {dim = 0 : i64, kind = "sum"}
// CHECK-NEXT: return
func.func @sum(%x: tensor<4xf32>) -> tensor<4xf32> {
  %e1 = "kiln.empty"() {shape = affine_map<() -> (1)>} : () -> tensor<1xf32>
  %e2 = "kiln.empty"() {shape = affine_map<() -> (2)>} : () -> tensor<2xf32>
  %first = "kiln.view"(%x) {map = affine_map<(d0) -> (d0 * 2)>, shape = affine_map<() -> (2)>}
    : (tensor<4xf32>) -> tensor<2xf32>
  %second = "kiln.view"(%x) {map = affine_map<(d0) -> (d0 * 2 + 1)>, shape = affine_map<() -> (2)>}
    : (tensor<4xf32>) -> tensor<2xf32>
  %pairs = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel"]}
      ins(%first, %second : tensor<2xf32>, tensor<2xf32>) outs(%e2 : tensor<2xf32>) {
  ^bb0(%i: f32, %j: f32, %o: f32):
    %m = arith.addf %i, %j : f32
    linalg.yield %m : f32
  } -> tensor<2xf32>
  %p0 = "kiln.view"(%pairs) {map = affine_map<(d0) -> (d0)>, shape = affine_map<() -> (1)>}
    : (tensor<2xf32>) -> tensor<1xf32>
  %p1 = "kiln.view"(%pairs) {map = affine_map<(d0) -> (d0 + 1)>, shape = affine_map<() -> (1)>}
    : (tensor<2xf32>) -> tensor<1xf32>
  %all = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel"]}
      ins(%p0, %p1 : tensor<1xf32>, tensor<1xf32>) outs(%e1 : tensor<1xf32>) {
  ^bb0(%i: f32, %j: f32, %o: f32):
    %m = arith.addf %i, %j : f32
    linalg.yield %m : f32
  } -> tensor<1xf32>
  %x0 = "kiln.view"(%x) {map = affine_map<(d0) -> (d0)>, shape = affine_map<() -> (1)>}
    : (tensor<4xf32>) -> tensor<1xf32>
  %x2 = "kiln.view"(%x) {map = affine_map<(d0) -> (d0 + 2)>, shape = affine_map<() -> (1)>}
    : (tensor<4xf32>) -> tensor<1xf32>
  %three = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel"]}
      ins(%p0, %x2 : tensor<1xf32>, tensor<1xf32>) outs(%e1 : tensor<1xf32>) {
  ^bb0(%i: f32, %j: f32, %o: f32):
    %m = arith.addf %i, %j : f32
    linalg.yield %m : f32
  } -> tensor<1xf32>
  %even = "kiln.cat"(%x0, %three) {dim = 0 : i64, shape = affine_map<() -> (2)>}
    : (tensor<1xf32>, tensor<1xf32>) -> tensor<2xf32>
  %odd = "kiln.cat"(%p0, %all) {dim = 0 : i64, shape = affine_map<() -> (2)>}
    : (tensor<1xf32>, tensor<1xf32>) -> tensor<2xf32>
  %even1 = "kiln.view"(%even) {map = affine_map<(d0, d1) -> (d0)>, shape = affine_map<() -> (2, 1)>}
    : (tensor<2xf32>) -> tensor<2x1xf32>
  %odd1 = "kiln.view"(%odd) {map = affine_map<(d0, d1) -> (d0)>, shape = affine_map<() -> (2, 1)>}
    : (tensor<2xf32>) -> tensor<2x1xf32>
  %both = "kiln.cat"(%even1, %odd1) {dim = 1 : i64, shape = affine_map<() -> (2, 2)>}
    : (tensor<2x1xf32>, tensor<2x1xf32>) -> tensor<2x2xf32>
  %y = "kiln.view"(%both) {map = affine_map<(d0) -> (d0 floordiv 2, d0 mod 2)>, shape = affine_map<() -> (4)>}
    : (tensor<2x2xf32>) -> tensor<4xf32>
  return %y : tensor<4xf32>
}

// No function of which the order of brackets does not matter.

// CHECK-LABEL: func.func @difference
// CHECK-NOT: kiln.recurrence
// CHECK: return
func.func @difference(%x: tensor<4xf32>) -> tensor<4xf32> {
  %e1 = "kiln.empty"() {shape = affine_map<() -> (1)>} : () -> tensor<1xf32>
  %e2 = "kiln.empty"() {shape = affine_map<() -> (2)>} : () -> tensor<2xf32>
  %first = "kiln.view"(%x) {map = affine_map<(d0) -> (d0 * 2)>, shape = affine_map<() -> (2)>}
    : (tensor<4xf32>) -> tensor<2xf32>
  %second = "kiln.view"(%x) {map = affine_map<(d0) -> (d0 * 2 + 1)>, shape = affine_map<() -> (2)>}
    : (tensor<4xf32>) -> tensor<2xf32>
  %pairs = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel"]}
      ins(%first, %second : tensor<2xf32>, tensor<2xf32>) outs(%e2 : tensor<2xf32>) {
  ^bb0(%i: f32, %j: f32, %o: f32):
    %m = arith.subf %i, %j : f32
    linalg.yield %m : f32
  } -> tensor<2xf32>
  %p0 = "kiln.view"(%pairs) {map = affine_map<(d0) -> (d0)>, shape = affine_map<() -> (1)>}
    : (tensor<2xf32>) -> tensor<1xf32>
  %p1 = "kiln.view"(%pairs) {map = affine_map<(d0) -> (d0 + 1)>, shape = affine_map<() -> (1)>}
    : (tensor<2xf32>) -> tensor<1xf32>
  %all = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel"]}
      ins(%p0, %p1 : tensor<1xf32>, tensor<1xf32>) outs(%e1 : tensor<1xf32>) {
  ^bb0(%i: f32, %j: f32, %o: f32):
    %m = arith.subf %i, %j : f32
    linalg.yield %m : f32
  } -> tensor<1xf32>
  %x0 = "kiln.view"(%x) {map = affine_map<(d0) -> (d0)>, shape = affine_map<() -> (1)>}
    : (tensor<4xf32>) -> tensor<1xf32>
  %x2 = "kiln.view"(%x) {map = affine_map<(d0) -> (d0 + 2)>, shape = affine_map<() -> (1)>}
    : (tensor<4xf32>) -> tensor<1xf32>
  %three = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel"]}
      ins(%p0, %x2 : tensor<1xf32>, tensor<1xf32>) outs(%e1 : tensor<1xf32>) {
  ^bb0(%i: f32, %j: f32, %o: f32):
    %m = arith.subf %i, %j : f32
    linalg.yield %m : f32
  } -> tensor<1xf32>
  %even = "kiln.cat"(%x0, %three) {dim = 0 : i64, shape = affine_map<() -> (2)>}
    : (tensor<1xf32>, tensor<1xf32>) -> tensor<2xf32>
  %odd = "kiln.cat"(%p0, %all) {dim = 0 : i64, shape = affine_map<() -> (2)>}
    : (tensor<1xf32>, tensor<1xf32>) -> tensor<2xf32>
  %even1 = "kiln.view"(%even) {map = affine_map<(d0, d1) -> (d0)>, shape = affine_map<() -> (2, 1)>}
    : (tensor<2xf32>) -> tensor<2x1xf32>
  %odd1 = "kiln.view"(%odd) {map = affine_map<(d0, d1) -> (d0)>, shape = affine_map<() -> (2, 1)>}
    : (tensor<2xf32>) -> tensor<2x1xf32>
  %both = "kiln.cat"(%even1, %odd1) {dim = 1 : i64, shape = affine_map<() -> (2, 2)>}
    : (tensor<2x1xf32>, tensor<2x1xf32>) -> tensor<2x2xf32>
  %y = "kiln.view"(%both) {map = affine_map<(d0) -> (d0 floordiv 2, d0 mod 2)>, shape = affine_map<() -> (4)>}
    : (tensor<2x2xf32>) -> tensor<4xf32>
  return %y : tensor<4xf32>
}

// Two tensors that are interleaved, and no scan.

// CHECK-LABEL: func.func @interleaved
// CHECK: "kiln.cat"
// CHECK-NOT: kiln.recurrence
// CHECK: return
func.func @interleaved(%x: tensor<4x1xf32>, %y: tensor<4x1xf32>) -> tensor<8xf32> {
  %0 = "kiln.cat"(%x, %y) {dim = 1 : i64, shape = affine_map<() -> (4, 2)>} : (tensor<4x1xf32>, tensor<4x1xf32>) -> tensor<4x2xf32>
  %1 = "kiln.view"(%0) {map = affine_map<(d0) -> (d0 floordiv 2, d0 mod 2)>, shape = affine_map<() -> (8)>} : (tensor<4x2xf32>) -> tensor<8xf32>
  return %1 : tensor<8xf32>
}
