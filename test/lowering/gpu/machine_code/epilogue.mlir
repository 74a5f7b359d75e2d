// Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// REQUIRES: triton
// RUN: kiln-opt %s --split-input-file --pass-pipeline=fuse --pipeline=gpu --from=fused --until=ptx | filecheck %s
// RUN: kiln-opt %s --split-input-file --pass-pipeline="fuse,assign-layouts,schedule-gpu,outline-kernels{gpu=true},emit-kernels{target=gpu},assemble{arch=sm_90}" --print-kernels=ptx | filecheck %s --check-prefix=POINTERS

// residual + gelu(x @ w^T + bias), and the sums before gelu as a second result: one kernel, whose registers hold tiles and
// epilogue. 512 x 3072 x 768 is a layer of BERT, with many sums a thread.

// CHECK-LABEL: // kernel matmul{{.*}} 0 bytes of stack
// CHECK: cp.async.bulk.tensor
// CHECK: wgmma.mma_async
// CHECK-NOT: // kernel
// POINTERS-LABEL: // kernel matmul{{.*}} 0 bytes of stack
// POINTERS-NOT: cp.async.bulk.tensor
// POINTERS: wgmma.mma_async
// POINTERS-NOT: cp.async.bulk.tensor
#both = affine_map<(d0, d1) -> (d0, d1)>
#column = affine_map<(d0, d1) -> (d1)>
func.func @main(%r: tensor<4096x4096xbf16>, %x: tensor<4096x4096xbf16>, %w: tensor<4096x4096xbf16>, %b: tensor<4096xbf16>) -> (tensor<4096x4096xbf16>, tensor<4096x4096xbf16>) {
  %1 = "kiln.matmul"(%x, %w) {transpose_lhs = false, transpose_rhs = true} : (tensor<4096x4096xbf16>, tensor<4096x4096xbf16>) -> tensor<4096x4096xbf16>
  %2 = "kiln.empty"() {shape = affine_map<() -> (4096, 4096)>} : () -> tensor<4096x4096xbf16>
  %3 = linalg.generic {indexing_maps = [#both, #column, #both], iterator_types = ["parallel", "parallel"]}
      ins(%1, %b : tensor<4096x4096xbf16>, tensor<4096xbf16>) outs(%2 : tensor<4096x4096xbf16>) {
  ^bb0(%in: bf16, %c: bf16, %out: bf16):
    %7 = arith.addf %in, %c : bf16
    linalg.yield %7 : bf16
  } -> tensor<4096x4096xbf16>
  %4 = linalg.generic {indexing_maps = [#both, #both, #both], iterator_types = ["parallel", "parallel"]}
      ins(%3, %r : tensor<4096x4096xbf16>, tensor<4096x4096xbf16>) outs(%2 : tensor<4096x4096xbf16>) {
  ^bb0(%in: bf16, %c: bf16, %out: bf16):
    %root = arith.constant 0.707106769 : bf16
    %half = arith.constant 0.5 : bf16
    %one = arith.constant 1.0 : bf16
    %8 = arith.mulf %in, %root : bf16
    %9 = math.erf %8 : bf16
    %10 = arith.mulf %in, %half : bf16
    %11 = arith.addf %9, %one : bf16
    %12 = arith.mulf %10, %11 : bf16
    %13 = arith.addf %12, %c : bf16
    linalg.yield %13 : bf16
  } -> tensor<4096x4096xbf16>
  return %4, %3 : tensor<4096x4096xbf16>, tensor<4096x4096xbf16>
}

// -----

// CHECK-LABEL: // kernel matmul{{.*}} 0 bytes of stack
// POINTERS-LABEL: // kernel matmul{{.*}} 0 bytes of stack
#both = affine_map<(d0, d1) -> (d0, d1)>
#column = affine_map<(d0, d1) -> (d1)>
func.func @main(%r: tensor<512x3072xbf16>, %x: tensor<512x768xbf16>, %w: tensor<3072x768xbf16>, %b: tensor<3072xbf16>) -> (tensor<512x3072xbf16>, tensor<512x3072xbf16>) {
  %1 = "kiln.matmul"(%x, %w) {transpose_lhs = false, transpose_rhs = true} : (tensor<512x768xbf16>, tensor<3072x768xbf16>) -> tensor<512x3072xbf16>
  %2 = "kiln.empty"() {shape = affine_map<() -> (512, 3072)>} : () -> tensor<512x3072xbf16>
  %3 = linalg.generic {indexing_maps = [#both, #column, #both], iterator_types = ["parallel", "parallel"]}
      ins(%1, %b : tensor<512x3072xbf16>, tensor<3072xbf16>) outs(%2 : tensor<512x3072xbf16>) {
  ^bb0(%in: bf16, %c: bf16, %out: bf16):
    %7 = arith.addf %in, %c : bf16
    linalg.yield %7 : bf16
  } -> tensor<512x3072xbf16>
  %4 = linalg.generic {indexing_maps = [#both, #both, #both], iterator_types = ["parallel", "parallel"]}
      ins(%3, %r : tensor<512x3072xbf16>, tensor<512x3072xbf16>) outs(%2 : tensor<512x3072xbf16>) {
  ^bb0(%in: bf16, %c: bf16, %out: bf16):
    %root = arith.constant 0.707106769 : bf16
    %half = arith.constant 0.5 : bf16
    %one = arith.constant 1.0 : bf16
    %8 = arith.mulf %in, %root : bf16
    %9 = math.erf %8 : bf16
    %10 = arith.mulf %in, %half : bf16
    %11 = arith.addf %9, %one : bf16
    %12 = arith.mulf %10, %11 : bf16
    %13 = arith.addf %12, %c : bf16
    linalg.yield %13 : bf16
  } -> tensor<512x3072xbf16>
  return %4, %3 : tensor<512x3072xbf16>, tensor<512x3072xbf16>
}
