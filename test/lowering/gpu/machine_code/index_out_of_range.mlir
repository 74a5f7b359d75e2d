// Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// REQUIRES: triton
// RUN: kiln-opt %s --split-input-file --pass-pipeline="expand-named-ops{keep=scan},compose-views,canonicalize,cse,fuse,assign-layouts,schedule-gpu,outline-kernels{gpu=true},emit-kernels{target=gpu},assemble{arch=sm_90}" --print-kernels=ptx | filecheck %s
// RUN: kiln-opt %s --split-input-file --pass-pipeline="expand-named-ops{keep=scan},compose-views,canonicalize,cse,fuse,assign-layouts,schedule-gpu{arch=sm_80},outline-kernels{gpu=true},emit-kernels{target=gpu},assemble{arch=sm_80}" --print-kernels=ptx | filecheck %s
// RUN: kiln-opt %s --split-input-file --pass-pipeline="expand-named-ops{keep=scan},compose-views,canonicalize,cse,fuse,assign-layouts,schedule-gpu,outline-kernels{gpu=true},emit-kernels{target=gpu},assemble{arch=sm_90}" --print-kernels=llir | filecheck %s --check-prefix=LLIR

// An index out of range is an assertion that names the op.

// CHECK: __assertfail
// LLIR: index out of range in aten.index_select
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
