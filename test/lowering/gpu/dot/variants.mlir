// Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// RUN: kiln-opt %s --split-input-file --mlir-print-local-scope --pass-pipeline="split-products,canonicalize,cse,fuse{row-blocks=false},assign-layouts,schedule-gpu{descriptors=true},emit-gpu-kernels" | filecheck %s

// Any number of rows: descriptors over the kernel's symbol, and as many programs as there are tiles. What follows the
// sums is masked at the last row.

// CHECK: ^bb0(%[[X:.*]]: !tt.tensordesc<tensor<128x64xbf16>>, %[[W:.*]]: !tt.tensordesc<tensor<128x64xbf16>>, %{{.*}}: !tt.ptr<bf16>, %[[N:.*]]: i64):
// CHECK: scf.for
// CHECK: "tt.descriptor_load"(%[[X]],
// CHECK: "tt.descriptor_load"(%[[W]],
// CHECK: "tt.dot"
// CHECK: arith.cmpi slt
// CHECK: kiln.descriptors = [
// CHECK-SAME: arg = 0 : i64, shape = affine_map<()[s0] -> (s0, 1024)>, strides = affine_map<()[s0] -> (1024, 1)>
// CHECK-SAME: arg = 1 : i64, shape = affine_map<()[s0] -> (4096, 1024)>, strides = affine_map<()[s0] -> (1024, 1)>
// CHECK-SAME: kiln.grid = affine_map<()[s0] -> (((s0 + 127) floordiv 128) * 32, 1, 1)>
func.func @rows(%n: index {kiln.symbol = "s0"}, %x: tensor<?x1024xbf16> {kiln.shape = affine_map<()[s0] -> (s0, 1024)>}, %w: tensor<4096x1024xbf16>) -> tensor<?x4096xbf16> attributes {kiln.symbols = ["s0"]} {
  %0 = "kiln.matmul"(%x, %w) {transpose_lhs = false, transpose_rhs = true} : (tensor<?x1024xbf16>, tensor<4096x1024xbf16>) -> tensor<?x4096xbf16>
  return %0 : tensor<?x4096xbf16>
}

// -----

// Keys and values of any number of tokens: heads and batches are as far apart as there are tokens, which is a multiple of
// 16 bytes whatever their number.

// CHECK: ^bb0(%{{.*}}: !tt.ptr<bf16>, %[[K:.*]]: !tt.tensordesc<tensor<1x1x128x64xbf16>>, %[[V:.*]]: !tt.tensordesc<tensor<1x1x128x64xbf16>>,
// CHECK: scf.for
// CHECK: "tt.descriptor_load"(%[[K]],
// CHECK: ex2.approx.ftz.f32
// CHECK: "tt.descriptor_load"(%[[V]],
// CHECK: kiln.descriptors = [
// CHECK-SAME: shape = affine_map<()[s0] -> (2, 8, s0, 64)>, strides = affine_map<()[s0] -> (s0 * 512, s0 * 64, 64, 1)>
func.func @tokens(%n: index {kiln.symbol = "s0"}, %q: tensor<2x8x?x64xbf16> {kiln.shape = affine_map<()[s0] -> (2, 8, s0, 64)>}, %k: tensor<2x8x?x64xbf16> {kiln.shape = affine_map<()[s0] -> (2, 8, s0, 64)>}, %v: tensor<2x8x?x64xbf16> {kiln.shape = affine_map<()[s0] -> (2, 8, s0, 64)>}) -> tensor<2x8x?x64xbf16> attributes {kiln.symbols = ["s0"]} {
  %0 = "kiln.attention"(%q, %k, %v) {scale = 1.250000e-01 : f64, causal = false} : (tensor<2x8x?x64xbf16>, tensor<2x8x?x64xbf16>, tensor<2x8x?x64xbf16>) -> tensor<2x8x?x64xbf16>
  return %0 : tensor<2x8x?x64xbf16>
}

// -----

// A gate and what it is multiplied with: both sums in one loop, which loads the rows once.

