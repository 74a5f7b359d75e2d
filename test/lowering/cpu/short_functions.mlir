// Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// RUN: kiln-opt %s --cpu=x86-64-v4 --split-input-file --pass-pipeline="fuse,assign-layouts,emit-cpu-kernels" | filecheck %s

// What is only added to one before 16 bits of it are stored takes the short formula.

// CHECK-LABEL: func.func @generic
// CHECK: math.erf {{.*}} fastmath<afn>
func.func @stored_in_16_bits(%x: tensor<64xbf16>) -> tensor<64xbf16> {
  %e = "kiln.empty"() {shape = affine_map<() -> (64)>} : () -> tensor<64xbf16>
  %r = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>], iterator_types = ["parallel"]} ins(%x : tensor<64xbf16>) outs(%e : tensor<64xbf16>) {
  ^bb0(%a: bf16, %o: bf16):
    %one = arith.constant 1.0 : f32
    %0 = arith.extf %a : bf16 to f32
    %1 = math.erf %0 : f32
    %2 = arith.addf %1, %one : f32
    %3 = arith.mulf %0, %2 : f32
    %4 = arith.truncf %3 : f32 to bf16
    linalg.yield %4 : bf16
  } -> tensor<64xbf16>
  return %r : tensor<64xbf16>
}

// -----

// Not where the function is a result itself.

// CHECK-LABEL: func.func @generic
// CHECK-NOT: afn
// CHECK: math.erf
// CHECK-NOT: afn
func.func @alone(%x: tensor<64xbf16>) -> tensor<64xbf16> {
  %e = "kiln.empty"() {shape = affine_map<() -> (64)>} : () -> tensor<64xbf16>
  %r = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>], iterator_types = ["parallel"]} ins(%x : tensor<64xbf16>) outs(%e : tensor<64xbf16>) {
  ^bb0(%a: bf16, %o: bf16):
    %0 = arith.extf %a : bf16 to f32
    %1 = math.erf %0 : f32
    %2 = arith.truncf %1 : f32 to bf16
    linalg.yield %2 : bf16
  } -> tensor<64xbf16>
  return %r : tensor<64xbf16>
}

// -----

// Nor where all bits are stored.

// CHECK-LABEL: func.func @generic
// CHECK-NOT: afn
// CHECK: math.exp
// CHECK-NOT: afn
func.func @stored_in_32_bits(%x: tensor<64xf32>) -> tensor<64xf32> {
  %e = "kiln.empty"() {shape = affine_map<() -> (64)>} : () -> tensor<64xf32>
  %r = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>], iterator_types = ["parallel"]} ins(%x : tensor<64xf32>) outs(%e : tensor<64xf32>) {
  ^bb0(%a: f32, %o: f32):
    %one = arith.constant 1.0 : f32
    %0 = math.exp %a : f32
    %1 = arith.addf %0, %one : f32
    linalg.yield %1 : f32
  } -> tensor<64xf32>
  return %r : tensor<64xf32>
}
