// Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// RUN: kiln-opt %s --cpu=x86-64-v4 --split-input-file --mlir-print-local-scope --pass-pipeline="fuse,assign-layouts,emit-cpu-kernels" | filecheck %s

// Two dims that memory walks as one are one loop. Its tail, whose size is known, is masked by a constant count.

// CHECK-LABEL: func.func @generic(%arg0: memref<?xf32>, %arg1: memref<?xf32>, %arg2: memref<?xf32>, %arg3: memref<?xi8>, %arg4: index, %arg5: index)
// CHECK-SAME: kiln.scratch_bytes = affine_map<() -> (0)>, kiln.work = affine_map<() -> (105)>
// CHECK: scf.for %[[I:.*]] = %{{.*}} to %{{.*}} step
// CHECK-NEXT: %[[X:.*]] = vector.load %arg0[%[[I]]] : memref<?xf32>, vector<{{[0-9]+}}xf32>
// CHECK-NEXT: %[[Y:.*]] = vector.load %arg1[%[[I]]]
// CHECK-NEXT: %[[Z:.*]] = arith.mulf %[[X]], %[[Y]] : vector<{{[0-9]+}}xf32>
// CHECK-NEXT: vector.store %[[Z]], %arg2[%[[I]]]
// CHECK: scf.if
// CHECK-NEXT: %[[MASK:.*]] = vector.create_mask %c3 : vector<{{[0-9]+}}xi1>
// CHECK-NEXT: vector.maskedload %arg0[%c32], %[[MASK]]
// CHECK-NEXT: vector.maskedload %arg1[%c32], %[[MASK]]
// CHECK: vector.maskedstore %arg2[%c32], %[[MASK]]
// CHECK-NOT: scf
func.func @flat(%x: tensor<5x7xf32>, %y: tensor<5x7xf32>) -> tensor<5x7xf32> {
  %e = "kiln.empty"() {shape = affine_map<() -> (5, 7)>} : () -> tensor<5x7xf32>
  %r = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0, d1)>], iterator_types = ["parallel", "parallel"]} ins(%x, %y : tensor<5x7xf32>, tensor<5x7xf32>) outs(%e : tensor<5x7xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %0 = arith.mulf %a, %b : f32
    linalg.yield %0 : f32
  } -> tensor<5x7xf32>
  return %r : tensor<5x7xf32>
}

// -----

// Sizes known at run time: the same loops, the tail behind a test. The value of the row is loaded outside of the row's loop.

// CHECK-LABEL: func.func @generic
// CHECK-SAME: %arg3: index, %arg4: index, %arg5: memref<?xi8>, %arg6: index, %arg7: index)
// CHECK-SAME: kiln.work = affine_map<()[s0, s1] -> ((s0 * s1) * 3)>
// CHECK: scf.for %[[ROW:.*]] = %{{.*}} to %{{.*}} step %c1
// CHECK: %[[WHOLE:.*]] = arith.subi %arg4
// CHECK: %[[REST:.*]] = arith.cmpi slt, %[[WHOLE]], %arg4
// CHECK: %[[B:.*]] = memref.load %arg1[%[[ROW]]]
// CHECK-NEXT: scf.for %{{.*}} = %c0 to %[[WHOLE]]
// CHECK: vector.load %arg0
// CHECK-NEXT: vector.broadcast %[[B]] : f32 to vector<{{[0-9]+}}xf32>
// CHECK-NOT: vector.maskedstore
// CHECK: scf.if %[[REST]]
// CHECK: vector.create_mask
// CHECK: vector.maskedstore
func.func @dynamic(%x: tensor<?x?xf32> {kiln.shape = affine_map<()[s0, s1] -> (s0, s1)>}, %y: tensor<?xf32> {kiln.shape = affine_map<()[s0, s1] -> (s0)>}, %m: index {kiln.symbol = "s0"}, %n: index {kiln.symbol = "s1"}) -> tensor<?x?xf32> attributes {kiln.symbols = ["s0", "s1"]} {
  %e = "kiln.empty"(%m, %n) {shape = affine_map<()[s0, s1] -> (s0, s1)>} : (index, index) -> tensor<?x?xf32>
  %r = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0)>, affine_map<(d0, d1) -> (d0, d1)>], iterator_types = ["parallel", "parallel"]} ins(%x, %y : tensor<?x?xf32>, tensor<?xf32>) outs(%e : tensor<?x?xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %0 = arith.mulf %a, %b : f32
    linalg.yield %0 : f32
  } -> tensor<?x?xf32>
  return %r : tensor<?x?xf32>
}

