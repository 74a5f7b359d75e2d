// Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// RUN: kiln-opt %s --split-input-file --mlir-print-local-scope --pass-pipeline="expand-named-ops{keep=scan},compose-views,canonicalize,cse,fuse,assign-layouts,schedule-gpu,emit-gpu-kernels" | filecheck %s

// A row of a matrix added to each row: one walk over all elements; the row is read at the remainder.

// CHECK: "tt.make_range"() {end = 1024 : i32
// CHECK: %[[AT:.*]] = arith.addi
// CHECK: "tt.addptr"(%{{.*}}, %[[AT]])
// CHECK: "tt.load"
// CHECK: arith.remui %[[AT]]
// CHECK: "tt.load"
// CHECK: "tt.store"
// CHECK: kiln.grid = affine_map<() -> (1024, 1, 1)>
// CHECK-SAME: num_warps = 4 : i32
func.func @broadcast(%x: tensor<1024x1024xf32>, %b: tensor<1024xf32>) -> tensor<1024x1024xf32> {
  %e = "kiln.empty"() {shape = affine_map<() -> (1024, 1024)>} : () -> tensor<1024x1024xf32>
  %r = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d1)>, affine_map<(d0, d1) -> (d0, d1)>],
      iterator_types = ["parallel", "parallel"]} ins(%x, %b : tensor<1024x1024xf32>, tensor<1024xf32>) outs(%e : tensor<1024x1024xf32>) {
  ^bb0(%p: f32, %q: f32, %o: f32):
    %s = arith.addf %p, %q : f32
    linalg.yield %s : f32
  } -> tensor<1024x1024xf32>
  return %r : tensor<1024x1024xf32>
}

// -----

// A transpose: a tile with an axis along each of the two dims, so that reads and writes are both in a row.

// CHECK: "tt.load"({{.*}}) {{.*}} : (tensor<64x64x!tt.ptr<f32>>)
// CHECK: "tt.store"({{.*}}) : (tensor<64x64x!tt.ptr<f32>>
// CHECK: kiln.grid = affine_map<() -> (128, 1, 1)>
func.func @transpose(%x: tensor<512x1024xf32>) -> tensor<1024x512xf32> {
  %e = "kiln.empty"() {shape = affine_map<() -> (1024, 512)>} : () -> tensor<1024x512xf32>
  %r = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d1, d0)>, affine_map<(d0, d1) -> (d0, d1)>],
      iterator_types = ["parallel", "parallel"]} ins(%x : tensor<512x1024xf32>) outs(%e : tensor<1024x512xf32>) {
  ^bb0(%p: f32, %o: f32):
    %s = arith.mulf %p, %p : f32
    linalg.yield %s : f32
  } -> tensor<1024x512xf32>
  return %r : tensor<1024x512xf32>
}

// -----

// Sizes known at run time are arguments; positions are then 64 bits wide.

// CHECK: ^bb0(%{{.*}}: !tt.ptr<f32>, %{{.*}}: !tt.ptr<f32>, %[[N:.*]]: i64):
// CHECK: %[[IN:.*]] = arith.cmpi slt, %{{.*}} : tensor<1024xi64>
// CHECK: "tt.load"({{.*}}, %[[IN]],
// CHECK: "tt.store"({{.*}}, %[[IN]])
// CHECK: kiln.grid = affine_map<()[s0] -> ((s0 + 1023) floordiv 1024, 1, 1)>
func.func @dynamic(%x: tensor<?xf32> {kiln.shape = affine_map<()[s0] -> (s0)>}, %n: index {kiln.symbol = "s0"}) -> tensor<?xf32> attributes {kiln.symbols = ["s0"]} {
  %e = "kiln.empty"(%n) {shape = affine_map<()[s0] -> (s0)>} : (index) -> tensor<?xf32>
  %r = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>],
      iterator_types = ["parallel"]} ins(%x : tensor<?xf32>) outs(%e : tensor<?xf32>) {
  ^bb0(%p: f32, %o: f32):
    %s = math.tanh %p : f32
    linalg.yield %s : f32
  } -> tensor<?xf32>
  return %r : tensor<?xf32>
}

// -----

// What Triton does not lower well is a function of the device's library; booleans are bytes in memory.

// CHECK: ^bb0(%{{.*}}: !tt.ptr<i8>, %{{.*}}: !tt.ptr<f64>, %{{.*}}: !tt.ptr<f64>):
// CHECK: %[[B:.*]] = "tt.load"({{.*}}) {{.*}} -> tensor<64xi8>
// CHECK: %[[C:.*]] = arith.cmpi ne, %[[B]]
// CHECK: "tt.extern_elementwise"({{.*}}) {libname = "", libpath = "", pure = true, symbol = "__nv_log1p"} : (tensor<64xf64>)
// CHECK: arith.select %[[C]]
func.func @library(%c: tensor<64xi1>, %x: tensor<64xf64>) -> tensor<64xf64> {
  %e = "kiln.empty"() {shape = affine_map<() -> (64)>} : () -> tensor<64xf64>
  %r = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>],
      iterator_types = ["parallel"]} ins(%c, %x : tensor<64xi1>, tensor<64xf64>) outs(%e : tensor<64xf64>) {
  ^bb0(%b: i1, %p: f64, %o: f64):
    %s = math.log1p %p : f64
    %t = arith.select %b, %s, %p : f64
    linalg.yield %t : f64
  } -> tensor<64xf64>
  return %r : tensor<64xf64>
}

// -----

// Rows of a table, by indices that are loaded.

