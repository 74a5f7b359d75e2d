// Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// RUN: kiln-opt %s --split-input-file --pass-pipeline=fuse --remarks 2> %t.remarks | filecheck %s
// RUN: filecheck %s --check-prefix=WHY --input-file %t.remarks
// RUN: kiln-opt %s --split-input-file --pass-pipeline="fuse{l2-bytes=4}" --remarks 2>&1 | filecheck %s --check-prefix=TINY
// RUN: kiln-opt %s --split-input-file --pass-pipeline="fuse{l2-bytes=8589934592}" --remarks 2>&1 | filecheck %s --check-prefix=HUGE
// RUN: kiln-opt %s --split-input-file --pass-pipeline="fuse{row-blocks=false}" | filecheck %s --check-prefix=APART
// RUN: kiln-opt %s --split-input-file --pass-pipeline="fuse,assign-layouts,schedule-cpu,emit-cpu-kernels" | filecheck %s --check-prefix=CODE

// What follows a product along its rows is in the product's kernel. The weight decides how threads share it.

// TINY-NOT: threads share blocks of rows
// TINY: a rhs of {{[0-9]+}} KiB would be walked for each block
// TINY: a rhs of 262144 KiB would be walked for each block
// HUGE: threads share blocks of rows
// HUGE-NOT: would be walked
// WHY: threads share blocks of rows, each with its loops behind it
// WHY: threads share products, then the rows of the loops behind them: a rhs of 262144 KiB would be walked for each block
// WHY: threads share products
// WHY: the consumer reduces more than the columns

// Blocks of rows: what the loops read is in scratch memory.
// CHECK-LABEL: func.func @small
// CHECK:       "kiln.fusion"
// CHECK:       kiln.matmul
// CHECK:       iterator_types = ["parallel", "reduction"]
// CHECK:       "kiln.yield"(%{{[0-9]+}}) : (tensor<96x16xf32>)
// CHECK:       kind = "matmul"
// CHECK-NOT:   kiln.fusion
// CHECK:       return
// APART-LABEL: func.func @small
// APART-COUNT-2: "kiln.fusion"(
// CODE-LABEL:  func.func @matmul_generic
// CODE-NOT:    call @GOMP_barrier
// CODE:        vector.reduction <add>
// CODE-NOT:    call @GOMP_barrier
func.func @small(%x: tensor<96x8xf32>, %w: tensor<16x8xf32>, %res: tensor<96x16xf32>) -> tensor<96x16xf32> {
  %e = "kiln.empty"() {shape = affine_map<() -> (96, 16)>} : () -> tensor<96x16xf32>
  %z = arith.constant dense<0.0> : tensor<96xf32>
  %m = "kiln.matmul"(%x, %w) {transpose_lhs = false, transpose_rhs = true} : (tensor<96x8xf32>, tensor<16x8xf32>) -> tensor<96x16xf32>
  %y = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0, d1)>], iterator_types = ["parallel", "parallel"]} ins(%m, %res : tensor<96x16xf32>, tensor<96x16xf32>) outs(%e : tensor<96x16xf32>) {
  ^bb0(%p0: f32, %p1: f32, %o: f32):
    %0 = arith.addf %p0, %p1 : f32
    linalg.yield %0 : f32
  } -> tensor<96x16xf32>
  %s = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0)>], iterator_types = ["parallel", "reduction"]} ins(%y : tensor<96x16xf32>) outs(%z : tensor<96xf32>) {
  ^bb0(%p0: f32, %o: f32):
    %0 = arith.addf %p0, %o : f32
    linalg.yield %0 : f32
  } -> tensor<96xf32>
  %c = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0)>, affine_map<(d0, d1) -> (d0, d1)>], iterator_types = ["parallel", "parallel"]} ins(%y, %s : tensor<96x16xf32>, tensor<96xf32>) outs(%e : tensor<96x16xf32>) {
  ^bb0(%p0: f32, %p1: f32, %o: f32):
    %0 = arith.subf %p0, %p1 : f32
    linalg.yield %0 : f32
  } -> tensor<96x16xf32>
  return %c : tensor<96x16xf32>
}

// -----

// The threads wait once: what the loops read lies where their result will be.
// CHECK-LABEL: func.func @large
// CHECK:       %0 = "kiln.fusion"
// CHECK:       "kiln.yield"(%{{[0-9]+}}) :
// CHECK:       waits = array<i64: 0>
// CHECK:       return %0
// APART-LABEL: func.func @large
// APART-COUNT-2: "kiln.fusion"(
// CODE-LABEL:  func.func @matmul_generic
// CODE-SAME:   kiln.barriers = 1
// CODE-SAME:   kiln.shared = array<i64: 3>
// CODE:        call @GOMP_barrier
// CODE:        vector.reduction <add>
func.func @large(%x: tensor<8x8192xf32>, %w: tensor<8192x8192xf32>, %res: tensor<8x8192xf32>) -> tensor<8x8192xf32> {
  %e = "kiln.empty"() {shape = affine_map<() -> (8, 8192)>} : () -> tensor<8x8192xf32>
  %z = arith.constant dense<0.0> : tensor<8xf32>
  %m = "kiln.matmul"(%x, %w) {transpose_lhs = false, transpose_rhs = true} : (tensor<8x8192xf32>, tensor<8192x8192xf32>) -> tensor<8x8192xf32>
  %y = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0, d1)>], iterator_types = ["parallel", "parallel"]} ins(%m, %res : tensor<8x8192xf32>, tensor<8x8192xf32>) outs(%e : tensor<8x8192xf32>) {
  ^bb0(%p0: f32, %p1: f32, %o: f32):
    %0 = arith.addf %p0, %p1 : f32
    linalg.yield %0 : f32
  } -> tensor<8x8192xf32>
  %s = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0)>], iterator_types = ["parallel", "reduction"]} ins(%y : tensor<8x8192xf32>) outs(%z : tensor<8xf32>) {
  ^bb0(%p0: f32, %o: f32):
    %0 = arith.addf %p0, %o : f32
    linalg.yield %0 : f32
  } -> tensor<8xf32>
  %c = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0)>, affine_map<(d0, d1) -> (d0, d1)>], iterator_types = ["parallel", "parallel"]} ins(%y, %s : tensor<8x8192xf32>, tensor<8xf32>) outs(%e : tensor<8x8192xf32>) {
  ^bb0(%p0: f32, %p1: f32, %o: f32):
    %0 = arith.subf %p0, %p1 : f32
    linalg.yield %0 : f32
  } -> tensor<8x8192xf32>
  return %c : tensor<8x8192xf32>
}