// -----

// A transposed operand is read in tiles, which are transposed in registers: rows are loaded as they lie, shuffled, and kept
// in scratch memory with the lanes as neighbours. No element is gathered.

// CHECK-LABEL: func.func @generic
// CHECK: scf.for %[[TILE:.*]] = %{{.*}} to %{{.*}} step %c1
// CHECK: scf.for %[[LANE:.*]] = %{{.*}} to
// CHECK: %[[FIRST:.*]] = arith.muli %[[TILE]], %c64
// CHECK: %[[END:.*]] = arith.minsi %{{.*}}, %c96
// CHECK: %[[STAGE:.*]] = memref.view %arg2
// CHECK: scf.for
// CHECK: vector.load %arg0
// CHECK: vector.shuffle
// CHECK: vector.store %{{.*}}, %[[STAGE]]
// CHECK-NOT: gather
// CHECK: scf.for %[[D:.*]] = %[[FIRST]] to %[[END]] step %c1
// CHECK: %[[ROW:.*]] = arith.subi %[[D]], %{{.*}}
// CHECK: %[[AT:.*]] = arith.muli %[[ROW]]
// CHECK: vector.load %[[STAGE]][%[[AT]]]
// CHECK: vector.store %{{.*}}, %arg1
// CHECK-NOT: gather
func.func @transposed(%x: tensor<256x96xf32>) -> tensor<96x256xf32> {
  %t = "kiln.view"(%x) {map = affine_map<(d0, d1) -> (d1, d0)>, shape = affine_map<() -> (96, 256)>} : (tensor<256x96xf32>) -> tensor<96x256xf32>
  %e = "kiln.empty"() {shape = affine_map<() -> (96, 256)>} : () -> tensor<96x256xf32>
  %r = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0, d1)>], iterator_types = ["parallel", "parallel"]} ins(%t : tensor<96x256xf32>) outs(%e : tensor<96x256xf32>) {
  ^bb0(%a: f32, %o: f32):
    %0 = arith.negf %a : f32
    linalg.yield %0 : f32
  } -> tensor<96x256xf32>
  return %r : tensor<96x256xf32>
}

// -----

// A result in another order than both operands is kept in scratch memory, and transposed in registers behind the tile's
// loop: no element is scattered.

// CHECK-LABEL: func.func @generic
// CHECK: %[[TILE:.*]] = arith.muli %{{.*}}, %c64
// CHECK-NOT: scatter
// CHECK: %[[KEPT:.*]] = memref.view %arg3
// CHECK: scf.for
// CHECK: vector.load %arg0
// CHECK: vector.load %arg1
// CHECK: vector.store %{{.*}}, %[[KEPT]]
// CHECK: scf.for
// CHECK: vector.load %[[KEPT]]
// CHECK: vector.shuffle
// CHECK: vector.store %{{.*}}, %arg2
// CHECK-NOT: scatter
// CHECK: return
func.func @stored_across(%x: tensor<256x128xf32>, %y: tensor<256x128xf32>) -> tensor<128x256xf32> {
  %e = "kiln.empty"() {shape = affine_map<() -> (128, 256)>} : () -> tensor<128x256xf32>
  %r = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d1, d0)>, affine_map<(d0, d1) -> (d1, d0)>, affine_map<(d0, d1) -> (d0, d1)>], iterator_types = ["parallel", "parallel"]} ins(%x, %y : tensor<256x128xf32>, tensor<256x128xf32>) outs(%e : tensor<128x256xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %0 = arith.addf %a, %b : f32
    linalg.yield %0 : f32
  } -> tensor<128x256xf32>
  return %r : tensor<128x256xf32>
}

// -----

// Of a transposed piece of a concatenation, what is in bounds of a tile is brought.

