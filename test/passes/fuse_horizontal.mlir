// Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// RUN: kiln-opt %s --split-input-file --mlir-print-local-scope --pass-pipeline="fuse" | filecheck %s
// RUN: kiln-opt %s --split-input-file --mlir-print-local-scope --pass-pipeline="fuse,assign-layouts,schedule-cpu" | filecheck %s --check-prefix=SCHED
// RUN: kiln-opt %s --split-input-file --pass-pipeline="fuse{horizontal=false}" | filecheck %s --check-prefix=APART

// Products of one matrix are parts of one kernel, each with its epilogue, its width and its schedule.

// CHECK-LABEL: func.func @siblings
// CHECK-NEXT: %[[F:.*]]:2 = "kiln.fusion"(
// CHECK: "kiln.matmul"({{.*}} -> tensor<5x16xf32>
// CHECK: "kiln.matmul"({{.*}} -> tensor<5x7xf32>
// CHECK: arith.addf
// CHECK: "kiln.yield"(
// CHECK: kind = "matmul", name = "matmul_generic", parts = array<i64: 0, 1>
// CHECK-NEXT: return %[[F]]#0, %[[F]]#1

// APART-NOT: parts

// SCHED-LABEL: func.func @siblings
// SCHED: parts = array<i64: 0, 1>, schedule = {kernel = "parts", parts = [{{{.*}}kernel = {{.*}}}, {{{.*}}kernel = {{.*}}}]}
func.func @siblings(%x: tensor<5x32xf32>, %v: tensor<16x32xf32>, %w: tensor<7x32xf32>, %b: tensor<7xf32>) -> (tensor<5x16xf32>, tensor<5x7xf32>) {
  %p = "kiln.matmul"(%x, %v) {transpose_lhs = false, transpose_rhs = true} : (tensor<5x32xf32>, tensor<16x32xf32>) -> tensor<5x16xf32>
  %q = "kiln.matmul"(%x, %w) {transpose_lhs = false, transpose_rhs = true} : (tensor<5x32xf32>, tensor<7x32xf32>) -> tensor<5x7xf32>
  %e = "kiln.empty"() {shape = affine_map<() -> (5, 7)>} : () -> tensor<5x7xf32>
  %r = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d1)>, affine_map<(d0, d1) -> (d0, d1)>], iterator_types = ["parallel", "parallel"]} ins(%q, %b : tensor<5x7xf32>, tensor<7xf32>) outs(%e : tensor<5x7xf32>) {
  ^bb0(%i: f32, %j: f32, %o: f32):
    %0 = arith.addf %i, %j : f32
    linalg.yield %0 : f32
  } -> tensor<5x7xf32>
  return %p, %r : tensor<5x16xf32>, tensor<5x7xf32>
}

// -----

// Not where one product needs the other, be it through a third kernel. A part has all the results of its own ops.

// CHECK-LABEL: func.func @dependent
// CHECK-NEXT: %[[P:.*]] = "kiln.fusion"(%arg0, %arg1)
// CHECK-NOT: parts
// CHECK: %[[S:.*]] = "kiln.fusion"(%[[P]])
// CHECK: %[[R:.*]] = "kiln.fusion"(%arg0, %[[S]])
// CHECK: return %[[R]]
func.func @dependent(%x: tensor<8x8xf32>, %w: tensor<8x8xf32>) -> tensor<8x8xf32> {
  %p = "kiln.matmul"(%x, %w) {transpose_lhs = false, transpose_rhs = false} : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
  %t = "kiln.view"(%p) {map = affine_map<(d0, d1) -> (d1, d0)>, shape = affine_map<() -> (8, 8)>} : (tensor<8x8xf32>) -> tensor<8x8xf32>
  %e = "kiln.empty"() {shape = affine_map<() -> (8, 8)>} : () -> tensor<8x8xf32>
  %s = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0, d1)>], iterator_types = ["parallel", "parallel"]} ins(%t : tensor<8x8xf32>) outs(%e : tensor<8x8xf32>) {
  ^bb0(%i: f32, %o: f32):
    %0 = math.exp %i : f32
    linalg.yield %0 : f32
  } -> tensor<8x8xf32>
  %r = "kiln.matmul"(%x, %s) {transpose_lhs = false, transpose_rhs = false} : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
  return %r : tensor<8x8xf32>
}

// -----

// Nor where the matrix is read in another way: its transpose has other rows.

