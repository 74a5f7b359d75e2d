// Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// RUN: kiln-opt %s --split-input-file --mlir-print-local-scope --pass-pipeline="expand-named-ops{keep=scan},compose-views,canonicalize,cse,fuse,assign-layouts,schedule-gpu,emit-gpu-kernels" | filecheck %s

// A row that fits into registers is loaded once: one program per row, and the reductions in between. The largest number
// less itself is 0, whatever computes it: the difference is contracted with no product.

// CHECK: %[[LANES:.*]] = "tt.make_range"() {end = 1024 : i32
// CHECK: %[[ROW:.*]] = "tt.get_program_id"
// CHECK: %[[IN:.*]] = arith.cmpi slt, %[[LANES]]
// CHECK: %[[X:.*]] = "tt.load"({{.*}}, %[[IN]],
// CHECK-NOT: "tt.load"
// CHECK: %[[M:.*]] = arith.select %[[IN]], %[[X]]
// CHECK: %[[MAX:.*]] = "tt.reduce"(%[[M]])
// CHECK: arith.maximumf
// CHECK: %[[LESS:.*]] = "tt.elementwise_inline_asm"(%[[X]], %{{.*}}) {asm_string = "sub.rn.f32 $0, $1, $2;"
// CHECK: math.exp %[[LESS]]
// CHECK: "tt.reduce"
// CHECK: arith.addf
// CHECK: arith.divf
// CHECK: "tt.store"({{.*}}, %[[IN]])
// CHECK: kiln.grid = affine_map<() -> (4096, 1, 1)>
// CHECK-SAME: num_warps = 2 : i32
func.func @softmax(%x: tensor<4096x1000xf32>) -> tensor<4096x1000xf32> {
  %0 = "kiln.softmax"(%x) {dim = 1 : i64, log = false} : (tensor<4096x1000xf32>) -> tensor<4096x1000xf32>
  return %0 : tensor<4096x1000xf32>
}

// -----

// A longer one is walked in blocks, once per reduction and once to write.

// CHECK: scf.for %{{.*}} = %{{.*}} to %{{.*}} step %{{.*}} iter_args(%{{.*}} = %{{.*}}) -> (tensor<4096xf32>)
// CHECK: arith.maximumf
// CHECK: "tt.reduce"
// CHECK: scf.for
// CHECK: arith.addf
// CHECK: "tt.reduce"
// CHECK: scf.for
// CHECK: "tt.store"
func.func @long(%x: tensor<64x50000xf32>) -> tensor<64x50000xf32> {
  %0 = "kiln.softmax"(%x) {dim = 1 : i64, log = false} : (tensor<64x50000xf32>) -> tensor<64x50000xf32>
  return %0 : tensor<64x50000xf32>
}

// -----

// Short rows: several to a program, along the first axis of the tile. Sizes that divide need no masks.

// CHECK: "tt.load"({{.*}}) {operandSegmentSizes = array<i32: 1, 0, 0>} : (tensor<16x64x!tt.ptr<f32>>)
// CHECK: "tt.reduce"({{.*}}) ({
// CHECK: {axis = 1 : i32} : (tensor<16x64xf32>) -> tensor<16xf32>
// CHECK: "tt.expand_dims"({{.*}}) {axis = 1 : i32} : (tensor<16xf32>) -> tensor<16x1xf32>
// CHECK: kiln.grid = affine_map<() -> (1024, 1, 1)>
func.func @short(%x: tensor<16384x64xf32>) -> tensor<16384x64xf32> {
  %0 = "kiln.softmax"(%x) {dim = 1 : i64, log = false} : (tensor<16384x64xf32>) -> tensor<16384x64xf32>
  return %0 : tensor<16384x64xf32>
}

// -----

// Along the columns a program takes a strip of them: neighbours in memory are neighbours in the tile.

// CHECK: scf.for {{.*}} -> (tensor<32x64xf32>)
// CHECK: "tt.load"({{.*}}) {{.*}} : (tensor<32x64x!tt.ptr<f32>>
// CHECK: "tt.reduce"({{.*}}) ({
// CHECK: {axis = 1 : i32} : (tensor<32x64xf32>) -> tensor<32xf32>
func.func @columns(%x: tensor<4096x256xf32>) -> tensor<256xf32> {
  %z = arith.constant 0.0 : f32
  %e = "kiln.empty"() {shape = affine_map<() -> (256)>} : () -> tensor<256xf32>
  %i = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>], iterator_types = ["parallel"]} outs(%e : tensor<256xf32>) {
  ^bb0(%o: f32):
    linalg.yield %z : f32
  } -> tensor<256xf32>
  %r = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d1)>], iterator_types = ["reduction", "parallel"]}
      ins(%x : tensor<4096x256xf32>) outs(%i : tensor<256xf32>) {
  ^bb0(%a: f32, %o: f32):
    %s = arith.addf %o, %a : f32
    linalg.yield %s : f32
  } -> tensor<256xf32>
  return %r : tensor<256xf32>
}

// -----