// CHECK-LABEL: func.func @cat
// CHECK-NOT: gather
// CHECK: scf.if
// CHECK: vector.load %arg0
// CHECK: vector.shuffle
// CHECK-NOT: gather
// CHECK: return
func.func @pieces(%x: tensor<256x100xf32>, %y: tensor<256x156xf32>) -> tensor<256x256xf32> {
  %t = "kiln.view"(%x) {map = affine_map<(d0, d1) -> (d1, d0)>, shape = affine_map<() -> (100, 256)>} : (tensor<256x100xf32>) -> tensor<100x256xf32>
  %u = "kiln.view"(%y) {map = affine_map<(d0, d1) -> (d1, d0)>, shape = affine_map<() -> (156, 256)>} : (tensor<256x156xf32>) -> tensor<156x256xf32>
  %r = "kiln.cat"(%t, %u) {dim = 0 : i64, shape = affine_map<() -> (256, 256)>} : (tensor<100x256xf32>, tensor<156x256xf32>) -> tensor<256x256xf32>
  return %r : tensor<256x256xf32>
}

// -----

// Loops over two concatenated dims are cut at the borders of both: each of the pieces reads its own operand alone.

// CHECK-LABEL: func.func @cat
// CHECK-NOT: maskedload
// CHECK-NOT: arith.select
// CHECK: vector.load %arg0
// CHECK: vector.store
// CHECK: vector.load %arg0
// CHECK: vector.store
// CHECK: vector.load %arg1
// CHECK: vector.store
// CHECK: vector.load %arg2
// CHECK: vector.store
// CHECK-NOT: vector.load
// CHECK: return
func.func @two_dims(%x: tensor<80x20x64xf32>, %y: tensor<80x30x64xf32>, %z: tensor<80x50x64xf32>) -> tensor<160x50x64xf32> {
  %r = "kiln.cat"(%x, %y) {dim = 1 : i64, shape = affine_map<() -> (80, 50, 64)>} : (tensor<80x20x64xf32>, tensor<80x30x64xf32>) -> tensor<80x50x64xf32>
  %s = "kiln.cat"(%z, %r) {dim = 0 : i64, shape = affine_map<() -> (160, 50, 64)>} : (tensor<80x50x64xf32>, tensor<80x50x64xf32>) -> tensor<160x50x64xf32>
  return %s : tensor<160x50x64xf32>
}

// -----

// Pieces of one size that read the same elements share a nest: each element is loaded once, and stored in both.

// CHECK-LABEL: func.func @generic_cat
// CHECK: vector.load %arg0
// CHECK: arith.negf
// CHECK-COUNT-2: vector.store %{{.*}}, %arg1
// CHECK-NOT: vector.load
// CHECK: return
func.func @halves(%x: tensor<64x80x64xf32>) -> tensor<64x160x64xf32> {
  %e = "kiln.empty"() {shape = affine_map<() -> (64, 80, 64)>} : () -> tensor<64x80x64xf32>
  %n = linalg.generic {indexing_maps = [affine_map<(d0, d1, d2) -> (d0, d1, d2)>, affine_map<(d0, d1, d2) -> (d0, d1, d2)>], iterator_types = ["parallel", "parallel", "parallel"]} ins(%x : tensor<64x80x64xf32>) outs(%e : tensor<64x80x64xf32>) {
  ^bb0(%i: f32, %o: f32):
    %0 = arith.negf %i : f32
    linalg.yield %0 : f32
  } -> tensor<64x80x64xf32>
  %r = "kiln.cat"(%n, %x) {dim = 1 : i64, shape = affine_map<() -> (64, 160, 64)>} : (tensor<64x80x64xf32>, tensor<64x80x64xf32>) -> tensor<64x160x64xf32>
  return %r : tensor<64x160x64xf32>
}

// -----

// The row of an embedding is a line in memory: its index is read once, its elements are loaded as vectors.

