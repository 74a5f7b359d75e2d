// Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// RUN: kiln-opt %s --pass-pipeline="fuse" | filecheck %s --check-prefix=LOOPS
// RUN: kiln-opt %s --pass-pipeline="fuse{cuts=true}" | filecheck %s --check-prefix=CUTS

// Both operands of the concatenation read an exponential. As loops of their own they would compute it twice, so that it
// and its first product are a kernel, and the copy another; where the loops are cut, all is one kernel.

// LOOPS: "kiln.fusion"
// LOOPS: math.exp
// LOOPS-NOT: "kiln.cat"
// LOOPS: "kiln.fusion"
// LOOPS: "kiln.cat"

// CUTS: "kiln.fusion"
// CUTS: math.exp
// CUTS: "kiln.cat"
// CUTS-NOT: "kiln.fusion"
func.func @shared(%x: tensor<256x512xbf16>, %y: tensor<256x512xbf16>) -> tensor<256x1024xbf16> {
  %f = "kiln.empty"() {shape = affine_map<() -> (256, 512)>} : () -> tensor<256x512xf32>
  %s = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0, d1)>],
      iterator_types = ["parallel", "parallel"]} ins(%x : tensor<256x512xbf16>) outs(%f : tensor<256x512xf32>) {
  ^bb0(%p: bf16, %o: f32):
    %w = arith.extf %p : bf16 to f32
    %t = math.exp %w : f32
    linalg.yield %t : f32
  } -> tensor<256x512xf32>
  %e = "kiln.empty"() {shape = affine_map<() -> (256, 512)>} : () -> tensor<256x512xbf16>
  %a = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0, d1)>],
      iterator_types = ["parallel", "parallel"]} ins(%s, %y : tensor<256x512xf32>, tensor<256x512xbf16>) outs(%e : tensor<256x512xbf16>) {
  ^bb0(%p: f32, %q: bf16, %o: bf16):
    %w = arith.extf %q : bf16 to f32
    %m = arith.mulf %p, %w : f32
    %t = arith.truncf %m : f32 to bf16
    linalg.yield %t : bf16
  } -> tensor<256x512xbf16>
  %b = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0, d1)>],
      iterator_types = ["parallel", "parallel"]} ins(%s, %y : tensor<256x512xf32>, tensor<256x512xbf16>) outs(%e : tensor<256x512xbf16>) {
  ^bb0(%p: f32, %q: bf16, %o: bf16):
    %w = arith.extf %q : bf16 to f32
    %m = arith.subf %p, %w : f32
    %t = arith.truncf %m : f32 to bf16
    linalg.yield %t : bf16
  } -> tensor<256x512xbf16>
  %c = "kiln.cat"(%a, %b) {dim = 1 : i64, shape = affine_map<() -> (256, 1024)>} : (tensor<256x512xbf16>, tensor<256x512xbf16>) -> tensor<256x1024xbf16>
  return %c : tensor<256x1024xbf16>
}
