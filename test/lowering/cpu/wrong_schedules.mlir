// Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// RUN: not kiln-opt %s --cpu=x86-64-v4 --split-input-file --pass-pipeline="emit-cpu-kernels" 2>&1 | filecheck %s

// Schedules and layouts that kernels refuse.

// A weight [n, k] has to be packed for vectors along n.
// CHECK: error: {{.*}}needs pack_rhs
func.func @unpacked(%x: tensor<8x8xf32>, %w: tensor<8x8xf32>) -> tensor<8x8xf32> {
  %0 = "kiln.fusion"(%x, %w) ({
  ^bb0(%a: tensor<8x8xf32>, %b: tensor<8x8xf32>):
    %r = "kiln.matmul"(%a, %b) {transpose_lhs = false, transpose_rhs = true} : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
    "kiln.yield"(%r) : (tensor<8x8xf32>) -> ()
  }) {kind = "matmul", name = "unpacked", schedule = {kernel = "cpu.gemm.blocked", mr = 4 : i64, nv = 1 : i64, width = 8 : i64, mc = 8 : i64, nc = 8 : i64, kc = 8 : i64,
      pack_lhs = false, pack_rhs = false}} : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
  return %0 : tensor<8x8xf32>
}

// -----

// Depthwise, and there are four channels.
// CHECK: error: {{.*}}'cpu.conv.depthwise' needs one channel
func.func @depthwise(%x: tensor<2x4x9x10xf32>, %w: tensor<8x4x3x3xf32>) -> tensor<2x8x9x10xf32> {
  %0 = "kiln.fusion"(%x, %w) ({
  ^bb0(%a: tensor<2x4x9x10xf32>, %b: tensor<8x4x3x3xf32>):
    %c = "kiln.conv"(%a, %b) {stride = array<i64: 1, 1>, padding = array<i64: 1, 1>, dilation = array<i64: 1, 1>, groups = 1,
      transposed = false, output_padding = array<i64: 0, 0>} : (tensor<2x4x9x10xf32>, tensor<8x4x3x3xf32>) -> tensor<2x8x9x10xf32>
    "kiln.yield"(%c) : (tensor<2x8x9x10xf32>) -> ()
  }) {kind = "conv", name = "depthwise",
      schedule = {kernel = "cpu.conv.depthwise", mr = 1 : i64, width = 8 : i64, span = 8 : i64}} : (tensor<2x4x9x10xf32>, tensor<8x4x3x3xf32>) -> tensor<2x8x9x10xf32>
  return %0 : tensor<2x8x9x10xf32>
}

// -----

// CHECK: error: {{.*}}'cpu.conv.planar' needs one channel
func.func @planar(%x: tensor<2x4x9x10xf32>, %w: tensor<8x4x3x3xf32>) -> tensor<2x8x9x10xf32> {
  %0 = "kiln.fusion"(%x, %w) ({
  ^bb0(%a: tensor<2x4x9x10xf32>, %b: tensor<8x4x3x3xf32>):
    %c = "kiln.conv"(%a, %b) {stride = array<i64: 1, 1>, padding = array<i64: 1, 1>, dilation = array<i64: 1, 1>, groups = 1,
      transposed = false, output_padding = array<i64: 0, 0>} : (tensor<2x4x9x10xf32>, tensor<8x4x3x3xf32>) -> tensor<2x8x9x10xf32>
    "kiln.yield"(%c) : (tensor<2x8x9x10xf32>) -> ()
  }) {kind = "conv", name = "planar",
      schedule = {kernel = "cpu.conv.planar", nv = 1 : i64, width = 8 : i64, span = 1 : i64}} : (tensor<2x4x9x10xf32>, tensor<8x4x3x3xf32>) -> tensor<2x8x9x10xf32>
  return %0 : tensor<2x8x9x10xf32>
}

// -----

// A weight packed as no kernel packs it.
// CHECK: error: {{.*}}a weight packed as
func.func @strange(%x: tensor<2x4x9x10xf32>, %w: tensor<8x4x3x3xf32>) -> tensor<2x8x9x10xf32> {
  %0 = "kiln.fusion"(%x, %w) ({
  ^bb0(%a: tensor<2x4x9x10xf32>, %b: tensor<8x4x3x3xf32>):
    %c = "kiln.conv"(%a, %b) {stride = array<i64: 1, 1>, padding = array<i64: 1, 1>, dilation = array<i64: 1, 1>, groups = 1,
      transposed = false, output_padding = array<i64: 0, 0>} : (tensor<2x4x9x10xf32>, tensor<8x4x3x3xf32>) -> tensor<2x8x9x10xf32>
    "kiln.yield"(%c) : (tensor<2x8x9x10xf32>) -> ()
  }) {kind = "conv", name = "strange", layouts = [affine_map<(a, b, c, d) -> (a * 360 + b * 90 + c * 10 + d)>,
      affine_map<(a, b, c, d) -> (a floordiv 3 + (a mod 3) * 100 + b * 9 + c * 3 + d)>,
      affine_map<(a, b, c, d) -> (a * 720 + b * 90 + c * 10 + d)>]} : (tensor<2x4x9x10xf32>, tensor<8x4x3x3xf32>) -> tensor<2x8x9x10xf32>
  return %0 : tensor<2x8x9x10xf32>
}

// -----

// Those of another target or kernel. The verifier takes them, since they are schedules; the emitter cannot.
// CHECK: error: MatmulOp {{.*}}no kernel for a schedule gpu.loops
func.func @loops_for_a_product(%x: tensor<4x8xf32>, %w: tensor<8x16xf32>) -> tensor<4x16xf32> {
  %0 = "kiln.fusion"(%x, %w) ({
  ^bb0(%a: tensor<4x8xf32>, %b: tensor<8x16xf32>):
    %r = "kiln.matmul"(%a, %b) {transpose_lhs = false, transpose_rhs = false} : (tensor<4x8xf32>, tensor<8x16xf32>) -> tensor<4x16xf32>
    "kiln.yield"(%r) : (tensor<4x16xf32>) -> ()
  }) {kind = "matmul", name = "loops_for_a_product", schedule = {kernel = "gpu.loops", nests = [{num_warps = 1 : i64, tile = [64]}]}}
    : (tensor<4x8xf32>, tensor<8x16xf32>) -> tensor<4x16xf32>
  return %0 : tensor<4x16xf32>
}

// -----

// CHECK: error: kiln.fusion {{.*}}no kernel for a schedule gpu.loops
func.func @loops_of_a_gpu(%x: tensor<64xf32>) -> tensor<64xf32> {
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
  }) {kind = "pointwise", name = "loops_of_a_gpu",
      schedule = {kernel = "gpu.loops", nests = [{num_warps = 1 : i64, tile = [64]}]}} : (tensor<64xf32>) -> tensor<64xf32>
  return %0 : tensor<64xf32>
}
