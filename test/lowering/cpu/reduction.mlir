// Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// RUN: kiln-opt %s --cpu=x86-64-v4 --split-input-file --mlir-print-local-scope --pass-pipeline="expand-named-ops{keep=matmul,attention,scan},canonicalize,cse,fuse,assign-layouts,emit-cpu-kernels" | filecheck %s

// Softmax is one kernel: the maximum, then the sum, whose loop keeps the exponentials in scratch memory, then the quotients, which read them back.

// CHECK-LABEL: func.func @generic(%arg0: memref<?xf32>, %arg1: memref<?xf32>, %arg2: memref<?xi8>
// CHECK-SAME: kiln.scratch_bytes = affine_map<() -> (448)>
// CHECK: %[[KEPT:.*]] = memref.view %arg2[%c0][%c100] : memref<?xi8> to memref<?xf32>
// CHECK: scf.for %[[ROW:.*]] =
// CHECK: arith.maximumf
// CHECK: %[[MAX:.*]] = vector.reduction <maximumf>
// CHECK: vector.broadcast %[[MAX]]
// CHECK: %[[EXP:.*]] = math.exp
// CHECK: vector.store %[[EXP]], %[[KEPT]]
// CHECK: vector.maskedstore %[[KEPT]]
// CHECK: %[[SUM:.*]] = vector.reduction <add>
// CHECK-NOT: math.exp
// CHECK: vector.load %[[KEPT]]
// CHECK: vector.broadcast %[[SUM]]
// CHECK: arith.divf
// CHECK: vector.store %{{.*}}, %arg1
// CHECK-NOT: math.exp
// CHECK: return
func.func @softmax(%x: tensor<128x100xf32>) -> tensor<128x100xf32> {
  %y = "kiln.softmax"(%x) {dim = 1 : i64, log = false} : (tensor<128x100xf32>) -> tensor<128x100xf32>
  return %y : tensor<128x100xf32>
}

// -----

// A sum over a part of a row: the part, which later loops read at the same elements, is kept. The row is not: only a part of
// it has been computed, so that its first element, which stands behind the sum, is computed there.

// CHECK-LABEL: func.func @generic
// CHECK-SAME: kiln.scratch_bytes = affine_map<() -> (192)>
// CHECK: %[[PART:.*]] = memref.view %arg2[%c0][%c48]
// CHECK-NOT: memref.view
// CHECK: math.exp
// CHECK: vector.store %{{.*}}, %[[PART]][%c0]
// CHECK: math.exp
// CHECK: vector.maskedstore %[[PART]][%c32]
// CHECK: vector.reduction <add>
// CHECK: vector.load %[[PART]][%c0]
// CHECK: %[[FIRST:.*]] = memref.load %arg0
// CHECK: math.exp %[[FIRST]] : f32
// CHECK: return
func.func @part(%x: tensor<16x49xf32>) -> tensor<16x48xf32> {
  %zero = arith.constant 0.0 : f32
  %e = "kiln.empty"() {shape = affine_map<() -> (16, 49)>} : () -> tensor<16x49xf32>
  %y = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0, d1)>], iterator_types = ["parallel", "parallel"]} ins(%x : tensor<16x49xf32>) outs(%e : tensor<16x49xf32>) {
  ^bb0(%a: f32, %o: f32):
    %0 = math.exp %a : f32
    linalg.yield %0 : f32
  } -> tensor<16x49xf32>
  %behind = "kiln.view"(%y) {map = affine_map<(d0, d1) -> (d0, d1 + 1)>, shape = affine_map<() -> (16, 48)>} : (tensor<16x49xf32>) -> tensor<16x48xf32>
  %first = "kiln.view"(%y) {map = affine_map<(d0, d1) -> (d0, 0)>, shape = affine_map<() -> (16, 48)>} : (tensor<16x49xf32>) -> tensor<16x48xf32>
  %n = "kiln.empty"() {shape = affine_map<() -> (16)>} : () -> tensor<16xf32>
  %i = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>], iterator_types = ["parallel"]} outs(%n : tensor<16xf32>) {
  ^bb0(%o: f32):
    linalg.yield %zero : f32
  } -> tensor<16xf32>
  %s = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0)>], iterator_types = ["parallel", "reduction"]} ins(%behind : tensor<16x48xf32>) outs(%i : tensor<16xf32>) {
  ^bb0(%a: f32, %o: f32):
    %0 = arith.addf %o, %a : f32
    linalg.yield %0 : f32
  } -> tensor<16xf32>
  %m = "kiln.empty"() {shape = affine_map<() -> (16, 48)>} : () -> tensor<16x48xf32>
  %r = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0)>, affine_map<(d0, d1) -> (d0, d1)>], iterator_types = ["parallel", "parallel"]} ins(%behind, %first, %s : tensor<16x48xf32>, tensor<16x48xf32>, tensor<16xf32>) outs(%m : tensor<16x48xf32>) {
  ^bb0(%a: f32, %b: f32, %c: f32, %o: f32):
    %0 = arith.divf %a, %c : f32
    %1 = arith.addf %0, %b : f32
    linalg.yield %1 : f32
  } -> tensor<16x48xf32>
  return %r : tensor<16x48xf32>
}

