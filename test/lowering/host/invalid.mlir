// Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// RUN: not kiln-opt %s --split-input-file --pass-pipeline="plan-host" 2>&1 | filecheck %s

// Modules that have no host plan.

// CHECK: error: {{.*}}no func.func @main
func.func @other() {
  return
}

// -----

// An op between kernels that is neither a launch nor a call.

// CHECK: error: {{.*}}arith.addf between kernels
func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = arith.addf %x, %x : tensor<4xf32>
  return %0 : tensor<4xf32>
}
