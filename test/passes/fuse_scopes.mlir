// Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// RUN: kiln-opt %s --pass-pipeline="fuse" --remarks -o /dev/null 2>&1 | filecheck %s --check-prefix=WHY
// RUN: kiln-opt %s --pass-pipeline="fuse" | filecheck %s

// Each sum reads the one before in two pads. A pad's operand is computed where the pad has elements of it, apart from
// that of another pad: in one kernel the first sum would be written 32 times. Behind 16 ways it is stored.

// WHY: linalg.generic: read in 32 ways through pads and concatenations: a kernel has code for 16 at most
// CHECK-LABEL: func.func @sums
// CHECK-COUNT-2: kiln.fusion
// CHECK-NOT: kiln.fusion
// CHECK: return
func.func @sums(%x0: tensor<8xf32>) -> tensor<14xf32> {
  %zero = arith.constant 0.0 : f32
  %e1 = "kiln.empty"() {shape = affine_map<() -> (8)>} : () -> tensor<8xf32>
  %x1 = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>], iterator_types = ["parallel"]} ins(%x0, %x0 : tensor<8xf32>, tensor<8xf32>) outs(%e1 : tensor<8xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %s = arith.addf %a, %b : f32
    linalg.yield %s : f32
  } -> tensor<8xf32>
  %p2 = "kiln.pad"(%x1, %zero) {high = affine_map<() -> (0)>, low = affine_map<() -> (1)>, shape = affine_map<() -> (9)>} : (tensor<8xf32>, f32) -> tensor<9xf32>
  %q2 = "kiln.pad"(%x1, %zero) {high = affine_map<() -> (1)>, low = affine_map<() -> (0)>, shape = affine_map<() -> (9)>} : (tensor<8xf32>, f32) -> tensor<9xf32>
  %e2 = "kiln.empty"() {shape = affine_map<() -> (9)>} : () -> tensor<9xf32>
  %x2 = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>], iterator_types = ["parallel"]} ins(%p2, %q2 : tensor<9xf32>, tensor<9xf32>) outs(%e2 : tensor<9xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %s = arith.addf %a, %b : f32
    linalg.yield %s : f32
  } -> tensor<9xf32>
  %p3 = "kiln.pad"(%x2, %zero) {high = affine_map<() -> (0)>, low = affine_map<() -> (1)>, shape = affine_map<() -> (10)>} : (tensor<9xf32>, f32) -> tensor<10xf32>
  %q3 = "kiln.pad"(%x2, %zero) {high = affine_map<() -> (1)>, low = affine_map<() -> (0)>, shape = affine_map<() -> (10)>} : (tensor<9xf32>, f32) -> tensor<10xf32>
  %e3 = "kiln.empty"() {shape = affine_map<() -> (10)>} : () -> tensor<10xf32>
  %x3 = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>], iterator_types = ["parallel"]} ins(%p3, %q3 : tensor<10xf32>, tensor<10xf32>) outs(%e3 : tensor<10xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %s = arith.addf %a, %b : f32
    linalg.yield %s : f32
  } -> tensor<10xf32>
  %p4 = "kiln.pad"(%x3, %zero) {high = affine_map<() -> (0)>, low = affine_map<() -> (1)>, shape = affine_map<() -> (11)>} : (tensor<10xf32>, f32) -> tensor<11xf32>
  %q4 = "kiln.pad"(%x3, %zero) {high = affine_map<() -> (1)>, low = affine_map<() -> (0)>, shape = affine_map<() -> (11)>} : (tensor<10xf32>, f32) -> tensor<11xf32>
  %e4 = "kiln.empty"() {shape = affine_map<() -> (11)>} : () -> tensor<11xf32>
  %x4 = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>], iterator_types = ["parallel"]} ins(%p4, %q4 : tensor<11xf32>, tensor<11xf32>) outs(%e4 : tensor<11xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %s = arith.addf %a, %b : f32
    linalg.yield %s : f32
  } -> tensor<11xf32>
  %p5 = "kiln.pad"(%x4, %zero) {high = affine_map<() -> (0)>, low = affine_map<() -> (1)>, shape = affine_map<() -> (12)>} : (tensor<11xf32>, f32) -> tensor<12xf32>
  %q5 = "kiln.pad"(%x4, %zero) {high = affine_map<() -> (1)>, low = affine_map<() -> (0)>, shape = affine_map<() -> (12)>} : (tensor<11xf32>, f32) -> tensor<12xf32>
  %e5 = "kiln.empty"() {shape = affine_map<() -> (12)>} : () -> tensor<12xf32>
  %x5 = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>], iterator_types = ["parallel"]} ins(%p5, %q5 : tensor<12xf32>, tensor<12xf32>) outs(%e5 : tensor<12xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %s = arith.addf %a, %b : f32
    linalg.yield %s : f32
  } -> tensor<12xf32>
  %p6 = "kiln.pad"(%x5, %zero) {high = affine_map<() -> (0)>, low = affine_map<() -> (1)>, shape = affine_map<() -> (13)>} : (tensor<12xf32>, f32) -> tensor<13xf32>
  %q6 = "kiln.pad"(%x5, %zero) {high = affine_map<() -> (1)>, low = affine_map<() -> (0)>, shape = affine_map<() -> (13)>} : (tensor<12xf32>, f32) -> tensor<13xf32>
  %e6 = "kiln.empty"() {shape = affine_map<() -> (13)>} : () -> tensor<13xf32>
  %x6 = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>], iterator_types = ["parallel"]} ins(%p6, %q6 : tensor<13xf32>, tensor<13xf32>) outs(%e6 : tensor<13xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %s = arith.addf %a, %b : f32
    linalg.yield %s : f32
  } -> tensor<13xf32>
  %p7 = "kiln.pad"(%x6, %zero) {high = affine_map<() -> (0)>, low = affine_map<() -> (1)>, shape = affine_map<() -> (14)>} : (tensor<13xf32>, f32) -> tensor<14xf32>
  %q7 = "kiln.pad"(%x6, %zero) {high = affine_map<() -> (1)>, low = affine_map<() -> (0)>, shape = affine_map<() -> (14)>} : (tensor<13xf32>, f32) -> tensor<14xf32>
  %e7 = "kiln.empty"() {shape = affine_map<() -> (14)>} : () -> tensor<14xf32>
  %x7 = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>], iterator_types = ["parallel"]} ins(%p7, %q7 : tensor<14xf32>, tensor<14xf32>) outs(%e7 : tensor<14xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %s = arith.addf %a, %b : f32
    linalg.yield %s : f32
  } -> tensor<14xf32>
  return %x7 : tensor<14xf32>
}