// -----

// A column reduction: the lanes are columns, each sums for itself down the rows, in chunks that start at zero and are
// added to the total; nothing is reduced across lanes.

// CHECK-LABEL: func.func @generic
// CHECK: scf.for %[[COLUMN:.*]] =
// CHECK: %[[SUM:.*]] = scf.for %[[CHUNK:.*]] = %c0 to %c300 step %c64 iter_args(%[[TOTAL:.*]] = %{{.*}}) -> (vector<{{[0-9]+}}xf32>)
// CHECK: %[[PART:.*]] = scf.for %{{.*}} = %[[CHUNK]] to %{{.*}} step %c1 iter_args(%[[ACC:.*]] = %{{.*}}) -> (vector<{{[0-9]+}}xf32>)
// CHECK: %[[X:.*]] = vector.load %arg0
// CHECK-NEXT: arith.addf %[[ACC]], %[[X]]
// CHECK: arith.addf %[[TOTAL]], %[[PART]]
// CHECK-NOT: vector.reduction
// CHECK: vector.store %[[SUM]], %arg1[%[[COLUMN]]]
func.func @columns(%x: tensor<300x256xf32>) -> tensor<256xf32> {
  %zero = arith.constant 0.0 : f32
  %e = "kiln.empty"() {shape = affine_map<() -> (256)>} : () -> tensor<256xf32>
  %i = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>], iterator_types = ["parallel"]} outs(%e : tensor<256xf32>) {
  ^bb0(%o: f32):
    linalg.yield %zero : f32
  } -> tensor<256xf32>
  %r = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d1)>], iterator_types = ["reduction", "parallel"]} ins(%x : tensor<300x256xf32>) outs(%i : tensor<256xf32>) {
  ^bb0(%a: f32, %o: f32):
    %0 = arith.addf %o, %a : f32
    linalg.yield %0 : f32
  } -> tensor<256xf32>
  return %r : tensor<256xf32>
}

// -----

// A long row is summed in cascades: sums of 64 vectors start at zero and are added to sums that last. Vectors that follow
// each other have sums of their own, and are loaded in the order of their addresses; LLVM is told to leave it at that.

// CHECK-LABEL: func.func @generic
// CHECK: %[[ZERO:.*]] = arith.constant 0.000000e+00 : f32
// CHECK: scf.for %{{.*}} = %c0 to %{{.*}} step %c8192 iter_args(%[[TOTAL:[^ ]*]] =
// CHECK: %[[START:.*]] = vector.broadcast %[[ZERO]]
// CHECK-NEXT: %[[PART:.*]]:8 = scf.for {{.*}} iter_args(%[[FIRST:[^ ]*]] = %[[START]], %[[SECOND:[^ ]*]] = %[[START]]
// CHECK: %[[X0:.*]] = vector.load %arg0
// CHECK-NEXT: arith.addf %[[FIRST]], %[[X0]]
// CHECK: %[[X1:.*]] = vector.load %arg0
// CHECK-NEXT: arith.addf %[[SECOND]], %[[X1]]
// CHECK: loop_annotation = #llvm.loop_annotation<unroll = <disable = true>>
// CHECK-NEXT: arith.addf %[[TOTAL]], %[[PART]]#0
func.func @cascade(%x: tensor<64x100000xf32>) -> tensor<64xf32> {
  %zero = arith.constant 0.0 : f32
  %e = "kiln.empty"() {shape = affine_map<() -> (64)>} : () -> tensor<64xf32>
  %i = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>], iterator_types = ["parallel"]} outs(%e : tensor<64xf32>) {
  ^bb0(%o: f32):
    linalg.yield %zero : f32
  } -> tensor<64xf32>
  %r = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0)>], iterator_types = ["parallel", "reduction"]} ins(%x : tensor<64x100000xf32>) outs(%i : tensor<64xf32>) {
  ^bb0(%a: f32, %o: f32):
    %0 = arith.addf %o, %a : f32
    linalg.yield %0 : f32
  } -> tensor<64xf32>
  return %r : tensor<64xf32>
}

