// Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// RUN: kiln-opt %s --split-input-file --verify-numerics --pass-pipeline="expand-named-ops,compose-views,split-reductions{sms=132 group-channels=16}" | filecheck %s
// RUN: kiln-opt %s --split-input-file --pass-pipeline="expand-named-ops,compose-views,split-reductions{sms=2 group-channels=16}" | filecheck %s --check-prefix=BUSY
// RUN: kiln-opt %s --split-input-file --pass-pipeline="expand-named-ops,compose-views,split-reductions{sms=2 group-channels=16 l2-bytes=65536}" | filecheck %s

// Two groups of two planes, too few for a GPU's programs: the sums and the squared distances of parts of a plane, each
// of which a program holds, and then those of all parts. A GPU with two multiprocessors is busy with two groups; it
// takes parts if its cache does not have the image again.

// CHECK-LABEL: func.func @few_groups
// CHECK: outs(%{{.*}} : tensor<1x2x2x2xf32>)
// CHECK: ins(%{{.*}} : tensor<1x2x2x2xf32>) outs(%{{.*}} : tensor<1x2xf32>)
// CHECK: arith.subf %{{.*}} {kiln.exact}
// CHECK: ins(%{{.*}} : tensor<1x2x2x2xf32>, tensor<1x2x2x2xf32>, tensor<1x2xf32>) outs(%{{.*}} : tensor<1x2xf32>)
// BUSY-LABEL: func.func @few_groups
// BUSY-NOT: tensor<1x2x2x2xf32>
// BUSY: return
func.func @few_groups(%x: tensor<1x4x128x160xf32>) -> tensor<1x4x128x160xf32> {
  %0 = "kiln.group_norm"(%x) {groups = 2 : i64, eps = 1.0e-05 : f64} : (tensor<1x4x128x160xf32>) -> tensor<1x4x128x160xf32>
  return %0 : tensor<1x4x128x160xf32>
}

// -----

// A program has such a group in its registers, and reads it once.

// CHECK-LABEL: func.func @held
// CHECK-NOT: tensor<1x{{[0-9]+}}x2x2xf32>
// CHECK: return
// BUSY-LABEL: func.func @held
func.func @held(%x: tensor<1x4x64x64xf32>) -> tensor<1x4x64x64xf32> {
  %0 = "kiln.group_norm"(%x) {groups = 2 : i64, eps = 1.0e-05 : f64} : (tensor<1x4x64x64xf32>) -> tensor<1x4x64x64xf32>
  return %0 : tensor<1x4x64x64xf32>
}

// -----

// A sum alone is read once however it is cut: parts of a group, as of any long sum.

// CHECK-LABEL: func.func @sum
// CHECK-NOT: tensor<1x{{[0-9]+}}x2x2xf32>
// CHECK: return
// BUSY-LABEL: func.func @sum
func.func @sum(%x: tensor<1x2x2x128x160xf32>) -> tensor<1x2xf32> {
  %c = arith.constant 0.0 : f32
  %e = "kiln.empty"() {shape = affine_map<() -> (1, 2)>} : () -> tensor<1x2xf32>
  %fill = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>], iterator_types = ["parallel", "parallel"]}
    outs(%e : tensor<1x2xf32>) {
  ^bb0(%o: f32):
    linalg.yield %c : f32
  } -> tensor<1x2xf32>
  %sum = linalg.generic {indexing_maps = [affine_map<(a, b, c, d, e) -> (a, b, c, d, e)>, affine_map<(a, b, c, d, e) -> (a, b)>],
      iterator_types = ["parallel", "parallel", "reduction", "reduction", "reduction"]}
      ins(%x : tensor<1x2x2x128x160xf32>) outs(%fill : tensor<1x2xf32>) {
  ^bb0(%i: f32, %o: f32):
    %a = arith.addf %o, %i : f32
    linalg.yield %a : f32
  } -> tensor<1x2xf32>
  return %sum : tensor<1x2xf32>
}
