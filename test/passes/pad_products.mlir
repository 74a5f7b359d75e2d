// Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// RUN: kiln-opt %s --split-input-file --mlir-print-local-scope --pass-pipeline="pad-products" | filecheck %s
// RUN: kiln-opt %s --split-input-file --mlir-print-local-scope --pass-pipeline="pad-products,choose-vendor{target=cuda tensor-maps=true},expand-named-ops{keep=matmul},compose-views,canonicalize,cse,fuse{row-blocks=false}" | filecheck %s --check-prefix=FUSED

// Two products of one matrix: it is padded once. Fused, each copy is a kernel, and the product one of the library's.

// CHECK-LABEL: func.func @shared
// CHECK: %[[W:.*]] = "kiln.pad"(%arg1, %{{.*}}) {high = affine_map<() -> (0, 7)>{{.*}} -> tensor<4096x4104xbf16>
// CHECK: %[[X:.*]] = "kiln.pad"(%arg0, %{{.*}}) {high = affine_map<() -> (0, 0, 7)>{{.*}} -> tensor<2x2048x4104xbf16>
// CHECK: "kiln.matmul"(%[[X]], %[[W]])
// CHECK: "kiln.matmul"(%[[X]], %[[W]])
// FUSED-LABEL: func.func @shared
// FUSED-COUNT-2: kind = "pointwise"
// FUSED-COUNT-2: op = "aten.linear.default"
func.func @shared(%x: tensor<2x2048x4097xbf16>, %w: tensor<4096x4097xbf16>) -> (tensor<2x2048x4096xbf16>, tensor<2x2048x4096xbf16>) {
  %0 = "kiln.matmul"(%x, %w) {transpose_lhs = false, transpose_rhs = true}
    : (tensor<2x2048x4097xbf16>, tensor<4096x4097xbf16>) -> tensor<2x2048x4096xbf16>
  %1 = "kiln.matmul"(%x, %w) {transpose_lhs = false, transpose_rhs = true}
    : (tensor<2x2048x4097xbf16>, tensor<4096x4097xbf16>) -> tensor<2x2048x4096xbf16>
  return %0, %1 : tensor<2x2048x4096xbf16>, tensor<2x2048x4096xbf16>
}

// -----

// Small products, rows of whole multiples, one row (its matrix would be copied to be read once), f32, rows along what is a whole multiple.

// CHECK-LABEL: func.func @kept
// CHECK-NOT: kiln.pad
// CHECK: return
func.func @kept(%a: tensor<64x65xbf16>, %b: tensor<4096x4096xbf16>, %c: tensor<1x4097xbf16>, %d: tensor<4096x4097xbf16>,
    %e: tensor<4096x4097xf32>, %f: tensor<4097x4096xbf16>)
    -> (tensor<64x64xbf16>, tensor<4096x4096xbf16>, tensor<1x4096xbf16>, tensor<4096x4096xf32>, tensor<4096x4096xbf16>) {
  %0 = "kiln.matmul"(%a, %a) {transpose_lhs = false, transpose_rhs = true}
    : (tensor<64x65xbf16>, tensor<64x65xbf16>) -> tensor<64x64xbf16>
  %1 = "kiln.matmul"(%b, %b) {transpose_lhs = false, transpose_rhs = true}
    : (tensor<4096x4096xbf16>, tensor<4096x4096xbf16>) -> tensor<4096x4096xbf16>
  %2 = "kiln.matmul"(%c, %d) {transpose_lhs = false, transpose_rhs = true}
    : (tensor<1x4097xbf16>, tensor<4096x4097xbf16>) -> tensor<1x4096xbf16>
  %3 = "kiln.matmul"(%e, %e) {transpose_lhs = false, transpose_rhs = true}
    : (tensor<4096x4097xf32>, tensor<4096x4097xf32>) -> tensor<4096x4096xf32>
  %4 = "kiln.matmul"(%f, %f) {transpose_lhs = true, transpose_rhs = false}
    : (tensor<4097x4096xbf16>, tensor<4097x4096xbf16>) -> tensor<4096x4096xbf16>
  return %0, %1, %2, %3, %4 : tensor<64x64xbf16>, tensor<4096x4096xbf16>, tensor<1x4096xbf16>, tensor<4096x4096xf32>, tensor<4096x4096xbf16>
}

// -----

// [k, n]: rows of the left operand run along the sums, so that both get more of these. The right one's own rows are whole.

