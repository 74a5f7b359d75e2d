// Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// RUN: kiln-opt %s --split-input-file --pass-pipeline="convert-scatters" | filecheck %s
// RUN: kiln-opt %s --split-input-file --pass-pipeline="convert-scatters{deterministic=true}" | filecheck %s --check-prefix=ORDER
// RUN: kiln-opt %s --split-input-file --pass-pipeline="convert-scatters{keep=torch.aten.index_put}" | filecheck %s --check-prefix=KEEP
// RUN: kiln-opt %s --split-input-file --pass-pipeline="convert-scatters{atomics=false}" | filecheck %s --check-prefix=PLAIN

// Rows of a gradient are added up in zeros; the row of the padding adds nothing. 16 bits are added in 32.

// CHECK-LABEL: func.func @embedding(
// CHECK: arith.cmpi eq, %{{.*}}, %{{.*}} : i64
// CHECK: arith.select
// CHECK: arith.maxsi
// CHECK: arith.minsi {{.*}} {kiln.checked = "aten.embedding_dense_backward"}
// CHECK: %[[E:.*]] = "kiln.empty"() {{.*}} -> tensor<50x16xf32>
// CHECK: arith.extf
// CHECK: %[[R:.*]] = "kiln.scatter_nd"(%[[E]], %{{.*}}, %{{.*}}) {dims = array<i64: 0>, from_zero = true, loops = array<i64: 2>, reduce = "sum"}
// CHECK: ins(%[[R]] : tensor<50x16xf32>)
// CHECK: arith.truncf
// CHECK-NOT: kiln.aten
// ORDER-LABEL: func.func @embedding(
// ORDER: "kiln.aten"
// ORDER-SAME: reason = "torch.use_deterministic_algorithms: atomics add in any order"
// KEEP-LABEL: func.func @embedding(
// KEEP: "kiln.scatter_nd"
func.func @embedding(%g: tensor<4x30x16xbf16>, %i: tensor<4x30xi64>) -> tensor<50x16xbf16> {
  %0 = "kiln.aten"(%g, %i) {args = "[{\22operand\22: 0}, {\22operand\22: 1}, 50, 3, false]", kwargs = "{}",
    op = "aten.embedding_dense_backward.default", pure = true, shapes = [affine_map<() -> (50, 16)>], strides = [unit]}
    : (tensor<4x30x16xbf16>, tensor<4x30xi64>) -> tensor<50x16xbf16>
  return %0 : tensor<50x16xbf16>
}

// -----

// Loops run along what the indices have together, then along the dims between; negative ones count from the end.

// CHECK-LABEL: func.func @put(
// CHECK: arith.addi
// CHECK: arith.select
// CHECK: arith.minsi {{.*}} {kiln.checked = "aten.index_put"}
// CHECK: arith.minsi {{.*}} {kiln.checked = "aten.index_put"}
// CHECK: "kiln.scatter_nd"(%arg0, %arg3, %{{.*}}, %{{.*}}) {dims = array<i64: 0, 2>, from_zero = false, loops = array<i64: 2>, reduce = "none"}
// KEEP-LABEL: func.func @put(
// KEEP: "kiln.aten"
// KEEP-SAME: reason = "asked for by an option"
func.func @put(%x: tensor<8x10x5xf32>, %i: tensor<30x1xi64>, %j: tensor<4xi64>, %y: tensor<30x4x10xf32>) -> tensor<8x10x5xf32> {
  %0 = "kiln.aten"(%x, %i, %j, %y)
    {args = "[{\22operand\22: 0}, [{\22operand\22: 1}, null, {\22operand\22: 2}], {\22operand\22: 3}, false]",
     kwargs = "{}", op = "aten.index_put.default", pure = true, shapes = [affine_map<() -> (8, 10, 5)>], strides = [unit]}
    : (tensor<8x10x5xf32>, tensor<30x1xi64>, tensor<4xi64>, tensor<30x4x10xf32>) -> tensor<8x10x5xf32>
  return %0 : tensor<8x10x5xf32>
}

