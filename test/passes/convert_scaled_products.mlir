// Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// RUN: kiln-opt %s --split-input-file --mlir-print-local-scope --pass-pipeline="convert-scaled-products" | filecheck %s
// RUN: kiln-opt %s --split-input-file --mlir-print-local-scope --pass-pipeline="convert-scaled-products{arch=sm_80}" | filecheck %s --check-prefix=OLD
// RUN: kiln-opt %s --split-input-file --mlir-print-local-scope --pass-pipeline="convert-scaled-products{one-scale=true}" | filecheck %s --check-prefix=ALL
// RUN: kiln-opt %s --split-input-file --mlir-print-local-scope --pass-pipeline="convert-scaled-products,canonicalize,cse,fuse{row-blocks=false},assign-layouts,schedule-gpu{descriptors=true},emit-gpu-kernels" | filecheck %s --check-prefix=KERNEL

// Scales of rows and columns, a bias, sums as fast as tensor cores make them: one kernel.

// OLD-LABEL: func.func @rows
// OLD: op = "aten._scaled_mm.default"
// CHECK-LABEL: func.func @rows
// CHECK: %[[P:.*]] = "kiln.matmul"(%arg0, %arg1) {fast_sums, {{.*}} -> tensor<64x512xf32>
// CHECK: linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0, 0)>, affine_map<(d0, d1) -> (0, d1)>, affine_map<(d0, d1) -> (d1)>, affine_map<(d0, d1) -> (d0, d1)>]
// CHECK: arith.extf %{{.*}} : bf16 to f32
// CHECK: arith.truncf
// KERNEL: "tt.func"
// KERNEL: "tt.dot"{{.*}} {inputPrecision = 2 : i32, maxNumImpreciseAcc = 1073741824 : i32}
// KERNEL-SAME: f8E4M3FN
// KERNEL: "tt.store"
func.func @rows(%x: tensor<64x1024xf8E4M3FN>, %w: tensor<1024x512xf8E4M3FN> {kiln.strides = affine_map<() -> (1, 1024)>},
    %a: tensor<64x1xf32>, %b: tensor<1x512xf32>, %c: tensor<512xbf16>) -> tensor<64x512xbf16> {
  %0 = "kiln.aten"(%x, %w, %a, %b, %c)
      {args = "[{\22operand\22: 0}, {\22operand\22: 1}, {\22operand\22: 2}, {\22operand\22: 3}, {\22operand\22: 4}, null, {\22dtype\22: \22bfloat16\22}, true]",
       kwargs = "{}", op = "aten._scaled_mm.default", pure = true, shapes = [affine_map<() -> (64, 512)>], strides = [unit]}
    : (tensor<64x1024xf8E4M3FN>, tensor<1024x512xf8E4M3FN>, tensor<64x1xf32>, tensor<1x512xf32>, tensor<512xbf16>) -> tensor<64x512xbf16>
  return %0 : tensor<64x512xbf16>
}

// -----

// Results of 8 bits, mixed operands, many rows: calls.

// CHECK-LABEL: func.func @calls
// CHECK-COUNT-3: op = "aten._scaled_mm.default"
// CHECK-NOT: kiln.matmul
func.func @calls(%x: tensor<16x64xf8E4M3FN>, %w: tensor<64x32xf8E4M3FN>, %v: tensor<64x32xf8E5M2>, %s: tensor<f32>,
    %y: tensor<4096x64xf8E4M3FN>) -> (tensor<16x32xf8E4M3FN>, tensor<16x32xbf16>, tensor<4096x32xbf16>) {
  %0 = "kiln.aten"(%x, %w, %s, %s) {args = "[{\22operand\22: 0}, {\22operand\22: 1}, {\22operand\22: 2}, {\22operand\22: 3}]", kwargs = "{}",
      op = "aten._scaled_mm.default", pure = true, shapes = [affine_map<() -> (16, 32)>], strides = [unit]}
    : (tensor<16x64xf8E4M3FN>, tensor<64x32xf8E4M3FN>, tensor<f32>, tensor<f32>) -> tensor<16x32xf8E4M3FN>
  %1 = "kiln.aten"(%x, %v, %s, %s) {args = "[{\22operand\22: 0}, {\22operand\22: 1}, {\22operand\22: 2}, {\22operand\22: 3}]", kwargs = "{}",
      op = "aten._scaled_mm.default", pure = true, shapes = [affine_map<() -> (16, 32)>], strides = [unit]}
    : (tensor<16x64xf8E4M3FN>, tensor<64x32xf8E5M2>, tensor<f32>, tensor<f32>) -> tensor<16x32xbf16>
  %2 = "kiln.aten"(%y, %w, %s, %s) {args = "[{\22operand\22: 0}, {\22operand\22: 1}, {\22operand\22: 2}, {\22operand\22: 3}]", kwargs = "{}",
      op = "aten._scaled_mm.default", pure = true, shapes = [affine_map<() -> (4096, 32)>], strides = [unit]}
    : (tensor<4096x64xf8E4M3FN>, tensor<64x32xf8E4M3FN>, tensor<f32>, tensor<f32>) -> tensor<4096x32xbf16>
  return %0, %1, %2 : tensor<16x32xf8E4M3FN>, tensor<16x32xbf16>, tensor<4096x32xbf16>
}

// -----

// One scale for each operand: cuBLAS is faster; with one-scale a product all the same.

// CHECK-LABEL: func.func @tensors
// CHECK: op = "aten._scaled_mm.default"
// ALL-LABEL: func.func @tensors
// ALL: "kiln.matmul"(%arg0, %arg1)
// ALL: linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> ()>, affine_map<(d0, d1) -> (0, 0)>, affine_map<(d0, d1) -> (d0, d1)>]
func.func @tensors(%x: tensor<16x64xf8E4M3FN>, %w: tensor<64x32xf8E4M3FN>, %a: tensor<f32>, %b: tensor<1x1xf32>)
    -> tensor<16x32xf16> {
  %0 = "kiln.aten"(%x, %w, %a, %b) {args = "[{\22operand\22: 0}, {\22operand\22: 1}, {\22operand\22: 2}, {\22operand\22: 3}]", kwargs = "{}",
      op = "aten._scaled_mm.default", pure = true, shapes = [affine_map<() -> (16, 32)>], strides = [unit]}
    : (tensor<16x64xf8E4M3FN>, tensor<64x32xf8E4M3FN>, tensor<f32>, tensor<1x1xf32>) -> tensor<16x32xf16>
  return %0 : tensor<16x32xf16>
}
