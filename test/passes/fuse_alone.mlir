// Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// RUN: kiln-opt %s --pass-pipeline='fuse{row-blocks=false}' | filecheck %s

// What is marked as alone takes nothing behind it into its kernel.
// CHECK-LABEL: func.func @main
// CHECK: "kiln.fusion"(%arg0, %arg1, %arg2)
// CHECK: "kiln.attention"
// CHECK-NEXT: "kiln.yield"
// CHECK: "kiln.fusion"
// CHECK: arith.addf
!t = tensor<2x8x64x128xbf16>
func.func @main(%q: !t, %k: !t, %v: !t) -> !t {
  %0 = "kiln.attention"(%q, %k, %v) {alone, scale = 1.250000e-01 : f64, causal = false} : (!t, !t, !t) -> !t
  %e = "kiln.empty"() {shape = affine_map<() -> (2, 8, 64, 128)>} : () -> !t
  %1 = linalg.generic {indexing_maps = [affine_map<(d0, d1, d2, d3) -> (d0, d1, d2, d3)>,
      affine_map<(d0, d1, d2, d3) -> (d0, d1, d2, d3)>],
      iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%0 : !t) outs(%e : !t) {
  ^bb0(%c: bf16, %o: bf16):
    %r = arith.addf %c, %c : bf16
    linalg.yield %r : bf16
  } -> !t
  return %1 : !t
}
