// Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// RUN: kiln-opt %s --pass-pipeline="fuse{most-accesses=4}" | filecheck %s
// RUN: kiln-opt %s --pass-pipeline="fuse" | filecheck %s --check-prefix=ANY
// RUN: kiln-opt %s --pass-pipeline="fuse{most-accesses=4}" --remarks -o /dev/null 2>&1 | filecheck %s --check-prefix=WHY

// Steps of a recurrence that is written out: three in one kernel load four times and store once, which is too much.
// Reads of one tensor at several indices are several.

#id = affine_map<(d0) -> (d0)>
#row0 = affine_map<(d0) -> (0, d0)>
#row1 = affine_map<(d0) -> (1, d0)>
#row2 = affine_map<(d0) -> (2, d0)>
#row3 = affine_map<(d0) -> (3, d0)>

// CHECK-LABEL: func.func @steps
// CHECK: "kiln.fusion"(%arg0)
// CHECK: "kiln.fusion"(%{{.*}}, %arg0)
// CHECK-NOT: "kiln.fusion"
// ANY-LABEL: func.func @steps
// ANY-COUNT-1: "kiln.fusion"
// ANY-NOT: "kiln.fusion"
// WHY: a kernel of 5 loads and stores: more than 4 take long to compile
func.func @steps(%a: tensor<4x8xf32>) -> tensor<8xf32> {
  %e = "kiln.empty"() {shape = affine_map<() -> (8)>} : () -> tensor<8xf32>
  %0 = linalg.generic {indexing_maps = [#row0, #row1, #id], iterator_types = ["parallel"]}
      ins(%a, %a : tensor<4x8xf32>, tensor<4x8xf32>) outs(%e : tensor<8xf32>) {
  ^bb0(%x: f32, %y: f32, %o: f32):
    %v = arith.addf %x, %y : f32
    linalg.yield %v : f32
  } -> tensor<8xf32>
  %1 = linalg.generic {indexing_maps = [#id, #row2, #id], iterator_types = ["parallel"]}
      ins(%0, %a : tensor<8xf32>, tensor<4x8xf32>) outs(%e : tensor<8xf32>) {
  ^bb0(%x: f32, %y: f32, %o: f32):
    %v = arith.mulf %x, %y : f32
    linalg.yield %v : f32
  } -> tensor<8xf32>
  %2 = linalg.generic {indexing_maps = [#id, #row3, #id], iterator_types = ["parallel"]}
      ins(%1, %a : tensor<8xf32>, tensor<4x8xf32>) outs(%e : tensor<8xf32>) {
  ^bb0(%x: f32, %y: f32, %o: f32):
    %v = arith.addf %x, %y : f32
    linalg.yield %v : f32
  } -> tensor<8xf32>
  return %2 : tensor<8xf32>
}