// -----

// A window: loads of the padded tensor are masked, the loops of the window are inside of the loop over lanes.

// CHECK-LABEL: func.func @pad_generic
// CHECK: %[[LOW:.*]] = arith.constant 0xFF800000 : f32
// CHECK: scf.for %{{.*}} =
// CHECK: scf.for %{{.*}} = %c0 to %c3 step %c1 iter_args({{.*}}) -> (vector<{{[0-9]+}}xf32>)
// CHECK: scf.for %{{.*}} = %c0 to %c3 step %c1 iter_args({{.*}}) -> (vector<{{[0-9]+}}xf32>)
// CHECK: %[[X:.*]] = vector.maskedload %arg0[%{{.*}}], %[[INSIDE:.*]], %{{.*}} : memref
// CHECK-NEXT: %[[FILL:.*]] = vector.broadcast %[[LOW]]
// CHECK-NEXT: arith.select %[[INSIDE]], %[[X]], %[[FILL]]
// CHECK-NEXT: arith.maximumf
// CHECK-NOT: vector.reduction
// CHECK: vector.store
func.func @max_pool(%x: tensor<2x3x32x32xf32>) -> tensor<2x3x32x32xf32> {
  %y = "kiln.pool"(%x) {mode = "max", kernel = array<i64: 3, 3>, stride = array<i64: 1, 1>, padding = array<i64: 1, 1>, dilation = array<i64: 1, 1>, ceil = false, count_include_pad = true, divisor = 0 : i64} : (tensor<2x3x32x32xf32>) -> tensor<2x3x32x32xf32>
  return %y : tensor<2x3x32x32xf32>
}

// -----

// Rows of a size known at run time; an empty row leaves the value the sum starts with.

// CHECK-LABEL: func.func @generic
// CHECK: %[[ZERO:.*]] = arith.constant 0.000000e+00 : f32
// CHECK: scf.for
// CHECK: %[[START:.*]] = vector.broadcast %[[ZERO]]
// CHECK: %[[BOTH:.*]]:2 = scf.for {{.*}} iter_args(%{{.*}} = %[[START]], %{{.*}} = %[[START]])
// CHECK: scf.for {{.*}} iter_args(%{{.*}} = %[[BOTH]]#0) -> (vector<{{[0-9]+}}xf32>)
// CHECK: scf.if {{.*}} -> (vector<{{[0-9]+}}xf32>)
// CHECK: %[[MASK:.*]] = vector.create_mask
// CHECK: arith.select %[[MASK]]
// CHECK: %[[SUM:.*]] = vector.reduction <add>
// CHECK-NEXT: memref.store %[[SUM]], %arg1
func.func @dynamic(%x: tensor<?x?xf32> {kiln.shape = affine_map<()[s0, s1] -> (s0, s1)>}, %m: index {kiln.symbol = "s0"}, %n: index {kiln.symbol = "s1"}) -> tensor<?xf32> attributes {kiln.symbols = ["s0", "s1"]} {
  %zero = arith.constant 0.0 : f32
  %e = "kiln.empty"(%m) {shape = affine_map<()[s0] -> (s0)>} : (index) -> tensor<?xf32>
  %i = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>], iterator_types = ["parallel"]} outs(%e : tensor<?xf32>) {
  ^bb0(%o: f32):
    linalg.yield %zero : f32
  } -> tensor<?xf32>
  %r = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0)>], iterator_types = ["parallel", "reduction"]} ins(%x : tensor<?x?xf32>) outs(%i : tensor<?xf32>) {
  ^bb0(%a: f32, %o: f32):
    %0 = arith.mulf %a, %a : f32
    %1 = arith.addf %o, %0 : f32
    linalg.yield %1 : f32
  } -> tensor<?xf32>
  return %r : tensor<?xf32>
}

// -----

// argmax: a combiner of two values that is not recognised is run element by element, in order.

