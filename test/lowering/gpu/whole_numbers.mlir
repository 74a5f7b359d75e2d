// Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// RUN: kiln-opt %s --pass-pipeline="fuse,assign-layouts,schedule-gpu,emit-gpu-kernels" | filecheck %s

// ceil and floor of f32 are one conversion each, which has denormal numbers as they are: ceil(1e-40) is 1.
// CHECK-NOT: math.ceil
// CHECK: asm_string = "cvt.rpi.f32.f32 $0, $1;"
// CHECK-NOT: math.floor
// CHECK: asm_string = "cvt.rmi.f32.f32 $0, $1;"
func.func @main(%x: tensor<4096xf32>) -> tensor<4096xf32> {
  %e = "kiln.empty"() {shape = affine_map<() -> (4096)>} : () -> tensor<4096xf32>
  %0 = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>],
      iterator_types = ["parallel"]} ins(%x : tensor<4096xf32>) outs(%e : tensor<4096xf32>) {
  ^bb0(%in: f32, %out: f32):
    %a = math.ceil %in : f32
    %b = math.floor %in : f32
    %c = arith.addf %a, %b : f32
    linalg.yield %c : f32
  } -> tensor<4096xf32>
  return %0 : tensor<4096xf32>
}
