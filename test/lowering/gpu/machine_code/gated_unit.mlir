// Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// REQUIRES: triton
// RUN: kiln-opt %s --split-input-file --pass-pipeline=fuse --pipeline=gpu --from=fused --until=ptx | filecheck %s
// RUN: kiln-opt %s --split-input-file --pass-pipeline="fuse,assign-layouts,schedule-gpu,outline-kernels{gpu=true},emit-kernels{target=gpu},assemble{arch=sm_90}" --print-kernels=ptx | filecheck %s --check-prefix=POINTERS

// A gated unit: two products of one matrix meet in the epilogue, so both sums are in registers.

// CHECK-LABEL: // kernel matmul{{.*}} 0 bytes of stack, tensor maps of
// CHECK: cp.async.bulk.tensor
// CHECK: wgmma.mma_async
// CHECK-NOT: // kernel
// POINTERS-LABEL: // kernel matmul{{.*}} 0 bytes of stack
// POINTERS-NOT: cp.async.bulk.tensor
// POINTERS: wgmma.mma_async
// POINTERS-NOT: cp.async.bulk.tensor
#both = affine_map<(d0, d1) -> (d0, d1)>
func.func @main(%x: tensor<4096x1024xbf16>, %g: tensor<4096x1024xbf16>, %u: tensor<4096x1024xbf16>) -> tensor<4096x4096xbf16> {
  %1 = "kiln.matmul"(%x, %g) {transpose_lhs = false, transpose_rhs = true} : (tensor<4096x1024xbf16>, tensor<4096x1024xbf16>) -> tensor<4096x4096xbf16>
  %2 = "kiln.matmul"(%x, %u) {transpose_lhs = false, transpose_rhs = true} : (tensor<4096x1024xbf16>, tensor<4096x1024xbf16>) -> tensor<4096x4096xbf16>
  %e = "kiln.empty"() {shape = affine_map<() -> (4096, 4096)>} : () -> tensor<4096x4096xbf16>
  %3 = linalg.generic {indexing_maps = [#both, #both, #both], iterator_types = ["parallel", "parallel"]}
      ins(%1, %2 : tensor<4096x4096xbf16>, tensor<4096x4096xbf16>) outs(%e : tensor<4096x4096xbf16>) {
  ^bb0(%p: bf16, %q: bf16, %out: bf16):
    %zero = arith.constant 0.0 : bf16
    %7 = arith.maximumf %p, %zero : bf16
    %8 = arith.mulf %7, %q : bf16
    linalg.yield %8 : bf16
  } -> tensor<4096x4096xbf16>
  return %3 : tensor<4096x4096xbf16>
}
