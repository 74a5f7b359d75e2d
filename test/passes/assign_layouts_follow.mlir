// Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// RUN: kiln-opt %s --split-input-file --mlir-print-local-scope --pass-pipeline="assign-layouts" | filecheck %s

// A call that follows its query: the argument lies as tokens of heads, and so does the result. No copy of the result.

// CHECK-LABEL: func.func @argument
// CHECK: "kiln.aten"
// CHECK-SAME: strides = [affine_map<() -> (64, 8, 16, 1)>]
// CHECK-NEXT: return
func.func @argument(%q: tensor<1x2x4x8xbf16> {kiln.strides = affine_map<() -> (64, 8, 16, 1)>})
    -> (tensor<1x2x4x8xbf16> {kiln.strides = affine_map<() -> (64, 8, 16, 1)>}) {
  %0 = "kiln.aten"(%q) {op = "aten.attend.default", args = "[{\22operand\22: 0}]", kwargs = "{}", follows = 0 : i64,
    shapes = [affine_map<() -> (1, 2, 4, 8)>], strides = [unit], pure = true}
    : (tensor<1x2x4x8xbf16>) -> tensor<1x2x4x8xbf16>
  return %0 : tensor<1x2x4x8xbf16>
}

// -----

// A part of a larger tensor: the result is dense, in the same order.

// CHECK-LABEL: func.func @part
// CHECK: "kiln.aten"
// CHECK-SAME: strides = [affine_map<() -> (64, 8, 16, 1)>]
func.func @part(%q: tensor<1x2x4x8xbf16> {kiln.strides = affine_map<() -> (192, 8, 48, 1)>})
    -> (tensor<1x2x4x8xbf16> {kiln.strides = affine_map<() -> (64, 8, 16, 1)>}) {
  %0 = "kiln.aten"(%q) {op = "aten.attend.default", args = "[{\22operand\22: 0}]", kwargs = "{}", follows = 0 : i64,
    shapes = [affine_map<() -> (1, 2, 4, 8)>], strides = [unit], pure = true}
    : (tensor<1x2x4x8xbf16>) -> tensor<1x2x4x8xbf16>
  return %0 : tensor<1x2x4x8xbf16>
}

// -----

// A kernel writes the query as tokens of heads, since the result is read so; nothing is copied.

// CHECK-LABEL: func.func @written
// CHECK: "kiln.fusion"
// CHECK: layouts = [affine_map<(d0, d1, d2, d3) -> (d1 * 32 + d2 * 8 + d3)>, affine_map<(d0, d1, d2, d3) -> (d1 * 8 + d2 * 16 + d3)>]
// CHECK: "kiln.aten"
// CHECK-SAME: strides = [affine_map<() -> (64, 8, 16, 1)>]
// CHECK-NOT: name = "copy"
// CHECK: return
func.func @written(%x: tensor<1x2x4x8xbf16>) -> tensor<4x16xbf16> {
  %q = "kiln.fusion"(%x) ({
  ^bb0(%a: tensor<1x2x4x8xbf16>):
    "kiln.yield"(%a) : (tensor<1x2x4x8xbf16>) -> ()
  }) {kind = "pointwise", name = "f"} : (tensor<1x2x4x8xbf16>) -> tensor<1x2x4x8xbf16>
  %0 = "kiln.aten"(%q) {op = "aten.attend.default", args = "[{\22operand\22: 0}]", kwargs = "{}", follows = 0 : i64,
    shapes = [affine_map<() -> (1, 2, 4, 8)>], strides = [unit], pure = true}
    : (tensor<1x2x4x8xbf16>) -> tensor<1x2x4x8xbf16>
  %1 = "kiln.view"(%0) {map = affine_map<(d0, d1) -> (0, d1 floordiv 8, d0, d1 mod 8)>,
    shape = affine_map<() -> (4, 16)>} : (tensor<1x2x4x8xbf16>) -> tensor<4x16xbf16>
  return %1 : tensor<4x16xbf16>
}

// -----

// A query that is returned, too, keeps its own order; the result is copied.

// CHECK-LABEL: func.func @kept
// CHECK: "kiln.aten"
// CHECK-SAME: strides = [affine_map<() -> (64, 32, 8, 1)>]
// CHECK: name = "copy"
func.func @kept(%x: tensor<1x2x4x8xbf16>) -> (tensor<4x16xbf16>, tensor<1x2x4x8xbf16>) {
  %q = "kiln.fusion"(%x) ({
  ^bb0(%a: tensor<1x2x4x8xbf16>):
    "kiln.yield"(%a) : (tensor<1x2x4x8xbf16>) -> ()
  }) {kind = "pointwise", name = "f"} : (tensor<1x2x4x8xbf16>) -> tensor<1x2x4x8xbf16>
  %0 = "kiln.aten"(%q) {op = "aten.attend.default", args = "[{\22operand\22: 0}]", kwargs = "{}", follows = 0 : i64,
    shapes = [affine_map<() -> (1, 2, 4, 8)>], strides = [unit], pure = true}
    : (tensor<1x2x4x8xbf16>) -> tensor<1x2x4x8xbf16>
  %1 = "kiln.view"(%0) {map = affine_map<(d0, d1) -> (0, d1 floordiv 8, d0, d1 mod 8)>,
    shape = affine_map<() -> (4, 16)>} : (tensor<1x2x4x8xbf16>) -> tensor<4x16xbf16>
  return %1, %q : tensor<4x16xbf16>, tensor<1x2x4x8xbf16>
}