// -----

// Two products read together: one result, computed block by block.
// CHECK-LABEL: func.func @gated
// CHECK:       %0 = "kiln.fusion"
// CHECK-COUNT-2: kiln.matmul
// CHECK:       "kiln.yield"(%{{[0-9]+}}) : (tensor<40x64xf32>)
// CHECK-NOT:   kiln.fusion
// CHECK:       return %0
// APART-LABEL: func.func @gated
// APART-COUNT-2: "kiln.fusion"(
// CODE-LABEL:  func.func @matmul_generic
// CODE-NOT:    call @GOMP_barrier
// CODE:        math.exp
func.func @gated(%x: tensor<40x24xf32>, %g: tensor<64x24xf32>, %u: tensor<64x24xf32>) -> tensor<40x64xf32> {
  %e = "kiln.empty"() {shape = affine_map<() -> (40, 64)>} : () -> tensor<40x64xf32>
  %a = "kiln.matmul"(%x, %g) {transpose_lhs = false, transpose_rhs = true} : (tensor<40x24xf32>, tensor<64x24xf32>) -> tensor<40x64xf32>
  %s = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0, d1)>], iterator_types = ["parallel", "parallel"]} ins(%a : tensor<40x64xf32>) outs(%e : tensor<40x64xf32>) {
  ^bb0(%p0: f32, %o: f32):
    %0 = math.exp %p0 : f32
    linalg.yield %0 : f32
  } -> tensor<40x64xf32>
  %b = "kiln.matmul"(%x, %u) {transpose_lhs = false, transpose_rhs = true} : (tensor<40x24xf32>, tensor<64x24xf32>) -> tensor<40x64xf32>
  %c = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0, d1)>], iterator_types = ["parallel", "parallel"]} ins(%s, %b : tensor<40x64xf32>, tensor<40x64xf32>) outs(%e : tensor<40x64xf32>) {
  ^bb0(%p0: f32, %p1: f32, %o: f32):
    %0 = arith.mulf %p0, %p1 : f32
    linalg.yield %0 : f32
  } -> tensor<40x64xf32>
  return %c : tensor<40x64xf32>
}

// -----

// A result of each row cannot hold what the loops read: that becomes a result, too.
// CHECK-LABEL: func.func @sums
// CHECK:       %0:2 = "kiln.fusion"
// CHECK:       "kiln.yield"(%{{[0-9]+}}, %{{[0-9]+}})
// CHECK:       return %0#0
// CODE-LABEL:  func.func @matmul_generic
// CODE-SAME:   kiln.shared = array<i64: 3>
func.func @sums(%x: tensor<8x8192xf32>, %w: tensor<8192x8192xf32>) -> tensor<8xf32> {
  %z = arith.constant dense<0.0> : tensor<8xf32>
  %m = "kiln.matmul"(%x, %w) {transpose_lhs = false, transpose_rhs = true} : (tensor<8x8192xf32>, tensor<8192x8192xf32>) -> tensor<8x8192xf32>
  %s = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0)>], iterator_types = ["parallel", "reduction"]} ins(%m : tensor<8x8192xf32>) outs(%z : tensor<8xf32>) {
  ^bb0(%p0: f32, %o: f32):
    %0 = arith.addf %p0, %o : f32
    linalg.yield %0 : f32
  } -> tensor<8xf32>
  return %s : tensor<8xf32>
}

// -----

// Columns of a product are not rows: a kernel of its own sums them.
// CHECK-LABEL: func.func @total
// CHECK-COUNT-2: "kiln.fusion"(
func.func @total(%x: tensor<40x24xf32>, %g: tensor<64x24xf32>) -> tensor<64xf32> {
  %z = arith.constant dense<0.0> : tensor<64xf32>
  %a = "kiln.matmul"(%x, %g) {transpose_lhs = false, transpose_rhs = true} : (tensor<40x24xf32>, tensor<64x24xf32>) -> tensor<40x64xf32>
  %s = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d1)>], iterator_types = ["reduction", "parallel"]} ins(%a : tensor<40x64xf32>) outs(%z : tensor<64xf32>) {
  ^bb0(%p0: f32, %o: f32):
    %0 = arith.addf %p0, %o : f32
    linalg.yield %0 : f32
  } -> tensor<64xf32>
  return %s : tensor<64xf32>
}
