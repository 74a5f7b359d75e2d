// Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// RUN: kiln-opt %s --split-input-file --mlir-print-local-scope --pass-pipeline="assign-layouts,plan-host" | filecheck %s

// Three launches of one kernel. The first intermediate lies in the output, which nothing has written yet; the second,
// which is made from it and read by the launch that writes the output, has a place of its own.

// CHECK-LABEL: func.func @main()
// CHECK: %[[X:.*]] = "kiln.buffer"() {index = 0 : i64, kind = "input"} : () -> memref<16xf32, strided<[1]>>
// CHECK: %[[B:.*]] = "kiln.buffer"() {kind = "workspace", live = array<i64: 1, 2>, offset = 0 : i64}
// CHECK: %[[C:.*]] = "kiln.buffer"() {kind = "tensor"}
// CHECK: "kiln.launch"(%[[X]], %[[C]]) {kernel = "[[K:f_[0-9a-f]*]]"
// CHECK: "kiln.launch"(%[[C]], %[[B]]) {kernel = "[[K]]"
// CHECK: "kiln.launch"(%[[B]], %[[C]]) {kernel = "[[K]]"
// CHECK: "kiln.output"(%[[C]])
func.func @main(%x: tensor<16xf32>) -> tensor<16xf32> {
  %0 = "kiln.fusion"(%x) ({
  ^bb0(%a: tensor<16xf32>):
    "kiln.yield"(%a) : (tensor<16xf32>) -> ()
  }) {kind = "pointwise", name = "f"} : (tensor<16xf32>) -> tensor<16xf32>
  %1 = "kiln.fusion"(%0) ({
  ^bb0(%a: tensor<16xf32>):
    "kiln.yield"(%a) : (tensor<16xf32>) -> ()
  }) {kind = "pointwise", name = "g"} : (tensor<16xf32>) -> tensor<16xf32>
  %2 = "kiln.fusion"(%1) ({
  ^bb0(%a: tensor<16xf32>):
    "kiln.yield"(%a) : (tensor<16xf32>) -> ()
  }) {kind = "pointwise", name = "h"} : (tensor<16xf32>) -> tensor<16xf32>
  return %2 : tensor<16xf32>
}

// -----

// Operands of an ATen call are tensors of their own; a view of one is made at the call. Sizes are maps over symbols.

// CHECK-LABEL: func.func @main
// CHECK-SAME: %{{.*}}: index {kiln.input = 1 : i64, kiln.source = "input", kiln.symbol = "s27"}
// CHECK: "kiln.buffer"() {index = 0 : i64, kind = "input", shape = affine_map<()[s0] -> (4, s0)>, strides = affine_map<()[s0] -> (s0, 1)>} : () -> memref<4x?xf32, strided<[?, 1]>>
// CHECK: %[[T:.*]] = "kiln.buffer"() {kind = "tensor", shape = affine_map<()[s0] -> (4, s0)>
// CHECK: %[[R:.*]] = "kiln.buffer"() {kind = "aten"
// CHECK: "kiln.launch"
// CHECK-SAME: symbols = affine_map<()[s0] -> (s0)>
// CHECK: "kiln.call"(%[[T]], %[[R]])
// CHECK-SAME: op = "aten.sin.default"
// CHECK-SAME: views = {{\[}}[affine_map<()[s0] -> (s0)>, affine_map<()[s0] -> (1)>, affine_map<()[s0] -> (s0 * 3)>]]
// CHECK: "kiln.output"(%[[R]])
func.func @main(%x: tensor<4x?xf32> {kiln.shape = affine_map<()[s0] -> (4, s0)>, kiln.strides = affine_map<()[s0] -> (s0, 1)>}, %n: index {kiln.symbol = "s27"}) -> tensor<?xf32> attributes {kiln.symbols = ["s27"]} {
  %0 = "kiln.fusion"(%x, %n) ({
  ^bb0(%a: tensor<4x?xf32>, %s: index):
    %e = "kiln.empty"(%s) {shape = affine_map<()[s0] -> (4, s0)>} : (index) -> tensor<4x?xf32>
    "kiln.yield"(%e) : (tensor<4x?xf32>) -> ()
  }) {kind = "pointwise", name = "f", shapes = [affine_map<()[s0] -> (4, s0)>]} : (tensor<4x?xf32>, index) -> tensor<4x?xf32>
  %v = "kiln.view"(%0, %n) {map = affine_map<(d0)[s0] -> (3, d0)>, shape = affine_map<()[s0] -> (s0)>} : (tensor<4x?xf32>, index) -> tensor<?xf32>
  %1 = "kiln.aten"(%v, %n) {op = "aten.sin.default", args = "[{\22operand\22: 0}]", kwargs = "{}", shapes = [affine_map<()[s0] -> (s0)>], strides = [unit], pure = true} : (tensor<?xf32>, index) -> tensor<?xf32>
  return %1 : tensor<?xf32>
}
