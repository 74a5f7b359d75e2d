// Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// RUN: kiln-opt %s --mlir-print-local-scope --pass-pipeline="assign-layouts,schedule-gpu,emit-gpu-kernels" | filecheck %s

// Three products of one matrix that differ in their tensors alone are one piece of code: it selects the pointers. The
// shape that they share stands behind the first product, and before the others.

// CHECK: "tt.func"
// CHECK: arith.select
// CHECK: "tt.dot"
// CHECK-NOT: "tt.dot"
// CHECK: kiln.grid
func.func @three(%x: tensor<512x768xbf16>, %u: tensor<768x768xbf16>, %v: tensor<768x768xbf16>, %w: tensor<768x768xbf16>, %k: tensor<768xbf16>, %l: tensor<768xbf16>, %n: tensor<768xbf16>) -> (tensor<512x768xbf16>, tensor<512x768xbf16>, tensor<512x768xbf16>) {
  %0:3 = "kiln.fusion"(%x, %u, %k, %v, %l, %w, %n) ({
  ^bb0(%a: tensor<512x768xbf16>, %b: tensor<768x768xbf16>, %c: tensor<768xbf16>, %d: tensor<768x768xbf16>, %f: tensor<768xbf16>, %g: tensor<768x768xbf16>, %h: tensor<768xbf16>):
    %m0 = "kiln.matmul"(%a, %b) {transpose_lhs = false, transpose_rhs = true}
      : (tensor<512x768xbf16>, tensor<768x768xbf16>) -> tensor<512x768xbf16>
    %e = "kiln.empty"() {shape = affine_map<() -> (512, 768)>} : () -> tensor<512x768xbf16>
    %r0 = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d1)>, affine_map<(d0, d1) -> (d0, d1)>],
        iterator_types = ["parallel", "parallel"]}
        ins(%m0, %c : tensor<512x768xbf16>, tensor<768xbf16>) outs(%e : tensor<512x768xbf16>) {
    ^bb0(%p: bf16, %q: bf16, %o: bf16):
      %s = arith.addf %p, %q : bf16
      linalg.yield %s : bf16
    } -> tensor<512x768xbf16>
    %m1 = "kiln.matmul"(%a, %d) {transpose_lhs = false, transpose_rhs = true}
      : (tensor<512x768xbf16>, tensor<768x768xbf16>) -> tensor<512x768xbf16>
    %r1 = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d1)>, affine_map<(d0, d1) -> (d0, d1)>],
        iterator_types = ["parallel", "parallel"]}
        ins(%m1, %f : tensor<512x768xbf16>, tensor<768xbf16>) outs(%e : tensor<512x768xbf16>) {
    ^bb0(%p: bf16, %q: bf16, %o: bf16):
      %s = arith.addf %p, %q : bf16
      linalg.yield %s : bf16
    } -> tensor<512x768xbf16>
    %m2 = "kiln.matmul"(%a, %g) {transpose_lhs = false, transpose_rhs = true}
      : (tensor<512x768xbf16>, tensor<768x768xbf16>) -> tensor<512x768xbf16>
    %r2 = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d1)>, affine_map<(d0, d1) -> (d0, d1)>],
        iterator_types = ["parallel", "parallel"]}
        ins(%m2, %h : tensor<512x768xbf16>, tensor<768xbf16>) outs(%e : tensor<512x768xbf16>) {
    ^bb0(%p: bf16, %q: bf16, %o: bf16):
      %s = arith.addf %p, %q : bf16
      linalg.yield %s : bf16
    } -> tensor<512x768xbf16>
    "kiln.yield"(%r0, %r1, %r2) : (tensor<512x768xbf16>, tensor<512x768xbf16>, tensor<512x768xbf16>) -> ()
  }) {kind = "matmul", name = "three", parts = array<i64: 0, 1, 2>} : (tensor<512x768xbf16>, tensor<768x768xbf16>, tensor<768xbf16>, tensor<768x768xbf16>, tensor<768xbf16>, tensor<768x768xbf16>, tensor<768xbf16>) -> (tensor<512x768xbf16>, tensor<512x768xbf16>, tensor<512x768xbf16>)
  return %0#0, %0#1, %0#2 : tensor<512x768xbf16>, tensor<512x768xbf16>, tensor<512x768xbf16>
}
