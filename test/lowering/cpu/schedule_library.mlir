// Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// MKL is in wheels of PyTorch for x86.
// REQUIRES: x86
// RUN: kiln-opt %s --cpu=x86-64-v4+library=32 --pass-pipeline="fuse{row-blocks=false},assign-layouts,schedule-cpu" | filecheck %s
// RUN: kiln-opt %s --cpu=x86-64-v4+library=64 --pass-pipeline="fuse{row-blocks=false},assign-layouts,schedule-cpu" | filecheck %s --check-prefix=MKL
// RUN: kiln-opt %s --cpu=x86-64-v3+library=32 --pass-pipeline="fuse{row-blocks=false},assign-layouts,schedule-cpu" | filecheck %s --check-prefix=MKL
// RUN: kiln-opt %s --cpu=x86-64-v4+library=32 --remarks --pass-pipeline="fuse{row-blocks=false},assign-layouts,schedule-cpu" 2>&1 | filecheck %s --check-prefix=WHY

// MKL keeps to AVX2 on AMD's processors: half as fast as kernels for AVX-512, so that it is not called there.
// WHY-COUNT-2: 32 of the 64 bytes

// CHECK-LABEL: func.func @layer(
// CHECK: kernel = "cpu.gemm.blocked"
// MKL-LABEL: func.func @layer(
// MKL: kernel = "cpu.gemm.vendor"
func.func @layer(%x: tensor<512x768xf32>, %w: tensor<768x768xf32>) -> tensor<512x768xf32> {
  %0 = "kiln.matmul"(%x, %w) {transpose_lhs = false, transpose_rhs = true}
    : (tensor<512x768xf32>, tensor<768x768xf32>) -> tensor<512x768xf32>
  return %0 : tensor<512x768xf32>
}

// CHECK-LABEL: func.func @layer_kn(
// CHECK: kernel = "cpu.gemm.blocked"
// MKL-LABEL: func.func @layer_kn(
// MKL: kernel = "cpu.gemm.vendor"
func.func @layer_kn(%x: tensor<512x768xf32>, %w: tensor<768x768xf32>) -> tensor<512x768xf32> {
  %0 = "kiln.matmul"(%x, %w) {transpose_lhs = false, transpose_rhs = false}
    : (tensor<512x768xf32>, tensor<768x768xf32>) -> tensor<512x768xf32>
  return %0 : tensor<512x768xf32>
}
