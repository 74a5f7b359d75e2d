// Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// RUN: kiln-opt %s --split-input-file --mlir-print-local-scope --pass-pipeline="expand-named-ops,compose-views,canonicalize,cse,fuse,assign-layouts,schedule-gpu" | filecheck %s

// A row of 8192 is held in registers by 16 warps; one of 64 shares a program with others.

// CHECK-LABEL: func.func @rows
// CHECK: schedule = {kernel = "gpu.loops", nests = [{num_warps = 16 : i64, persistent = true, row = 8192 : i64, tile = [1]}]}
// CHECK: schedule = {kernel = "gpu.loops", nests = [{num_warps = 2 : i64, persistent = true, row = 64 : i64, tile = [16]}]}
func.func @rows(%x: tensor<1000x8192xf32>, %y: tensor<16384x64xf32>) -> (tensor<1000x8192xf32>, tensor<16384x64xf32>) {
  %0 = "kiln.softmax"(%x) {dim = 1 : i64, log = false} : (tensor<1000x8192xf32>) -> tensor<1000x8192xf32>
  %1 = "kiln.softmax"(%y) {dim = 1 : i64, log = false} : (tensor<16384x64xf32>) -> tensor<16384x64xf32>
  return %0, %1 : tensor<1000x8192xf32>, tensor<16384x64xf32>
}

// -----

// A schedule that is there is kept.

// CHECK-LABEL: func.func @kept
// CHECK: schedule = {kernel = "gpu.loops", nests = [{num_warps = 1 : i64, tile = [128]}]}
func.func @kept(%x: tensor<4096xf32>) -> tensor<4096xf32> {
  %0 = "kiln.fusion"(%x) ({
  ^bb0(%a: tensor<4096xf32>):
    "kiln.yield"(%a) : (tensor<4096xf32>) -> ()
  }) {kind = "pointwise", name = "copy", schedule = {kernel = "gpu.loops", nests = [{num_warps = 1 : i64, tile = [128]}]}} : (tensor<4096xf32>) -> tensor<4096xf32>
  return %0 : tensor<4096xf32>
}

// -----

// Positions of dynamic sizes are narrow where a guard's limit covers each tensor.

// CHECK-LABEL: func.func @guarded(
// CHECK: "kiln.fusion"
// CHECK: kind = "pointwise"
// CHECK-SAME: narrow
// CHECK-LABEL: func.func @larger(
// CHECK: "kiln.fusion"
// CHECK-NOT: narrow
// CHECK: return
func.func @guarded(%n: index, %x: tensor<?x8xf32>) -> tensor<?x8xf32> attributes {
    arg_attrs = [{kiln.symbol = "s0"}, {kiln.shape = affine_map<()[s0] -> (s0, 8)>}], kiln.symbols = ["s0"],
    kiln.limit_symbols = ["s0"], kiln.limits = [affine_map<()[s0] -> (s0 * 16)>]} {
  %0 = "kiln.fusion"(%x, %n) ({
  ^bb0(%a: tensor<?x8xf32>, %s: index):
    "kiln.yield"(%a) : (tensor<?x8xf32>) -> ()
  }) {kind = "pointwise", name = "copy", shapes = [affine_map<()[s0] -> (s0, 8)>]} : (tensor<?x8xf32>, index) -> tensor<?x8xf32>
  return %0 : tensor<?x8xf32>
}

func.func @larger(%n: index, %x: tensor<?x8xf32>) -> tensor<?x8xf32> attributes {
    arg_attrs = [{kiln.symbol = "s0"}, {kiln.shape = affine_map<()[s0] -> (s0, 8)>}], kiln.symbols = ["s0"],
    kiln.limit_symbols = ["s0"], kiln.limits = [affine_map<()[s0] -> (s0 * 4)>]} {
  %0 = "kiln.fusion"(%x, %n) ({
  ^bb0(%a: tensor<?x8xf32>, %s: index):
    "kiln.yield"(%a) : (tensor<?x8xf32>) -> ()
  }) {kind = "pointwise", name = "copy", shapes = [affine_map<()[s0] -> (s0, 8)>]} : (tensor<?x8xf32>, index) -> tensor<?x8xf32>
  return %0 : tensor<?x8xf32>
}