// CHECK: %[[I:.*]] = "tt.load"({{.*}}) {{.*}} -> tensor<{{[0-9]+}}xi64>
// CHECK: %[[J:.*]] = arith.trunci %[[I]] : tensor<{{[0-9]+}}xi64> to tensor<{{[0-9]+}}xi32>
// CHECK: %[[K:.*]] = arith.muli %[[J]]
// CHECK: "tt.load"
// CHECK: "tt.store"
func.func @gather(%i: tensor<128xi64>, %w: tensor<1000x256xf32>) -> tensor<128x256xf32> {
  %0 = "kiln.embedding"(%w, %i) : (tensor<1000x256xf32>, tensor<128xi64>) -> tensor<128x256xf32>
  return %0 : tensor<128x256xf32>
}

// -----

// Below a pad memory is touched only in bounds.

// CHECK: %[[LOW:.*]] = arith.cmpi sge
// CHECK: %[[HIGH:.*]] = arith.cmpi slt
// CHECK: %[[IN:.*]] = arith.andi
// CHECK: "tt.load"
// CHECK: arith.select
func.func @pad(%x: tensor<100xf32>) -> tensor<128xf32> {
  %z = arith.constant 0.0 : f32
  %0 = "kiln.pad"(%x, %z) {high = affine_map<() -> (18)>, low = affine_map<() -> (10)>, shape = affine_map<() -> (128)>}
    : (tensor<100xf32>, f32) -> tensor<128xf32>
  return %0 : tensor<128xf32>
}

// -----

// Positions of a tensor of 2^31 elements and more are 64 bits wide.

// CHECK: arith.extsi %{{.*}} : i32 to i64
// CHECK: "tt.addptr"({{.*}}) : (tensor<1024x!tt.ptr<i8>>, tensor<1024xi64>)
func.func @large(%x: tensor<50000x50000xi8>) -> tensor<50000x50000xi8> {
  %e = "kiln.empty"() {shape = affine_map<() -> (50000, 50000)>} : () -> tensor<50000x50000xi8>
  %r = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0, d1)>],
      iterator_types = ["parallel", "parallel"]} ins(%x : tensor<50000x50000xi8>) outs(%e : tensor<50000x50000xi8>) {
  ^bb0(%p: i8, %o: i8):
    %s = arith.addi %p, %p : i8
    linalg.yield %s : i8
  } -> tensor<50000x50000xi8>
  return %r : tensor<50000x50000xi8>
}

// -----

// Channels last: one walk over memory, not over the dims; a channel's number is the remainder.

// CHECK: "tt.make_range"() {end = 1024 : i32
// CHECK: %[[AT:.*]] = arith.addi
// CHECK-NEXT: "tt.splat"
// CHECK-NEXT: %[[P:.*]] = "tt.addptr"(%{{.*}}, %[[AT]])
// CHECK-NEXT: "tt.load"(%[[P]])
// CHECK-NEXT: %[[C:.*]] = arith.remui %[[AT]]
// CHECK-NEXT: "tt.splat"
// CHECK-NEXT: "tt.addptr"(%{{.*}}, %[[C]])
// CHECK: "tt.addptr"(%{{.*}}, %[[AT]])
// CHECK-NEXT: "tt.store"
func.func @channels_last(%x: tensor<8x64x56x56xf32> {kiln.strides = affine_map<() -> (200704, 1, 3584, 64)>}, %b: tensor<64xf32>)
    -> (tensor<8x64x56x56xf32> {kiln.strides = affine_map<() -> (200704, 1, 3584, 64)>}) {
  %e = "kiln.empty"() {shape = affine_map<() -> (8, 64, 56, 56)>} : () -> tensor<8x64x56x56xf32>
  %r = linalg.generic {indexing_maps = [affine_map<(d0, d1, d2, d3) -> (d0, d1, d2, d3)>,
      affine_map<(d0, d1, d2, d3) -> (d1)>, affine_map<(d0, d1, d2, d3) -> (d0, d1, d2, d3)>],
      iterator_types = ["parallel", "parallel", "parallel", "parallel"]}
      ins(%x, %b : tensor<8x64x56x56xf32>, tensor<64xf32>) outs(%e : tensor<8x64x56x56xf32>) {
  ^bb0(%p: f32, %q: f32, %o: f32):
    %s = arith.addf %p, %q : f32
    linalg.yield %s : f32
  } -> tensor<8x64x56x56xf32>
  return %r : tensor<8x64x56x56xf32>
}

// -----

// Two results of one pass: what both read is loaded before the first is stored.

#all = affine_map<(d0) -> (d0)>

// CHECK-COUNT-3: "tt.load"
// CHECK-NOT: "tt.load"
// CHECK-COUNT-2: "tt.store"
func.func @two_results(%x: tensor<4096xf32>, %y: tensor<4096xf32>, %z: tensor<4096xf32>) -> (tensor<4096xf32>, tensor<4096xf32>) {
  %e = "kiln.empty"() {shape = affine_map<() -> (4096)>} : () -> tensor<4096xf32>
  %a = linalg.generic {indexing_maps = [#all, #all, #all], iterator_types = ["parallel"]}
      ins(%x, %y : tensor<4096xf32>, tensor<4096xf32>) outs(%e : tensor<4096xf32>) {
  ^bb0(%p: f32, %q: f32, %o: f32):
    %s = arith.addf %p, %q : f32
    linalg.yield %s : f32
  } -> tensor<4096xf32>
  %b = linalg.generic {indexing_maps = [#all, #all, #all], iterator_types = ["parallel"]}
      ins(%x, %z : tensor<4096xf32>, tensor<4096xf32>) outs(%e : tensor<4096xf32>) {
  ^bb0(%p: f32, %q: f32, %o: f32):
    %s = arith.mulf %p, %q : f32
    linalg.yield %s : f32
  } -> tensor<4096xf32>
  return %a, %b : tensor<4096xf32>, tensor<4096xf32>
}
