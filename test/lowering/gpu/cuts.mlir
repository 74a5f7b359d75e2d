// Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// RUN: kiln-opt %s --split-input-file --mlir-print-local-scope --pass-pipeline="emit-gpu-kernels" | filecheck %s

// The nest is cut where the operands meet: 64 x 512 elements are 256 programs of 128, and 64 x 256 are 128. Each piece
// has the code of its own operand, and the function of the whole.

// CHECK: scf.if
// CHECK: "tt.load"(%{{.*}}) {
// CHECK-NOT: arith.select
// CHECK: math.exp
// CHECK: "tt.store"(%{{.*}}, %{{.*}}) :
// CHECK: scf.if
// CHECK: "tt.load"(%{{.*}}) {
// CHECK: arith.negf
// CHECK-NOT: arith.select
// CHECK: math.exp
// CHECK: "tt.store"(%{{.*}}, %{{.*}}) :
// CHECK: kiln.grid = affine_map<() -> (384, 1, 1)>
func.func @cut(%x: tensor<64x512xf32>, %y: tensor<64x256xf32>) -> tensor<64x768xf32> {
  %0 = "kiln.fusion"(%x, %y) ({
  ^bb0(%a: tensor<64x512xf32>, %b: tensor<64x256xf32>):
    %e = "kiln.empty"() {shape = affine_map<() -> (64, 256)>} : () -> tensor<64x256xf32>
    %n = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0, d1)>],
        iterator_types = ["parallel", "parallel"]} ins(%b : tensor<64x256xf32>) outs(%e : tensor<64x256xf32>) {
    ^bb0(%p: f32, %o: f32):
      %s = arith.negf %p : f32
      linalg.yield %s : f32
    } -> tensor<64x256xf32>
    %c = "kiln.cat"(%a, %n) {dim = 1 : i64, shape = affine_map<() -> (64, 768)>} : (tensor<64x512xf32>, tensor<64x256xf32>) -> tensor<64x768xf32>
    %f = "kiln.empty"() {shape = affine_map<() -> (64, 768)>} : () -> tensor<64x768xf32>
    %r = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0, d1)>],
        iterator_types = ["parallel", "parallel"]} ins(%c : tensor<64x768xf32>) outs(%f : tensor<64x768xf32>) {
    ^bb0(%p: f32, %o: f32):
      %s = math.exp %p : f32
      linalg.yield %s : f32
    } -> tensor<64x768xf32>
    "kiln.yield"(%r) : (tensor<64x768xf32>) -> ()
  }) {kind = "pointwise", name = "cut"} : (tensor<64x512xf32>, tensor<64x256xf32>) -> tensor<64x768xf32>
  return %0 : tensor<64x768xf32>
}

// -----

// Halves that are exchanged: both pieces load the same elements, so that they are one nest, which stores twice.

// CHECK-NOT: scf.if
// CHECK-COUNT-2: "tt.load"
// CHECK-NOT: "tt.load"
// CHECK-COUNT-2: "tt.store"
// CHECK: kiln.grid = affine_map<() -> (256, 1, 1)>
func.func @exchanged(%x: tensor<256x256xf32>) -> tensor<256x256xf32> {
  %0 = "kiln.fusion"(%x) ({
  ^bb0(%a: tensor<256x256xf32>):
    %low = "kiln.view"(%a) {map = affine_map<(d0, d1) -> (d0, d1)>, shape = affine_map<() -> (256, 128)>} : (tensor<256x256xf32>) -> tensor<256x128xf32>
    %high = "kiln.view"(%a) {map = affine_map<(d0, d1) -> (d0, d1 + 128)>, shape = affine_map<() -> (256, 128)>} : (tensor<256x256xf32>) -> tensor<256x128xf32>
    %c = "kiln.cat"(%high, %low) {dim = 1 : i64, shape = affine_map<() -> (256, 256)>} : (tensor<256x128xf32>, tensor<256x128xf32>) -> tensor<256x256xf32>
    %e = "kiln.empty"() {shape = affine_map<() -> (256, 256)>} : () -> tensor<256x256xf32>
    %r = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0, d1)>],
        iterator_types = ["parallel", "parallel"]} ins(%a, %c : tensor<256x256xf32>, tensor<256x256xf32>) outs(%e : tensor<256x256xf32>) {
    ^bb0(%p: f32, %q: f32, %o: f32):
      %s = arith.subf %p, %q : f32
      linalg.yield %s : f32
    } -> tensor<256x256xf32>
    "kiln.yield"(%r) : (tensor<256x256xf32>) -> ()
  }) {kind = "pointwise", name = "exchanged"} : (tensor<256x256xf32>) -> tensor<256x256xf32>
  return %0 : tensor<256x256xf32>
}

// -----

// Elements of a stack alternate: a piece would write four bytes at a time, and the nest stays whole.

// CHECK-NOT: scf.if
// CHECK: arith.select
// CHECK: "tt.store"
// CHECK-NOT: "tt.store"
func.func @alternating(%x: tensor<4096x1xf32>, %y: tensor<4096x1xf32>) -> tensor<4096x2xf32> {
  %0 = "kiln.fusion"(%x, %y) ({
  ^bb0(%a: tensor<4096x1xf32>, %b: tensor<4096x1xf32>):
    %c = "kiln.cat"(%a, %b) {dim = 1 : i64, shape = affine_map<() -> (4096, 2)>} : (tensor<4096x1xf32>, tensor<4096x1xf32>) -> tensor<4096x2xf32>
    "kiln.yield"(%c) : (tensor<4096x2xf32>) -> ()
  }) {kind = "pointwise", name = "alternating"} : (tensor<4096x1xf32>, tensor<4096x1xf32>) -> tensor<4096x2xf32>
  return %0 : tensor<4096x2xf32>
}
