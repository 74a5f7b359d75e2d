// Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// RUN: kiln-opt %s --split-input-file --mlir-print-local-scope --pass-pipeline="schedule-gpu{descriptors=true},emit-gpu-kernels" | filecheck %s

// Both operands of a product come through tensor maps, which the kernel gets as arguments.
// CHECK: ^bb0(%[[X:.*]]: !tt.tensordesc<tensor<{{.*}}xbf16>>, %[[W:.*]]: !tt.tensordesc<tensor<{{.*}}xbf16>>, %{{.*}}: !tt.ptr<bf16>):
// CHECK: "tt.descriptor_load"(%[[X]],
// CHECK: "tt.descriptor_load"(%[[W]],
// CHECK: "tt.dot"
func.func @aligned(%x: tensor<4096x1024xbf16>, %w: tensor<4096x1024xbf16>) -> tensor<4096x4096xbf16> {
  %0 = "kiln.fusion"(%x, %w) ({
  ^bb0(%a: tensor<4096x1024xbf16>, %b: tensor<4096x1024xbf16>):
    %1 = "kiln.matmul"(%a, %b) {transpose_lhs = false, transpose_rhs = true}
      : (tensor<4096x1024xbf16>, tensor<4096x1024xbf16>) -> tensor<4096x4096xbf16>
    "kiln.yield"(%1) : (tensor<4096x4096xbf16>) -> ()
  }) {kind = "matmul", name = "aligned"} : (tensor<4096x1024xbf16>, tensor<4096x1024xbf16>) -> tensor<4096x4096xbf16>
  return %0 : tensor<4096x4096xbf16>
}

// -----

// Tensor maps start at multiples of 16 bytes; an operand that may start elsewhere is read through pointers.
// CHECK: ^bb0(%{{.*}}: !tt.ptr<bf16>, %{{.*}}: !tt.ptr<bf16>, %{{.*}}: !tt.ptr<bf16>):
// CHECK-NOT: tt.descriptor_load
// CHECK: "tt.load"
// CHECK: "tt.dot"
func.func @unaligned(%x: tensor<4096x1024xbf16>, %w: tensor<4096x1024xbf16>) -> tensor<4096x4096xbf16> {
  %0 = "kiln.fusion"(%x, %w) ({
  ^bb0(%a: tensor<4096x1024xbf16>, %b: tensor<4096x1024xbf16>):
    %1 = "kiln.matmul"(%a, %b) {transpose_lhs = false, transpose_rhs = true}
      : (tensor<4096x1024xbf16>, tensor<4096x1024xbf16>) -> tensor<4096x4096xbf16>
    "kiln.yield"(%1) : (tensor<4096x4096xbf16>) -> ()
  }) {kind = "matmul", name = "unaligned", unaligned = array<i64: 1>} : (tensor<4096x1024xbf16>, tensor<4096x1024xbf16>) -> tensor<4096x4096xbf16>
  return %0 : tensor<4096x4096xbf16>
}

// -----

// Coordinates in a tensor map have 32 bits where offsets in the result need 64.
// CHECK: !tt.tensordesc
// CHECK: arith.trunci %{{.*}} : i64 to i32
// CHECK: "tt.descriptor_load"
// CHECK: "tt.store"
func.func @large(%x: tensor<65536x64xbf16>, %w: tensor<65536x64xbf16>) -> tensor<65536x65536xbf16> {
  %0 = "kiln.fusion"(%x, %w) ({
  ^bb0(%a: tensor<65536x64xbf16>, %b: tensor<65536x64xbf16>):
    %1 = "kiln.matmul"(%a, %b) {transpose_lhs = false, transpose_rhs = true}
      : (tensor<65536x64xbf16>, tensor<65536x64xbf16>) -> tensor<65536x65536xbf16>
    "kiln.yield"(%1) : (tensor<65536x65536xbf16>) -> ()
  }) {kind = "matmul", name = "large"} : (tensor<65536x64xbf16>, tensor<65536x64xbf16>) -> tensor<65536x65536xbf16>
  return %0 : tensor<65536x65536xbf16>
}

// -----

