// Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// REQUIRES: triton
// RUN: kiln-opt %s --split-input-file --pass-pipeline="expand-named-ops{keep=scan},compose-views,canonicalize,cse,fuse,assign-layouts,schedule-gpu{arch=sm_80},outline-kernels{gpu=true},emit-kernels{target=gpu},assemble{arch=sm_80}" --print-kernels=ptx | filecheck %s
// RUN: kiln-opt %s --split-input-file --pass-pipeline="expand-named-ops{keep=scan},compose-views,canonicalize,cse,fuse,assign-layouts,schedule-gpu{arch=gfx942},outline-kernels{gpu=true},emit-kernels{target=gpu backend=hip},assemble{arch=gfx942}" --print-kernels=ptx | filecheck %s --check-prefix=MI300

// Kernels of loops for an A100 and an MI300X.

// CHECK-LABEL: // kernel
// CHECK: .target sm_80
// MI300-LABEL: // kernel
// MI300: .amdgcn_target
func.func @main(%x: tensor<64x1000xbf16>) -> tensor<64x1000xbf16> {
  %0 = "kiln.softmax"(%x) {dim = 1 : i64, log = false} : (tensor<64x1000xbf16>) -> tensor<64x1000xbf16>
  return %0 : tensor<64x1000xbf16>
}

// -----

// CHECK-LABEL: // kernel
// CHECK: .target sm_80
// MI300-LABEL: // kernel
// MI300: .amdgcn_target
func.func @main(%t: tensor<50xf32>, %i: tensor<1000xi64>) -> tensor<1000xf32> {
  %e = "kiln.empty"() {shape = affine_map<() -> (1000)>} : () -> tensor<1000xf32>
  %r = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>],
      iterator_types = ["parallel"]} ins(%i : tensor<1000xi64>) outs(%e : tensor<1000xf32>) {
  ^bb0(%at: i64, %o: f32):
    %zero = arith.constant 0 : i64
    %last = arith.constant 49 : i64
    %low = arith.maxsi %at, %zero : i64
    %in = arith.minsi %low, %last {kiln.checked = "aten.index_select"} : i64
    %x = arith.index_cast %in : i64 to index
    %v = tensor.extract %t[%x] : tensor<50xf32>
    linalg.yield %v : f32
  } -> tensor<1000xf32>
  return %r : tensor<1000xf32>
}
