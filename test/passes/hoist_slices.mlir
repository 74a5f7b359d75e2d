// Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// RUN: kiln-opt %s --mlir-print-local-scope --statistics --remarks --pass-pipeline="assign-layouts,reuse-buffers,hoist-slices" 2>&1 | filecheck %s

#id = affine_map<(d0, d1) -> (d0, d1)>

// CHECK-DAG: read inside: its strides or its offset are not known

// The third step of each sequence of 4, where rows are steps: the offset is the launch's.

// CHECK-LABEL: func.func @step
// CHECK: %[[V:.*]] = "kiln.view"(%arg0) {map = affine_map<(d0, d1) -> (d0 * 4 + 2, d1)>
// CHECK: "kiln.fusion"(%[[V]], %arg1)
// CHECK: ^bb0(%[[A:.*]]: tensor<2x8xf32>, %{{.*}}: tensor<2x8xf32>):
// CHECK-NOT: kiln.view
// CHECK: ins(%[[A]],
// CHECK: layouts = [affine_map<(d0, d1) -> (d0 * 32 + d1)>, affine_map<(d0, d1) -> (d0 * 8 + d1)>, affine_map<(d0, d1) -> (d0 * 8 + d1)>]
// CHECK-SAME: offsets = [affine_map<() -> (16)>, affine_map<() -> (0)>, affine_map<() -> (0)>]
func.func @step(%x: tensor<8x8xf32>, %y: tensor<2x8xf32>) -> tensor<2x8xf32> {
  %0 = "kiln.fusion"(%x, %y) ({
  ^bb0(%a: tensor<8x8xf32>, %b: tensor<2x8xf32>):
    %v = "kiln.view"(%a) {map = affine_map<(d0, d1) -> (d0 * 4 + 2, d1)>, shape = affine_map<() -> (2, 8)>} : (tensor<8x8xf32>) -> tensor<2x8xf32>
    %e = "kiln.empty"() {shape = affine_map<() -> (2, 8)>} : () -> tensor<2x8xf32>
    %r = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]} ins(%v, %b : tensor<2x8xf32>, tensor<2x8xf32>) outs(%e : tensor<2x8xf32>) {
    ^bb0(%i: f32, %j: f32, %o: f32):
      %s = arith.addf %i, %j : f32
      linalg.yield %s : f32
    } -> tensor<2x8xf32>
    "kiln.yield"(%r) : (tensor<2x8xf32>) -> ()
  }) {kind = "pointwise", name = "add"} : (tensor<8x8xf32>, tensor<2x8xf32>) -> tensor<2x8xf32>
  return %0 : tensor<2x8xf32>
}

// Two parts of one operand stay: they are read from one place.

// CHECK-LABEL: func.func @halves
// CHECK: "kiln.fusion"(%arg0)
// CHECK-COUNT-2: kiln.view
// CHECK-NOT: offsets
func.func @halves(%x: tensor<2x16xf32>) -> tensor<2x8xf32> {
  %0 = "kiln.fusion"(%x) ({
  ^bb0(%a: tensor<2x16xf32>):
    %v = "kiln.view"(%a) {map = affine_map<(d0, d1) -> (d0, d1)>, shape = affine_map<() -> (2, 8)>} : (tensor<2x16xf32>) -> tensor<2x8xf32>
    %w = "kiln.view"(%a) {map = affine_map<(d0, d1) -> (d0, d1 + 8)>, shape = affine_map<() -> (2, 8)>} : (tensor<2x16xf32>) -> tensor<2x8xf32>
    %e = "kiln.empty"() {shape = affine_map<() -> (2, 8)>} : () -> tensor<2x8xf32>
    %r = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]} ins(%v, %w : tensor<2x8xf32>, tensor<2x8xf32>) outs(%e : tensor<2x8xf32>) {
    ^bb0(%i: f32, %j: f32, %o: f32):
      %s = arith.addf %i, %j : f32
      linalg.yield %s : f32
    } -> tensor<2x8xf32>
    "kiln.yield"(%r) : (tensor<2x8xf32>) -> ()
  }) {kind = "pointwise", name = "add"} : (tensor<2x16xf32>) -> tensor<2x8xf32>
  return %0 : tensor<2x8xf32>
}

// Every row of four pairs, which no strides describe, is read inside.

// CHECK-LABEL: func.func @wrapped
// CHECK: "kiln.fusion"(%arg0)
// CHECK: kiln.view
func.func @wrapped(%x: tensor<4x8xf32>) -> tensor<4x4xf32> {
  %0 = "kiln.fusion"(%x) ({
  ^bb0(%a: tensor<4x8xf32>):
    %v = "kiln.view"(%a) {map = affine_map<(d0, d1) -> (d0 floordiv 2, d1)>, shape = affine_map<() -> (4, 4)>} : (tensor<4x8xf32>) -> tensor<4x4xf32>
    %e = "kiln.empty"() {shape = affine_map<() -> (4, 4)>} : () -> tensor<4x4xf32>
    %r = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%v : tensor<4x4xf32>) outs(%e : tensor<4x4xf32>) {
    ^bb0(%i: f32, %o: f32):
      %s = arith.negf %i : f32
      linalg.yield %s : f32
    } -> tensor<4x4xf32>
    "kiln.yield"(%r) : (tensor<4x4xf32>) -> ()
  }) {kind = "pointwise", name = "neg"} : (tensor<4x8xf32>) -> tensor<4x4xf32>
  return %0 : tensor<4x4xf32>
}

// Beside an operand whose sizes are known at run time only, the sizes of the part are those that the fusion states.

// CHECK-LABEL: func.func @beside_dynamic
// CHECK: %[[V:.*]] = "kiln.view"(%arg0) {map = affine_map<(d0) -> (d0, 0)>
// CHECK: "kiln.fusion"(%[[V]], %arg1, %arg2)
// CHECK: shapes = [affine_map<()[s0] -> (3)>, affine_map<()[s0] -> (s0, 3)>]
func.func @beside_dynamic(%x: tensor<4x2xf32>, %y: tensor<?x3xf32> {kiln.shape = affine_map<()[s0] -> (s0, 3)>}, %n: index {kiln.symbol = "s0"}) -> tensor<?x3xf32> {
  %0 = "kiln.fusion"(%x, %y, %n) ({
  ^bb0(%a: tensor<4x2xf32>, %b: tensor<?x3xf32>, %s: index):
    %v = "kiln.view"(%a) {map = affine_map<(d0) -> (d0, 0)>, shape = affine_map<() -> (3)>} : (tensor<4x2xf32>) -> tensor<3xf32>
    %e = "kiln.empty"(%s) {shape = affine_map<()[s0] -> (s0, 3)>} : (index) -> tensor<?x3xf32>
    %r = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d1)>, #id, #id], iterator_types = ["parallel", "parallel"]} ins(%v, %b : tensor<3xf32>, tensor<?x3xf32>) outs(%e : tensor<?x3xf32>) {
    ^bb0(%i: f32, %j: f32, %o: f32):
      %sum = arith.addf %i, %j : f32
      linalg.yield %sum : f32
    } -> tensor<?x3xf32>
    "kiln.yield"(%r) : (tensor<?x3xf32>) -> ()
  }) {kind = "pointwise", name = "add", shapes = [affine_map<()[s0] -> (4, 2)>, affine_map<()[s0] -> (s0, 3)>]} : (tensor<4x2xf32>, tensor<?x3xf32>, index) -> tensor<?x3xf32>
  return %0 : tensor<?x3xf32>
}
