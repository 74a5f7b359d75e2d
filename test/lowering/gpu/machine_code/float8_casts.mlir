// Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// REQUIRES: triton
// RUN: kiln-opt %s --split-input-file --pass-pipeline="fuse,assign-layouts,schedule-gpu,outline-kernels{gpu=true},emit-kernels{target=gpu},assemble{arch=sm_90}" --print-kernels=ptx | filecheck %s
// RUN: kiln-opt %s --split-input-file --pass-pipeline="fuse,assign-layouts,schedule-gpu{arch=sm_89},outline-kernels{gpu=true},emit-kernels{target=gpu},assemble{arch=sm_89}" --print-kernels=ptx | filecheck %s --check-prefix=L4
// RUN: kiln-opt %s --split-input-file --pass-pipeline="fuse,assign-layouts,schedule-gpu{arch=sm_80},outline-kernels{gpu=true},emit-kernels{target=gpu},assemble{arch=sm_80}" --print-kernels=ptx | filecheck %s --check-prefix=A100

// Conversions of 8-bit floats: the chip's own, and integer arithmetic before there were any.

// CHECK-LABEL: // kernel
// CHECK: cvt.rn.satfinite
// L4-LABEL: // kernel
// L4: cvt.rn.satfinite
// A100-LABEL: // kernel
// A100-NOT: cvt.rn.satfinite
// A100: .entry
// A100-NOT: cvt.rn.satfinite
func.func @main(%x: tensor<4096xf32>) -> tensor<4096xf8E4M3FN> {
  %e = "kiln.empty"() {shape = affine_map<() -> (4096)>} : () -> tensor<4096xf8E4M3FN>
  %r = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>], iterator_types = ["parallel"]}
      ins(%x : tensor<4096xf32>) outs(%e : tensor<4096xf8E4M3FN>) {
  ^bb0(%i: f32, %o: f8E4M3FN):
    %s = arith.truncf %i : f32 to f8E4M3FN
    linalg.yield %s : f8E4M3FN
  } -> tensor<4096xf8E4M3FN>
  return %r : tensor<4096xf8E4M3FN>
}

// -----

// CHECK-LABEL: // kernel
// CHECK: cvt{{.*}}e4m3x2
// L4-LABEL: // kernel
// L4: cvt{{.*}}e4m3x2
// A100-LABEL: // kernel
// A100-NOT: e4m3x2
// A100: .entry
// A100-NOT: e4m3x2
func.func @main(%x: tensor<4096xf8E4M3FN>) -> tensor<4096xf32> {
  %e = "kiln.empty"() {shape = affine_map<() -> (4096)>} : () -> tensor<4096xf32>
  %r = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>], iterator_types = ["parallel"]}
      ins(%x : tensor<4096xf8E4M3FN>) outs(%e : tensor<4096xf32>) {
  ^bb0(%i: f8E4M3FN, %o: f32):
    %s = arith.extf %i : f8E4M3FN to f32
    linalg.yield %s : f32
  } -> tensor<4096xf32>
  return %r : tensor<4096xf32>
}

// -----

// CHECK-LABEL: // kernel
// CHECK: cvt.rn.satfinite
// L4-LABEL: // kernel
// L4: cvt.rn.satfinite
// A100-LABEL: // kernel
// A100-NOT: cvt.rn.satfinite
// A100: .entry
// A100-NOT: cvt.rn.satfinite
func.func @main(%x: tensor<4096xf32>) -> tensor<4096xf8E5M2> {
  %e = "kiln.empty"() {shape = affine_map<() -> (4096)>} : () -> tensor<4096xf8E5M2>
  %r = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>], iterator_types = ["parallel"]}
      ins(%x : tensor<4096xf32>) outs(%e : tensor<4096xf8E5M2>) {
  ^bb0(%i: f32, %o: f8E5M2):
    %s = arith.truncf %i : f32 to f8E5M2
    linalg.yield %s : f8E5M2
  } -> tensor<4096xf8E5M2>
  return %r : tensor<4096xf8E5M2>
}

// -----

// CHECK-LABEL: // kernel
// CHECK: cvt{{.*}}e5m2x2
// L4-LABEL: // kernel
// L4: cvt{{.*}}e5m2x2
// A100-LABEL: // kernel
// A100-NOT: e5m2x2
// A100: .entry
// A100-NOT: e5m2x2
func.func @main(%x: tensor<4096xf8E5M2>) -> tensor<4096xf32> {
  %e = "kiln.empty"() {shape = affine_map<() -> (4096)>} : () -> tensor<4096xf32>
  %r = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>], iterator_types = ["parallel"]}
      ins(%x : tensor<4096xf8E5M2>) outs(%e : tensor<4096xf32>) {
  ^bb0(%i: f8E5M2, %o: f32):
    %s = arith.extf %i : f8E5M2 to f32
    linalg.yield %s : f32
  } -> tensor<4096xf32>
  return %r : tensor<4096xf32>
}