// CHECK-LABEL: func.func @generic
// CHECK: scf.for %[[TOKEN:.*]] = %{{.*}} to %{{.*}} step %c1
// CHECK: %[[ID:.*]] = memref.load %arg0[%[[TOKEN]]] : memref<?xi64>
// CHECK: %[[ROW:.*]] = arith.index_cast %[[ID]] : i64 to index
// CHECK-NEXT: %[[START:.*]] = arith.muli %[[ROW]], %c64
// CHECK-NEXT: vector.load %arg1[%[[START]]] : memref<?xf32>, vector<{{[0-9]+}}xf32>
// CHECK-NOT: gather
// CHECK: return
func.func @embedding(%table: tensor<100x64xf32>, %ids: tensor<10xi64>) -> tensor<10x64xf32> {
  %e = "kiln.empty"() {shape = affine_map<() -> (10, 64)>} : () -> tensor<10x64xf32>
  %r = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0)>, affine_map<(d0, d1) -> (d0, d1)>], iterator_types = ["parallel", "parallel"]} ins(%ids : tensor<10xi64>) outs(%e : tensor<10x64xf32>) {
  ^bb0(%i: i64, %o: f32):
    %row = arith.index_cast %i : i64 to index
    %column = linalg.index 1 : index
    %0 = tensor.extract %table[%row, %column] : tensor<100x64xf32>
    linalg.yield %0 : f32
  } -> tensor<10x64xf32>
  return %r : tensor<10x64xf32>
}

// -----

// Elements picked one by one are a gather.

// CHECK-LABEL: func.func @generic
// CHECK: %[[IDS:.*]] = vector.load %arg0
// CHECK: %[[AT:.*]] = arith.index_cast %[[IDS]]
// CHECK: vector.gather %arg1[%c0] [%[[AT]]]
func.func @gather(%table: tensor<1000xf32>, %ids: tensor<64xi64>) -> tensor<64xf32> {
  %e = "kiln.empty"() {shape = affine_map<() -> (64)>} : () -> tensor<64xf32>
  %r = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>], iterator_types = ["parallel"]} ins(%ids : tensor<64xi64>) outs(%e : tensor<64xf32>) {
  ^bb0(%i: i64, %o: f32):
    %at = arith.index_cast %i : i64 to index
    %0 = tensor.extract %table[%at] : tensor<1000xf32>
    linalg.yield %0 : f32
  } -> tensor<64xf32>
  return %r : tensor<64xf32>
}

// -----

// Lanes outside of a padded tensor touch no memory, and take the padding value.

// CHECK-LABEL: func.func @pad
// CHECK-DAG: %[[VALUE:.*]] = arith.constant 1.000000e+00 : f32
// CHECK: %[[BELOW:.*]] = vector.create_mask
// CHECK: %[[BEFORE:.*]] = vector.create_mask
// CHECK: %[[AFTER:.*]] = arith.xori %[[BEFORE]]
// CHECK: %[[INSIDE:.*]] = arith.andi %[[BELOW]], %[[AFTER]] : vector<{{[0-9]+}}xi1>
// CHECK-NEXT: %[[X:.*]] = vector.maskedload %arg0[%{{.*}}], %[[INSIDE]]
// CHECK-NEXT: %[[FILL:.*]] = vector.broadcast %[[VALUE]]
// CHECK-NEXT: arith.select %[[INSIDE]], %[[X]], %[[FILL]]
func.func @pad(%x: tensor<1022xf32>) -> tensor<1024xf32> {
  %one = arith.constant 1.0 : f32
  %p = "kiln.pad"(%x, %one) {low = affine_map<() -> (1)>, high = affine_map<() -> (1)>, shape = affine_map<() -> (1024)>} : (tensor<1022xf32>, f32) -> tensor<1024xf32>
  return %p : tensor<1024xf32>
}

// -----

// The pieces of a concatenation, each under the mask of its range.

// CHECK-LABEL: func.func @cat
// CHECK: %[[LOW:.*]] = vector.create_mask
// CHECK-NEXT: %[[X:.*]] = vector.maskedload %arg0[%{{.*}}], %[[LOW]]
// CHECK: %[[HIGH:.*]] = arith.andi
// CHECK-NEXT: %[[Y:.*]] = vector.maskedload %arg1[%{{.*}}], %[[HIGH]]
// CHECK-NEXT: arith.select %[[HIGH]], %[[Y]], %[[X]]
func.func @cat(%x: tensor<1000xf32>, %y: tensor<24xf32>) -> tensor<1024xf32> {
  %c = "kiln.cat"(%x, %y) {dim = 0 : i64, shape = affine_map<() -> (1024)>} : (tensor<1000xf32>, tensor<24xf32>) -> tensor<1024xf32>
  return %c : tensor<1024xf32>
}

