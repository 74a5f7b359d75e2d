// Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// What is left is the op that is wrong, on tensors of one element; it still fails in the same way.
// RUN: kiln-reduce --load=%S/Inputs/planted.py --verify-numerics --pass-pipeline="swap-division" %s -o %t.mlir
// RUN: filecheck %s --input-file %t.mlir
// RUN: not kiln-opt --load=%S/Inputs/planted.py --verify-numerics --pass-pipeline="swap-division" %t.mlir 2>&1 | filecheck %s --check-prefix=STILL
// RUN: kiln-reduce --load=%S/Inputs/planted.py --pass-pipeline="abort-process" %s | filecheck %s --check-prefix=ABORT
// RUN: kiln-reduce --test="%python %S/Inputs/holds_division.py" %s | filecheck %s --check-prefix=TEST

// CHECK-NOT: arith.addf
// CHECK: arith.divf {{.*}} : f32
// CHECK-NOT: arith.mulf
// CHECK: return {{.*}} : tensor<1x1xf32>
// STILL: note: in pass 'swap-division'
// ABORT-NOT: arith.addf
// ABORT: arith.divf
// ABORT: return {{.*}} : tensor<1x1xf32>
// TEST-NOT: arith.addf
// TEST: arith.divf
// TEST: return {{.*}} : tensor<1x1xf32>

#id = affine_map<(d0, d1) -> (d0, d1)>
#row = affine_map<(d0, d1) -> (d1)>
func.func @main(%x: tensor<8x16xf32>, %y: tensor<16xf32>) -> (tensor<8x16xf32>, tensor<8x16xf32>) {
  %v = "kiln.view"(%y) {map = affine_map<(d0) -> (-d0 + 15)>, shape = affine_map<() -> (16)>} : (tensor<16xf32>) -> tensor<16xf32>
  %e = "kiln.empty"() {shape = affine_map<() -> (8, 16)>} : () -> tensor<8x16xf32>
  %0 = linalg.generic {indexing_maps = [#id, #row, #id], iterator_types = ["parallel", "parallel"]}
    ins(%x, %v : tensor<8x16xf32>, tensor<16xf32>) outs(%e : tensor<8x16xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %s = arith.addf %a, %b : f32
    linalg.yield %s : f32
  } -> tensor<8x16xf32>
  %1 = linalg.generic {indexing_maps = [#id, #row, #id], iterator_types = ["parallel", "parallel"]}
    ins(%0, %v : tensor<8x16xf32>, tensor<16xf32>) outs(%e : tensor<8x16xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %q = arith.divf %a, %b : f32
    %m = arith.mulf %q, %q : f32
    linalg.yield %m : f32
  } -> tensor<8x16xf32>
  return %1, %0 : tensor<8x16xf32>, tensor<8x16xf32>
}
