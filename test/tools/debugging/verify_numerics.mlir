// Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// A pass that changes numbers fails, and names the result and its error; others around it do not.
// RUN: not kiln-opt --load=%S/Inputs/planted.py --verify-numerics --pass-pipeline="compose-views,swap-division,fuse" %s 2>&1 | filecheck %s
// RUN: not kiln-opt --load=%S/Inputs/planted.py --verify-numerics --pass-pipeline="uncounted-swap" %s 2>&1 | filecheck %s --check-prefix=SUM
// RUN: kiln-opt --verify-numerics --pass-pipeline="compose-views,sink-reshapes,canonicalize,cse,split-reductions,fuse,assign-layouts,schedule-cpu" --verify-kernels=cpu %s 2>&1 | filecheck %s --check-prefix=RIGHT

// CHECK: error: the pass changes numbers (normal inputs): result 0[{{[0-9]+, [0-9]+}}]: other numbers: expected
// CHECK: note: in pass 'swap-division'
// SUM: note: in pass 'uncounted-swap'
// RIGHT-NOT: changes numbers
// RIGHT: func.func @main

#id = affine_map<(d0, d1) -> (d0, d1)>
#row = affine_map<(d0, d1) -> (d1)>
func.func @main(%x: tensor<8x16xf32>, %y: tensor<16xf32>) -> tensor<8x16xf32> {
  %e = "kiln.empty"() {shape = affine_map<() -> (8, 16)>} : () -> tensor<8x16xf32>
  %0 = linalg.generic {indexing_maps = [#id, #row, #id], iterator_types = ["parallel", "parallel"]}
    ins(%x, %y : tensor<8x16xf32>, tensor<16xf32>) outs(%e : tensor<8x16xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %s = arith.addf %a, %b : f32
    %d = arith.subf %s, %a : f32
    %q = arith.divf %d, %s : f32
    linalg.yield %q : f32
  } -> tensor<8x16xf32>
  return %0 : tensor<8x16xf32>
}
