// Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// RUN: kiln-opt %s --split-input-file --mlir-print-local-scope --pass-pipeline="emit-gpu-kernels" | filecheck %s

// Results without common loops are sections side by side in one grid: 32 programs of the first, 8 of the second. The
// branches stand one after the other, because those of an if and its else would not share their memory.

// CHECK: %[[PID:.*]] = "tt.get_program_id"
// CHECK: %[[FIRST:.*]] = arith.cmpi slt, %[[PID]], %c32_i32
// CHECK: scf.if %[[FIRST]] {
// CHECK: math.exp
// CHECK: "tt.store"
// CHECK-NOT: else
// CHECK: scf.if
// CHECK: arith.mulf
// CHECK: "tt.store"
// CHECK: kiln.grid = affine_map<() -> (40, 1, 1)>
func.func @sections(%x: tensor<64x64xf32>, %y: tensor<1024xf32>) -> (tensor<64x64xf32>, tensor<1024xf32>) {
  %0:2 = "kiln.fusion"(%x, %y) ({
  ^bb0(%a: tensor<64x64xf32>, %b: tensor<1024xf32>):
    %e = "kiln.empty"() {shape = affine_map<() -> (64, 64)>} : () -> tensor<64x64xf32>
    %r = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0, d1)>],
        iterator_types = ["parallel", "parallel"]} ins(%a : tensor<64x64xf32>) outs(%e : tensor<64x64xf32>) {
    ^bb0(%p: f32, %o: f32):
      %s = math.exp %p : f32
      linalg.yield %s : f32
    } -> tensor<64x64xf32>
    %f = "kiln.empty"() {shape = affine_map<() -> (1024)>} : () -> tensor<1024xf32>
    %q = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>],
        iterator_types = ["parallel"]} ins(%b : tensor<1024xf32>) outs(%f : tensor<1024xf32>) {
    ^bb0(%p: f32, %o: f32):
      %s = arith.mulf %p, %p : f32
      linalg.yield %s : f32
    } -> tensor<1024xf32>
    "kiln.yield"(%r, %q) : (tensor<64x64xf32>, tensor<1024xf32>) -> ()
  }) {kind = "pointwise", name = "two", parts = array<i64: 0, 1>} : (tensor<64x64xf32>, tensor<1024xf32>) -> (tensor<64x64xf32>, tensor<1024xf32>)
  return %0#0, %0#1 : tensor<64x64xf32>, tensor<1024xf32>
}

// -----

// A result on the rows alone is stored once per row; a pointer that may lie anywhere is not said to be aligned.

// CHECK: %[[ROW:.*]] = arith.cmpi eq, %{{.*}}, %{{.*}} : tensor<1024xi32>
// CHECK: "tt.store"({{.*}}, %[[ROW]])
// CHECK: arg_attrs = [{}, {tt.divisibility = 16 : i32}, {tt.divisibility = 16 : i32}, {tt.divisibility = 16 : i32}]
func.func @rows(%x: tensor<1024x1024xf32>, %y: tensor<1024xf32>) -> (tensor<1024x1024xf32>, tensor<1024xf32>) {
  %0:2 = "kiln.fusion"(%x, %y) ({
  ^bb0(%a: tensor<1024x1024xf32>, %b: tensor<1024xf32>):
    %f = "kiln.empty"() {shape = affine_map<() -> (1024)>} : () -> tensor<1024xf32>
    %q = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>],
        iterator_types = ["parallel"]} ins(%b : tensor<1024xf32>) outs(%f : tensor<1024xf32>) {
    ^bb0(%p: f32, %o: f32):
      %s = math.exp %p : f32
      linalg.yield %s : f32
    } -> tensor<1024xf32>
    %e = "kiln.empty"() {shape = affine_map<() -> (1024, 1024)>} : () -> tensor<1024x1024xf32>
    %r = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0)>, affine_map<(d0, d1) -> (d0, d1)>],
        iterator_types = ["parallel", "parallel"]} ins(%a, %q : tensor<1024x1024xf32>, tensor<1024xf32>) outs(%e : tensor<1024x1024xf32>) {
    ^bb0(%p: f32, %t: f32, %o: f32):
      %s = arith.mulf %p, %t : f32
      linalg.yield %s : f32
    } -> tensor<1024x1024xf32>
    "kiln.yield"(%r, %q) : (tensor<1024x1024xf32>, tensor<1024xf32>) -> ()
  }) {kind = "pointwise", name = "rows", unaligned = array<i64: 0>} : (tensor<1024x1024xf32>, tensor<1024xf32>) -> (tensor<1024x1024xf32>, tensor<1024xf32>)
  return %0#0, %0#1 : tensor<1024x1024xf32>, tensor<1024xf32>
}
