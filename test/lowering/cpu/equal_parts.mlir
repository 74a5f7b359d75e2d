// Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// RUN: kiln-opt %s --cpu=x86-64-v4 --pass-pipeline="fuse,assign-layouts,schedule-cpu,emit-cpu-kernels" | filecheck %s

// Three products of one matrix are parts of one kernel, which differ in what they read and write alone: they are calls of
// one function. A fourth has another epilogue, and code of its own.

// CHECK: func.func @matmul
// CHECK-COUNT-3: call @matmul_generic_part0(
// CHECK-NOT: call @{{.*}}part
// CHECK: func.func private @matmul_generic_part0(
// CHECK-NOT: func.func private
#both = affine_map<(d0, d1) -> (d0, d1)>
func.func @main(%x: tensor<37x70xf32>, %a: tensor<48x70xf32>, %b: tensor<48x70xf32>, %c: tensor<48x70xf32>, %d: tensor<48x70xf32>)
    -> (tensor<37x48xf32>, tensor<37x48xf32>, tensor<37x48xf32>, tensor<37x48xf32>) {
  %a0 = "kiln.matmul"(%x, %a) {transpose_lhs = false, transpose_rhs = true} : (tensor<37x70xf32>, tensor<48x70xf32>) -> tensor<37x48xf32>
  %b0 = "kiln.matmul"(%x, %b) {transpose_lhs = false, transpose_rhs = true} : (tensor<37x70xf32>, tensor<48x70xf32>) -> tensor<37x48xf32>
  %c0 = "kiln.matmul"(%x, %c) {transpose_lhs = false, transpose_rhs = true} : (tensor<37x70xf32>, tensor<48x70xf32>) -> tensor<37x48xf32>
  %d0 = "kiln.matmul"(%x, %d) {transpose_lhs = false, transpose_rhs = true} : (tensor<37x70xf32>, tensor<48x70xf32>) -> tensor<37x48xf32>
  %e = "kiln.empty"() {shape = affine_map<() -> (37, 48)>} : () -> tensor<37x48xf32>
  %r = linalg.generic {indexing_maps = [#both, #both], iterator_types = ["parallel", "parallel"]} ins(%d0 : tensor<37x48xf32>) outs(%e : tensor<37x48xf32>) {
  ^bb0(%i: f32, %o: f32):
    %n = math.absf %i : f32
    linalg.yield %n : f32
  } -> tensor<37x48xf32>
  return %a0, %b0, %c0, %r : tensor<37x48xf32>, tensor<37x48xf32>, tensor<37x48xf32>, tensor<37x48xf32>
}