// CHECK-LABEL: func.func @straight
// CHECK: %[[W:.*]] = "kiln.pad"(%arg1, %{{.*}}) {high = affine_map<() -> (7, 0)>{{.*}} -> tensor<4104x4096xbf16>
// CHECK: %[[X:.*]] = "kiln.pad"(%arg0, %{{.*}}) {high = affine_map<() -> (0, 7)>{{.*}} -> tensor<4096x4104xbf16>
// CHECK: "kiln.matmul"(%[[X]], %[[W]])
func.func @straight(%x: tensor<4096x4097xbf16>, %w: tensor<4097x4096xbf16>) -> tensor<4096x4096xbf16> {
  %0 = "kiln.matmul"(%x, %w) {transpose_lhs = false, transpose_rhs = false}
    : (tensor<4096x4097xbf16>, tensor<4097x4096xbf16>) -> tensor<4096x4096xbf16>
  return %0 : tensor<4096x4096xbf16>
}

// -----

// Rows along the result's columns, of the right operand, and along its rows, of the left one, transposed: the product
// reads the first part of each row, and its result stays what it was. It is Kiln's own then, for the result's rows start
// anywhere.

// CHECK-LABEL: func.func @turned
// CHECK: %[[PY:.*]] = "kiln.pad"(%arg1, %{{.*}}) {high = affine_map<() -> (0, 0, 5)>{{.*}} -> tensor<4x2048x2056xf16>
// CHECK: %[[PX:.*]] = "kiln.pad"(%arg0, %{{.*}}) {high = affine_map<() -> (0, 0, 7)>{{.*}} -> tensor<4x2048x4104xf16>
// CHECK: %[[X:.*]] = "kiln.view"(%[[PX]]){{.*}} -> tensor<4x2048x4097xf16>
// CHECK: %[[Y:.*]] = "kiln.view"(%[[PY]]){{.*}} -> tensor<4x2048x2051xf16>
// CHECK: "kiln.matmul"(%[[X]], %[[Y]]) {{.*}} -> tensor<4x4097x2051xf16>
// FUSED-LABEL: func.func @turned
// FUSED-COUNT-2: kind = "pointwise"
// FUSED: kind = "matmul"
// FUSED-NOT: kiln.fusion
func.func @turned(%x: tensor<4x2048x4097xf16>, %y: tensor<4x2048x2051xf16>) -> tensor<4x4097x2051xf16> {
  %0 = "kiln.matmul"(%x, %y) {transpose_lhs = true, transpose_rhs = false}
    : (tensor<4x2048x4097xf16>, tensor<4x2048x2051xf16>) -> tensor<4x4097x2051xf16>
  return %0 : tensor<4x4097x2051xf16>
}

// -----

// Both gradients of a product with an odd number of columns: one copy of what they read, in the shape that it has. The
// weights' read it through a view with rows for columns.

// CHECK-LABEL: func.func @gradients
// CHECK: %[[W:.*]] = "kiln.pad"(%arg1, %{{.*}}) {high = affine_map<() -> (7, 0)>
// CHECK: %[[G:.*]] = "kiln.pad"(%arg0, %{{.*}}) {high = affine_map<() -> (0, 0, 7)>
// CHECK-NOT: kiln.pad
// CHECK: %[[V:.*]] = "kiln.view"(%[[G]]) {{.*}}floordiv 1024{{.*}} -> tensor<16384x50257xbf16>
// CHECK: "kiln.matmul"(%[[V]], %arg2) {transpose_lhs = true, transpose_rhs = false}
// CHECK: "kiln.matmul"(%[[G]], %[[W]]) {transpose_lhs = false, transpose_rhs = false}
// FUSED-LABEL: func.func @gradients
// FUSED-COUNT-2: kind = "pointwise"
// FUSED-COUNT-2: op = "aten.linear.default"
func.func @gradients(%g: tensor<16x1024x50257xbf16>, %w: tensor<50257x768xbf16>, %x: tensor<16384x768xbf16>)
    -> (tensor<50257x768xbf16>, tensor<16x1024x768xbf16>) {
  %t = "kiln.view"(%g) {map = affine_map<(d0, d1) -> (d1 floordiv 1024, d1 mod 1024, d0)>, shape = affine_map<() -> (50257, 16384)>}
    : (tensor<16x1024x50257xbf16>) -> tensor<50257x16384xbf16>
  %0 = "kiln.matmul"(%t, %x) {transpose_lhs = false, transpose_rhs = false}
    : (tensor<50257x16384xbf16>, tensor<16384x768xbf16>) -> tensor<50257x768xbf16>
  %1 = "kiln.matmul"(%g, %w) {transpose_lhs = false, transpose_rhs = false}
    : (tensor<16x1024x50257xbf16>, tensor<50257x768xbf16>) -> tensor<16x1024x768xbf16>
  return %0, %1 : tensor<50257x768xbf16>, tensor<16x1024x768xbf16>
}

