// Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// RUN: kiln-opt %s --split-input-file --mlir-print-local-scope --pass-pipeline="fuse{row-blocks=false},assign-layouts,schedule-gpu{descriptors=true},emit-gpu-kernels" | filecheck %s

// A product whose blocks divide everything has no mask: addresses are carried through the loop, the bias is read as a row.

// CHECK: "tt.func"
// CHECK: %[[LOOP:.*]]:3 = scf.for
// CHECK-NEXT: %[[A:.*]] = "tt.load"(%{{.*}}) {operandSegmentSizes = array<i32: 1, 0, 0>}
// CHECK-NEXT: %[[B:.*]] = "tt.load"(%{{.*}}) {operandSegmentSizes = array<i32: 1, 0, 0>}
// CHECK-NEXT: "tt.dot"(%[[A]], %[[B]], %{{.*}}) {inputPrecision = 2 : i32
// CHECK-SAME: (tensor<16x128xbf16>, tensor<128x32xbf16>, tensor<16x32xf32>) -> tensor<16x32xf32>
// CHECK-NEXT: "tt.addptr"
// CHECK-NEXT: "tt.addptr"
// CHECK-NEXT: scf.yield
// CHECK-NEXT: } {tt.num_stages = 8 : i32}
// CHECK: arith.truncf %[[LOOP]]#2 : tensor<16x32xf32> to tensor<16x32xbf16>
// CHECK: "tt.load"{{.*}} -> tensor<1x32xbf16>
// CHECK: "tt.store"(%{{.*}}, %{{.*}}) : (tensor<16x32x!tt.ptr<bf16>>, tensor<16x32xbf16>) -> ()
// CHECK: kiln.grid = affine_map<() -> (128, 1, 1)>
// CHECK-SAME: num_stages = 8 : i32, num_warps = 4 : i32
func.func @whole(%x: tensor<16x4096xbf16>, %w: tensor<4096x4096xbf16>, %b: tensor<4096xbf16>) -> tensor<16x4096xbf16> {
  %0 = "kiln.matmul"(%x, %w) {transpose_lhs = false, transpose_rhs = true}
    : (tensor<16x4096xbf16>, tensor<4096x4096xbf16>) -> tensor<16x4096xbf16>
  %e = "kiln.empty"() {shape = affine_map<() -> (16, 4096)>} : () -> tensor<16x4096xbf16>
  %1 = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d1)>, affine_map<(d0, d1) -> (d0, d1)>],
      iterator_types = ["parallel", "parallel"]} ins(%0, %b : tensor<16x4096xbf16>, tensor<4096xbf16>) outs(%e : tensor<16x4096xbf16>) {
  ^bb0(%p: bf16, %q: bf16, %o: bf16):
    %s = arith.addf %p, %q : bf16
    linalg.yield %s : bf16
  } -> tensor<16x4096xbf16>
  return %1 : tensor<16x4096xbf16>
}

// -----

// Sizes that blocks do not divide: rows are clamped, only the last step of the reduction is masked, and so is the store.
// f32 stays f32.

// CHECK: "tt.func"
// CHECK: arith.minsi
// CHECK: scf.for
// CHECK: "tt.load"(%{{.*}}) {operandSegmentSizes = array<i32: 1, 0, 0>}
// CHECK: "tt.dot"{{.*}} {inputPrecision = 2 : i32
// CHECK: scf.yield
// CHECK: "tt.load"(%{{.*}}, %{{.*}}, %{{.*}}) {operandSegmentSizes = array<i32: 1, 1, 1>}
// CHECK: "tt.dot"
// CHECK: "tt.store"(%{{.*}}, %{{.*}}, %{{.*}})
func.func @ragged(%x: tensor<50x75xf32>, %w: tensor<100x75xf32>) -> tensor<50x100xf32> {
  %0 = "kiln.matmul"(%x, %w) {transpose_lhs = false, transpose_rhs = true}
    : (tensor<50x75xf32>, tensor<100x75xf32>) -> tensor<50x100xf32>
  return %0 : tensor<50x100xf32>
}

// -----

// One row: columns side by side, summed once at the end.

// CHECK: "tt.func"
// CHECK-NOT: tt.dot
// CHECK: "tt.reduce"
// CHECK: kiln.grid = affine_map<() -> (1024, 1, 1)>
func.func @one_row(%x: tensor<1x4096xf16>, %w: tensor<1024x4096xf16>) -> tensor<1x1024xf16> {
  %0 = "kiln.matmul"(%x, %w) {transpose_lhs = false, transpose_rhs = true}
    : (tensor<1x4096xf16>, tensor<1024x4096xf16>) -> tensor<1x1024xf16>
  return %0 : tensor<1x1024xf16>
}

// -----

// A large product with whole lines: descriptors as arguments, one program a multiprocessor, two halves of a tile one
// after the other. The matrix [k, n] is read as it lies.

// CHECK: "tt.func"
// CHECK: ^bb0(%[[X:.*]]: !tt.tensordesc<tensor<128x64xbf16>>, %[[W:.*]]: !tt.tensordesc<tensor<64x256xbf16>>, %{{.*}}: !tt.ptr<bf16>):
// CHECK: scf.for
// CHECK: scf.for
// CHECK: "tt.descriptor_load"(%[[X]], %[[ROW:.*]], %[[K:.*]]) : {{.*}} -> tensor<128x64xbf16>
// CHECK: "tt.descriptor_load"(%[[W]], %[[K]], %{{.*}}) : {{.*}} -> tensor<64x256xbf16>
// CHECK: "tt.dot"
// CHECK: {tt.num_stages = 3 : i32}
// CHECK: "tt.split"
// CHECK-COUNT-2: "tt.store"
// CHECK: {tt.flatten}
// CHECK: kiln.descriptors = [
// CHECK-SAME: arg = 0 : i64, shape = affine_map<() -> (4096, 2048)>, strides = affine_map<() -> (2048, 1)>
// CHECK-SAME: arg = 1 : i64, shape = affine_map<() -> (2048, 4096)>, strides = affine_map<() -> (4096, 1)>
// CHECK-SAME: kiln.grid = affine_map<() -> (132, 1, 1)>
func.func @described(%x: tensor<4096x2048xbf16>, %w: tensor<2048x4096xbf16>) -> tensor<4096x4096xbf16> {
  %0 = "kiln.matmul"(%x, %w) {transpose_lhs = false, transpose_rhs = false}
    : (tensor<4096x2048xbf16>, tensor<2048x4096xbf16>) -> tensor<4096x4096xbf16>
  return %0 : tensor<4096x4096xbf16>
}
