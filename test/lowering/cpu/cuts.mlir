// Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// RUN: kiln-opt %s --cpu=x86-64-v4 --split-input-file --mlir-print-local-scope --pass-pipeline="fuse,assign-layouts,emit-cpu-kernels" | filecheck %s

// Borders that follow from sizes known at run time: a loop for each piece, which loads its own operand without a mask. The
// loop is in a branch, as the piece may be empty.

// CHECK-LABEL: func.func @cat(
// CHECK-SAME: %[[M:arg3]]: index, %[[N:arg4]]: index
// CHECK: %[[SOME:.*]] = arith.cmpi slt, %c0, %[[M]]
// CHECK-NEXT: scf.if %[[SOME]]
// CHECK-NOT: maskedload
// CHECK: scf.for
// CHECK: %[[X:.*]] = vector.load %arg0
// CHECK-NOT: arith.select
// CHECK: vector.store %[[X]], %arg2
// CHECK: %[[MORE:.*]] = arith.cmpi slt, %c0, %[[N]]
// CHECK-NEXT: scf.if %[[MORE]]
// CHECK-NOT: maskedload
// CHECK: scf.for
// CHECK: %[[Y:.*]] = vector.load %arg1
// CHECK-NOT: arith.select
// CHECK: vector.store %[[Y]], %arg2
// CHECK-NOT: scf.for
// CHECK: return
func.func @cat_of_rows(%x: tensor<?x64xf32> {kiln.shape = affine_map<()[s0, s1] -> (s0, 64)>}, %y: tensor<?x64xf32> {kiln.shape = affine_map<()[s0, s1] -> (s1, 64)>}, %m: index {kiln.symbol = "s0"}, %n: index {kiln.symbol = "s1"}) -> tensor<?x64xf32> attributes {kiln.symbols = ["s0", "s1"]} {
  %c = "kiln.cat"(%x, %y, %m, %n) {dim = 0 : i64, shape = affine_map<()[s0, s1] -> (s0 + s1, 64)>} : (tensor<?x64xf32>, tensor<?x64xf32>, index, index) -> tensor<?x64xf32>
  return %c : tensor<?x64xf32>
}

// -----

// Along the lanes each piece has blocks of its own, of which only the last one is masked.

// CHECK-LABEL: func.func @cat(
// CHECK: scf.if
// CHECK: scf.for %[[I:.*]] = %c0 to
// CHECK: %[[X:.*]] = vector.load %arg0
// CHECK: vector.store %[[X]], %arg2
// CHECK: scf.if
// CHECK: %[[MASK:.*]] = vector.create_mask
// CHECK: %[[REST:.*]] = vector.maskedload %arg0[{{.*}}], %[[MASK]]
// CHECK: vector.maskedstore %arg2[{{.*}}], %[[MASK]], %[[REST]]
// CHECK: scf.if
// CHECK: scf.for %[[J:.*]] = %arg3 to
// CHECK: %[[Y:.*]] = vector.load %arg1
// CHECK: vector.store %[[Y]], %arg2
// CHECK-NOT: arith.select
// CHECK: return
func.func @cat_of_columns(%x: tensor<100x?xf32> {kiln.shape = affine_map<()[s0, s1] -> (100, s0)>}, %y: tensor<100x?xf32> {kiln.shape = affine_map<()[s0, s1] -> (100, s1)>}, %m: index {kiln.symbol = "s0"}, %n: index {kiln.symbol = "s1"}) -> tensor<100x?xf32> attributes {kiln.symbols = ["s0", "s1"]} {
  %c = "kiln.cat"(%x, %y, %m, %n) {dim = 1 : i64, shape = affine_map<()[s0, s1] -> (100, s0 + s1)>} : (tensor<100x?xf32>, tensor<100x?xf32>, index, index) -> tensor<100x?xf32>
  return %c : tensor<100x?xf32>
}

// -----

// Borders of two concatenations whose order the sizes decide: at run time each is moved up to the one before it.

// CHECK-LABEL: func.func @cat_generic
// CHECK: %[[SUM:.*]] = arith.addi
// CHECK: %[[FIRST:.*]] = arith.minsi %{{.*}}, %[[SUM]]
// CHECK: arith.cmpi slt, %c0, %[[FIRST]]
// CHECK: %[[UP:.*]] = arith.maxsi %{{.*}}, %[[FIRST]]
// CHECK: %[[SECOND:.*]] = arith.minsi %[[UP]], %[[SUM]]
// CHECK: %[[LENGTH:.*]] = arith.subi %[[SECOND]], %[[FIRST]]
// CHECK: arith.cmpi slt, %c0, %[[LENGTH]]
func.func @in_either_order(%x: tensor<?x64xf32> {kiln.shape = affine_map<()[s0, s1] -> (s0, 64)>}, %y: tensor<?x64xf32> {kiln.shape = affine_map<()[s0, s1] -> (s1, 64)>}, %m: index {kiln.symbol = "s0"}, %n: index {kiln.symbol = "s1"}) -> tensor<?x64xf32> attributes {kiln.symbols = ["s0", "s1"]} {
  %c = "kiln.cat"(%x, %y, %m, %n) {dim = 0 : i64, shape = affine_map<()[s0, s1] -> (s0 + s1, 64)>} : (tensor<?x64xf32>, tensor<?x64xf32>, index, index) -> tensor<?x64xf32>
  %d = "kiln.cat"(%y, %x, %m, %n) {dim = 0 : i64, shape = affine_map<()[s0, s1] -> (s0 + s1, 64)>} : (tensor<?x64xf32>, tensor<?x64xf32>, index, index) -> tensor<?x64xf32>
  %e = "kiln.empty"(%m, %n) {shape = affine_map<()[s0, s1] -> (s0 + s1, 64)>} : (index, index) -> tensor<?x64xf32>
  %r = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0, d1)>], iterator_types = ["parallel", "parallel"]} ins(%c, %d : tensor<?x64xf32>, tensor<?x64xf32>) outs(%e : tensor<?x64xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %0 = arith.subf %a, %b : f32
    linalg.yield %0 : f32
  } -> tensor<?x64xf32>
  return %r : tensor<?x64xf32>
}

// -----

// The last column of an operand, which is not there if the operand is empty: it is read inside of the branch.

// CHECK-LABEL: func.func @cat(
// CHECK: scf.for
// CHECK-NOT: memref.load
// CHECK: scf.if
// CHECK: memref.load %arg0
// CHECK: scf.for
func.func @repeated_column(%x: tensor<100x?xf32> {kiln.shape = affine_map<()[s0, s1] -> (100, s0)>}, %y: tensor<100x?xf32> {kiln.shape = affine_map<()[s0, s1] -> (100, s1)>}, %m: index {kiln.symbol = "s0"}, %n: index {kiln.symbol = "s1"}) -> tensor<100x?xf32> attributes {kiln.symbols = ["s0", "s1"]} {
  %v = "kiln.view"(%x, %m, %n) {map = affine_map<(d0, d1)[s0, s1] -> (d0, s0 - 1)>, shape = affine_map<()[s0, s1] -> (100, s0)>} : (tensor<100x?xf32>, index, index) -> tensor<100x?xf32>
  %c = "kiln.cat"(%v, %y, %m, %n) {dim = 1 : i64, shape = affine_map<()[s0, s1] -> (100, s0 + s1)>} : (tensor<100x?xf32>, tensor<100x?xf32>, index, index) -> tensor<100x?xf32>
  return %c : tensor<100x?xf32>
}
