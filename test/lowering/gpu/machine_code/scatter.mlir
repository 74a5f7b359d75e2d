// Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// REQUIRES: triton
// RUN: kiln-opt %s --split-input-file --pass-pipeline="fuse,assign-layouts,reuse-buffers,schedule-gpu,outline-kernels{gpu=true},emit-kernels{target=gpu},assemble{arch=sm_90}" --print-kernels=ptx | filecheck %s
// RUN: kiln-opt %s --split-input-file --pass-pipeline="fuse,assign-layouts,reuse-buffers,schedule-gpu{arch=sm_80},outline-kernels{gpu=true},emit-kernels{target=gpu},assemble{arch=sm_80}" --print-kernels=ptx | filecheck %s

// Writes with indices are atomic ops of the chip.

// CHECK-LABEL: // kernel scatter_nd
// CHECK: {{(atom|red)\.global.*add\.f32}}
func.func @main(%x: tensor<50x16xf32>, %s: tensor<700x16xf32>, %i: tensor<700x16xi64>) -> tensor<50x16xf32> {
  %e = "kiln.empty"() {shape = affine_map<() -> (50, 16)>} : () -> tensor<50x16xf32>
  %0 = "kiln.scatter_nd"(%e, %s, %i) {dims = array<i64: 0>, loops = array<i64: 1>, reduce = "sum", from_zero = true}
    : (tensor<50x16xf32>, tensor<700x16xf32>, tensor<700x16xi64>) -> tensor<50x16xf32>
  return %0 : tensor<50x16xf32>
}

// -----

// CHECK-LABEL: // kernel scatter_nd
// CHECK: {{(atom|red)\.global.*add\.f64}}
func.func @main(%x: tensor<50x16xf64>, %s: tensor<700x16xf64>, %i: tensor<700x16xi64>) -> tensor<50x16xf64> {
  %e = "kiln.empty"() {shape = affine_map<() -> (50, 16)>} : () -> tensor<50x16xf64>
  %0 = "kiln.scatter_nd"(%e, %s, %i) {dims = array<i64: 0>, loops = array<i64: 1>, reduce = "sum", from_zero = true}
    : (tensor<50x16xf64>, tensor<700x16xf64>, tensor<700x16xi64>) -> tensor<50x16xf64>
  return %0 : tensor<50x16xf64>
}

// -----

// CHECK-LABEL: // kernel scatter_nd
// CHECK: {{(atom|red)\.global.*add\.u64}}
func.func @main(%x: tensor<50x16xi64>, %s: tensor<700x16xi64>, %i: tensor<700x16xi64>) -> tensor<50x16xi64> {
  %e = "kiln.empty"() {shape = affine_map<() -> (50, 16)>} : () -> tensor<50x16xi64>
  %0 = "kiln.scatter_nd"(%e, %s, %i) {dims = array<i64: 0>, loops = array<i64: 1>, reduce = "sum", from_zero = true}
    : (tensor<50x16xi64>, tensor<700x16xi64>, tensor<700x16xi64>) -> tensor<50x16xi64>
  return %0 : tensor<50x16xi64>
}

// -----

// The bits of floats, whose order is that of integers.
// CHECK-LABEL: // kernel scatter_nd
// CHECK: {{(atom|red)\.global.*max\.s32}}
func.func @main(%x: tensor<50x16xf32>, %s: tensor<700x16xf32>, %i: tensor<700x16xi64>) -> tensor<50x16xf32> {
  %e = "kiln.empty"() {shape = affine_map<() -> (50, 16)>} : () -> tensor<50x16xf32>
  %0 = "kiln.scatter_nd"(%x, %s, %i) {dims = array<i64: 0>, loops = array<i64: 1>, reduce = "amax", from_zero = false}
    : (tensor<50x16xf32>, tensor<700x16xf32>, tensor<700x16xi64>) -> tensor<50x16xf32>
  return %0 : tensor<50x16xf32>
}

// -----

// CHECK-LABEL: // kernel scatter_nd
// CHECK: {{(atom|red)\.global.*min\.s64}}
func.func @main(%x: tensor<50x16xf64>, %s: tensor<700x16xf64>, %i: tensor<700x16xi64>) -> tensor<50x16xf64> {
  %e = "kiln.empty"() {shape = affine_map<() -> (50, 16)>} : () -> tensor<50x16xf64>
  %0 = "kiln.scatter_nd"(%x, %s, %i) {dims = array<i64: 0>, loops = array<i64: 1>, reduce = "amin", from_zero = false}
    : (tensor<50x16xf64>, tensor<700x16xf64>, tensor<700x16xi64>) -> tensor<50x16xf64>
  return %0 : tensor<50x16xf64>
}

// -----

// CHECK-LABEL: // kernel scatter_nd
// CHECK: {{(atom|red)\.global.*max\.s32}}
func.func @main(%x: tensor<50x16xi32>, %s: tensor<700x16xi32>, %i: tensor<700x16xi64>) -> tensor<50x16xi32> {
  %e = "kiln.empty"() {shape = affine_map<() -> (50, 16)>} : () -> tensor<50x16xi32>
  %0 = "kiln.scatter_nd"(%x, %s, %i) {dims = array<i64: 0>, loops = array<i64: 1>, reduce = "amax", from_zero = false}
    : (tensor<50x16xi32>, tensor<700x16xi32>, tensor<700x16xi64>) -> tensor<50x16xi32>
  return %0 : tensor<50x16xi32>
}

// -----

// Values that replace others need no atomic op.
// CHECK-LABEL: // kernel scatter_nd
// CHECK: st.global
func.func @main(%x: tensor<50x16xbf16>, %s: tensor<700x16xbf16>, %i: tensor<700x16xi64>) -> tensor<50x16xbf16> {
  %e = "kiln.empty"() {shape = affine_map<() -> (50, 16)>} : () -> tensor<50x16xbf16>
  %0 = "kiln.scatter_nd"(%x, %s, %i) {dims = array<i64: 0>, loops = array<i64: 1>, reduce = "none", from_zero = false}
    : (tensor<50x16xbf16>, tensor<700x16xbf16>, tensor<700x16xi64>) -> tensor<50x16xbf16>
  return %0 : tensor<50x16xbf16>
}