// -----

// Booleans are bytes in memory.

// CHECK-LABEL: func.func @generic(%arg0: memref<?xi8>, %arg1: memref<?xi8>, %arg2: memref<?xi8>
// CHECK: arith.cmpi ne, {{.*}} : vector<{{[0-9]+}}xi8>
// CHECK: arith.andi {{.*}} : vector<{{[0-9]+}}xi1>
// CHECK-NEXT: %[[BYTES:.*]] = arith.extui {{.*}} : vector<{{[0-9]+}}xi1> to vector<{{[0-9]+}}xi8>
// CHECK-NEXT: vector.store %[[BYTES]], %arg2
func.func @bools(%x: tensor<64xi1>, %y: tensor<64xi1>) -> tensor<64xi1> {
  %e = "kiln.empty"() {shape = affine_map<() -> (64)>} : () -> tensor<64xi1>
  %r = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>], iterator_types = ["parallel"]} ins(%x, %y : tensor<64xi1>, tensor<64xi1>) outs(%e : tensor<64xi1>) {
  ^bb0(%a: i1, %b: i1, %o: i1):
    %0 = arith.andi %a, %b : i1
    linalg.yield %0 : i1
  } -> tensor<64xi1>
  return %r : tensor<64xi1>
}

// -----

// Arithmetic on symbols (the count of a mean) is done in the kernel, once.

// CHECK-LABEL: func.func @generic(%arg0: memref<?xf32>, %arg1: memref<?xf32>, %arg2: index
// CHECK: %[[N:.*]] = arith.index_cast %arg2 : index to i64
// CHECK-NEXT: %[[F:.*]] = arith.sitofp %[[N]] : i64 to f32
// CHECK-NEXT: scf.for
// CHECK: vector.broadcast %[[F]]
func.func @computed(%x: tensor<?xf32> {kiln.shape = affine_map<()[s0] -> (s0)>}, %n: index {kiln.symbol = "s0"}) -> tensor<?xf32> attributes {kiln.symbols = ["s0"]} {
  %i = arith.index_cast %n : index to i64
  %f = arith.sitofp %i : i64 to f32
  %e = "kiln.empty"(%n) {shape = affine_map<()[s0] -> (s0)>} : (index) -> tensor<?xf32>
  %r = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>], iterator_types = ["parallel"]} ins(%x : tensor<?xf32>) outs(%e : tensor<?xf32>) {
  ^bb0(%a: f32, %o: f32):
    %0 = arith.divf %a, %f : f32
    linalg.yield %0 : f32
  } -> tensor<?xf32>
  return %r : tensor<?xf32>
}

// -----

// An index that a roll makes negative is divided with rounding down. Of all positions of the lanes' loop one is a multiple
// of their number: lanes below it are one load, and the others a second.

// CHECK-LABEL: func.func @generic
// CHECK: scf.for
// CHECK: %[[Q:.*]] = arith.floordivsi
// CHECK-NEXT: %[[P:.*]] = arith.muli %[[Q]]
// CHECK-NEXT: %[[BASE:.*]] = arith.subi %{{.*}}, %[[P]]
// CHECK: %[[BELOW:.*]] = vector.create_mask
// CHECK: %[[FIRST:.*]] = vector.maskedload %arg0[%[[BASE]]], %[[BELOW]]
// CHECK: vector.maskedload %arg0[%{{.*}}], %{{.*}}, %[[FIRST]]
// CHECK-NOT: vector.gather
// CHECK: return
func.func @roll(%x: tensor<?xf32> {kiln.shape = affine_map<()[s0] -> (s0)>}, %n: index {kiln.symbol = "s0"}) -> tensor<?xf32> attributes {kiln.symbols = ["s0"]} {
  %v = "kiln.view"(%x, %n) {map = affine_map<(d0)[s0] -> ((d0 - 3) mod s0)>, shape = affine_map<()[s0] -> (s0)>} : (tensor<?xf32>, index) -> tensor<?xf32>
  %e = "kiln.empty"(%n) {shape = affine_map<()[s0] -> (s0)>} : (index) -> tensor<?xf32>
  %r = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>], iterator_types = ["parallel"]} ins(%v : tensor<?xf32>) outs(%e : tensor<?xf32>) {
  ^bb0(%a: f32, %o: f32):
    %0 = arith.negf %a : f32
    linalg.yield %0 : f32
  } -> tensor<?xf32>
  return %r : tensor<?xf32>
}

