// Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// Schedules of CPU kernels in text: read, checked by the verifier, printed as they are.
// RUN: kiln-opt --split-input-file --mlir-print-local-scope %s | filecheck %s

// CHECK: schedule = {kc = 64 : i64, kernel = "cpu.gemm.blocked", mc = 16 : i64, mr = 4 : i64, nc = 48 : i64, nv = 3 : i64, pack_lhs = false, pack_rhs = true, width = 8 : i64}
func.func @f(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = "kiln.fusion"(%x) ({
  ^bb0(%a: tensor<4xf32>):
    "kiln.yield"(%a) : (tensor<4xf32>) -> ()
  }) {kind = "pointwise", name = "f", schedule = {kc = 64 : i64, kernel = "cpu.gemm.blocked", mc = 16 : i64, mr = 4 : i64, nc = 48 : i64, nv = 3 : i64, pack_lhs = false, pack_rhs = true, width = 8 : i64}} : (tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}

// -----

// CHECK: schedule = {kernel = "cpu.gemm.by_rows", large = {kernel = "cpu.gemm.vendor", mc = 1024 : i64, nc = 512 : i64, width = 8 : i64}, limit = 12 : i64, small = {kernel = "cpu.gemm.int8_dot", mc = 64 : i64, mr = 1 : i64, nc = 64 : i64, nr = 4 : i64, width = 16 : i64}}
func.func @f(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = "kiln.fusion"(%x) ({
  ^bb0(%a: tensor<4xf32>):
    "kiln.yield"(%a) : (tensor<4xf32>) -> ()
  }) {kind = "pointwise", name = "f", schedule = {kernel = "cpu.gemm.by_rows", large = {kernel = "cpu.gemm.vendor", mc = 1024 : i64, nc = 512 : i64, width = 8 : i64}, limit = 12 : i64, small = {kernel = "cpu.gemm.int8_dot", mc = 64 : i64, mr = 1 : i64, nc = 64 : i64, nr = 4 : i64, width = 16 : i64}}} : (tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}

// -----

// CHECK: schedule = {height = 64 : i64, kernel = "cpu.gemm.phases", products = [{kc = 64 : i64, kernel = "cpu.gemm.blocked", mc = 16 : i64, mr = 4 : i64, nc = 48 : i64, nv = 3 : i64, pack_lhs = false, pack_rhs = true, width = 8 : i64}, {kc = 64 : i64, kernel = "cpu.gemm.blocked", mc = 16 : i64, mr = 4 : i64, nc = 48 : i64, nv = 3 : i64, pack_lhs = false, pack_rhs = true, width = 8 : i64}], split = "rows"}
func.func @f(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = "kiln.fusion"(%x) ({
  ^bb0(%a: tensor<4xf32>):
    "kiln.yield"(%a) : (tensor<4xf32>) -> ()
  }) {kind = "pointwise", name = "f", schedule = {height = 64 : i64, kernel = "cpu.gemm.phases", products = [{kc = 64 : i64, kernel = "cpu.gemm.blocked", mc = 16 : i64, mr = 4 : i64, nc = 48 : i64, nv = 3 : i64, pack_lhs = false, pack_rhs = true, width = 8 : i64}, {kc = 64 : i64, kernel = "cpu.gemm.blocked", mc = 16 : i64, mr = 4 : i64, nc = 48 : i64, nv = 3 : i64, pack_lhs = false, pack_rhs = true, width = 8 : i64}], split = "rows"}} : (tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}

// -----

// CHECK: schedule = {chunk = 4 : i64, kernel = "cpu.conv.amx_bf16", nv = 2 : i64, order = "channels", rows = 8 : i64, share = "units", units = 3 : i64, width = 16 : i64}
func.func @f(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = "kiln.fusion"(%x) ({
  ^bb0(%a: tensor<4xf32>):
    "kiln.yield"(%a) : (tensor<4xf32>) -> ()
  }) {kind = "pointwise", name = "f", schedule = {chunk = 4 : i64, kernel = "cpu.conv.amx_bf16", nv = 2 : i64, order = "channels", rows = 8 : i64, share = "units", units = 3 : i64, width = 16 : i64}} : (tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}

// -----

// CHECK: schedule = {dot_scores = true, kernel = "cpu.attention.flash", keys = 128 : i64, mr = 4 : i64, nv = 4 : i64, queries = 4 : i64, width = 16 : i64}
func.func @f(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = "kiln.fusion"(%x) ({
  ^bb0(%a: tensor<4xf32>):
    "kiln.yield"(%a) : (tensor<4xf32>) -> ()
  }) {kind = "pointwise", name = "f", schedule = {dot_scores = true, kernel = "cpu.attention.flash", keys = 128 : i64, mr = 4 : i64, nv = 4 : i64, queries = 4 : i64, width = 16 : i64}} : (tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}
