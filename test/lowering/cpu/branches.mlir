// Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// RUN: kiln-opt %s --cpu=x86-64-v3 --mlir-print-local-scope --pass-pipeline="expand-named-ops{keep=matmul,attention,scan},fuse,assign-layouts,emit-cpu-kernels" | filecheck %s
// RUN: kiln-opt %s --cpu=x86-64-v4 --mlir-print-local-scope --pass-pipeline="expand-named-ops{keep=matmul,attention,scan},fuse,assign-layouts,emit-cpu-kernels" | filecheck %s --check-prefix=MASKS

// Below the padding of a window, in a kernel with lanes along channels, all lanes are in bounds or none is. Without
// registers for masks that is a branch around the load; with them it is a masked load.

// CHECK-LABEL: func.func @pad_generic
// CHECK: %[[X:.*]] = scf.if %[[INSIDE:.*]] -> (vector<32xf32>)
// CHECK-NEXT: %[[L:.*]] = vector.load %arg0
// CHECK-NEXT: scf.yield %[[L]]
// CHECK-NEXT: } else {
// CHECK: arith.select %[[INSIDE]], %[[X]], %{{.*}} : vector<32xf32>
// CHECK-NEXT: arith.maximumf
// CHECK-NOT: maskedload
// MASKS-LABEL: func.func @pad_generic
// MASKS: vector.maskedload
// MASKS-NOT: scf.if
func.func @pool(%x: tensor<2x9x9x64xf32>) -> tensor<2x5x5x64xf32> {
  %low = arith.constant 0xFF800000 : f32
  %p = "kiln.pad"(%x, %low) {low = affine_map<() -> (0, 1, 1, 0)>, high = affine_map<() -> (0, 1, 1, 0)>, shape = affine_map<() -> (2, 11, 11, 64)>} : (tensor<2x9x9x64xf32>, f32) -> tensor<2x11x11x64xf32>
  %e = "kiln.empty"() {shape = affine_map<() -> (2, 5, 5, 64)>} : () -> tensor<2x5x5x64xf32>
  %w = "kiln.empty"() {shape = affine_map<() -> (3, 3)>} : () -> tensor<3x3xf32>
  %i = linalg.generic {indexing_maps = [affine_map<(d0, d1, d2, d3) -> (d0, d1, d2, d3)>], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} outs(%e : tensor<2x5x5x64xf32>) {
  ^bb0(%o: f32):
    linalg.yield %low : f32
  } -> tensor<2x5x5x64xf32>
  %r = linalg.generic {indexing_maps = [affine_map<(d0, d1, d2, d3, d4, d5) -> (d0, d1 * 2 + d4, d2 * 2 + d5, d3)>, affine_map<(d0, d1, d2, d3, d4, d5) -> (d4, d5)>, affine_map<(d0, d1, d2, d3, d4, d5) -> (d0, d1, d2, d3)>], iterator_types = ["parallel", "parallel", "parallel", "parallel", "reduction", "reduction"]} ins(%p, %w : tensor<2x11x11x64xf32>, tensor<3x3xf32>) outs(%i : tensor<2x5x5x64xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %0 = arith.maximumf %o, %a : f32
    linalg.yield %0 : f32
  } -> tensor<2x5x5x64xf32>
  return %r : tensor<2x5x5x64xf32>
}
