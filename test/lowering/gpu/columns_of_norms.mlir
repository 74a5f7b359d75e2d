// Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// RUN: kiln-opt %s --mlir-print-local-scope --pass-pipeline="fuse{row-blocks=false},assign-layouts,schedule-gpu" | filecheck %s

// The gradient of a norm's scale: sums along columns of a matrix, with two numbers that each row has in common. These lie
// in memory as the summed rows do, but are few: programs take strips of columns, as the matrix lies, not a column each.

// CHECK-LABEL: func.func @scale_gradient
// CHECK: kiln.yield
// CHECK: schedule = {kernel = "gpu.loops", nests = [{num_warps = 4 : i64, row = 64 : i64, tile = [32]}]}
func.func @scale_gradient(%g: tensor<16384x768xbf16>, %x: tensor<16384x768xbf16>, %mean: tensor<16384xf32>, %rstd: tensor<16384xf32>) -> tensor<768xf32> {
  %z = arith.constant 0.0 : f32
  %e = "kiln.empty"() {shape = affine_map<() -> (768)>} : () -> tensor<768xf32>
  %i = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>], iterator_types = ["parallel"]} outs(%e : tensor<768xf32>) {
  ^bb0(%o: f32):
    linalg.yield %z : f32
  } -> tensor<768xf32>
  %r = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0)>, affine_map<(d0, d1) -> (d0)>, affine_map<(d0, d1) -> (d1)>], iterator_types = ["reduction", "parallel"]}
      ins(%g, %x, %mean, %rstd : tensor<16384x768xbf16>, tensor<16384x768xbf16>, tensor<16384xf32>, tensor<16384xf32>) outs(%i : tensor<768xf32>) {
  ^bb0(%a: bf16, %b: bf16, %m: f32, %s: f32, %o: f32):
    %0 = arith.extf %a : bf16 to f32
    %1 = arith.extf %b : bf16 to f32
    %2 = arith.subf %1, %m : f32
    %3 = arith.mulf %2, %s : f32
    %4 = arith.mulf %0, %3 : f32
    %5 = arith.addf %o, %4 : f32
    linalg.yield %5 : f32
  } -> tensor<768xf32>
  return %r : tensor<768xf32>
}