// -----

// The size of the indexed dim is known at run time.

// CHECK-LABEL: func.func @dynamic(
// CHECK: arith.index_cast %arg3 : index to i64
// CHECK: arith.minsi {{.*}} {kiln.checked = "aten.scatter_add"}
// CHECK: "kiln.scatter_nd"(%arg0, %arg2, %{{.*}}) {{.*}} -> tensor<?x4xf32>
func.func @dynamic(%x: tensor<?x4xf32> {kiln.shape = affine_map<()[s0] -> (s0, 4)>}, %i: tensor<7x4xi64>, %y: tensor<7x4xf32>, %n: index) -> tensor<?x4xf32> {
  %0 = "kiln.aten"(%x, %i, %y, %n) {args = "[{\22operand\22: 0}, 0, {\22operand\22: 1}, {\22operand\22: 2}]", kwargs = "{}",
    op = "aten.scatter_add.default", pure = true, shapes = [affine_map<()[s0] -> (s0, 4)>], strides = [unit]}
    : (tensor<?x4xf32>, tensor<7x4xi64>, tensor<7x4xf32>, index) -> tensor<?x4xf32>
  return %0 : tensor<?x4xf32>
}

// -----

// What there is no atomic op for stays a call.

// CHECK-LABEL: func.func @product(
// CHECK: "kiln.aten"
// CHECK-SAME: reason = "there is no atomic op for prod"
func.func @product(%x: tensor<8x4xf32>, %i: tensor<7x4xi64>, %y: tensor<7x4xf32>) -> tensor<8x4xf32> {
  %0 = "kiln.aten"(%x, %i, %y) {args = "[{\22operand\22: 0}, 0, {\22operand\22: 1}, {\22operand\22: 2}, \22prod\22]",
    kwargs = "{\22include_self\22: true}", op = "aten.scatter_reduce.two", pure = true,
    shapes = [affine_map<() -> (8, 4)>], strides = [unit]}
    : (tensor<8x4xf32>, tensor<7x4xi64>, tensor<7x4xf32>) -> tensor<8x4xf32>
  return %0 : tensor<8x4xf32>
}

// -----

// CHECK-LABEL: func.func @without_self(
// CHECK: "kiln.aten"
// CHECK-SAME: reason = "without the elements that are there"
func.func @without_self(%x: tensor<8x4xf32>, %i: tensor<7x4xi64>, %y: tensor<7x4xf32>) -> tensor<8x4xf32> {
  %0 = "kiln.aten"(%x, %i, %y) {args = "[{\22operand\22: 0}, 0, {\22operand\22: 1}, {\22operand\22: 2}, \22sum\22]",
    kwargs = "{\22include_self\22: false}", op = "aten.scatter_reduce.two", pure = true,
    shapes = [affine_map<() -> (8, 4)>], strides = [unit]}
    : (tensor<8x4xf32>, tensor<7x4xi64>, tensor<7x4xf32>) -> tensor<8x4xf32>
  return %0 : tensor<8x4xf32>
}

// -----

// CHECK-LABEL: func.func @bytes(
// CHECK: "kiln.aten"
// CHECK-SAME: reason = "there is no atomic op for elements of type i8"
// PLAIN-LABEL: func.func @bytes(
// PLAIN: "kiln.scatter_nd"
func.func @bytes(%x: tensor<8x4xi8>, %i: tensor<7x4xi64>, %y: tensor<7x4xi8>) -> tensor<8x4xi8> {
  %0 = "kiln.aten"(%x, %i, %y) {args = "[{\22operand\22: 0}, 0, {\22operand\22: 1}, {\22operand\22: 2}]", kwargs = "{}",
    op = "aten.scatter_add.default", pure = true, shapes = [affine_map<() -> (8, 4)>], strides = [unit]}
    : (tensor<8x4xi8>, tensor<7x4xi64>, tensor<7x4xi8>) -> tensor<8x4xi8>
  return %0 : tensor<8x4xi8>
}
