// Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// RUN: not kiln-opt %s --pass-pipeline="fuse,schedule-gpu{arch=hopper}" 2>&1 | filecheck %s
// RUN: not kiln-opt %s --pass-pipeline="fuse,schedule-gpu{arch=sm90}" 2>&1 | filecheck %s
// RUN: not kiln-opt %s --pass-pipeline="fuse,schedule-gpu{arch=sm_}" 2>&1 | filecheck %s
// RUN: not kiln-opt %s --pass-pipeline="fuse,schedule-gpu{arch=''}" 2>&1 | filecheck %s

// What names no architecture is refused, with how one looks.

// CHECK: error: {{.*}}unknown GPU architecture {{.*}} expected one like 'sm_90'
func.func @main(%x: tensor<64x64xbf16>, %w: tensor<64x64xbf16>) -> tensor<64x64xbf16> {
  %0 = "kiln.matmul"(%x, %w) {transpose_lhs = false, transpose_rhs = true} : (tensor<64x64xbf16>, tensor<64x64xbf16>) -> tensor<64x64xbf16>
  return %0 : tensor<64x64xbf16>
}
