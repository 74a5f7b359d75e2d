// Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// RUN: kiln-opt %s --cpu=x86-64-v4 --split-input-file --pass-pipeline="fuse,assign-layouts,emit-cpu-kernels" | filecheck %s

// A roll along the lanes is loaded in two parts, the second where the line has jumped back.

// CHECK-LABEL: func.func
// CHECK-NOT: vector.gather
// CHECK-NOT: arith.remui {{.*}} vector
// CHECK: vector.maskedload %arg0
// CHECK: vector.maskedload %arg0
// CHECK: return
#id = affine_map<(d0, d1) -> (d0, d1)>
func.func @roll(%x: tensor<128x128xf32>) -> tensor<128x128xf32> {
  %v = "kiln.view"(%x) {map = affine_map<(d0, d1) -> (d0, (d1 + 127) mod 128)>, shape = affine_map<() -> (128, 128)>} : (tensor<128x128xf32>) -> tensor<128x128xf32>
  %e = "kiln.empty"() {shape = affine_map<() -> (128, 128)>} : () -> tensor<128x128xf32>
  %r = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%x, %v : tensor<128x128xf32>, tensor<128x128xf32>) outs(%e : tensor<128x128xf32>) {
  ^bb0(%p: f32, %q: f32, %o: f32):
    %1 = arith.mulf %p, %q : f32
    linalg.yield %1 : f32
  } -> tensor<128x128xf32>
  return %r : tensor<128x128xf32>
}

// -----

// The columns of a table are loaded with their neighbours, and told apart by shuffles.

// CHECK-LABEL: func.func
// CHECK-NOT: vector.gather
// CHECK-COUNT-4: vector.load %arg0
// CHECK: vector.shuffle
// CHECK-NOT: vector.gather
// CHECK: return
#one = affine_map<(d0) -> (d0)>
func.func @column(%x: tensor<1024x4xf32>) -> tensor<1024xf32> {
  %v = "kiln.view"(%x) {map = affine_map<(d0) -> (d0, 2)>, shape = affine_map<() -> (1024)>} : (tensor<1024x4xf32>) -> tensor<1024xf32>
  %e = "kiln.empty"() {shape = affine_map<() -> (1024)>} : () -> tensor<1024xf32>
  %r = linalg.generic {indexing_maps = [#one, #one], iterator_types = ["parallel"]}
      ins(%v : tensor<1024xf32>) outs(%e : tensor<1024xf32>) {
  ^bb0(%p: f32, %o: f32):
    %1 = arith.mulf %p, %p : f32
    linalg.yield %1 : f32
  } -> tensor<1024xf32>
  return %r : tensor<1024xf32>
}

// -----

// What is repeated is loaded once, computed once, and interleaved with itself.

// CHECK-LABEL: func.func
// CHECK-NOT: vector.gather
// CHECK: vector.load %arg0{{.*}} vector<16xf32>
// CHECK-NOT: vector.load
// CHECK: vector.shuffle {{.*}} [0, 16, 1, 17, 2, 18,
// CHECK-NOT: vector.gather
// CHECK: return
#one = affine_map<(d0) -> (d0)>
func.func @repeated(%x: tensor<1024xf32>) -> tensor<2048xf32> {
  %v = "kiln.view"(%x) {map = affine_map<(d0) -> (d0 floordiv 2)>, shape = affine_map<() -> (2048)>} : (tensor<1024xf32>) -> tensor<2048xf32>
  %e = "kiln.empty"() {shape = affine_map<() -> (2048)>} : () -> tensor<2048xf32>
  %r = linalg.generic {indexing_maps = [#one, #one], iterator_types = ["parallel"]}
      ins(%v : tensor<2048xf32>) outs(%e : tensor<2048xf32>) {
  ^bb0(%p: f32, %o: f32):
    %1 = arith.mulf %p, %p : f32
    linalg.yield %1 : f32
  } -> tensor<2048xf32>
  return %r : tensor<2048xf32>
}
