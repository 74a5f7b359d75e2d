// Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// RUN: kiln-opt %s --split-input-file --mlir-print-local-scope --pass-pipeline="lower-triton-ir,canonicalize,cse" | filecheck %s

// A block of Triton IR as loops over its elements. What is loaded is kept in scratch memory, since a store may change it;
// pointwise ops are computed in the loop that stores their result.

// A lane that is masked off touches no memory, and its value is NaN.

// CHECK-LABEL: func.func @masked
// CHECK: %[[NAN:.*]] = arith.constant 0x7FC00000 : f32
// CHECK: scf.for
// CHECK: scf.for
// CHECK: %[[IN:.*]] = arith.cmpi slt
// CHECK: scf.if %[[IN]] -> (f32)
// CHECK: llvm.load
// CHECK: } else {
// CHECK-NEXT: scf.yield %[[NAN]] : f32
// CHECK: memref.store %{{.*}} : memref<64xf32>
// CHECK: scf.for
// CHECK: scf.if
// CHECK: %[[V:.*]] = memref.load
// CHECK-NEXT: %[[E:.*]] = arith.mulf %[[V]], %[[V]] : f32
// CHECK-NEXT: llvm.store %[[E]]
"tt.func"() ({
^bb0(%x: !tt.ptr<f32>, %y: !tt.ptr<f32>, %n: i32):
  %r = "tt.make_range"() {start = 0 : i32, end = 64 : i32} : () -> tensor<64xi32>
  %b = "tt.splat"(%n) : (i32) -> tensor<64xi32>
  %m = arith.cmpi slt, %r, %b : tensor<64xi32>
  %ps = "tt.splat"(%x) : (!tt.ptr<f32>) -> tensor<64x!tt.ptr<f32>>
  %p = "tt.addptr"(%ps, %r) : (tensor<64x!tt.ptr<f32>>, tensor<64xi32>) -> tensor<64x!tt.ptr<f32>>
  %v = "tt.load"(%p, %m) {operandSegmentSizes = array<i32: 1, 1, 0>} : (tensor<64x!tt.ptr<f32>>, tensor<64xi1>) -> tensor<64xf32>
  %e = arith.mulf %v, %v : tensor<64xf32>
  %qs = "tt.splat"(%y) : (!tt.ptr<f32>) -> tensor<64x!tt.ptr<f32>>
  %q = "tt.addptr"(%qs, %r) : (tensor<64x!tt.ptr<f32>>, tensor<64xi32>) -> tensor<64x!tt.ptr<f32>>
  "tt.store"(%q, %e, %m) : (tensor<64x!tt.ptr<f32>>, tensor<64xf32>, tensor<64xi1>) -> ()
  "tt.return"() : () -> ()
}) {sym_name = "masked", sym_visibility = "public", function_type = (!tt.ptr<f32>, !tt.ptr<f32>, i32) -> (), kiln.grid = affine_map<() -> (1)>} : () -> ()

// -----

// Booleans are bytes in memory.

// CHECK-LABEL: func.func @booleans
// CHECK-SAME: memref<?xi8>
// CHECK: %[[B:.*]] = arith.cmpf ogt
// CHECK-NEXT: %[[BYTE:.*]] = arith.extui %[[B]] : i1 to i8
// CHECK-NEXT: llvm.store %[[BYTE]]
"tt.func"() ({
^bb0(%x: !tt.ptr<f32>, %y: !tt.ptr<i1>):
  %r = "tt.make_range"() {start = 0 : i32, end = 64 : i32} : () -> tensor<64xi32>
  %ps = "tt.splat"(%x) : (!tt.ptr<f32>) -> tensor<64x!tt.ptr<f32>>
  %p = "tt.addptr"(%ps, %r) : (tensor<64x!tt.ptr<f32>>, tensor<64xi32>) -> tensor<64x!tt.ptr<f32>>
  %v = "tt.load"(%p) {operandSegmentSizes = array<i32: 1, 0, 0>} : (tensor<64x!tt.ptr<f32>>) -> tensor<64xf32>
  %zero = arith.constant dense<0.0> : tensor<64xf32>
  %e = arith.cmpf ogt, %v, %zero : tensor<64xf32>
  %qs = "tt.splat"(%y) : (!tt.ptr<i1>) -> tensor<64x!tt.ptr<i1>>
  %q = "tt.addptr"(%qs, %r) : (tensor<64x!tt.ptr<i1>>, tensor<64xi32>) -> tensor<64x!tt.ptr<i1>>
  "tt.store"(%q, %e) : (tensor<64x!tt.ptr<i1>>, tensor<64xi1>) -> ()
  "tt.return"() : () -> ()
}) {sym_name = "booleans", sym_visibility = "public", function_type = (!tt.ptr<f32>, !tt.ptr<i1>) -> (), kiln.grid = affine_map<() -> (1)>} : () -> ()

