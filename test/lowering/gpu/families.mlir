// Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// RUN: kiln-opt %s --split-input-file --mlir-print-local-scope --pass-pipeline="expand-named-ops{keep=matmul,scan},compose-views,canonicalize,cse,split-reductions{sms=132},fuse{row-blocks=false},assign-layouts,schedule-gpu,emit-gpu-kernels" | filecheck %s

// Programs of their own copy each piece, without selects; nothing else moves.

// CHECK: "tt.load"
// CHECK-NOT: arith.select
// CHECK: "tt.store"
// CHECK: "tt.load"
// CHECK-NOT: arith.select
// CHECK: "tt.store"
// CHECK-NOT: "tt.load"
// CHECK: kiln.grid = affine_map<() -> (64, 1, 1)>
func.func @cat(%x: tensor<64x100xf32>, %y: tensor<64x28xf32>) -> tensor<64x128xf32> {
  %0 = "kiln.cat"(%x, %y) {dim = 1 : i64, shape = affine_map<() -> (64, 128)>} : (tensor<64x100xf32>, tensor<64x28xf32>) -> tensor<64x128xf32>
  return %0 : tensor<64x128xf32>
}

// -----

// A slice is another offset and stride of the load.

// CHECK: %[[TWO:.*]] = arith.constant dense<2> : tensor<{{.*}}xi32>
// CHECK: arith.muli {{.*}}%[[TWO]]
// CHECK: "tt.load"
// CHECK-NOT: "tt.load"
// CHECK: "tt.store"
func.func @slice(%x: tensor<4096xf32>) -> tensor<2048xf32> {
  %v = "kiln.view"(%x) {map = affine_map<(d0) -> (d0 * 2 + 1)>, shape = affine_map<() -> (2048)>} : (tensor<4096xf32>) -> tensor<2048xf32>
  %e = "kiln.empty"() {shape = affine_map<() -> (2048)>} : () -> tensor<2048xf32>
  %0 = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>], iterator_types = ["parallel"]}
      ins(%v : tensor<2048xf32>) outs(%e : tensor<2048xf32>) {
  ^bb0(%i: f32, %o: f32):
    %a = arith.negf %i : f32
    linalg.yield %a : f32
  } -> tensor<2048xf32>
  return %0 : tensor<2048xf32>
}

// -----

// Random numbers are Philox's, by position: products of 32 bits, low and high, and no load but the seed's.

// CHECK-COUNT-2: "tt.load"({{.*}}) {{.*}} : (!tt.ptr<i64>) -> i64
// CHECK-NOT: "tt.load"
// CHECK: "tt.mulhiui"
// CHECK: arith.xori
// CHECK: arith.uitofp
// CHECK: "tt.store"
func.func @random(%s: tensor<i64>, %o: tensor<i64>) -> tensor<33x8xf32> {
  %0 = "kiln.random"(%s, %o) {kind = "uniform", shape = affine_map<() -> (33, 8)>} : (tensor<i64>, tensor<i64>) -> tensor<33x8xf32>
  return %0 : tensor<33x8xf32>
}

// -----

// A long sum with one result has two kernels: programs that share it, and the sum of what they found.

// CHECK: "tt.reduce"
// CHECK: arith.addf
// CHECK: "tt.store"
// CHECK: kiln.grid = affine_map<() -> ([[PARTS:[0-9]+]], 1, 1)>
// CHECK: "tt.reduce"
// CHECK: arith.addf
// CHECK: "tt.store"
// CHECK: kiln.grid = affine_map<() -> (1, 1, 1)>
func.func @split(%x: tensor<4194304xf32>) -> tensor<f32> {
  %z = arith.constant 0.0 : f32
  %e = "kiln.empty"() {shape = affine_map<() -> ()>} : () -> tensor<f32>
  %i = linalg.generic {indexing_maps = [affine_map<() -> ()>], iterator_types = []} outs(%e : tensor<f32>) {
  ^bb0(%o: f32):
    linalg.yield %z : f32
  } -> tensor<f32>
  %0 = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> ()>], iterator_types = ["reduction"]}
      ins(%x : tensor<4194304xf32>) outs(%i : tensor<f32>) {
  ^bb0(%a: f32, %o: f32):
    %s = arith.addf %a, %o : f32
    linalg.yield %s : f32
  } -> tensor<f32>
  return %0 : tensor<f32>
}

// -----

// A product per matrix of the batch: the batch is part of the program's number.

// CHECK: "tt.dot"
// CHECK-SAME: tensor<64x64xbf16>, tensor<64x32xbf16>
// CHECK: kiln.grid = affine_map<() -> (96, 1, 1)>
func.func @batch(%x: tensor<12x128x64xbf16>, %y: tensor<12x64x128xbf16>) -> tensor<12x128x128xbf16> {
  %0 = "kiln.matmul"(%x, %y) {transpose_lhs = false, transpose_rhs = false} : (tensor<12x128x64xbf16>, tensor<12x64x128xbf16>) -> tensor<12x128x128xbf16>
  return %0 : tensor<12x128x128xbf16>
}

// -----

// A row is read once for what is kept of it, which is the first result, and for its own elements.

// CHECK: "tt.load"
// CHECK-NOT: "tt.load"
// CHECK: kiln.grid = affine_map<() -> (16384, 1, 1)>
func.func @scales(%x: tensor<16384x4096xf32>) -> (tensor<16384x1xf32>, tensor<16384x4096xf32>) {
  %e = "kiln.empty"() {shape = affine_map<() -> (16384)>} : () -> tensor<16384xf32>
  %z = arith.constant 0xFF800000 : f32
  %i = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>], iterator_types = ["parallel"]} outs(%e : tensor<16384xf32>) {
  ^bb0(%o: f32):
    linalg.yield %z : f32
  } -> tensor<16384xf32>
  %m = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0)>], iterator_types = ["parallel", "reduction"]}
      ins(%x : tensor<16384x4096xf32>) outs(%i : tensor<16384xf32>) {
  ^bb0(%a: f32, %o: f32):
    %s = arith.maximumf %o, %a : f32
    linalg.yield %s : f32
  } -> tensor<16384xf32>
  %v = "kiln.view"(%m) {map = affine_map<(d0, d1) -> (d0)>, shape = affine_map<() -> (16384, 1)>} : (tensor<16384xf32>) -> tensor<16384x1xf32>
  %f = "kiln.empty"() {shape = affine_map<() -> (16384, 1)>} : () -> tensor<16384x1xf32>
  %n = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0, d1)>], iterator_types = ["parallel", "parallel"]}
      ins(%v : tensor<16384x1xf32>) outs(%f : tensor<16384x1xf32>) {
  ^bb0(%a: f32, %o: f32):
    %s = arith.negf %a : f32
    linalg.yield %s : f32
  } -> tensor<16384x1xf32>
  %g = "kiln.empty"() {shape = affine_map<() -> (16384, 4096)>} : () -> tensor<16384x4096xf32>
  %q = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0, 0)>, affine_map<(d0, d1) -> (d0, d1)>], iterator_types = ["parallel", "parallel"]}
      ins(%x, %n : tensor<16384x4096xf32>, tensor<16384x1xf32>) outs(%g : tensor<16384x4096xf32>) {
  ^bb0(%a: f32, %c: f32, %o: f32):
    %s = arith.divf %a, %c : f32
    linalg.yield %s : f32
  } -> tensor<16384x4096xf32>
  return %n, %q : tensor<16384x1xf32>, tensor<16384x4096xf32>
}
