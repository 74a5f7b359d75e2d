// Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// RUN: kiln-opt %s --cpu=x86-64-v4 --split-input-file --pass-pipeline="fuse,assign-layouts,emit-cpu-kernels" | filecheck %s

// Cheap elements: a step is four vectors where they come from the caches, and one where they come from memory.

// CHECK: func.func
// CHECK: vector.load %arg0{{.*}} vector<64xf32>
#id = affine_map<(d0, d1) -> (d0, d1)>
func.func @of_1024(%x: tensor<1024x1024xf32>, %y: tensor<1024x1024xf32>) -> tensor<1024x1024xf32> {
  %e = "kiln.empty"() {shape = affine_map<() -> (1024, 1024)>} : () -> tensor<1024x1024xf32>
  %r = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%x, %y : tensor<1024x1024xf32>, tensor<1024x1024xf32>) outs(%e : tensor<1024x1024xf32>) {
  ^bb0(%p: f32, %q: f32, %o: f32):
    %1 = arith.mulf %p, %q : f32
    linalg.yield %1 : f32
  } -> tensor<1024x1024xf32>
  return %r : tensor<1024x1024xf32>
}

// -----

// CHECK: func.func
// CHECK: vector.load %arg0{{.*}} vector<16xf32>
#id = affine_map<(d0, d1) -> (d0, d1)>
func.func @of_2048(%x: tensor<2048x2048xf32>, %y: tensor<2048x2048xf32>) -> tensor<2048x2048xf32> {
  %e = "kiln.empty"() {shape = affine_map<() -> (2048, 2048)>} : () -> tensor<2048x2048xf32>
  %r = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%x, %y : tensor<2048x2048xf32>, tensor<2048x2048xf32>) outs(%e : tensor<2048x2048xf32>) {
  ^bb0(%p: f32, %q: f32, %o: f32):
    %1 = arith.mulf %p, %q : f32
    linalg.yield %1 : f32
  } -> tensor<2048x2048xf32>
  return %r : tensor<2048x2048xf32>
}
