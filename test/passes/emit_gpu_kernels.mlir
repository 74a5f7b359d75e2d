// Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// RUN: kiln-opt %s --mlir-print-local-scope --pass-pipeline="emit-gpu-kernels" | filecheck %s
// RUN: kiln-opt %s --mlir-print-local-scope --pass-pipeline="emit-gpu-kernels{backend=hip}" | filecheck %s --check-prefix=HIP

// Equal fusions are one kernel; the schedule says how large a program's tile is. AMD's library has names of its own.

// CHECK: "tt.func"
// CHECK: symbol = "__nv_tanhf"
// CHECK: kiln.grid = affine_map<() -> (4, 1, 1)>
// CHECK-SAME: num_warps = 1 : i32, sym_name = "tanh"
// CHECK-NOT: "tt.func"
// HIP: symbol = "__ocml_tanh_f32"
func.func @main(%x: tensor<512xf32>) -> (tensor<512xf32>, tensor<512xf32>) {
  %0 = "kiln.fusion"(%x) ({
  ^bb0(%a: tensor<512xf32>):
    %e = "kiln.empty"() {shape = affine_map<() -> (512)>} : () -> tensor<512xf32>
    %r = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>], iterator_types = ["parallel"]} ins(%a : tensor<512xf32>) outs(%e : tensor<512xf32>) {
    ^bb0(%p: f32, %o: f32):
      %s = math.tanh %p : f32
      linalg.yield %s : f32
    } -> tensor<512xf32>
    "kiln.yield"(%r) : (tensor<512xf32>) -> ()
  }) {kind = "pointwise", name = "tanh", schedule = {kernel = "gpu.loops", nests = [{num_warps = 1 : i64, tile = [128]}]}} : (tensor<512xf32>) -> tensor<512xf32>
  %1 = "kiln.fusion"(%0) ({
  ^bb0(%a: tensor<512xf32>):
    %e = "kiln.empty"() {shape = affine_map<() -> (512)>} : () -> tensor<512xf32>
    %r = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>], iterator_types = ["parallel"]} ins(%a : tensor<512xf32>) outs(%e : tensor<512xf32>) {
    ^bb0(%p: f32, %o: f32):
      %s = math.tanh %p : f32
      linalg.yield %s : f32
    } -> tensor<512xf32>
    "kiln.yield"(%r) : (tensor<512xf32>) -> ()
  }) {kind = "pointwise", name = "again", schedule = {kernel = "gpu.loops", nests = [{num_warps = 1 : i64, tile = [128]}]}} : (tensor<512xf32>) -> tensor<512xf32>
  return %0, %1 : tensor<512xf32>, tensor<512xf32>
}
