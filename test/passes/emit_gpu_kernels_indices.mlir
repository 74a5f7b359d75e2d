// Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// RUN: kiln-opt %s --split-input-file --pass-pipeline="emit-gpu-kernels" | filecheck %s

// An index that the clamp changes ends the kernel. Lanes past the end have no index: they are left out.

// CHECK: "tt.func"
// CHECK: %[[INDEX:.*]] = "tt.load"
// CHECK: %[[LOW:.*]] = arith.maxsi %[[INDEX]]
// CHECK: %[[CLAMPED:.*]] = arith.minsi %[[LOW]]
// CHECK: %[[SAME:.*]] = arith.cmpi eq, %[[INDEX]], %[[CLAMPED]]
// CHECK: %[[CHECKED:.*]] = arith.select %{{.*}}, %[[SAME]], %
// CHECK: "tt.assert"(%[[CHECKED]]) {message = "index out of range in aten.index_select"} : (tensor<{{[0-9]+}}xi1>) -> ()
// CHECK: "tt.store"
func.func @rows(%table: tensor<50xf32>, %index: tensor<1000xi64>) -> tensor<1000xf32> {
  %0 = "kiln.fusion"(%table, %index) ({
  ^bb0(%t: tensor<50xf32>, %i: tensor<1000xi64>):
    %e = "kiln.empty"() {shape = affine_map<() -> (1000)>} : () -> tensor<1000xf32>
    %r = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>],
        iterator_types = ["parallel"]} ins(%i : tensor<1000xi64>) outs(%e : tensor<1000xf32>) {
    ^bb0(%at: i64, %o: f32):
      %zero = arith.constant 0 : i64
      %last = arith.constant 49 : i64
      %low = arith.maxsi %at, %zero : i64
      %in = arith.minsi %low, %last {kiln.checked = "aten.index_select"} : i64
      %x = arith.index_cast %in : i64 to index
      %v = tensor.extract %t[%x] : tensor<50xf32>
      linalg.yield %v : f32
    } -> tensor<1000xf32>
    "kiln.yield"(%r) : (tensor<1000xf32>) -> ()
  }) {kind = "pointwise", name = "index_select"} : (tensor<50xf32>, tensor<1000xi64>) -> tensor<1000xf32>
  return %0 : tensor<1000xf32>
}

// -----

// A clamp that nothing is checked by (`_unsafe_index`) is a clamp.

// CHECK: "tt.func"
// CHECK-NOT: "tt.assert"
// CHECK: "tt.return"
func.func @unchecked(%table: tensor<50xf32>, %index: tensor<1000xi64>) -> tensor<1000xf32> {
  %0 = "kiln.fusion"(%table, %index) ({
  ^bb0(%t: tensor<50xf32>, %i: tensor<1000xi64>):
    %e = "kiln.empty"() {shape = affine_map<() -> (1000)>} : () -> tensor<1000xf32>
    %r = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>],
        iterator_types = ["parallel"]} ins(%i : tensor<1000xi64>) outs(%e : tensor<1000xf32>) {
    ^bb0(%at: i64, %o: f32):
      %zero = arith.constant 0 : i64
      %last = arith.constant 49 : i64
      %low = arith.maxsi %at, %zero : i64
      %in = arith.minsi %low, %last : i64
      %x = arith.index_cast %in : i64 to index
      %v = tensor.extract %t[%x] : tensor<50xf32>
      linalg.yield %v : f32
    } -> tensor<1000xf32>
    "kiln.yield"(%r) : (tensor<1000xf32>) -> ()
  }) {kind = "pointwise", name = "unsafe_index"} : (tensor<50xf32>, tensor<1000xi64>) -> tensor<1000xf32>
  return %0 : tensor<1000xf32>
}
