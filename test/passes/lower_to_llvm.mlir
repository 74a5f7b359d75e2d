// Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// RUN: kiln-opt %s --pass-pipeline="lower-to-llvm" | filecheck %s

// Pointers are bare and noalias, scratch is this thread's part, thread numbers come from OpenMP only under a team.
// A function that the kernel calls is internal and has no entry.

// CHECK-LABEL: llvm.func internal @double
// CHECK-SAME: %arg0: !llvm.ptr {llvm.noalias}, %arg1: !llvm.ptr {llvm.noalias}, %arg2: i64, %arg3: !llvm.ptr, %arg4: i64, %arg5: i64
// CHECK-SAME: no_inline
// CHECK: llvm.load %{{.*}} {alignment = 4 : i64} : !llvm.ptr -> vector<8xf32>
// CHECK: llvm.store %{{.*}} {alignment = 4 : i64} : vector<8xf32>, !llvm.ptr
// CHECK: llvm.func internal @helper(%arg0: f32) -> f32
// CHECK: llvm.func @double_entry(%arg0: !llvm.ptr) attributes {no_inline}
// CHECK: llvm.cond_br %{{.*}}, ^bb1, ^bb2
// CHECK: llvm.call @omp_get_thread_num()
// CHECK: llvm.call @omp_get_num_threads()
// CHECK: llvm.call @double(
func.func @double(%x: memref<?xf32>, %y: memref<?xf32>, %n: index, %scratch: memref<?xi8>, %tid: index, %nt: index) {
  %c0 = arith.constant 0 : index
  %c8 = arith.constant 8 : index
  scf.for %i = %c0 to %n step %c8 {
    %v = vector.load %x[%i] : memref<?xf32>, vector<8xf32>
    %w = arith.addf %v, %v : vector<8xf32>
    vector.store %w, %y[%i] : memref<?xf32>, vector<8xf32>
  }
  return
}

func.func private @helper(%x: f32) -> f32 {
  return %x : f32
}
