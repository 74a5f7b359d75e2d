// Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// RUN: kiln-opt %s --split-input-file --mlir-print-local-scope --pass-pipeline="assign-layouts" | filecheck %s

// A transposed view is an alias; the returned fusion result gets the strides that are asked for.

// CHECK-LABEL: func.func @alias
// CHECK: kiln.fusion
// CHECK: layouts = [affine_map<(d0, d1) -> (d0 + d1 * 8)>, affine_map<(d0, d1) -> (d0 + d1 * 8)>]
// CHECK-NOT: offsets
func.func @alias(%x: tensor<4x8xf32>) -> (tensor<8x4xf32> {kiln.strides = affine_map<() -> (1, 8)>}) {
  %t = "kiln.view"(%x) {map = affine_map<(d0, d1) -> (d1, d0)>, shape = affine_map<() -> (8, 4)>} : (tensor<4x8xf32>) -> tensor<8x4xf32>
  %0 = "kiln.fusion"(%t) ({
  ^bb0(%a: tensor<8x4xf32>):
    "kiln.yield"(%a) : (tensor<8x4xf32>) -> ()
  }) {kind = "pointwise", name = "f"} : (tensor<8x4xf32>) -> tensor<8x4xf32>
  return %0 : tensor<8x4xf32>
}

// -----

// A slice moves the pointer, not the layout. A size of 1 has no stride.

// CHECK-LABEL: func.func @slice
// CHECK: layouts = [affine_map<(d0, d1) -> (d1 * 2)>, affine_map<(d0, d1) -> (d1)>]
// CHECK-SAME: offsets = [affine_map<() -> (17)>, affine_map<() -> (0)>]
func.func @slice(%x: tensor<4x8xf32>) -> tensor<1x3xf32> {
  %s = "kiln.view"(%x) {map = affine_map<(d0, d1) -> (d0 + 2, d1 * 2 + 1)>, shape = affine_map<() -> (1, 3)>} : (tensor<4x8xf32>) -> tensor<1x3xf32>
  %0 = "kiln.fusion"(%s) ({
  ^bb0(%a: tensor<1x3xf32>):
    "kiln.yield"(%a) : (tensor<1x3xf32>) -> ()
  }) {kind = "pointwise", name = "f"} : (tensor<1x3xf32>) -> tensor<1x3xf32>
  return %0 : tensor<1x3xf32>
}

// -----

// Splitting a contiguous dimension is strided; flattening a transposed tensor is not, and is copied.

// CHECK-LABEL: func.func @reshapes
// CHECK: name = "copy"
// CHECK: layouts = [affine_map<(d0, d1, d2) -> (d0 * 8 + d1 * 4 + d2)>, affine_map<(d0) -> (d0)>
// CHECK-SAME: name = "f"
func.func @reshapes(%x: tensor<4x8xf32>) -> tensor<4x2x4xf32> {
  %r = "kiln.view"(%x) {map = affine_map<(d0, d1, d2) -> (d0, d1 * 4 + d2)>, shape = affine_map<() -> (4, 2, 4)>} : (tensor<4x8xf32>) -> tensor<4x2x4xf32>
  %t = "kiln.view"(%x) {map = affine_map<(d0) -> (d0 mod 4, d0 floordiv 4)>, shape = affine_map<() -> (32)>} : (tensor<4x8xf32>) -> tensor<32xf32>
  %0 = "kiln.fusion"(%r, %t) ({
  ^bb0(%a: tensor<4x2x4xf32>, %b: tensor<32xf32>):
    "kiln.yield"(%a) : (tensor<4x2x4xf32>) -> ()
  }) {kind = "pointwise", name = "f"} : (tensor<4x2x4xf32>, tensor<32xf32>) -> tensor<4x2x4xf32>
  return %0 : tensor<4x2x4xf32>
}

// -----

// A layout may need a symbol that the fusion does not take: it gets it as a further operand.

