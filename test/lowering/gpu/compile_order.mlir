// Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// RUN: kiln-opt %s --pass-pipeline="assign-layouts,outline-kernels{gpu=true}" | filecheck %s

// Kernels that take Triton long are compiled first, so that no thread ends on one of them. They run in the graph's order.

// CHECK: sym_name = "large_
// CHECK: sym_name = "middle_
// CHECK: sym_name = "small_
// CHECK-LABEL: func.func @main
// CHECK: kiln.launch{{.*}}kernel = "small_
// CHECK: kiln.launch{{.*}}kernel = "large_
// CHECK: kiln.launch{{.*}}kernel = "middle_
#map = affine_map<(d0, d1) -> (d0, d1)>
func.func @main(%x: tensor<64x64xf32>) -> tensor<64x64xf32> {
  %0 = "kiln.fusion"(%x) ({
  ^bb0(%a: tensor<64x64xf32>):
    %e = "kiln.empty"() {shape = affine_map<() -> (64, 64)>} : () -> tensor<64x64xf32>
    %g = linalg.generic {indexing_maps = [#map, #map], iterator_types = ["parallel", "parallel"]}
        ins(%a : tensor<64x64xf32>) outs(%e : tensor<64x64xf32>) {
    ^bb0(%in: f32, %out: f32):
      %r0 = arith.negf %in : f32
      linalg.yield %r0 : f32
    } -> tensor<64x64xf32>
    "kiln.yield"(%g) : (tensor<64x64xf32>) -> ()
  }) {kind = "pointwise", name = "small",
      schedule = {kernel = "gpu.loops", nests = [{num_warps = 4 : i64, tile = [1024]}]}} : (tensor<64x64xf32>) -> tensor<64x64xf32>
  %1 = "kiln.fusion"(%0) ({
  ^bb0(%a: tensor<64x64xf32>):
    %e = "kiln.empty"() {shape = affine_map<() -> (64, 64)>} : () -> tensor<64x64xf32>
    %g = linalg.generic {indexing_maps = [#map, #map], iterator_types = ["parallel", "parallel"]}
        ins(%a : tensor<64x64xf32>) outs(%e : tensor<64x64xf32>) {
    ^bb0(%in: f32, %out: f32):
      %r0 = arith.negf %in : f32
      %r1 = arith.negf %r0 : f32
      linalg.yield %r1 : f32
    } -> tensor<64x64xf32>
    "kiln.yield"(%g) : (tensor<64x64xf32>) -> ()
  }) {kind = "pointwise", name = "large",
      schedule = {kernel = "gpu.gemm.tile", block_m = 128 : i64, block_n = 256 : i64, block_k = 64 : i64, group_m = 8 : i64,
      num_warps = 8 : i64, num_stages = 3 : i64}} : (tensor<64x64xf32>) -> tensor<64x64xf32>
  %z = "kiln.fusion"(%1) ({
  ^bb0(%a: tensor<64x64xf32>):
    %e = "kiln.empty"() {shape = affine_map<() -> (64, 64)>} : () -> tensor<64x64xf32>
    %g = linalg.generic {indexing_maps = [#map, #map], iterator_types = ["parallel", "parallel"]}
        ins(%a : tensor<64x64xf32>) outs(%e : tensor<64x64xf32>) {
    ^bb0(%in: f32, %out: f32):
      %r0 = arith.negf %in : f32
      %r1 = arith.negf %r0 : f32
      %r2 = arith.negf %r1 : f32
      linalg.yield %r2 : f32
    } -> tensor<64x64xf32>
    "kiln.yield"(%g) : (tensor<64x64xf32>) -> ()
  }) {kind = "pointwise", name = "middle",
      schedule = {kernel = "gpu.loops", nests = [{num_warps = 1 : i64, tile = [4096]}]}} : (tensor<64x64xf32>) -> tensor<64x64xf32>
  return %z : tensor<64x64xf32>
}