// Keys and values of attention, heads inside of tokens: a dim of the tensor map for each dim.
// CHECK: ^bb0(%{{.*}}: !tt.ptr<bf16>, %[[K:.*]]: !tt.tensordesc<tensor<1x1x{{.*}}x32xbf16>>, %[[V:.*]]: !tt.tensordesc<tensor<1x1x{{.*}}x32xbf16>>,
// CHECK: "tt.descriptor_load"(%[[K]],
// CHECK: "tt.descriptor_load"(%[[V]],
// CHECK: strides = affine_map<() -> (32768, 32, 128, 1)>
func.func @tokens(%q: tensor<2x4x100x32xbf16>, %k: tensor<2x4x256x32xbf16>, %v: tensor<2x4x256x32xbf16>) -> tensor<2x4x100x32xbf16> {
  %0 = "kiln.fusion"(%q, %k, %v) ({
  ^bb0(%a: tensor<2x4x100x32xbf16>, %b: tensor<2x4x256x32xbf16>, %c: tensor<2x4x256x32xbf16>):
    %1 = "kiln.attention"(%a, %b, %c) {scale = 0.25 : f64, causal = false} : (tensor<2x4x100x32xbf16>, tensor<2x4x256x32xbf16>, tensor<2x4x256x32xbf16>) -> tensor<2x4x100x32xbf16>
    "kiln.yield"(%1) : (tensor<2x4x100x32xbf16>) -> ()
  }) {kind = "attention", name = "tokens", layouts = [
      affine_map<(d0, d1, d2, d3) -> (d0 * 12800 + d1 * 3200 + d2 * 32 + d3)>,
      affine_map<(d0, d1, d2, d3) -> (d0 * 32768 + d2 * 128 + d1 * 32 + d3)>, affine_map<(d0, d1, d2, d3) -> (d0 * 32768 + d2 * 128 + d1 * 32 + d3)>,
      affine_map<(d0, d1, d2, d3) -> (d0 * 12800 + d1 * 3200 + d2 * 32 + d3)>]} : (tensor<2x4x100x32xbf16>, tensor<2x4x256x32xbf16>, tensor<2x4x256x32xbf16>) -> tensor<2x4x100x32xbf16>
  return %0 : tensor<2x4x100x32xbf16>
}

// -----

// Keys that may start elsewhere.
// CHECK-NOT: tt.tensordesc
// CHECK: "tt.dot"
func.func @unaligned_keys(%q: tensor<2x4x100x32xbf16>, %k: tensor<2x4x256x32xbf16>, %v: tensor<2x4x256x32xbf16>) -> tensor<2x4x100x32xbf16> {
  %0 = "kiln.fusion"(%q, %k, %v) ({
  ^bb0(%a: tensor<2x4x100x32xbf16>, %b: tensor<2x4x256x32xbf16>, %c: tensor<2x4x256x32xbf16>):
    %1 = "kiln.attention"(%a, %b, %c) {scale = 0.25 : f64, causal = false} : (tensor<2x4x100x32xbf16>, tensor<2x4x256x32xbf16>, tensor<2x4x256x32xbf16>) -> tensor<2x4x100x32xbf16>
    "kiln.yield"(%1) : (tensor<2x4x100x32xbf16>) -> ()
  }) {kind = "attention", name = "unaligned_keys", unaligned = array<i64: 1>, layouts = [
      affine_map<(d0, d1, d2, d3) -> (d0 * 12800 + d1 * 3200 + d2 * 32 + d3)>,
      affine_map<(d0, d1, d2, d3) -> (d0 * 32768 + d2 * 128 + d1 * 32 + d3)>, affine_map<(d0, d1, d2, d3) -> (d0 * 32768 + d2 * 128 + d1 * 32 + d3)>,
      affine_map<(d0, d1, d2, d3) -> (d0 * 12800 + d1 * 3200 + d2 * 32 + d3)>]} : (tensor<2x4x100x32xbf16>, tensor<2x4x256x32xbf16>, tensor<2x4x256x32xbf16>) -> tensor<2x4x100x32xbf16>
  return %0 : tensor<2x4x100x32xbf16>
}
