// Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// RUN: kiln-opt %s --cpu=x86-64-v4 --split-input-file --mlir-print-local-scope --pass-pipeline="convert-scatters{atomics=false},compose-views,canonicalize,cse,fuse,assign-layouts,reuse-buffers,schedule-cpu,emit-cpu-kernels" | filecheck %s

// Each thread clears its rows, walks all indices, and adds the rows of the gradient that go to its own.

// CHECK: func.func @{{.*}}scatter_nd
// CHECK: %[[LOW:.*]] = arith.divui
// CHECK: vector.store %{{.*}} : memref<?xf32>, vector<64xf32>
// CHECK: memref.load %{{.*}} : memref<?xi64>
// CHECK: %[[COUNT:.*]] = arith.subi %{{.*}}, %[[LOW]]
// CHECK: %[[ROW:.*]] = arith.subi %{{.*}}, %[[LOW]]
// CHECK: %[[MINE:.*]] = arith.cmpi ult, %[[ROW]], %[[COUNT]]
// CHECK: scf.if %[[MINE]]
// CHECK: vector.load
// CHECK: arith.addf {{.*}} vector<32xf32>
// CHECK: vector.store
// CHECK-NOT: atomic
func.func @embedding(%g: tensor<40x50x64xf32>, %i: tensor<40x50xi64>) -> tensor<50x64xf32> {
  %0 = "kiln.aten"(%g, %i) {args = "[{\22operand\22: 0}, {\22operand\22: 1}, 50, -1, false]", kwargs = "{}",
    op = "aten.embedding_dense_backward.default", pure = true, shapes = [affine_map<() -> (50, 64)>], strides = [unit]}
    : (tensor<40x50x64xf32>, tensor<40x50xi64>) -> tensor<50x64xf32>
  return %0 : tensor<50x64xf32>
}

// -----

// Lanes may go to one place: what is cheap to compute is added one by one, without vectors. A thread that does not write
// all of the result lists its elements without a branch, and adds these.

// CHECK: func.func @copy
// CHECK: func.func @{{.*}}scatter_nd
// CHECK-NOT: vector.
// CHECK: scf.if
// CHECK: memref.load %{{.*}} : memref<?xi64>
// CHECK: memref.load
// CHECK: arith.addf
// CHECK: memref.store
// CHECK: } else {
// CHECK: %[[LISTED:.*]] = scf.for {{.*}} iter_args(%[[COUNT:.*]] =
// CHECK: %[[MINE:.*]] = arith.cmpi ult
// CHECK-NOT: scf.if
// CHECK: memref.store %{{.*}}, %{{.*}}[%[[COUNT]]]
// CHECK: memref.store %{{.*}}, %{{.*}}[%[[COUNT]]]
// CHECK: %[[ONE:.*]] = arith.select %[[MINE]]
// CHECK: %[[MORE:.*]] = arith.addi %[[COUNT]], %[[ONE]]
// CHECK: scf.yield %[[MORE]]
// CHECK: scf.for %{{.*}} = %{{.*}} to %[[LISTED]]
// CHECK: arith.addf
// CHECK: memref.store
func.func @elements(%x: tensor<50xf32>, %i: tensor<200xi64>, %y: tensor<200xf32>) -> tensor<50xf32> {
  %0 = "kiln.aten"(%x, %i, %y) {args = "[{\22operand\22: 0}, 0, {\22operand\22: 1}, {\22operand\22: 2}]", kwargs = "{}",
    op = "aten.index_add.default", pure = true, shapes = [affine_map<() -> (50)>], strides = [unit]}
    : (tensor<50xf32>, tensor<200xi64>, tensor<200xf32>) -> tensor<50xf32>
  return %0 : tensor<50xf32>
}

// -----

// Threads share the dim of the result that no index tells: nothing is compared.

// CHECK: func.func @{{.*}}scatter_nd
// CHECK-NOT: arith.cmpi ult
// CHECK: return
func.func @slices(%x: tensor<64x50xf32>, %i: tensor<64x200xi64>, %y: tensor<64x200xf32>) -> tensor<64x50xf32> {
  %0 = "kiln.aten"(%x, %i, %y) {args = "[{\22operand\22: 0}, 1, {\22operand\22: 1}, {\22operand\22: 2}]", kwargs = "{}",
    op = "aten.scatter_add.default", pure = true, shapes = [affine_map<() -> (64, 50)>], strides = [unit]}
    : (tensor<64x50xf32>, tensor<64x200xi64>, tensor<64x200xf32>) -> tensor<64x50xf32>
  return %0 : tensor<64x50xf32>
}
