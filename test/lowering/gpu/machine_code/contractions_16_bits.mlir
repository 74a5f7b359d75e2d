// Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// REQUIRES: triton
// RUN: kiln-opt %s --pipeline=gpu --from=fused --until=ptx | filecheck %s
// RUN: kiln-opt %s --pass-pipeline="drop-roundings{sums-only=true}" --pipeline=gpu --from=fused --until=ptx | filecheck %s --check-prefix=EAGER

// LLVM narrows what is between roundings to f16, and contracts it: the product is not rounded. It is where eager's
// roundings are wanted.

// CHECK-LABEL: .entry rounded
// CHECK: fma.rn.f16x2

// EAGER-LABEL: .entry rounded
// EAGER: mul.f16x2
// EAGER: add.rn.f32
#id = affine_map<(d0) -> (d0)>
func.func @main(%x: tensor<64xf16> {kiln.strides = affine_map<() -> (1)>}, %y: tensor<64xf16> {kiln.strides = affine_map<() -> (1)>})
    -> (tensor<64xf16> {kiln.strides = affine_map<() -> (1)>}) {
  %0 = "kiln.fusion"(%x, %y) ({
  ^bb0(%a: tensor<64xf16>, %b: tensor<64xf16>):
    %e = "kiln.empty"() {shape = affine_map<() -> (64)>} : () -> tensor<64xf16>
    %1 = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel"]} ins(%a, %b : tensor<64xf16>, tensor<64xf16>) outs(%e : tensor<64xf16>) {
    ^bb0(%p: f16, %q: f16, %o: f16):
      %p1 = arith.extf %p : f16 to f32
      %q1 = arith.extf %q : f16 to f32
      %2 = arith.mulf %p1, %q1 : f32
      %3 = arith.truncf %2 : f32 to f16
      %4 = arith.extf %3 : f16 to f32
      %5 = arith.addf %4, %q1 : f32
      %6 = arith.truncf %5 : f32 to f16
      linalg.yield %6 : f16
    } -> tensor<64xf16>
    "kiln.yield"(%1) : (tensor<64xf16>) -> ()
  }) {kind = "pointwise", name = "rounded"} : (tensor<64xf16>, tensor<64xf16>) -> tensor<64xf16>
  return %0 : tensor<64xf16>
}