// -----

// bf16 is computed in f32 and rounded after each op.

// CHECK-LABEL: func.func @half
// CHECK: %[[V:.*]] = memref.load %{{.*}} : memref<64xbf16>
// CHECK-NEXT: %[[F:.*]] = arith.extf %[[V]] : bf16 to f32
// CHECK-NEXT: %[[E:.*]] = arith.mulf %[[F]], %[[F]] : f32
// CHECK-NEXT: %[[R:.*]] = arith.truncf %[[E]] : f32 to bf16
// CHECK-NEXT: llvm.store %[[R]]
"tt.func"() ({
^bb0(%x: !tt.ptr<bf16>, %y: !tt.ptr<bf16>):
  %r = "tt.make_range"() {start = 0 : i32, end = 64 : i32} : () -> tensor<64xi32>
  %ps = "tt.splat"(%x) : (!tt.ptr<bf16>) -> tensor<64x!tt.ptr<bf16>>
  %p = "tt.addptr"(%ps, %r) : (tensor<64x!tt.ptr<bf16>>, tensor<64xi32>) -> tensor<64x!tt.ptr<bf16>>
  %v = "tt.load"(%p) {operandSegmentSizes = array<i32: 1, 0, 0>} : (tensor<64x!tt.ptr<bf16>>) -> tensor<64xbf16>
  %e = arith.mulf %v, %v : tensor<64xbf16>
  %qs = "tt.splat"(%y) : (!tt.ptr<bf16>) -> tensor<64x!tt.ptr<bf16>>
  %q = "tt.addptr"(%qs, %r) : (tensor<64x!tt.ptr<bf16>>, tensor<64xi32>) -> tensor<64x!tt.ptr<bf16>>
  "tt.store"(%q, %e) : (tensor<64x!tt.ptr<bf16>>, tensor<64xbf16>) -> ()
  "tt.return"() : () -> ()
}) {sym_name = "half", sym_visibility = "public", function_type = (!tt.ptr<bf16>, !tt.ptr<bf16>) -> (), kiln.grid = affine_map<() -> (1)>} : () -> ()

// -----

// A reduction is a tree: halves are combined until one element is left, so sums are rounded as seldom as on a GPU.

