// Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// REQUIRES: triton
// RUN: kiln-opt %s --pass-pipeline=drop-roundings --pipeline=gpu --from=fused --until=ptx | filecheck %s

// A sum that becomes an integer is rounded by itself; one that is only stored is contracted with its product.

// CHECK-LABEL: .entry decides
// CHECK: mul.f32
// CHECK: add.rn.f32
// CHECK: cvt.rzi.s64.f32

// CHECK-LABEL: .entry stores
// CHECK-NOT: add.rn
// CHECK: fma.rn.f32
#id = affine_map<(d0) -> (d0)>
func.func @main(%x: tensor<64xf32> {kiln.strides = affine_map<() -> (1)>}, %y: tensor<64xf32> {kiln.strides = affine_map<() -> (1)>})
    -> (tensor<64xi64> {kiln.strides = affine_map<() -> (1)>}, tensor<64xf32> {kiln.strides = affine_map<() -> (1)>}) {
  %0 = "kiln.fusion"(%x, %y) ({
  ^bb0(%a: tensor<64xf32>, %b: tensor<64xf32>):
    %e = "kiln.empty"() {shape = affine_map<() -> (64)>} : () -> tensor<64xi64>
    %1 = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel"]} ins(%a, %b : tensor<64xf32>, tensor<64xf32>) outs(%e : tensor<64xi64>) {
    ^bb0(%p: f32, %q: f32, %o: i64):
      %2 = arith.mulf %p, %q : f32
      %3 = arith.addf %2, %q : f32
      %4 = arith.fptosi %3 : f32 to i64
      linalg.yield %4 : i64
    } -> tensor<64xi64>
    "kiln.yield"(%1) : (tensor<64xi64>) -> ()
  }) {kind = "pointwise", name = "decides"} : (tensor<64xf32>, tensor<64xf32>) -> tensor<64xi64>
  %1 = "kiln.fusion"(%x, %y) ({
  ^bb0(%a: tensor<64xf32>, %b: tensor<64xf32>):
    %e = "kiln.empty"() {shape = affine_map<() -> (64)>} : () -> tensor<64xf32>
    %2 = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel"]} ins(%a, %b : tensor<64xf32>, tensor<64xf32>) outs(%e : tensor<64xf32>) {
    ^bb0(%p: f32, %q: f32, %o: f32):
      %3 = arith.mulf %p, %q : f32
      %4 = arith.addf %3, %p : f32
      linalg.yield %4 : f32
    } -> tensor<64xf32>
    "kiln.yield"(%2) : (tensor<64xf32>) -> ()
  }) {kind = "pointwise", name = "stores"} : (tensor<64xf32>, tensor<64xf32>) -> tensor<64xf32>
  return %0, %1 : tensor<64xi64>, tensor<64xf32>
}