// CHECK-LABEL: func.func @transposed
// CHECK-COUNT-2: "kiln.fusion"(
// CHECK: return
func.func @transposed(%x: tensor<8x8xf32>, %w: tensor<8x4xf32>) -> (tensor<8x4xf32>, tensor<8x4xf32>) {
  %p = "kiln.matmul"(%x, %w) {transpose_lhs = false, transpose_rhs = false} : (tensor<8x8xf32>, tensor<8x4xf32>) -> tensor<8x4xf32>
  %q = "kiln.matmul"(%x, %w) {transpose_lhs = true, transpose_rhs = false} : (tensor<8x8xf32>, tensor<8x4xf32>) -> tensor<8x4xf32>
  return %p, %q : tensor<8x4xf32>, tensor<8x4xf32>
}

// -----

// Two reductions and a pointwise op along the rows of one matrix are one pass over it: no parts.

// CHECK-LABEL: func.func @shared_loops
// CHECK: %[[F:.*]]:3 = "kiln.fusion"(%arg0)
// CHECK-NOT: parts
// CHECK: return %[[F]]#{{.}}, %[[F]]#{{.}}, %[[F]]#{{.}}
func.func @shared_loops(%x: tensor<8x16xf32>) -> (tensor<8xf32>, tensor<8xf32>, tensor<8x16xf32>) {
  %zero = arith.constant 0.0 : f32
  %e = "kiln.empty"() {shape = affine_map<() -> (8)>} : () -> tensor<8xf32>
  %f = "kiln.empty"() {shape = affine_map<() -> (8, 16)>} : () -> tensor<8x16xf32>
  %i = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>], iterator_types = ["parallel"]} outs(%e : tensor<8xf32>) {
  ^bb0(%o: f32):
    linalg.yield %zero : f32
  } -> tensor<8xf32>
  %s = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0)>], iterator_types = ["parallel", "reduction"]} ins(%x : tensor<8x16xf32>) outs(%i : tensor<8xf32>) {
  ^bb0(%p: f32, %o: f32):
    %0 = arith.addf %o, %p : f32
    linalg.yield %0 : f32
  } -> tensor<8xf32>
  %q = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0)>], iterator_types = ["parallel", "reduction"]} ins(%x : tensor<8x16xf32>) outs(%i : tensor<8xf32>) {
  ^bb0(%p: f32, %o: f32):
    %0 = arith.mulf %p, %p : f32
    %1 = arith.addf %o, %0 : f32
    linalg.yield %1 : f32
  } -> tensor<8xf32>
  %r = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0, d1)>], iterator_types = ["parallel", "parallel"]} ins(%x : tensor<8x16xf32>) outs(%f : tensor<8x16xf32>) {
  ^bb0(%p: f32, %o: f32):
    %0 = arith.negf %p : f32
    linalg.yield %0 : f32
  } -> tensor<8x16xf32>
  return %s, %q, %r : tensor<8xf32>, tensor<8xf32>, tensor<8x16xf32>
}

// -----

// Other loops over the same value: parts. A value that one of them makes and the other reads keeps them apart.

// CHECK-LABEL: func.func @other_loops
// CHECK-NEXT: %[[F:.*]]:2 = "kiln.fusion"(
// CHECK: parts = array<i64: 0, 1>
// CHECK: return %[[F]]#0, %[[F]]#1
func.func @other_loops(%x: tensor<8x16xf32>, %y: tensor<4x8x16xf32>) -> (tensor<8x16xf32>, tensor<4x8x16xf32>) {
  %e = "kiln.empty"() {shape = affine_map<() -> (8, 16)>} : () -> tensor<8x16xf32>
  %f = "kiln.empty"() {shape = affine_map<() -> (4, 8, 16)>} : () -> tensor<4x8x16xf32>
  %a = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0, d1)>], iterator_types = ["parallel", "parallel"]} ins(%x : tensor<8x16xf32>) outs(%e : tensor<8x16xf32>) {
  ^bb0(%p: f32, %o: f32):
    %0 = math.exp %p : f32
    linalg.yield %0 : f32
  } -> tensor<8x16xf32>
  %b = linalg.generic {indexing_maps = [affine_map<(d0, d1, d2) -> (d0, d1, d2)>, affine_map<(d0, d1, d2) -> (d1, d2)>, affine_map<(d0, d1, d2) -> (d0, d1, d2)>], iterator_types = ["parallel", "parallel", "parallel"]} ins(%y, %x : tensor<4x8x16xf32>, tensor<8x16xf32>) outs(%f : tensor<4x8x16xf32>) {
  ^bb0(%p: f32, %q: f32, %o: f32):
    %0 = arith.mulf %p, %q : f32
    linalg.yield %0 : f32
  } -> tensor<4x8x16xf32>
  return %a, %b : tensor<8x16xf32>, tensor<4x8x16xf32>
}
