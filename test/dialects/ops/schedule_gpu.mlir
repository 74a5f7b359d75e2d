// Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// Schedules of GPU kernels in text: read, checked by the verifier, printed as they are.
// RUN: kiln-opt --split-input-file --mlir-print-local-scope %s | filecheck %s

// CHECK: schedule = {block_k = 64 : i64, block_m = 128 : i64, block_n = 64 : i64, group_m = 8 : i64, kernel = "gpu.gemm.tile", num_stages = 3 : i64, num_warps = 4 : i64}
func.func @f(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = "kiln.fusion"(%x) ({
  ^bb0(%a: tensor<4xf32>):
    "kiln.yield"(%a) : (tensor<4xf32>) -> ()
  }) {kind = "pointwise", name = "f", schedule = {block_k = 64 : i64, block_m = 128 : i64, block_n = 64 : i64, group_m = 8 : i64, kernel = "gpu.gemm.tile", num_stages = 3 : i64, num_warps = 4 : i64}} : (tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}

// -----

// CHECK: schedule = {block_k = 64 : i64, block_m = 128 : i64, block_n = 256 : i64, epilogue_pieces = 2 : i64, group_m = 8 : i64, kernel = "gpu.gemm.tma", num_stages = 3 : i64, num_warps = 8 : i64, persistent = true, precision = "tf32", programs = 132 : i64}
func.func @f(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = "kiln.fusion"(%x) ({
  ^bb0(%a: tensor<4xf32>):
    "kiln.yield"(%a) : (tensor<4xf32>) -> ()
  }) {kind = "pointwise", name = "f", schedule = {block_k = 64 : i64, block_m = 128 : i64, block_n = 256 : i64, epilogue_pieces = 2 : i64, group_m = 8 : i64, kernel = "gpu.gemm.tma", num_stages = 3 : i64, num_warps = 8 : i64, persistent = true, precision = "tf32", programs = 132 : i64}} : (tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}

// -----

// CHECK: schedule = {kernel = "gpu.loops", nests = [{num_warps = 4 : i64, persistent = true, row = 1024 : i64, tile = [2]}, {num_warps = 8 : i64, tile = [64, 64]}]}
func.func @f(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = "kiln.fusion"(%x) ({
  ^bb0(%a: tensor<4xf32>):
    "kiln.yield"(%a) : (tensor<4xf32>) -> ()
  }) {kind = "pointwise", name = "f", schedule = {kernel = "gpu.loops", nests = [{num_warps = 4 : i64, persistent = true, row = 1024 : i64, tile = [2]}, {num_warps = 8 : i64, tile = [64, 64]}]}} : (tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}

// -----

// CHECK: schedule = {block_m = 64 : i64, block_n = 128 : i64, kernel = "gpu.attention.flash", masks = "branch", num_stages = 2 : i64, num_warps = 4 : i64, tma = true}
func.func @f(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = "kiln.fusion"(%x) ({
  ^bb0(%a: tensor<4xf32>):
    "kiln.yield"(%a) : (tensor<4xf32>) -> ()
  }) {kind = "pointwise", name = "f", schedule = {block_m = 64 : i64, block_n = 128 : i64, kernel = "gpu.attention.flash", masks = "branch", num_stages = 2 : i64, num_warps = 4 : i64, tma = true}} : (tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}
