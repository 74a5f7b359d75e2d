// Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// RUN: kiln-opt %s --split-input-file --mlir-print-local-scope --pass-pipeline="convert-scatters,compose-views,canonicalize,cse,fuse,assign-layouts,reuse-buffers,schedule-gpu,emit-gpu-kernels" | filecheck %s

// Values, indices and their check are computed in the kernel that adds; the launch clears the result.

// CHECK: %[[G:.*]] = "tt.load"
// CHECK: %[[I:.*]] = "tt.load"({{.*}}) {{.*}} -> tensor<512xi64>
// CHECK: "tt.assert"({{.*}}) {message = "index out of range in aten.embedding_dense_backward"}
// CHECK: "tt.atomic_rmw"({{.*}}) {atomic_rmw_op = 5 : i32, scope = 1 : i32, sem = 1 : i32}
// CHECK-NOT: "tt.store"
// CHECK: kiln.grid = affine_map<() -> (250, 1, 1)>, kiln.zero = array<i64: 0>
func.func @embedding(%g: tensor<40x50x64xf32>, %i: tensor<40x50xi64>) -> tensor<50x64xf32> {
  %0 = "kiln.aten"(%g, %i) {args = "[{\22operand\22: 0}, {\22operand\22: 1}, 50, -1, false]", kwargs = "{}",
    op = "aten.embedding_dense_backward.default", pure = true, shapes = [affine_map<() -> (50, 64)>], strides = [unit]}
    : (tensor<40x50x64xf32>, tensor<40x50xi64>) -> tensor<50x64xf32>
  return %0 : tensor<50x64xf32>
}

// -----

// What is added to is somebody else's: a copy is. Nothing but the values and indices is loaded to add.

// CHECK: sym_name = "copy
// CHECK-COUNT-2: "tt.load"
// CHECK-NOT: "tt.load"
// CHECK: "tt.atomic_rmw"
// CHECK-NOT: kiln.zero
// CHECK: sym_name = "generic_scatter_nd
func.func @argument(%x: tensor<50x64xf32>, %i: tensor<200xi64>, %y: tensor<200x64xf32>) -> tensor<50x64xf32> {
  %0 = "kiln.aten"(%x, %i, %y) {args = "[{\22operand\22: 0}, 0, {\22operand\22: 1}, {\22operand\22: 2}]", kwargs = "{}",
    op = "aten.index_add.default", pure = true, shapes = [affine_map<() -> (50, 64)>], strides = [unit]}
    : (tensor<50x64xf32>, tensor<200xi64>, tensor<200x64xf32>) -> tensor<50x64xf32>
  return %0 : tensor<50x64xf32>
}

// -----

// The largest of floats is that of their bits, negative ones the other way round.

// CHECK: "tt.bitcast"({{.*}}) : (tensor<{{.*}}xf32>) -> tensor<{{.*}}xi32>
// CHECK: "tt.atomic_rmw"({{.*}}) {atomic_rmw_op = 6 : i32
// CHECK: "tt.atomic_rmw"({{.*}}) {atomic_rmw_op = 9 : i32
func.func @largest(%x: tensor<50xf32>, %i: tensor<200xi64>, %y: tensor<200xf32>) -> tensor<50xf32> {
  %0 = "kiln.aten"(%x, %i, %y) {args = "[{\22operand\22: 0}, 0, {\22operand\22: 1}, {\22operand\22: 2}, \22amax\22]",
    kwargs = "{\22include_self\22: true}", op = "aten.scatter_reduce.two", pure = true,
    shapes = [affine_map<() -> (50)>], strides = [unit]}
    : (tensor<50xf32>, tensor<200xi64>, tensor<200xf32>) -> tensor<50xf32>
  return %0 : tensor<50xf32>
}
