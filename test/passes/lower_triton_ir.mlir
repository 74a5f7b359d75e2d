// Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// RUN: kiln-opt %s --pass-pipeline="lower-triton-ir,canonicalize" | filecheck %s
// RUN: kiln-opt %s --pass-pipeline="lower-triton-ir{sampled=true},canonicalize" | filecheck %s --check-prefix=SAMPLE

// The programs of a grid are a loop, shared by the threads: of all of them, or of those that the caller names. The tensor
// descriptor's sizes and strides are those of `kiln.descriptors`, over the symbols.

// CHECK-LABEL: func.func @copy
// CHECK-SAME: (%[[X:.*]]: memref<?xf32>, %[[Y:.*]]: memref<?xf32>, %[[N:.*]]: index, %{{.*}}: memref<?xi8>, %[[T:.*]]: index, %[[NT:.*]]: index)
// CHECK: %[[A:.*]] = arith.muli %[[T]], %[[G:.*]] : index
// CHECK: %[[LOW:.*]] = arith.divui %[[A]], %[[NT]]
// CHECK: scf.for %[[P:.*]] = %[[LOW]] to
// CHECK: scf.if
// CHECK: llvm.load
// CHECK: llvm.store
// CHECK-NOT: "tt.

// SAMPLE-LABEL: func.func @copy
// SAMPLE-SAME: index, %[[FIRST:.*]]: index, %[[LAST:.*]]: index, %{{.*}}: memref<?xi8>, %[[T:.*]]: index, %[[NT:.*]]: index)
// SAMPLE: %[[COUNT:.*]] = arith.subi %[[LAST]], %[[FIRST]] : index
// SAMPLE: %[[A:.*]] = arith.muli %[[T]], %[[COUNT]] : index
// SAMPLE: %[[B:.*]] = arith.divui %[[A]], %[[NT]]
// SAMPLE: %[[LOW:.*]] = arith.addi %[[FIRST]], %[[B]] : index
// SAMPLE: scf.for %{{.*}} = %[[LOW]] to
"tt.func"() ({
^bb0(%x: !tt.tensordesc<tensor<16x16xf32>>, %y: !tt.ptr<f32>, %n: i32):
  %0 = "tt.get_program_id"() {axis = 0 : i32} : () -> i32
  %c16 = arith.constant 16 : i32
  %c0 = arith.constant 0 : i32
  %row = arith.muli %0, %c16 : i32
  %1 = "tt.descriptor_load"(%x, %row, %c0) : (!tt.tensordesc<tensor<16x16xf32>>, i32, i32) -> tensor<16x16xf32>
  %2 = "tt.reduce"(%1) ({
  ^bb0(%a: f32, %b: f32):
    %s = arith.addf %a, %b : f32
    "tt.reduce.return"(%s) : (f32) -> ()
  }) {axis = 1 : i32} : (tensor<16x16xf32>) -> tensor<16xf32>
  %3 = "tt.make_range"() {start = 0 : i32, end = 16 : i32} : () -> tensor<16xi32>
  %4 = "tt.splat"(%row) : (i32) -> tensor<16xi32>
  %5 = arith.addi %3, %4 : tensor<16xi32>
  %6 = "tt.splat"(%y) : (!tt.ptr<f32>) -> tensor<16x!tt.ptr<f32>>
  %7 = "tt.addptr"(%6, %5) : (tensor<16x!tt.ptr<f32>>, tensor<16xi32>) -> tensor<16x!tt.ptr<f32>>
  %8 = "tt.splat"(%n) : (i32) -> tensor<16xi32>
  %9 = arith.cmpi slt, %5, %8 : tensor<16xi32>
  "tt.store"(%7, %2, %9) : (tensor<16x!tt.ptr<f32>>, tensor<16xf32>, tensor<16xi1>) -> ()
  "tt.return"() : () -> ()
}) {function_type = (!tt.tensordesc<tensor<16x16xf32>>, !tt.ptr<f32>, i32) -> (), kiln.grid = affine_map<()[s0] -> (s0 ceildiv 16)>,
    kiln.descriptors = [{arg = 0 : i64, shape = affine_map<()[s0] -> (s0, 16)>, strides = affine_map<()[s0] -> (16, 1)>}],
    sym_name = "copy", sym_visibility = "public"} : () -> ()
