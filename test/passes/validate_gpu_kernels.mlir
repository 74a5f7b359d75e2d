// Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// RUN: kiln-opt %s --remarks --pass-pipeline="schedule-gpu,emit-gpu-kernels,validate-gpu-kernels" 2> %t.remarks | filecheck %s
// RUN: filecheck %s --check-prefix=REMARK --input-file %t.remarks

// Rows of 500 elements and their sums of 7, and rows of a size that is known at run time only, of which all but the
// coverage of the result is proved.

// REMARK: remark: tt.func: coverage unknown: argument 1: sizes that are known at run time only

// CHECK: kiln.validation = {proved = 4 : i64, unknown = 0 : i64}
// CHECK-SAME: sym_name = "sums"
func.func @fixed(%x: tensor<500x7xf32>) -> tensor<500xf32> {
  %0 = "kiln.fusion"(%x) ({
  ^bb0(%a: tensor<500x7xf32>):
    %zero = arith.constant 0.0 : f32
    %e = "kiln.empty"() {shape = affine_map<() -> (500)>} : () -> tensor<500xf32>
    %f = linalg.fill ins(%zero : f32) outs(%e : tensor<500xf32>) -> tensor<500xf32>
    %r = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0)>], iterator_types = ["parallel", "reduction"]} ins(%a : tensor<500x7xf32>) outs(%f : tensor<500xf32>) {
    ^bb0(%p: f32, %o: f32):
      %s = arith.addf %o, %p : f32
      linalg.yield %s : f32
    } -> tensor<500xf32>
    "kiln.yield"(%r) : (tensor<500xf32>) -> ()
  }) {kind = "reduction", name = "sums"} : (tensor<500x7xf32>) -> tensor<500xf32>
  return %0 : tensor<500xf32>
}

// CHECK: kiln.validation = {proved = {{[0-9]+}} : i64, unknown = 1 : i64}
// CHECK-SAME: sym_name = "rows"
func.func @dynamic(%x: tensor<?x64xf32>, %n: index) -> tensor<?x64xf32> {
  %0 = "kiln.fusion"(%x, %n) ({
  ^bb0(%a: tensor<?x64xf32>, %rows: index):
    %e = "kiln.empty"(%rows) {shape = affine_map<()[s0] -> (s0, 64)>} : (index) -> tensor<?x64xf32>
    %r = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0, d1)>], iterator_types = ["parallel", "parallel"]} ins(%a : tensor<?x64xf32>) outs(%e : tensor<?x64xf32>) {
    ^bb0(%p: f32, %o: f32):
      %s = arith.addf %p, %p : f32
      linalg.yield %s : f32
    } -> tensor<?x64xf32>
    "kiln.yield"(%r) : (tensor<?x64xf32>) -> ()
  }) {kind = "pointwise", name = "rows", shapes = [affine_map<()[s0] -> (s0, 64)>], layouts = [affine_map<(d0, d1)[s0] -> (d0 * 64 + d1)>, affine_map<(d0, d1)[s0] -> (d0 * 64 + d1)>]} : (tensor<?x64xf32>, index) -> tensor<?x64xf32>
  return %0 : tensor<?x64xf32>
}