// A running sum of blocks, with the sum so far carried along.

// CHECK: scf.for {{.*}} -> (f32)
// CHECK: "tt.scan"
// CHECK: {axis = 0 : i32, reverse = false}
// CHECK: "tt.reduce"
// CHECK: "tt.store"
func.func @scan(%x: tensor<8x10000xf32>) -> tensor<8x10000xf32> {
  %0 = "kiln.scan"(%x) {dim = 1 : i64, kind = "sum"} : (tensor<8x10000xf32>) -> tensor<8x10000xf32>
  return %0 : tensor<8x10000xf32>
}

// -----

// A pooling window is written out; lanes stay the elements of the result.

// CHECK-COUNT-4: "tt.load"
// CHECK-NOT: scf.for
// CHECK-NOT: "tt.reduce"
// CHECK: "tt.store"
func.func @window(%x: tensor<1x8x32x32xf32>) -> tensor<1x8x16x16xf32> {
  %0 = "kiln.pool"(%x) {ceil = false, count_include_pad = false, dilation = array<i64: 1, 1>, divisor = 0, kernel = array<i64: 2, 2>,
    mode = "max", padding = array<i64: 0, 0>, stride = array<i64: 2, 2>} : (tensor<1x8x32x32xf32>) -> tensor<1x8x16x16xf32>
  return %0 : tensor<1x8x16x16xf32>
}

// -----

// The sum of a group of channels of an image with channels last: its channels are the innermost loop of the row, as they
// are in memory.

// CHECK: %[[FOUR:.*]] = arith.constant dense<4> : tensor<4096xi32>
// CHECK: arith.divui %{{.*}}, %[[FOUR]]
// CHECK: %[[CHANNEL:.*]] = arith.remui %{{.*}}, %[[FOUR]]
// CHECK: %[[AT:.*]] = arith.addi %{{.*}}, %[[CHANNEL]]
// CHECK: "tt.addptr"(%{{.*}}, %[[AT]])
func.func @group(%x: tensor<512x8x64x64xf32> {kiln.shape = affine_map<() -> (512, 8, 64, 64)>, kiln.strides = affine_map<() -> (32768, 1, 512, 8)>}) -> tensor<512x2xf32> {
  %zero = arith.constant dense<0.0> : tensor<512x2xf32>
  %v = "kiln.view"(%x) {map = affine_map<(a, b, c, d, e) -> (a, b * 4 + c, d, e)>, shape = affine_map<() -> (512, 2, 4, 64, 64)>} : (tensor<512x8x64x64xf32>) -> tensor<512x2x4x64x64xf32>
  %s = linalg.generic {indexing_maps = [affine_map<(a, b, c, d, e) -> (a, b, c, d, e)>, affine_map<(a, b, c, d, e) -> (a, b)>], iterator_types = ["parallel", "parallel", "reduction", "reduction", "reduction"]} ins(%v : tensor<512x2x4x64x64xf32>) outs(%zero : tensor<512x2xf32>) {
  ^bb0(%p: f32, %o: f32):
    %0 = arith.addf %p, %o : f32
    linalg.yield %0 : f32
  } -> tensor<512x2xf32>
  return %s : tensor<512x2xf32>
}

// -----

// A row of any length is in registers where it fits into the tile, which is as long as rows were about when the graph was
// traced, and else walked in blocks. Of a sum, 64 blocks are a chain: it is reduced, and the next begins at 0.

// CHECK: %[[FITS:.*]] = arith.cmpi sle, %{{.*}}, %c512
// CHECK: scf.if %[[FITS]]
// CHECK: "tt.load"
// CHECK-NOT: "tt.load"
// CHECK: "tt.store"
// CHECK: } else {
// CHECK: scf.for
// CHECK: arith.maximumf
// CHECK: "tt.reduce"
// CHECK: scf.for %[[START:.*]] = %{{.*}} to %{{.*}} step %c32768_i64 iter_args(%[[TOTAL:.*]] = %{{.*}}) -> (tensor<2x1xf32>)
// CHECK: scf.for %{{.*}} = %[[START]] to %{{.*}} step %c512_i64 iter_args(%{{.*}} = %{{.*}}) -> (tensor<2x512xf32>)
// CHECK: "tt.reduce"
// CHECK: arith.addf %[[TOTAL]], %{{.*}} : tensor<2x1xf32>
// CHECK: scf.for
// CHECK: "tt.store"
func.func @any_length(%x: tensor<?x?xf32> {kiln.shape = affine_map<()[s0, s1] -> (s0, s1)>}, %n: index {kiln.hint = 4096 : i64, kiln.symbol = "s0"}, %m: index {kiln.hint = 512 : i64, kiln.symbol = "s1"}) -> tensor<?x?xf32> attributes {kiln.symbols = ["s0", "s1"]} {
  %0 = "kiln.softmax"(%x) {dim = 1 : i64, log = false} : (tensor<?x?xf32>) -> tensor<?x?xf32>
  return %0 : tensor<?x?xf32>
}