// CHECK-LABEL: func.func @generic(%arg0: memref<?xf32>, %arg1: memref<?xi64>
// CHECK: %[[BEST:.*]]:2 = scf.for {{.*}} = %c0 to %c10 step %c1 iter_args({{.*}}) -> (f32, i64)
// CHECK: arith.cmpf ogt
// CHECK: memref.store %[[BEST]]#1, %arg1
func.func @argmax(%x: tensor<16x10xf32>) -> tensor<16xi64> {
  %low = arith.constant 0xFF800000 : f32
  %none = arith.constant 0 : i64
  %e = "kiln.empty"() {shape = affine_map<() -> (16)>} : () -> tensor<16xf32>
  %f = "kiln.empty"() {shape = affine_map<() -> (16)>} : () -> tensor<16xi64>
  %i:2 = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>], iterator_types = ["parallel"]} outs(%e, %f : tensor<16xf32>, tensor<16xi64>) {
  ^bb0(%o: f32, %p: i64):
    linalg.yield %low, %none : f32, i64
  } -> (tensor<16xf32>, tensor<16xi64>)
  %r:2 = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0)>, affine_map<(d0, d1) -> (d0)>], iterator_types = ["parallel", "reduction"]} ins(%x : tensor<16x10xf32>) outs(%i#0, %i#1 : tensor<16xf32>, tensor<16xi64>) {
  ^bb0(%a: f32, %v: f32, %p: i64):
    %at = linalg.index 1 : index
    %n = arith.index_cast %at : index to i64
    %0 = arith.cmpf ogt, %a, %v : f32
    %1 = arith.select %0, %a, %v : f32
    %2 = arith.select %0, %n, %p : i64
    linalg.yield %1, %2 : f32, i64
  } -> (tensor<16xf32>, tensor<16xi64>)
  return %r#1 : tensor<16xi64>
}

// -----

// Sums for all pairs of two rows: each is a row of its own. Lanes that were rows of the second operand would gather its
// elements again for each row of the first.

// CHECK-LABEL: func.func @generic
// CHECK-NOT: vector.gather
// CHECK: vector.load %arg0
// CHECK: vector.load %arg1
// CHECK-NOT: vector.gather
// CHECK: vector.reduction <add>
// CHECK-NOT: vector.gather
// CHECK: return
func.func @pairs(%a: tensor<300x64xf32>, %b: tensor<200x64xf32>) -> tensor<300x200xf32> {
  %zero = arith.constant 0.0 : f32
  %e = "kiln.empty"() {shape = affine_map<() -> (300, 200)>} : () -> tensor<300x200xf32>
  %i = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>], iterator_types = ["parallel", "parallel"]} outs(%e : tensor<300x200xf32>) {
  ^bb0(%o: f32):
    linalg.yield %zero : f32
  } -> tensor<300x200xf32>
  %r = linalg.generic {indexing_maps = [affine_map<(d0, d1, d2) -> (d0, d2)>, affine_map<(d0, d1, d2) -> (d1, d2)>, affine_map<(d0, d1, d2) -> (d0, d1)>], iterator_types = ["parallel", "parallel", "reduction"]} ins(%a, %b : tensor<300x64xf32>, tensor<200x64xf32>) outs(%i : tensor<300x200xf32>) {
  ^bb0(%x: f32, %y: f32, %o: f32):
    %0 = arith.subf %x, %y : f32
    %1 = arith.mulf %0, %0 : f32
    %2 = arith.addf %o, %1 : f32
    linalg.yield %2 : f32
  } -> tensor<300x200xf32>
  return %r : tensor<300x200xf32>
}

// -----

// Rows of four channels, one after another in a loop of their own: eight of them are summed at once, each by itself, in
// chunks that start at zero; the last 2003 % 8 rows follow one by one.

// CHECK-LABEL: func.func @generic
// CHECK: scf.for %{{.*}} = %c0 to %c2000 step %c512 iter_args({{.*}}) -> (vector<4xf32>, vector<4xf32>, {{.*}}vector<4xf32>)
// CHECK: scf.for %{{.*}} to %{{.*}} step %c8
// CHECK-COUNT-8: vector.load %arg0
// CHECK: scf.for %{{.*}} = %c2000 to %c2003 step %c1 iter_args(%{{.*}} = %{{.*}}) -> (vector<4xf32>)
// CHECK: vector.reduction <add>
func.func @short_rows(%x: tensor<2003x64x4xf32>) -> tensor<64xf32> {
  %zero = arith.constant 0.0 : f32
  %e = "kiln.empty"() {shape = affine_map<() -> (64)>} : () -> tensor<64xf32>
  %i = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>], iterator_types = ["parallel"]} outs(%e : tensor<64xf32>) {
  ^bb0(%o: f32):
    linalg.yield %zero : f32
  } -> tensor<64xf32>
  %r = linalg.generic {indexing_maps = [affine_map<(d0, d1, d2) -> (d1, d0, d2)>, affine_map<(d0, d1, d2) -> (d0)>], iterator_types = ["parallel", "reduction", "reduction"]} ins(%x : tensor<2003x64x4xf32>) outs(%i : tensor<64xf32>) {
  ^bb0(%a: f32, %o: f32):
    %0 = arith.addf %o, %a : f32
    linalg.yield %0 : f32
  } -> tensor<64xf32>
  return %r : tensor<64xf32>
}
