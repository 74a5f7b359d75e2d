// Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// RUN: not kiln-opt %s --split-input-file --pass-pipeline="emit-gpu-kernels" 2>&1 | filecheck %s

// Schedules of another target or kernel. The verifier takes them, since they are schedules; the emitter cannot.

// CHECK: error: {{.*}}no kernel for a schedule cpu.gemm.int8_dot
func.func @product_of_a_cpu(%x: tensor<4x8xf32>, %w: tensor<8x16xf32>) -> tensor<4x16xf32> {
  %0 = "kiln.fusion"(%x, %w) ({
  ^bb0(%a: tensor<4x8xf32>, %b: tensor<8x16xf32>):
    %r = "kiln.matmul"(%a, %b) {transpose_lhs = false, transpose_rhs = false} : (tensor<4x8xf32>, tensor<8x16xf32>) -> tensor<4x16xf32>
    "kiln.yield"(%r) : (tensor<4x16xf32>) -> ()
  }) {kind = "matmul", name = "product_of_a_cpu", schedule = {kernel = "cpu.gemm.int8_dot", mc = 64 : i64, mr = 1 : i64, nc = 64 : i64, nr = 4 : i64, width = 16 : i64}}
    : (tensor<4x8xf32>, tensor<8x16xf32>) -> tensor<4x16xf32>
  return %0 : tensor<4x16xf32>
}

// -----

// CHECK: error: {{.*}}no kernel for a schedule cpu.gemm.int8_dot
func.func @product_for_loops(%x: tensor<64xf32>) -> tensor<64xf32> {
  %0 = "kiln.fusion"(%x) ({
  ^bb0(%a: tensor<64xf32>):
    %e = "kiln.empty"() {shape = affine_map<() -> (64)>} : () -> tensor<64xf32>
    %r = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>], iterator_types = ["parallel"]}
        ins(%a : tensor<64xf32>) outs(%e : tensor<64xf32>) {
    ^bb0(%i: f32, %o: f32):
      %n = arith.negf %i : f32
      linalg.yield %n : f32
    } -> tensor<64xf32>
    "kiln.yield"(%r) : (tensor<64xf32>) -> ()
  }) {kind = "pointwise", name = "product_for_loops",
      schedule = {kernel = "cpu.gemm.int8_dot", mc = 64 : i64, mr = 1 : i64, nc = 64 : i64, nr = 4 : i64, width = 16 : i64}} : (tensor<64xf32>) -> tensor<64xf32>
  return %0 : tensor<64xf32>
}

// -----

// More nests of loops than there are.
// CHECK: error: {{.*}}a schedule of 2 nests for 1
func.func @nests(%x: tensor<64xf32>) -> tensor<64xf32> {
  %0 = "kiln.fusion"(%x) ({
  ^bb0(%a: tensor<64xf32>):
    %e = "kiln.empty"() {shape = affine_map<() -> (64)>} : () -> tensor<64xf32>
    %r = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>], iterator_types = ["parallel"]}
        ins(%a : tensor<64xf32>) outs(%e : tensor<64xf32>) {
    ^bb0(%i: f32, %o: f32):
      %n = arith.negf %i : f32
      linalg.yield %n : f32
    } -> tensor<64xf32>
    "kiln.yield"(%r) : (tensor<64xf32>) -> ()
  }) {kind = "pointwise", name = "nests",
      schedule = {kernel = "gpu.loops", nests = [{num_warps = 1 : i64, tile = [64]}, {num_warps = 1 : i64, tile = [64]}]}} : (tensor<64xf32>) -> tensor<64xf32>
  return %0 : tensor<64xf32>
}

// -----

// More dims than there are.
// CHECK: error: {{.*}}a schedule with a tile of 2 dims for 1
func.func @dims(%x: tensor<64xf32>) -> tensor<64xf32> {
  %0 = "kiln.fusion"(%x) ({
  ^bb0(%a: tensor<64xf32>):
    %e = "kiln.empty"() {shape = affine_map<() -> (64)>} : () -> tensor<64xf32>
    %r = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>], iterator_types = ["parallel"]}
        ins(%a : tensor<64xf32>) outs(%e : tensor<64xf32>) {
    ^bb0(%i: f32, %o: f32):
      %n = arith.negf %i : f32
      linalg.yield %n : f32
    } -> tensor<64xf32>
    "kiln.yield"(%r) : (tensor<64xf32>) -> ()
  }) {kind = "pointwise", name = "dims",
      schedule = {kernel = "gpu.loops", nests = [{num_warps = 1 : i64, tile = [64, 1]}]}} : (tensor<64xf32>) -> tensor<64xf32>
  return %0 : tensor<64xf32>
}