// CHECK-LABEL: func.func @sums
// CHECK: llvm.load
// CHECK: memref.store %{{.*}} : memref<512xf32>
// CHECK: scf.for %{{.*}} = %c0 to %c16
// CHECK-NEXT: scf.for %{{.*}} = %c0 to %c16
// CHECK: arith.addf
// CHECK: scf.for %{{.*}} = %c0 to %c16
// CHECK-NEXT: scf.for %{{.*}} = %c0 to %c8
// CHECK: arith.addf
// CHECK: scf.for %{{.*}} = %c0 to %c4
// CHECK: arith.addf
// CHECK: scf.for %{{.*}} = %c0 to %c2
// CHECK: arith.addf
// CHECK: arith.addf
// CHECK-NOT: arith.addf
// CHECK: llvm.store
"tt.func"() ({
^bb0(%x: !tt.ptr<f32>, %y: !tt.ptr<f32>):
  %r = "tt.make_range"() {start = 0 : i32, end = 512 : i32} : () -> tensor<512xi32>
  %ps = "tt.splat"(%x) : (!tt.ptr<f32>) -> tensor<512x!tt.ptr<f32>>
  %p = "tt.addptr"(%ps, %r) : (tensor<512x!tt.ptr<f32>>, tensor<512xi32>) -> tensor<512x!tt.ptr<f32>>
  %v = "tt.load"(%p) {operandSegmentSizes = array<i32: 1, 0, 0>} : (tensor<512x!tt.ptr<f32>>) -> tensor<512xf32>
  %t = "tt.reshape"(%v) : (tensor<512xf32>) -> tensor<16x32xf32>
  %s = "tt.reduce"(%t) ({
  ^bb0(%a: f32, %b: f32):
    %c = arith.addf %a, %b : f32
    "tt.reduce.return"(%c) : (f32) -> ()
  }) {axis = 1 : i32} : (tensor<16x32xf32>) -> tensor<16xf32>
  %k = "tt.make_range"() {start = 0 : i32, end = 16 : i32} : () -> tensor<16xi32>
  %qs = "tt.splat"(%y) : (!tt.ptr<f32>) -> tensor<16x!tt.ptr<f32>>
  %q = "tt.addptr"(%qs, %k) : (tensor<16x!tt.ptr<f32>>, tensor<16xi32>) -> tensor<16x!tt.ptr<f32>>
  "tt.store"(%q, %s) : (tensor<16x!tt.ptr<f32>>, tensor<16xf32>) -> ()
  "tt.return"() : () -> ()
}) {sym_name = "sums", sym_visibility = "public", function_type = (!tt.ptr<f32>, !tt.ptr<f32>) -> (), kiln.grid = affine_map<() -> (1)>} : () -> ()

// -----

// A scan in steps that double, in place. Each goes from the last element down: what is read has not taken the step yet.

// CHECK-LABEL: func.func @running
// CHECK: scf.for %[[I:.*]] = %c0 to %c63 step %c1 {
// CHECK-NEXT: %[[AT:.*]] = arith.subi %c63, %[[I]]
// CHECK-NEXT: %[[BEFORE:.*]] = arith.subi %c62, %[[I]]
// CHECK-NEXT: %[[SUM:.*]] = memref.load %[[S:.*]][%[[BEFORE]]]
// CHECK-NEXT: %[[X:.*]] = memref.load %[[S]][%[[AT]]]
// CHECK-NEXT: %[[NEXT:.*]] = arith.addf %[[SUM]], %[[X]]
// CHECK-NEXT: memref.store %[[NEXT]], %[[S]][%[[AT]]]
// CHECK: scf.for %{{.*}} = %c0 to %c62 step %c1 {
// CHECK: scf.for %{{.*}} = %c0 to %c60 step %c1 {
// CHECK: scf.for %{{.*}} = %c0 to %c56 step %c1 {
// CHECK: scf.for %{{.*}} = %c0 to %c48 step %c1 {
// CHECK: scf.for %{{.*}} = %c0 to %c32 step %c1 {
// CHECK: scf.for
// CHECK: llvm.store
"tt.func"() ({
^bb0(%x: !tt.ptr<f32>, %y: !tt.ptr<f32>):
  %r = "tt.make_range"() {start = 0 : i32, end = 64 : i32} : () -> tensor<64xi32>
  %ps = "tt.splat"(%x) : (!tt.ptr<f32>) -> tensor<64x!tt.ptr<f32>>
  %p = "tt.addptr"(%ps, %r) : (tensor<64x!tt.ptr<f32>>, tensor<64xi32>) -> tensor<64x!tt.ptr<f32>>
  %v = "tt.load"(%p) {operandSegmentSizes = array<i32: 1, 0, 0>} : (tensor<64x!tt.ptr<f32>>) -> tensor<64xf32>
  %s = "tt.scan"(%v) ({
  ^bb0(%a: f32, %b: f32):
    %c = arith.addf %a, %b : f32
    "tt.scan.return"(%c) : (f32) -> ()
  }) {axis = 0 : i32, reverse = false} : (tensor<64xf32>) -> tensor<64xf32>
  %qs = "tt.splat"(%y) : (!tt.ptr<f32>) -> tensor<64x!tt.ptr<f32>>
  %q = "tt.addptr"(%qs, %r) : (tensor<64x!tt.ptr<f32>>, tensor<64xi32>) -> tensor<64x!tt.ptr<f32>>
  "tt.store"(%q, %s) : (tensor<64x!tt.ptr<f32>>, tensor<64xf32>) -> ()
  "tt.return"() : () -> ()
}) {sym_name = "running", sym_visibility = "public", function_type = (!tt.ptr<f32>, !tt.ptr<f32>) -> (), kiln.grid = affine_map<() -> (1)>} : () -> ()

