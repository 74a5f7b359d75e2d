// Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// RUN: kiln-opt %s --split-input-file --verify-diagnostics --remarks --pass-pipeline=fuse
// RUN: kiln-opt %s --split-input-file --pass-pipeline="fuse{strategy=none}" | filecheck %s --check-prefix=NONE
// RUN: not kiln-opt %s --split-input-file --pass-pipeline="fuse{strategy=best}" 2>&1 | filecheck %s --check-prefix=BAD

// Every decision is a remark at the op's place. Without fusion each op is a kernel.

// BAD: pass 'fuse': strategy: expected 'greedy', 'search' or 'none', found 'best'

// NONE-LABEL: func.func @chain
// NONE-COUNT-2: "kiln.fusion"(
// NONE: return
func.func @chain(%x: tensor<8xf32>) -> tensor<8xf32> {
  %e = "kiln.empty"() {shape = affine_map<() -> (8)>} : () -> tensor<8xf32>
  // expected-remark @+1 {{fused into the kernel of linalg.generic: saves 64 B of traffic}}
  %a = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>], iterator_types = ["parallel"]} ins(%x : tensor<8xf32>) outs(%e : tensor<8xf32>) {
  ^bb0(%p: f32, %o: f32):
    %0 = math.exp %p : f32
    linalg.yield %0 : f32
  } -> tensor<8xf32>
  %b = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>], iterator_types = ["parallel"]} ins(%a : tensor<8xf32>) outs(%e : tensor<8xf32>) {
  ^bb0(%p: f32, %o: f32):
    %0 = arith.negf %p : f32
    linalg.yield %0 : f32
  } -> tensor<8xf32>
  return %b : tensor<8xf32>
}

// -----

// NONE-LABEL: func.func @flipped
func.func @flipped(%x: tensor<65536xf32>) -> tensor<65536xf32> {
  %e = "kiln.empty"() {shape = affine_map<() -> (65536)>} : () -> tensor<65536xf32>
  // expected-remark @+1 {{read at 2 indices: saves 524 kB of traffic, but computes 786 kop more}}
  %a = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>], iterator_types = ["parallel"]} ins(%x : tensor<65536xf32>) outs(%e : tensor<65536xf32>) {
  ^bb0(%p: f32, %o: f32):
    %0 = math.exp %p : f32
    linalg.yield %0 : f32
  } -> tensor<65536xf32>
  %v = "kiln.view"(%a) {map = affine_map<(d0) -> (65535 - d0)>, shape = affine_map<() -> (65536)>} : (tensor<65536xf32>) -> tensor<65536xf32>
  %b = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>], iterator_types = ["parallel"]} ins(%a, %v : tensor<65536xf32>, tensor<65536xf32>) outs(%e : tensor<65536xf32>) {
  ^bb0(%p: f32, %q: f32, %o: f32):
    %0 = arith.addf %p, %q : f32
    linalg.yield %0 : f32
  } -> tensor<65536xf32>
  return %b : tensor<65536xf32>
}

// -----

// The same for few elements: a launch costs more than computing them again.

// NONE-LABEL: func.func @flipped_small
func.func @flipped_small(%x: tensor<8xf32>) -> tensor<8xf32> {
  %e = "kiln.empty"() {shape = affine_map<() -> (8)>} : () -> tensor<8xf32>
  // expected-remark @+1 {{fused into the kernel of linalg.generic: saves 64 B of traffic, computes 96 op again}}
  %a = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>], iterator_types = ["parallel"]} ins(%x : tensor<8xf32>) outs(%e : tensor<8xf32>) {
  ^bb0(%p: f32, %o: f32):
    %0 = math.exp %p : f32
    linalg.yield %0 : f32
  } -> tensor<8xf32>
  %v = "kiln.view"(%a) {map = affine_map<(d0) -> (7 - d0)>, shape = affine_map<() -> (8)>} : (tensor<8xf32>) -> tensor<8xf32>
  %b = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>], iterator_types = ["parallel"]} ins(%a, %v : tensor<8xf32>, tensor<8xf32>) outs(%e : tensor<8xf32>) {
  ^bb0(%p: f32, %q: f32, %o: f32):
    %0 = arith.addf %p, %q : f32
    linalg.yield %0 : f32
  } -> tensor<8xf32>
  return %b : tensor<8xf32>
}

// -----

