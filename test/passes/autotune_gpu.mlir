// Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// RUN: kiln-opt %s --split-input-file --remarks --mlir-print-local-scope --pass-pipeline="assign-layouts,schedule-gpu,autotune-gpu{seconds=0.001}" 2> %t.remarks | filecheck %s
// RUN: filecheck %s --check-prefix=WHY --input-file %t.remarks
// RUN: kiln-opt %s --split-input-file --remarks --pass-pipeline="assign-layouts,schedule-gpu,autotune-gpu{graph-seconds=-1 device=cuda:0 arch=sm_90}" -o %t.ignored 2> %t.late
// RUN: filecheck %s --check-prefix=LATE --input-file %t.late

// With a GPU, whichever is the fastest; without one, the reason.

// WHY: neg: {{(.*tried:|not tuned: there is no GPU to run it on)}}
// LATE: neg: not tuned: the -1 s for this graph are over
// CHECK-LABEL: func.func @pointwise
// CHECK: kind = "pointwise"
// CHECK-SAME: schedule = {kernel = "gpu.loops", nests = [{num_warps = {{[0-9]+}} : i64, tile = [{{[0-9]+}}]}]}
func.func @pointwise(%x: tensor<4096xf32>) -> tensor<4096xf32> {
  %0 = "kiln.fusion"(%x) ({
  ^bb0(%a: tensor<4096xf32>):
    %e = "kiln.empty"() {shape = affine_map<() -> (4096)>} : () -> tensor<4096xf32>
    %r = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>],
        iterator_types = ["parallel"]} ins(%a : tensor<4096xf32>) outs(%e : tensor<4096xf32>) {
    ^bb0(%i: f32, %o: f32):
      %s = arith.negf %i : f32
      linalg.yield %s : f32
    } -> tensor<4096xf32>
    "kiln.yield"(%r) : (tensor<4096xf32>) -> ()
  }) {kind = "pointwise", name = "neg"} : (tensor<4096xf32>) -> tensor<4096xf32>
  return %0 : tensor<4096xf32>
}

// -----

// Equal kernels are tuned once, a kernel without a schedule is left alone.

// LATE: f: not tuned: the -1 s for this graph are over
// LATE: g: not tuned: the -1 s for this graph are over
// CHECK-LABEL: func.func @equal
// CHECK: kernel = "[[KERNEL:[a-z_.]+]]"
// CHECK: kernel = "[[KERNEL]]"
func.func @equal(%x: tensor<32x64xbf16>, %w: tensor<64x64xbf16>) -> (tensor<32x64xbf16>, tensor<32x64xbf16>) {
  %0 = "kiln.fusion"(%x, %w) ({
  ^bb0(%a: tensor<32x64xbf16>, %b: tensor<64x64xbf16>):
    %r = "kiln.matmul"(%a, %b) {transpose_lhs = false, transpose_rhs = true} : (tensor<32x64xbf16>, tensor<64x64xbf16>) -> tensor<32x64xbf16>
    "kiln.yield"(%r) : (tensor<32x64xbf16>) -> ()
  }) {kind = "matmul", name = "f"} : (tensor<32x64xbf16>, tensor<64x64xbf16>) -> tensor<32x64xbf16>
  %1 = "kiln.fusion"(%0, %w) ({
  ^bb0(%a: tensor<32x64xbf16>, %b: tensor<64x64xbf16>):
    %r = "kiln.matmul"(%a, %b) {transpose_lhs = false, transpose_rhs = true} : (tensor<32x64xbf16>, tensor<64x64xbf16>) -> tensor<32x64xbf16>
    "kiln.yield"(%r) : (tensor<32x64xbf16>) -> ()
  }) {kind = "matmul", name = "g"} : (tensor<32x64xbf16>, tensor<64x64xbf16>) -> tensor<32x64xbf16>
  return %0, %1 : tensor<32x64xbf16>, tensor<32x64xbf16>
}
