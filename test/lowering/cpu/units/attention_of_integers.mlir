// Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// RUN: kiln-opt %s --verify-diagnostics

// Scores are no integers: there is no attention of i8 for any unit to compute.
func.func @main(%q: tensor<4x64x64xi8>, %k: tensor<4x128x64xi8>, %v: tensor<4x128x64xi8>) -> tensor<4x64x64xi8> {
  // expected-error @+1 {{query element type: expected a float type, found i8}}
  %0 = "kiln.attention"(%q, %k, %v) {scale = 0.125 : f64, causal = false}
    : (tensor<4x64x64xi8>, tensor<4x128x64xi8>, tensor<4x128x64xi8>) -> tensor<4x64x64xi8>
  return %0 : tensor<4x64x64xi8>
}
