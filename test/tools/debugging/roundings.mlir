// Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// A rounding to 16 bits that is left out makes results more exact, and other than those of the module before.
// RUN: not kiln-opt --load=%S/Inputs/planted.py --verify-numerics --pass-pipeline="drop-rounding" %s 2>&1 | filecheck %s

// CHECK: error: the pass changes numbers (normal inputs): result 0[{{[0-9]+}}]: {{[0-9]+}}% of elements are rounded otherwise

#id = affine_map<(d0) -> (d0)>
func.func @main(%x: tensor<64xf32>) -> tensor<64xf32> {
  %e = "kiln.empty"() {shape = affine_map<() -> (64)>} : () -> tensor<64xf32>
  %0 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]}
    ins(%x : tensor<64xf32>) outs(%e : tensor<64xf32>) {
  ^bb0(%a: f32, %o: f32):
    %h = arith.truncf %a : f32 to bf16
    %w = arith.extf %h : bf16 to f32
    %s = arith.addf %w, %a : f32
    linalg.yield %s : f32
  } -> tensor<64xf32>
  return %0 : tensor<64xf32>
}