// -----

// What computes an operand writes the padded rows, also for others that read it.

// FUSED-LABEL: func.func @computed
// FUSED: "kiln.fusion"(%arg0)
// FUSED: "kiln.pad"({{.*}} -> tensor<8192x30528xbf16>
// FUSED: kind = "pointwise"
// FUSED: op = "aten.linear.default"
// FUSED: "kiln.fusion"
// FUSED: kind = "reduction"{{.*}} : (tensor<8192x30528xbf16>
// FUSED-NOT: kiln.pad
// FUSED-LABEL: func.func @even
func.func @computed(%x: tensor<8192x30522xbf16>, %y: tensor<8192x768xbf16>) -> (tensor<30522x768xbf16>, tensor<30522xbf16>) {
  %e = "kiln.empty"() {shape = affine_map<() -> (8192, 30522)>} : () -> tensor<8192x30522xbf16>
  %g = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0, d1)>],
      iterator_types = ["parallel", "parallel"]} ins(%x : tensor<8192x30522xbf16>) outs(%e : tensor<8192x30522xbf16>) {
  ^bb0(%in: bf16, %out: bf16):
    %n = arith.negf %in : bf16
    linalg.yield %n : bf16
  } -> tensor<8192x30522xbf16>
  %0 = "kiln.matmul"(%g, %y) {transpose_lhs = true, transpose_rhs = false}
    : (tensor<8192x30522xbf16>, tensor<8192x768xbf16>) -> tensor<30522x768xbf16>
  %s = "kiln.empty"() {shape = affine_map<() -> (30522)>} : () -> tensor<30522xbf16>
  %zero = arith.constant 0.0 : bf16
  %i = linalg.fill ins(%zero : bf16) outs(%s : tensor<30522xbf16>) -> tensor<30522xbf16>
  %1 = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d1)>],
      iterator_types = ["reduction", "parallel"]} ins(%g : tensor<8192x30522xbf16>) outs(%i : tensor<30522xbf16>) {
  ^bb0(%in: bf16, %out: bf16):
    %n = arith.addf %in, %out : bf16
    linalg.yield %n : bf16
  } -> tensor<30522xbf16>
  return %0, %1 : tensor<30522x768xbf16>, tensor<30522xbf16>
}

// -----

// Rows at even elements take the library less long than rows anywhere: a copy of them pays later.

// CHECK-LABEL: func.func @even
// CHECK-NOT: kiln.pad
// CHECK: return
// CHECK-LABEL: func.func @odd
// CHECK: kiln.pad
func.func @even(%x: tensor<768x770xbf16>, %w: tensor<768x770xbf16>) -> tensor<768x768xbf16> {
  %0 = "kiln.matmul"(%x, %w) {transpose_lhs = false, transpose_rhs = true}
    : (tensor<768x770xbf16>, tensor<768x770xbf16>) -> tensor<768x768xbf16>
  return %0 : tensor<768x768xbf16>
}
func.func @odd(%x: tensor<768x771xbf16>, %w: tensor<768x771xbf16>) -> tensor<768x768xbf16> {
  %0 = "kiln.matmul"(%x, %w) {transpose_lhs = false, transpose_rhs = true}
    : (tensor<768x771xbf16>, tensor<768x771xbf16>) -> tensor<768x768xbf16>
  return %0 : tensor<768x768xbf16>
}

// -----

// A copy pays on an A100 already, whose tensor cores take longer, compared with the start of a kernel, than an H200's.
// RUN: kiln-opt %s --split-input-file --mlir-print-local-scope --pass-pipeline="pad-products{arch=sm_80}" | filecheck %s --check-prefix=A100
// CHECK-LABEL: func.func @medium
// CHECK-NOT: kiln.pad
// CHECK: return
// A100-LABEL: func.func @medium
// A100: kiln.pad
func.func @medium(%x: tensor<512x1023xbf16>, %w: tensor<512x1023xbf16>) -> tensor<512x512xbf16> {
  %0 = "kiln.matmul"(%x, %w) {transpose_lhs = false, transpose_rhs = true}
    : (tensor<512x1023xbf16>, tensor<512x1023xbf16>) -> tensor<512x512xbf16>
  return %0 : tensor<512x512xbf16>
}
