// Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// RUN: kiln-opt %s --pass-pipeline="emit-cpu-kernels" | filecheck %s
// RUN: kiln-opt %s --pass-pipeline="emit-cpu-kernels{lower}" | filecheck %s --check-prefix=LLVM

// Equal fusions are one kernel, whatever their names; different ones of one name are told apart.

// CHECK: func.func @exp(
// CHECK: math.exp
// CHECK: func.func @exp_1(
// CHECK: math.log
// CHECK-NOT: func.func

// Lowered: the kernel, which the entry calls with what the launch gives it. No function of the math dialect is left.

// LLVM: llvm.func internal @exp(
// LLVM-SAME: llvm.noalias
// LLVM-NOT: math.
// LLVM: llvm.func @exp_entry(
// LLVM: llvm.call @exp(
// LLVM: llvm.func internal @exp_1(
// LLVM-NOT: math.
// LLVM: llvm.func @exp_1_entry(
func.func @main(%x: tensor<8xf32>) -> (tensor<8xf32>, tensor<8xf32>, tensor<8xf32>) {
  %0 = "kiln.fusion"(%x) ({
  ^bb0(%a: tensor<8xf32>):
    %e = "kiln.empty"() {shape = affine_map<() -> (8)>} : () -> tensor<8xf32>
    %r = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>], iterator_types = ["parallel"]} ins(%a : tensor<8xf32>) outs(%e : tensor<8xf32>) {
    ^bb0(%p: f32, %o: f32):
      %y = math.exp %p : f32
      linalg.yield %y : f32
    } -> tensor<8xf32>
    "kiln.yield"(%r) : (tensor<8xf32>) -> ()
  }) {kind = "pointwise", name = "exp"} : (tensor<8xf32>) -> tensor<8xf32>
  %1 = "kiln.fusion"(%0) ({
  ^bb0(%a: tensor<8xf32>):
    %e = "kiln.empty"() {shape = affine_map<() -> (8)>} : () -> tensor<8xf32>
    %r = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>], iterator_types = ["parallel"]} ins(%a : tensor<8xf32>) outs(%e : tensor<8xf32>) {
    ^bb0(%p: f32, %o: f32):
      %y = math.exp %p : f32
      linalg.yield %y : f32
    } -> tensor<8xf32>
    "kiln.yield"(%r) : (tensor<8xf32>) -> ()
  }) {kind = "pointwise", name = "another"} : (tensor<8xf32>) -> tensor<8xf32>
  %2 = "kiln.fusion"(%x) ({
  ^bb0(%a: tensor<8xf32>):
    %e = "kiln.empty"() {shape = affine_map<() -> (8)>} : () -> tensor<8xf32>
    %r = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>], iterator_types = ["parallel"]} ins(%a : tensor<8xf32>) outs(%e : tensor<8xf32>) {
    ^bb0(%p: f32, %o: f32):
      %y = math.log %p : f32
      linalg.yield %y : f32
    } -> tensor<8xf32>
    "kiln.yield"(%r) : (tensor<8xf32>) -> ()
  }) {kind = "pointwise", name = "exp"} : (tensor<8xf32>) -> tensor<8xf32>
  return %0, %1, %2 : tensor<8xf32>, tensor<8xf32>, tensor<8xf32>
}
