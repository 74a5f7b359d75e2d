// Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// RUN: kiln-opt %s --pass-pipeline="expand-named-ops{keep=conv}" | filecheck %s --check-prefix=CPU
// RUN: kiln-opt %s --pass-pipeline="expand-named-ops{keep=conv target=cuda}" | filecheck %s --check-prefix=GPU
// RUN: kiln-opt %s --verify-kernels=tt-cpu --pass-pipeline="expand-named-ops{keep=conv target=cuda},fuse{row-blocks=false},assign-layouts,schedule-gpu" | filecheck %s --check-prefix=KERNEL
// RUN: not kiln-opt %s --pass-pipeline="expand-named-ops{keep=conv target=cudda}" 2>&1 | filecheck %s --check-prefix=WRONG

// A GPU's kernel takes windows of any width and no transposed convolutions; the CPU's is the other way round.

// CPU-LABEL: func.func @wide
// CPU-NOT: kiln.conv
// CPU-LABEL: func.func @transposed
// CPU: "kiln.conv"
// GPU-LABEL: func.func @wide
// GPU: "kiln.conv"
// GPU-LABEL: func.func @transposed
// GPU-NOT: kiln.conv
// KERNEL-LABEL: func.func @wide
// KERNEL: kind = "conv"
// KERNEL-SAME: kernel = "gpu.conv.implicit"
// WRONG: unknown target 'cudda'; did you mean 'cuda'?
#result = affine_map<() -> (2, 16, 5, 24)>
#last = affine_map<() -> (1920, 1, 384, 16)>
func.func @wide(%x: tensor<2x8x5x64xf32>, %w: tensor<16x8x1x41xf32>) -> tensor<2x16x5x24xf32> {
  %0 = "kiln.conv"(%x, %w) {stride = array<i64: 1, 1>, padding = array<i64: 0, 0>, dilation = array<i64: 1, 1>,
    output_padding = array<i64: 0, 0>, groups = 1 : i64, transposed = false, shape = #result, strides = #last}
    : (tensor<2x8x5x64xf32>, tensor<16x8x1x41xf32>) -> tensor<2x16x5x24xf32>
  return %0 : tensor<2x16x5x24xf32>
}
func.func @transposed(%x: tensor<1x2x4x4xf32>, %w: tensor<2x3x3x3xf32>) -> tensor<1x3x6x6xf32> {
  %0 = "kiln.conv"(%x, %w) {stride = array<i64: 1, 1>, padding = array<i64: 0, 0>, dilation = array<i64: 1, 1>,
    output_padding = array<i64: 0, 0>, groups = 1 : i64, transposed = true}
    : (tensor<1x2x4x4xf32>, tensor<2x3x3x3xf32>) -> tensor<1x3x6x6xf32>
  return %0 : tensor<1x3x6x6xf32>
}