// CHECK-LABEL: func.func @dynamic
// CHECK: kiln.fusion"(%{{.*}}, %{{.*}}) ({
// CHECK-NEXT: ^bb0(%{{.*}}: tensor<8xf32>, %{{.*}}: index):
// CHECK: layouts = [affine_map<(d0)[s0] -> (d0 * s0)>, affine_map<(d0)[s0] -> (d0)>]
// CHECK-SAME: offsets = [affine_map<()[s0] -> (s0 - 1)>, affine_map<()[s0] -> (0)>]
func.func @dynamic(%x: tensor<8x?xf32> {kiln.shape = affine_map<()[s0] -> (8, s0)>, kiln.strides = affine_map<()[s0] -> (s0, 1)>}, %n: index {kiln.symbol = "s27"}) -> tensor<8xf32> attributes {kiln.symbols = ["s27"]} {
  %s = "kiln.view"(%x, %n) {map = affine_map<(d0)[s0] -> (d0, s0 - 1)>, shape = affine_map<()[s0] -> (8)>} : (tensor<8x?xf32>, index) -> tensor<8xf32>
  %0 = "kiln.fusion"(%s) ({
  ^bb0(%a: tensor<8xf32>):
    "kiln.yield"(%a) : (tensor<8xf32>) -> ()
  }) {kind = "pointwise", name = "last"} : (tensor<8xf32>) -> tensor<8xf32>
  return %0 : tensor<8xf32>
}

// -----

// A returned view of an input stays a view if its strides are right, and is copied if they are not.

// CHECK-LABEL: func.func @returned
// CHECK: %[[V:.*]] = "kiln.view"
// CHECK: %[[C:.*]] = "kiln.fusion"(%[[V]])
// CHECK: layouts = [affine_map<(d0, d1) -> (d0 + d1 * 8)>, affine_map<(d0, d1) -> (d0 * 4 + d1)>], name = "copy"
// CHECK: return %[[V]], %[[C]]
func.func @returned(%x: tensor<4x8xf32>) -> (tensor<8x4xf32> {kiln.strides = affine_map<() -> (1, 8)>}, tensor<8x4xf32> {kiln.strides = affine_map<() -> (4, 1)>}) {
  %t = "kiln.view"(%x) {map = affine_map<(d0, d1) -> (d1, d0)>, shape = affine_map<() -> (8, 4)>} : (tensor<4x8xf32>) -> tensor<8x4xf32>
  return %t, %t : tensor<8x4xf32>, tensor<8x4xf32>
}

// -----

// The strides asked for of a transposed result go to the fusion that makes it.

// CHECK-LABEL: func.func @through_view
// CHECK: layouts = [affine_map<(d0, d1) -> (d0 * 8 + d1)>, affine_map<(d0, d1) -> (d0 + d1 * 4)>]
// CHECK-NOT: copy
func.func @through_view(%x: tensor<4x8xf32>) -> (tensor<8x4xf32> {kiln.strides = affine_map<() -> (4, 1)>}) {
  %0 = "kiln.fusion"(%x) ({
  ^bb0(%a: tensor<4x8xf32>):
    "kiln.yield"(%a) : (tensor<4x8xf32>) -> ()
  }) {kind = "pointwise", name = "f"} : (tensor<4x8xf32>) -> tensor<4x8xf32>
  %t = "kiln.view"(%0) {map = affine_map<(d0, d1) -> (d1, d0)>, shape = affine_map<() -> (8, 4)>} : (tensor<4x8xf32>) -> tensor<8x4xf32>
  return %t : tensor<8x4xf32>
}

// -----

// A call reads a view as a tensor of PyTorch, whose strides are never negative; a kernel may walk backwards.

// CHECK-LABEL: func.func @backwards
// CHECK: %[[COPY:.*]] = "kiln.fusion"(%arg0)
// CHECK: kind = "pointwise"
// CHECK-SAME: layouts = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>]
// CHECK: "kiln.aten"(%[[COPY]])
func.func @backwards(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = "kiln.view"(%x) {map = affine_map<(d0) -> (-d0 + 3)>, shape = affine_map<() -> (4)>} : (tensor<4xf32>) -> tensor<4xf32>
  %1 = "kiln.aten"(%0) {op = "aten.erfinv.default", args = "[{\22operand\22: 0}]", kwargs = "{}", pure = true, shapes = [affine_map<() -> (4)>], strides = [affine_map<() -> (1)>]} : (tensor<4xf32>) -> tensor<4xf32>
  return %1 : tensor<4xf32>
}