// -----

// Rows of an index are of a size that is computed: once, before the loop over all rows, for the table's address, too.

// CHECK-LABEL: func.func @computed_size
// CHECK: %[[TWICE:.*]] = arith.muli %{{.*}}, %c2
// CHECK: %[[IMAGE:.*]] = arith.muli %{{.*}}, %[[TWICE]]
// CHECK: scf.for %[[ROW:.*]] = %{{.*}} to %{{.*}} step %c1
// CHECK-NEXT: arith.remui %[[ROW]], %[[TWICE]]
// CHECK-NEXT: %[[BATCH:.*]] = arith.divui %[[ROW]], %[[TWICE]]
// CHECK: arith.muli %[[BATCH]], %[[IMAGE]]
// CHECK: vector.gather %arg1
func.func @computed_size(%i: tensor<2x?x?xi64> {kiln.shape = affine_map<()[s0, s1] -> (2, s1 * 2, s0)>}, %x: tensor<2x?x?xf32> {kiln.shape = affine_map<()[s0, s1] -> (2, s1 * 2, s0)>}, %s: index {kiln.symbol = "s0"}, %t: index {kiln.symbol = "s1"}) -> tensor<2x?x?xf32> attributes {kiln.symbols = ["s0", "s1"]} {
  %r = "kiln.fusion"(%i, %x, %s, %t) ({
  ^bb0(%a: tensor<2x?x?xi64>, %b: tensor<2x?x?xf32>, %p: index, %q: index):
    %e = "kiln.empty"(%q, %p) {shape = affine_map<()[s0, s1] -> (2, s0 * 2, s1)>} : (index, index) -> tensor<2x?x?xf32>
    %g = linalg.generic {indexing_maps = [affine_map<(d0, d1, d2) -> (d0, d1, d2)>, affine_map<(d0, d1, d2) -> (d0, d1, d2)>], iterator_types = ["parallel", "parallel", "parallel"]} ins(%a : tensor<2x?x?xi64>) outs(%e : tensor<2x?x?xf32>) {
    ^bb0(%in: i64, %out: f32):
      %0 = linalg.index 0 : index
      %2 = linalg.index 2 : index
      %1 = arith.index_cast %in : i64 to index
      %v = tensor.extract %b[%0, %1, %2] : tensor<2x?x?xf32>
      linalg.yield %v : f32
    } -> tensor<2x?x?xf32>
    "kiln.yield"(%g) : (tensor<2x?x?xf32>) -> ()
  }) {kind = "pointwise", name = "computed_size", layouts = [affine_map<(d0, d1, d2)[s0, s1] -> (d0 * ((s0 * s1) * 2) + d1 * s0 + d2)>, affine_map<(d0, d1, d2)[s0, s1] -> (d0 * (s0 * (s1 * 2)) + d1 * s0 + d2)>, affine_map<(d0, d1, d2)[s0, s1] -> (d0 * (s0 * (s1 * 2)) + d1 * s0 + d2)>], shapes = [affine_map<()[s0, s1] -> (2, s1 * 2, s0)>, affine_map<()[s0, s1] -> (2, s1 * 2, s0)>]} : (tensor<2x?x?xi64>, tensor<2x?x?xf32>, index, index) -> tensor<2x?x?xf32>
  return %r : tensor<2x?x?xf32>
}

// -----

// The rows of a convolution's windows: in a block of lanes all are of one element of the window, so they are neighbours.

