// Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// RUN: kiln-opt %s --mlir-print-local-scope --pass-pipeline="canonicalize,cse,fuse,assign-layouts,emit-gpu-kernels" | filecheck %s
// RUN: kiln-opt %s --verify-kernels=tt-cpu --pass-pipeline="canonicalize,cse,fuse,assign-layouts,schedule-gpu" | filecheck %s --check-prefix=RIGHT
// RUN: kiln-opt %s --verify-kernels=cpu --pass-pipeline="canonicalize,cse,fuse,assign-layouts,schedule-cpu" | filecheck %s --check-prefix=RIGHT

// What combines elements in no way that is known to be associative is combined in order, element by element: here a
// polynomial by Horner's rule.

// RIGHT: func.func @horner

// CHECK: %[[START:.*]] = arith.constant 0.000000e+00 : f32
// CHECK: %[[ROW:.*]] = "tt.get_program_id"
// CHECK: %[[RESULT:.*]] = scf.for %[[K:.*]] = %c0_i32 to %c20_i32 step %c1_i32 iter_args(%[[SUM:.*]] = %[[START]]) -> (f32)
// CHECK: "tt.load"
// CHECK: %[[HALF:.*]] = arith.mulf %[[SUM]]
// CHECK: arith.addf %[[HALF]]
// CHECK-NOT: "tt.reduce"
// CHECK: "tt.store"(%{{.*}}, %[[RESULT]])
// CHECK: kiln.grid = affine_map<() -> (8, 1, 1)>
func.func @horner(%x: tensor<8x20xf32>) -> tensor<8xf32> {
  %zero = arith.constant 0.0 : f32
  %n = "kiln.empty"() {shape = affine_map<() -> (8)>} : () -> tensor<8xf32>
  %i = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>], iterator_types = ["parallel"]} outs(%n : tensor<8xf32>) {
  ^bb0(%o: f32):
    linalg.yield %zero : f32
  } -> tensor<8xf32>
  %s = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0)>], iterator_types = ["parallel", "reduction"]} ins(%x : tensor<8x20xf32>) outs(%i : tensor<8xf32>) {
  ^bb0(%a: f32, %o: f32):
    %half = arith.constant 0.5 : f32
    %0 = arith.mulf %o, %half : f32
    %1 = arith.addf %0, %a : f32
    linalg.yield %1 : f32
  } -> tensor<8xf32>
  return %s : tensor<8xf32>
}