// NONE-LABEL: func.func @rows
func.func @rows(%x: tensor<64x32xf32>, %y: tensor<64x16xf32>) -> tensor<64x16xf32> {
  %zero = arith.constant 0.0 : f32
  %e = "kiln.empty"() {shape = affine_map<() -> (64)>} : () -> tensor<64xf32>
  %i = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>], iterator_types = ["parallel"]} outs(%e : tensor<64xf32>) {
  ^bb0(%o: f32):
    linalg.yield %zero : f32
  } -> tensor<64xf32>
  // expected-remark @+1 {{the reduced loops differ from the consumer's}}
  %s = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0)>], iterator_types = ["parallel", "reduction"]} ins(%x : tensor<64x32xf32>) outs(%i : tensor<64xf32>) {
  ^bb0(%p: f32, %o: f32):
    %0 = arith.addf %o, %p : f32
    linalg.yield %0 : f32
  } -> tensor<64xf32>
  %f = "kiln.empty"() {shape = affine_map<() -> (64, 16)>} : () -> tensor<64x16xf32>
  %r = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0)>, affine_map<(d0, d1) -> (d0, d1)>], iterator_types = ["parallel", "parallel"]} ins(%y, %s : tensor<64x16xf32>, tensor<64xf32>) outs(%f : tensor<64x16xf32>) {
  ^bb0(%p: f32, %q: f32, %o: f32):
    %0 = arith.mulf %p, %q : f32
    linalg.yield %0 : f32
  } -> tensor<64x16xf32>
  return %r : tensor<64x16xf32>
}

// -----

// A sum along a long column, and what walks the column again: a loop over rows takes neighbouring columns at once, and
// the cache has lost what the second loop would find there. A short one is one kernel.

#all = affine_map<(d0, d1) -> (d0, d1)>
#column = affine_map<(d0, d1) -> (d1)>

// NONE-LABEL: func.func @long_columns
func.func @long_columns(%x: tensor<4096x64xf32>) -> tensor<4096x64xf32> {
  %zero = arith.constant dense<0.0> : tensor<64xf32>
  %e = "kiln.empty"() {shape = affine_map<() -> (4096, 64)>} : () -> tensor<4096x64xf32>
  // expected-remark @+1 {{its rows, of 4096 elements, are neighbours in memory: not with what walks them again}}
  %s = linalg.generic {indexing_maps = [#all, #column], iterator_types = ["reduction", "parallel"]} ins(%x : tensor<4096x64xf32>) outs(%zero : tensor<64xf32>) {
  ^bb0(%p: f32, %o: f32):
    %0 = arith.addf %p, %o : f32
    linalg.yield %0 : f32
  } -> tensor<64xf32>
  // expected-remark @+1 {{its rows are neighbours in memory: not with their reductions}}
  %y = linalg.generic {indexing_maps = [#all, #column, #all], iterator_types = ["parallel", "parallel"]} ins(%x, %s : tensor<4096x64xf32>, tensor<64xf32>) outs(%e : tensor<4096x64xf32>) {
  ^bb0(%p: f32, %q: f32, %o: f32):
    %0 = arith.subf %p, %q : f32
    linalg.yield %0 : f32
  } -> tensor<4096x64xf32>
  return %y : tensor<4096x64xf32>
}

// -----

#all = affine_map<(d0, d1) -> (d0, d1)>
#column = affine_map<(d0, d1) -> (d1)>

// NONE-LABEL: func.func @short_columns
func.func @short_columns(%x: tensor<512x64xf32>) -> tensor<512x64xf32> {
  %zero = arith.constant dense<0.0> : tensor<64xf32>
  %e = "kiln.empty"() {shape = affine_map<() -> (512, 64)>} : () -> tensor<512x64xf32>
  // expected-remark @+1 {{fused into the kernel of linalg.generic}}
  %s = linalg.generic {indexing_maps = [#all, #column], iterator_types = ["reduction", "parallel"]} ins(%x : tensor<512x64xf32>) outs(%zero : tensor<64xf32>) {
  ^bb0(%p: f32, %o: f32):
    %0 = arith.addf %p, %o : f32
    linalg.yield %0 : f32
  } -> tensor<64xf32>
  %y = linalg.generic {indexing_maps = [#all, #column, #all], iterator_types = ["parallel", "parallel"]} ins(%x, %s : tensor<512x64xf32>, tensor<64xf32>) outs(%e : tensor<512x64xf32>) {
  ^bb0(%p: f32, %q: f32, %o: f32):
    %0 = arith.subf %p, %q : f32
    linalg.yield %0 : f32
  } -> tensor<512x64xf32>
  return %y : tensor<512x64xf32>
}
