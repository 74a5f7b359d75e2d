// Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// RUN: kiln-opt %s --mlir-print-local-scope --pass-pipeline="choose-vendor{target=cuda tensor-maps=true}" | filecheck %s

// Attention with heads of 128 elements on Hopper: with 512 keys it takes what follows, unless that loads another tensor as
// large (a view of the result is none); with 1024 it keeps to itself.

// CHECK-LABEL: func.func @short
// CHECK: "kiln.attention"
// CHECK-NOT: {alone
// CHECK-LABEL: func.func @short_that_loads
// CHECK: "kiln.attention"(%{{.*}}) {alone, causal
// CHECK-LABEL: func.func @short_squared
// CHECK: "kiln.attention"
// CHECK-NOT: {alone
// CHECK-LABEL: func.func @long
// CHECK: "kiln.attention"(%{{.*}}) {alone, causal
#id = affine_map<(a, b, c, d) -> (a, b, c, d)>
!t = tensor<8x16x512x128xbf16>
!l = tensor<8x16x1024x128xbf16>
func.func @short(%q: !t, %k: !t, %v: !t) -> !t {
  %0 = "kiln.attention"(%q, %k, %v) {scale = 1.0 : f64, causal = false} : (!t, !t, !t) -> !t
  %e = "kiln.empty"() {shape = affine_map<() -> (8, 16, 512, 128)>} : () -> !t
  %1 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel", "parallel", "parallel"]}
    ins(%0 : !t) outs(%e : !t) {
  ^bb0(%i: bf16, %o: bf16):
    %2 = arith.negf %i : bf16
    linalg.yield %2 : bf16
  } -> !t
  return %1 : !t
}
func.func @short_that_loads(%q: !t, %k: !t, %v: !t, %r: !t) -> !t {
  %0 = "kiln.attention"(%q, %k, %v) {scale = 1.0 : f64, causal = false} : (!t, !t, !t) -> !t
  %e = "kiln.empty"() {shape = affine_map<() -> (8, 16, 512, 128)>} : () -> !t
  %1 = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel", "parallel", "parallel"]}
    ins(%0, %r : !t, !t) outs(%e : !t) {
  ^bb0(%i: bf16, %j: bf16, %o: bf16):
    %2 = arith.mulf %i, %j : bf16
    linalg.yield %2 : bf16
  } -> !t
  return %1 : !t
}
func.func @short_squared(%q: !t, %k: !t, %v: !t) -> !t {
  %0 = "kiln.attention"(%q, %k, %v) {scale = 1.0 : f64, causal = false} : (!t, !t, !t) -> !t
  %w = "kiln.view"(%0) {map = #id, shape = affine_map<() -> (8, 16, 512, 128)>} : (!t) -> !t
  %e = "kiln.empty"() {shape = affine_map<() -> (8, 16, 512, 128)>} : () -> !t
  %1 = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel", "parallel", "parallel"]}
    ins(%w, %w : !t, !t) outs(%e : !t) {
  ^bb0(%i: bf16, %j: bf16, %o: bf16):
    %2 = arith.mulf %i, %j : bf16
    linalg.yield %2 : bf16
  } -> !t
  return %1 : !t
}
func.func @long(%q: !l, %k: !l, %v: !l) -> !l {
  %0 = "kiln.attention"(%q, %k, %v) {scale = 1.0 : f64, causal = false} : (!l, !l, !l) -> !l
  %e = "kiln.empty"() {shape = affine_map<() -> (8, 16, 1024, 128)>} : () -> !l
  %1 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel", "parallel", "parallel"]}
    ins(%0 : !l) outs(%e : !l) {
  ^bb0(%i: bf16, %o: bf16):
    %2 = arith.negf %i : bf16
    linalg.yield %2 : bf16
  } -> !l
  return %1 : !l
}
