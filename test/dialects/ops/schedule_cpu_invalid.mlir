// Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// A wrong schedule of a CPU kernel: the verifier names the field, what is allowed, and what it found.
// RUN: kiln-opt --split-input-file --verify-diagnostics %s

func.func @f(%x: tensor<4xf32>) -> tensor<4xf32> {
  // expected-error @+1 {{'kiln.fusion' op attribute schedule cpu.gemm.blocked field 'width': expected a power of two, found 12}}
  %0 = "kiln.fusion"(%x) ({
  ^bb0(%a: tensor<4xf32>):
    "kiln.yield"(%a) : (tensor<4xf32>) -> ()
  }) {kind = "pointwise", name = "f", schedule = {kc = 64 : i64, kernel = "cpu.gemm.blocked", mc = 16 : i64, mr = 4 : i64, nc = 48 : i64, nv = 3 : i64, pack_lhs = false, pack_rhs = true, width = 12 : i64}} : (tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}

// -----

func.func @f(%x: tensor<4xf32>) -> tensor<4xf32> {
  // expected-error @+1 {{'kiln.fusion' op attribute schedule cpu.gemm.blocked field 'pack_rhs': expected true or false, found 1}}
  %0 = "kiln.fusion"(%x) ({
  ^bb0(%a: tensor<4xf32>):
    "kiln.yield"(%a) : (tensor<4xf32>) -> ()
  }) {kind = "pointwise", name = "f", schedule = {kc = 64 : i64, kernel = "cpu.gemm.blocked", mc = 16 : i64, mr = 4 : i64, nc = 48 : i64, nv = 3 : i64, pack_lhs = false, pack_rhs = 1, width = 8 : i64}} : (tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}

// -----

func.func @f(%x: tensor<4xf32>) -> tensor<4xf32> {
  // expected-error @+1 {{'kiln.fusion' op attribute schedule cpu.gemm.blocked field 'mr': expected an integer of at least 1, found nothing}}
  %0 = "kiln.fusion"(%x) ({
  ^bb0(%a: tensor<4xf32>):
    "kiln.yield"(%a) : (tensor<4xf32>) -> ()
  }) {kind = "pointwise", name = "f", schedule = {kc = 64 : i64, kernel = "cpu.gemm.blocked", mc = 16 : i64, nc = 48 : i64, nv = 3 : i64, pack_lhs = false, pack_rhs = true, width = 8 : i64}} : (tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}

// -----

func.func @f(%x: tensor<4xf32>) -> tensor<4xf32> {
  // expected-error @+1 {{'kiln.fusion' op attribute schedule cpu.gemm.blocked field 'mr': expected an integer of at least 1, found 0}}
  %0 = "kiln.fusion"(%x) ({
  ^bb0(%a: tensor<4xf32>):
    "kiln.yield"(%a) : (tensor<4xf32>) -> ()
  }) {kind = "pointwise", name = "f", schedule = {kc = 64 : i64, kernel = "cpu.gemm.blocked", mc = 16 : i64, mr = 0 : i64, nc = 48 : i64, nv = 3 : i64, pack_lhs = false, pack_rhs = true, width = 8 : i64}} : (tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}

// -----

func.func @f(%x: tensor<4xf32>) -> tensor<4xf32> {
  // expected-error @+1 {{'kiln.fusion' op attribute schedule cpu.gemm.by_rows field 'small' cpu.gemm.int8_dot field 'nc': expected an integer of at least 1, found 0}}
  %0 = "kiln.fusion"(%x) ({
  ^bb0(%a: tensor<4xf32>):
    "kiln.yield"(%a) : (tensor<4xf32>) -> ()
  }) {kind = "pointwise", name = "f", schedule = {kernel = "cpu.gemm.by_rows", large = {kc = 64 : i64, kernel = "cpu.gemm.blocked", mc = 16 : i64, mr = 4 : i64, nc = 48 : i64, nv = 3 : i64, pack_lhs = false, pack_rhs = true, width = 8 : i64}, limit = 12 : i64, small = {kernel = "cpu.gemm.int8_dot", mc = 64 : i64, mr = 1 : i64, nc = 0 : i64, nr = 4 : i64, width = 16 : i64}}} : (tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}

// -----

func.func @f(%x: tensor<4xf32>) -> tensor<4xf32> {
  // expected-error @+1 {{'kiln.fusion' op attribute schedule cpu.conv.gemm field 'product' field 'kernel': expected one of cpu.gemm.amx_bf16, }}
  %0 = "kiln.fusion"(%x) ({
  ^bb0(%a: tensor<4xf32>):
    "kiln.yield"(%a) : (tensor<4xf32>) -> ()
  }) {kind = "pointwise", name = "f", schedule = {kernel = "cpu.conv.gemm", product = {kernel = "cpu.conv.planar", nv = 1 : i64, span = 1 : i64, width = 8 : i64}}} : (tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}

// -----

func.func @f(%x: tensor<4xf32>) -> tensor<4xf32> {
  // expected-error @+1 {{'kiln.fusion' op attribute schedule cpu.gemm.phases field 'height': expected the rows of a block, found nothing}}
  %0 = "kiln.fusion"(%x) ({
  ^bb0(%a: tensor<4xf32>):
    "kiln.yield"(%a) : (tensor<4xf32>) -> ()
  }) {kind = "pointwise", name = "f", schedule = {kernel = "cpu.gemm.phases", products = [{kc = 64 : i64, kernel = "cpu.gemm.blocked", mc = 16 : i64, mr = 4 : i64, nc = 48 : i64, nv = 3 : i64, pack_lhs = false, pack_rhs = true, width = 8 : i64}], split = "rows"}} : (tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}

// -----

func.func @f(%x: tensor<4xf32>) -> tensor<4xf32> {
  // expected-error @+1 {{'kiln.fusion' op attribute schedule cpu.gemm.phases field 'split': expected one of "blocks", "rows", "team", found "columns"}}
  %0 = "kiln.fusion"(%x) ({
  ^bb0(%a: tensor<4xf32>):
    "kiln.yield"(%a) : (tensor<4xf32>) -> ()
  }) {kind = "pointwise", name = "f", schedule = {kernel = "cpu.gemm.phases", products = [{kc = 64 : i64, kernel = "cpu.gemm.blocked", mc = 16 : i64, mr = 4 : i64, nc = 48 : i64, nv = 3 : i64, pack_lhs = false, pack_rhs = true, width = 8 : i64}], split = "columns"}} : (tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}

// -----

func.func @f(%x: tensor<4xf32>) -> tensor<4xf32> {
  // expected-error @+1 {{'kiln.fusion' op attribute schedule field 'kernel': expected one of cpu.attention.amx_bf16, }}
  %0 = "kiln.fusion"(%x) ({
  ^bb0(%a: tensor<4xf32>):
    "kiln.yield"(%a) : (tensor<4xf32>) -> ()
  }) {kind = "pointwise", name = "f", schedule = {kernel = "winograd"}} : (tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}

// -----

func.func @f(%x: tensor<4xf32>) -> tensor<4xf32> {
  // expected-error @+1 {{'kiln.fusion' op attribute schedule: expected a dictionary, found 3}}
  %0 = "kiln.fusion"(%x) ({
  ^bb0(%a: tensor<4xf32>):
    "kiln.yield"(%a) : (tensor<4xf32>) -> ()
  }) {kind = "pointwise", name = "f", schedule = 3} : (tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}