// -----

// A kernel with atomics runs on one thread, so a load, a sum and a store will do.

// CHECK-LABEL: func.func @atomic
// CHECK-NOT: arith.divui
// CHECK: scf.for
// CHECK: %[[OLD:.*]] = llvm.load %[[P:.*]] :
// CHECK-NEXT: %[[NEW:.*]] = arith.addf %[[OLD]],
// CHECK-NEXT: llvm.store %[[NEW]], %[[P]]
// CHECK-NEXT: memref.store %[[OLD]]
"tt.func"() ({
^bb0(%x: !tt.ptr<f32>):
  %r = "tt.make_range"() {start = 0 : i32, end = 64 : i32} : () -> tensor<64xi32>
  %one = arith.constant dense<1.0> : tensor<64xf32>
  %ps = "tt.splat"(%x) : (!tt.ptr<f32>) -> tensor<64x!tt.ptr<f32>>
  %p = "tt.addptr"(%ps, %r) : (tensor<64x!tt.ptr<f32>>, tensor<64xi32>) -> tensor<64x!tt.ptr<f32>>
  %old = "tt.atomic_rmw"(%p, %one) {atomic_rmw_op = 5 : i32, sem = 1 : i32, scope = 1 : i32} : (tensor<64x!tt.ptr<f32>>, tensor<64xf32>) -> tensor<64xf32>
  "tt.return"() : () -> ()
}) {sym_name = "atomic", sym_visibility = "public", function_type = (!tt.ptr<f32>) -> (), kiln.grid = affine_map<() -> (1)>} : () -> ()

// -----

// A pointer that a loop moves is an address that the loop carries.

// CHECK-LABEL: func.func @moving
// CHECK: scf.for %{{.*}} iter_args(%[[P:.*]] = %{{.*}}) -> (!llvm.ptr)
// CHECK: llvm.getelementptr %[[P]][%{{.*}}]
// CHECK-NEXT: llvm.store
// CHECK: %[[Q:.*]] = llvm.getelementptr %[[P]][16] : (!llvm.ptr) -> !llvm.ptr, i32
// CHECK-NEXT: scf.yield %[[Q]] : !llvm.ptr
"tt.func"() ({
^bb0(%x: !tt.ptr<f32>, %n: i32):
  %r = "tt.make_range"() {start = 0 : i32, end = 16 : i32} : () -> tensor<16xi32>
  %low = arith.constant 0 : i32
  %one = arith.constant 1 : i32
  %size = arith.constant 16 : i32
  %v = arith.constant dense<1.0> : tensor<16xf32>
  %end = scf.for %k = %low to %n step %one iter_args(%p = %x) -> (!tt.ptr<f32>) : i32 {
    %s = "tt.splat"(%p) : (!tt.ptr<f32>) -> tensor<16x!tt.ptr<f32>>
    %q = "tt.addptr"(%s, %r) : (tensor<16x!tt.ptr<f32>>, tensor<16xi32>) -> tensor<16x!tt.ptr<f32>>
    "tt.store"(%q, %v) : (tensor<16x!tt.ptr<f32>>, tensor<16xf32>) -> ()
    %m = "tt.addptr"(%p, %size) : (!tt.ptr<f32>, i32) -> !tt.ptr<f32>
    scf.yield %m : !tt.ptr<f32>
  }
  "tt.return"() : () -> ()
}) {sym_name = "moving", sym_visibility = "public", function_type = (!tt.ptr<f32>, i32) -> (), kiln.grid = affine_map<() -> (1)>} : () -> ()