// CHECK-LABEL: func.func @generic
// CHECK-NOT: vector.gather
// CHECK: vector.load %arg0
// CHECK-NOT: vector.gather
// CHECK: return
func.func @windows(%x: tensor<6x6x64xf32>) -> tensor<16x576xf32> {
  %v = "kiln.view"(%x) {map = affine_map<(d0, d1) -> (d0 floordiv 4 + d1 floordiv 192, d0 mod 4 + (d1 floordiv 64) mod 3, d1 mod 64)>, shape = affine_map<() -> (16, 576)>} : (tensor<6x6x64xf32>) -> tensor<16x576xf32>
  %e = "kiln.empty"() {shape = affine_map<() -> (16, 576)>} : () -> tensor<16x576xf32>
  %r = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0, d1)>], iterator_types = ["parallel", "parallel"]} ins(%v : tensor<16x576xf32>) outs(%e : tensor<16x576xf32>) {
  ^bb0(%a: f32, %o: f32):
    %0 = arith.negf %a : f32
    linalg.yield %0 : f32
  } -> tensor<16x576xf32>
  return %r : tensor<16x576xf32>
}

// -----

// The loop over a concatenated dim is one loop for each piece, which loads its own operand without masks.

// CHECK-LABEL: func.func @cat
// CHECK-NOT: maskedload
// CHECK: %[[X:.*]] = vector.load %arg0
// CHECK-NOT: arith.select
// CHECK: vector.store %[[X]], %arg2
// CHECK-NOT: arith.select
// CHECK: %[[Y:.*]] = vector.load %arg1
// CHECK: vector.store %[[Y]], %arg2
// CHECK-NOT: arith.select
// CHECK: return
func.func @cat_of_rows(%x: tensor<100x64xf32>, %y: tensor<122x64xf32>) -> tensor<222x64xf32> {
  %c = "kiln.cat"(%x, %y) {dim = 0 : i64, shape = affine_map<() -> (222, 64)>} : (tensor<100x64xf32>, tensor<122x64xf32>) -> tensor<222x64xf32>
  return %c : tensor<222x64xf32>
}

// -----

// The same for the reduced dim of a sum of columns.

// CHECK-LABEL: func.func @cat_generic
// CHECK-NOT: maskedload
// CHECK: vector.load %arg0
// CHECK-NOT: arith.select
// CHECK: vector.load %arg1
// CHECK-NOT: arith.select
// CHECK: return
func.func @sum_of_cat(%x: tensor<2x64xf32>, %y: tensor<3x64xf32>) -> tensor<64xf32> {
  %zero = arith.constant dense<0.0> : tensor<64xf32>
  %c = "kiln.cat"(%x, %y) {dim = 0 : i64, shape = affine_map<() -> (5, 64)>} : (tensor<2x64xf32>, tensor<3x64xf32>) -> tensor<5x64xf32>
  %0 = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d1)>], iterator_types = ["reduction", "parallel"]} ins(%c : tensor<5x64xf32>) outs(%zero : tensor<64xf32>) {
  ^bb0(%a: f32, %b: f32):
    %1 = arith.addf %a, %b : f32
    linalg.yield %1 : f32
  } -> tensor<64xf32>
  return %0 : tensor<64xf32>
}

// -----

// A result of one element is stored by one thread alone: of one that takes its operand's memory a second thread would
// read what the first has written.

// CHECK-LABEL: func.func @generic(%arg0: memref<?xf32>, %arg1: memref<?xf32>, %arg2: memref<?xi8>, %arg3: index, %arg4: index)
// CHECK: %[[LOW:.*]] = arith.divui %arg3, %arg4
// CHECK: %[[NEXT:.*]] = arith.addi %arg3, %c1
// CHECK: %[[HIGH:.*]] = arith.divui %[[NEXT]], %arg4
// CHECK: scf.for %{{.*}} = %[[LOW]] to %[[HIGH]] step %c1
// CHECK: memref.store %{{.*}}, %arg1[%c0]
func.func @one_element(%x: tensor<1xf32>) -> tensor<1xf32> {
  %e = "kiln.empty"() {shape = affine_map<() -> (1)>} : () -> tensor<1xf32>
  %r = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>], iterator_types = ["parallel"]} ins(%x : tensor<1xf32>) outs(%e : tensor<1xf32>) {
  ^bb0(%a: f32, %o: f32):
    %0 = arith.addf %a, %a : f32
    linalg.yield %0 : f32
  } -> tensor<1xf32>
  return %r : tensor<1xf32>
}
