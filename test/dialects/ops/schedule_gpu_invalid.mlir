// Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// A wrong schedule of a GPU kernel: the verifier names the field, what is allowed, and what it found.
// RUN: kiln-opt --split-input-file --verify-diagnostics %s

func.func @f(%x: tensor<4xf32>) -> tensor<4xf32> {
  // expected-error @+1 {{'kiln.fusion' op attribute schedule gpu.gemm.tile field 'block_m': expected a power of two, found 100}}
  %0 = "kiln.fusion"(%x) ({
  ^bb0(%a: tensor<4xf32>):
    "kiln.yield"(%a) : (tensor<4xf32>) -> ()
  }) {kind = "pointwise", name = "f", schedule = {block_k = 64 : i64, block_m = 100 : i64, block_n = 64 : i64, group_m = 8 : i64, kernel = "gpu.gemm.tile", num_stages = 3 : i64, num_warps = 4 : i64}} : (tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}

// -----

func.func @f(%x: tensor<4xf32>) -> tensor<4xf32> {
  // expected-error @+1 {{'kiln.fusion' op attribute schedule gpu.gemm.tile field 'num_stages': expected an integer of at least 1, found 0}}
  %0 = "kiln.fusion"(%x) ({
  ^bb0(%a: tensor<4xf32>):
    "kiln.yield"(%a) : (tensor<4xf32>) -> ()
  }) {kind = "pointwise", name = "f", schedule = {block_k = 64 : i64, block_m = 128 : i64, block_n = 64 : i64, group_m = 8 : i64, kernel = "gpu.gemm.tile", num_stages = 0 : i64, num_warps = 4 : i64}} : (tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}

// -----

func.func @f(%x: tensor<4xf32>) -> tensor<4xf32> {
  // expected-error @+1 {{'kiln.fusion' op attribute schedule gpu.gemm.tile field 'num_stages': expected an integer of at least 1, found true}}
  %0 = "kiln.fusion"(%x) ({
  ^bb0(%a: tensor<4xf32>):
    "kiln.yield"(%a) : (tensor<4xf32>) -> ()
  }) {kind = "pointwise", name = "f", schedule = {block_k = 64 : i64, block_m = 128 : i64, block_n = 64 : i64, group_m = 8 : i64, kernel = "gpu.gemm.tile", num_stages = true, num_warps = 4 : i64}} : (tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}

// -----

func.func @f(%x: tensor<4xf32>) -> tensor<4xf32> {
  // expected-error @+1 {{'kiln.fusion' op attribute schedule gpu.gemm.tile field 'num_warps': expected a power of two, found nothing}}
  %0 = "kiln.fusion"(%x) ({
  ^bb0(%a: tensor<4xf32>):
    "kiln.yield"(%a) : (tensor<4xf32>) -> ()
  }) {kind = "pointwise", name = "f", schedule = {block_k = 64 : i64, block_m = 128 : i64, block_n = 64 : i64, group_m = 8 : i64, kernel = "gpu.gemm.tile", num_stages = 3 : i64}} : (tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}

// -----

func.func @f(%x: tensor<4xf32>) -> tensor<4xf32> {
  // expected-error @+1 {{'kiln.fusion' op attribute schedule gpu.gemm.tile field 'turned': expected one of block_m, block_n, num_warps, num_stages, precision, block_k, group_m, epilogue_pieces, found true}}
  %0 = "kiln.fusion"(%x) ({
  ^bb0(%a: tensor<4xf32>):
    "kiln.yield"(%a) : (tensor<4xf32>) -> ()
  }) {kind = "pointwise", name = "f", schedule = {block_k = 64 : i64, block_m = 128 : i64, block_n = 64 : i64, group_m = 8 : i64, kernel = "gpu.gemm.tile", num_stages = 3 : i64, num_warps = 4 : i64, turned = true}} : (tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}

// -----

func.func @f(%x: tensor<4xf32>) -> tensor<4xf32> {
  // expected-error @+1 {{'kiln.fusion' op attribute schedule gpu.gemm.tile field 'precision': expected one of "ieee", "tf32", "fast", found "bf16"}}
  %0 = "kiln.fusion"(%x) ({
  ^bb0(%a: tensor<4xf32>):
    "kiln.yield"(%a) : (tensor<4xf32>) -> ()
  }) {kind = "pointwise", name = "f", schedule = {block_k = 64 : i64, block_m = 128 : i64, block_n = 64 : i64, group_m = 8 : i64, kernel = "gpu.gemm.tile", num_stages = 3 : i64, num_warps = 4 : i64, precision = "bf16"}} : (tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}

// -----

func.func @f(%x: tensor<4xf32>) -> tensor<4xf32> {
  // expected-error-re @+1 {{attribute schedule field 'kernel': expected one of {{.*}}gpu.gemm.tile, {{.*}}, found "gpu.gemm.tiles"}}
  %0 = "kiln.fusion"(%x) ({
  ^bb0(%a: tensor<4xf32>):
    "kiln.yield"(%a) : (tensor<4xf32>) -> ()
  }) {kind = "pointwise", name = "f", schedule = {block_k = 64 : i64, block_m = 128 : i64, block_n = 64 : i64, group_m = 8 : i64, kernel = "gpu.gemm.tiles", num_stages = 3 : i64, num_warps = 4 : i64}} : (tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}

// -----

func.func @f(%x: tensor<4xf32>) -> tensor<4xf32> {
  // expected-error @+1 {{'kiln.fusion' op attribute schedule gpu.loops field 'nests' [0] field 'tile' [0]: expected a power of two, found 96}}
  %0 = "kiln.fusion"(%x) ({
  ^bb0(%a: tensor<4xf32>):
    "kiln.yield"(%a) : (tensor<4xf32>) -> ()
  }) {kind = "pointwise", name = "f", schedule = {kernel = "gpu.loops", nests = [{num_warps = 4 : i64, tile = [96]}]}} : (tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}

// -----

func.func @f(%x: tensor<4xf32>) -> tensor<4xf32> {
  // expected-error @+1 {{'kiln.fusion' op attribute schedule gpu.loops field 'nests' [0] field 'persistent': expected false in a nest without field 'row', found true}}
  %0 = "kiln.fusion"(%x) ({
  ^bb0(%a: tensor<4xf32>):
    "kiln.yield"(%a) : (tensor<4xf32>) -> ()
  }) {kind = "pointwise", name = "f", schedule = {kernel = "gpu.loops", nests = [{num_warps = 4 : i64, persistent = true, tile = [64]}]}} : (tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}

// -----

func.func @f(%x: tensor<4xf32>) -> tensor<4xf32> {
  // expected-error @+1 {{'kiln.fusion' op attribute schedule: expected a schedule for each of 1 parts, found 2}}
  %0 = "kiln.fusion"(%x) ({
  ^bb0(%a: tensor<4xf32>):
    "kiln.yield"(%a) : (tensor<4xf32>) -> ()
  }) {kind = "pointwise", name = "f", schedule = {kernel = "parts", parts = [{block_k = 64 : i64, block_m = 128 : i64, block_n = 64 : i64, group_m = 8 : i64, kernel = "gpu.gemm.tile", num_stages = 3 : i64, num_warps = 4 : i64}, {}]}} : (tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}