// CHECK: %[[SUMS:.*]]:2 = scf.for
// CHECK: %[[X:.*]] = "tt.descriptor_load"
// CHECK: "tt.dot"(%[[X]],
// CHECK: "tt.dot"(%[[X]],
// CHECK: arith.mulf
// CHECK: "tt.store"
func.func @gate(%x: tensor<512x1024xbf16>, %w: tensor<1024x1024xbf16>, %u: tensor<1024x1024xbf16>) -> tensor<512x1024xbf16> {
  %0 = "kiln.matmul"(%x, %w) {transpose_lhs = false, transpose_rhs = true} : (tensor<512x1024xbf16>, tensor<1024x1024xbf16>) -> tensor<512x1024xbf16>
  %1 = "kiln.matmul"(%x, %u) {transpose_lhs = false, transpose_rhs = true} : (tensor<512x1024xbf16>, tensor<1024x1024xbf16>) -> tensor<512x1024xbf16>
  %e = "kiln.empty"() {shape = affine_map<() -> (512, 1024)>} : () -> tensor<512x1024xbf16>
  %r = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0, d1)>], iterator_types = ["parallel", "parallel"]} ins(%0, %1 : tensor<512x1024xbf16>, tensor<512x1024xbf16>) outs(%e : tensor<512x1024xbf16>) {
  ^bb0(%a: bf16, %b: bf16, %o: bf16):
    %s = arith.mulf %a, %b : bf16
    linalg.yield %s : bf16
  } -> tensor<512x1024xbf16>
  return %r : tensor<512x1024xbf16>
}

// -----

// Long sums of one tile: 32 parts as a batch with f32 results, and a kernel that adds them up.

// CHECK: ^bb0(%{{.*}}: !tt.ptr<bf16>, %{{.*}}: !tt.ptr<bf16>, %{{.*}}: !tt.ptr<f32>):
// CHECK: "tt.dot"
// CHECK-NOT: arith.truncf
// CHECK: kiln.grid = affine_map<() -> (128, 1, 1)>
// CHECK: "tt.reduce"
// CHECK: arith.truncf {{.*}} to tensor<32x1xbf16>
func.func @parts(%x: tensor<64x16384xbf16>, %w: tensor<64x16384xbf16>) -> tensor<64x64xbf16> {
  %0 = "kiln.matmul"(%x, %w) {transpose_lhs = false, transpose_rhs = true} : (tensor<64x16384xbf16>, tensor<64x16384xbf16>) -> tensor<64x64xbf16>
  return %0 : tensor<64x64xbf16>
}

// -----

// One column: rows side by side.

// CHECK-NOT: "tt.dot"
// CHECK: "tt.reduce"
// CHECK: kiln.grid = affine_map<() -> (1024, 1, 1)>
func.func @one_column(%x: tensor<1024x4096xf16>, %w: tensor<4096x1xf16>) -> tensor<1024x1xf16> {
  %0 = "kiln.matmul"(%x, %w) {transpose_lhs = false, transpose_rhs = false} : (tensor<1024x4096xf16>, tensor<4096x1xf16>) -> tensor<1024x1xf16>
  return %0 : tensor<1024x1xf16>
}

// -----

// 8-bit floats: tensor cores may keep all sums of such a product to themselves.

// CHECK: "tt.dot"({{.*}}) {inputPrecision = 2 : i32, maxNumImpreciseAcc = 1073741824 : i32} : (tensor<16x128xf8E4M3FN>, tensor<128x16xf8E4M3FN>,
func.func @float8(%x: tensor<64x512xf8E4M3FN>, %w: tensor<512x512xf8E4M3FN>) -> tensor<64x512xf32> {
  %0 = "kiln.matmul"(%x, %w) {transpose_lhs = false, transpose_rhs = true, fast_sums} : (tensor<64x512xf8E4M3FN>, tensor<512x512xf8E4M3FN>) -> tensor<64x512xf32>
  return %0 : tensor<64x512xf32>
}

// -----

// Rounded as in eager.

// CHECK: "tt.fp_to_fp"({{.*}}) {rounding = 1 : i32} : (tensor<128xf32>) -> tensor<128xf8E4M3FN>
func.func @quantized(%x: tensor<4096xf32>) -> tensor<4096xf8E4M3FN> {
  %e = "kiln.empty"() {shape = affine_map<() -> (4096)>} : () -> tensor<4096xf8E4M3FN>
  %r = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>], iterator_types = ["parallel"]} ins(%x : tensor<4096xf32>) outs(%e : tensor<4096xf8E4M3FN>) {
  ^bb0(%a: f32, %o: f8E4M3FN):
    %s = arith.truncf %a : f32 to f8E4M3FN
    linalg.yield %s : f8E4M3FN
  } -> tensor<4096xf8E4M3FN>
  return %r : tensor<4096xf8E4M3FN>
}
