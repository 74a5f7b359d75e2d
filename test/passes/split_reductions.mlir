// Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// RUN: kiln-opt %s --split-input-file --mlir-print-local-scope --pass-pipeline="split-reductions" | filecheck %s
// RUN: kiln-opt %s --split-input-file --mlir-print-local-scope --pass-pipeline="split-reductions{sms=132}" | filecheck %s --check-prefix=GPU

// A sum over everything: 64 partial sums, then their sum by the combiner alone.

// CHECK-LABEL: func.func @sum
// CHECK: %[[ZERO:.*]] = linalg.generic {{.*}} outs(%{{.*}} : tensor<64xf32>)
// CHECK: %[[P:.*]] = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d1 * 16384 + d0)>, affine_map<(d0, d1) -> (d0)>, affine_map<(d0, d1) -> (d1)>], iterator_types = ["reduction", "parallel"]} {{.*}} outs(%[[ZERO]] : tensor<64xf32>)
// CHECK: arith.mulf
// CHECK: arith.addf
// CHECK: linalg.generic {{.*}} iterator_types = ["reduction"]} ins(%[[P]] : tensor<64xf32>)
// CHECK-NOT: arith.mulf
// CHECK: arith.addf
func.func @sum(%x: tensor<1048576xf32>) -> tensor<f32> {
  %zero = arith.constant 0.0 : f32
  %e = "kiln.empty"() {shape = affine_map<() -> ()>} : () -> tensor<f32>
  %i = linalg.generic {indexing_maps = [affine_map<() -> ()>], iterator_types = []} outs(%e : tensor<f32>) {
  ^bb0(%o: f32):
    linalg.yield %zero : f32
  } -> tensor<f32>
  %r = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> ()>], iterator_types = ["reduction"]} ins(%x : tensor<1048576xf32>) outs(%i : tensor<f32>) {
  ^bb0(%a: f32, %o: f32):
    %0 = arith.mulf %a, %a : f32
    %1 = arith.addf %o, %0 : f32
    linalg.yield %1 : f32
  } -> tensor<f32>
  return %r : tensor<f32>
}

// -----

// Columns of which there are many have work for all threads of a CPU already; short sums are not worth it.

// CHECK-LABEL: func.func @kept
// CHECK-COUNT-2: linalg.generic
// CHECK-NOT: linalg.generic
// CHECK: return
func.func @kept(%x: tensor<65536x16xf32>, %y: tensor<1024xf32>) -> (tensor<16xf32>, tensor<f32>) {
  %zero = arith.constant 0.0 : f32
  %e = "kiln.empty"() {shape = affine_map<() -> (16)>} : () -> tensor<16xf32>
  %f = "kiln.empty"() {shape = affine_map<() -> ()>} : () -> tensor<f32>
  %r = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d1)>], iterator_types = ["reduction", "parallel"]} ins(%x : tensor<65536x16xf32>) outs(%e : tensor<16xf32>) {
  ^bb0(%a: f32, %o: f32):
    %0 = arith.addf %o, %a : f32
    linalg.yield %0 : f32
  } -> tensor<16xf32>
  %s = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> ()>], iterator_types = ["reduction"]} ins(%y : tensor<1024xf32>) outs(%f : tensor<f32>) {
  ^bb0(%a: f32, %o: f32):
    %0 = arith.addf %o, %a : f32
    linalg.yield %0 : f32
  } -> tensor<f32>
  return %r, %s : tensor<16xf32>, tensor<f32>
}

// -----

// The dim that is split is one that is reduced; the others keep their places.

// CHECK-LABEL: func.func @middle
// CHECK: affine_map<(d0, d1, d2, d3) -> (d0, d3 * 20 + d1, d2)>
// CHECK-SAME: iterator_types = ["parallel", "reduction", "reduction", "parallel"]
// CHECK: arith.maximumf
// CHECK: iterator_types = ["parallel", "reduction"]
// CHECK: arith.maximumf
func.func @middle(%x: tensor<2x1000x128xf32>) -> tensor<2xf32> {
  %low = arith.constant 0xFF800000 : f32
  %e = "kiln.empty"() {shape = affine_map<() -> (2)>} : () -> tensor<2xf32>
  %i = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>], iterator_types = ["parallel"]} outs(%e : tensor<2xf32>) {
  ^bb0(%o: f32):
    linalg.yield %low : f32
  } -> tensor<2xf32>
  %r = linalg.generic {indexing_maps = [affine_map<(d0, d1, d2) -> (d0, d1, d2)>, affine_map<(d0, d1, d2) -> (d0)>], iterator_types = ["parallel", "reduction", "reduction"]} ins(%x : tensor<2x1000x128xf32>) outs(%i : tensor<2xf32>) {
  ^bb0(%a: f32, %o: f32):
    %0 = arith.maximumf %o, %a : f32
    linalg.yield %0 : f32
  } -> tensor<2xf32>
  return %r : tensor<2xf32>
}

// -----

// A body that computes with the loop's index gets that of the whole.

// CHECK-LABEL: func.func @index
// CHECK: linalg.generic {{.*}} iterator_types = ["reduction", "parallel"]}
// CHECK: %[[IN:.*]] = linalg.index 0
// CHECK: %[[PART:.*]] = linalg.index 1
// CHECK: %[[START:.*]] = arith.muli %[[PART]], %c16384
// CHECK: arith.addi %[[IN]], %[[START]]
// CHECK: return
func.func @index(%x: tensor<1048576xf32>) -> tensor<f32> {
  %e = "kiln.empty"() {shape = affine_map<() -> ()>} : () -> tensor<f32>
  %r = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> ()>], iterator_types = ["reduction"]} ins(%x : tensor<1048576xf32>) outs(%e : tensor<f32>) {
  ^bb0(%a: f32, %o: f32):
    %n = linalg.index 0 : index
    %i = arith.index_cast %n : index to i64
    %f = arith.sitofp %i : i64 to f32
    %0 = arith.mulf %a, %f : f32
    %1 = arith.addf %o, %0 : f32
    linalg.yield %1 : f32
  } -> tensor<f32>
  return %r : tensor<f32>
}

// -----

// Many results, neighbours in memory: split for a GPU, into as many parts as make enough of them. Many rows never are.

// CHECK-LABEL: func.func @columns
// CHECK-NOT: "parallel", "parallel"
// CHECK: return
// GPU-LABEL: func.func @columns
// GPU: outs(%{{.*}} : tensor<1024x32xf32>)
// GPU: return
// GPU-LABEL: func.func @rows
// GPU-NOT: "parallel", "parallel"
// GPU: return
func.func @columns(%x: tensor<8192x1024xf32>) -> tensor<1024xf32> {
  %z = arith.constant 0.0 : f32
  %e = "kiln.empty"() {shape = affine_map<() -> (1024)>} : () -> tensor<1024xf32>
  %i = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>], iterator_types = ["parallel"]} outs(%e : tensor<1024xf32>) {
  ^bb0(%o: f32):
    linalg.yield %z : f32
  } -> tensor<1024xf32>
  %r = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d1)>], iterator_types = ["reduction", "parallel"]}
      ins(%x : tensor<8192x1024xf32>) outs(%i : tensor<1024xf32>) {
  ^bb0(%a: f32, %o: f32):
    %s = arith.addf %o, %a : f32
    linalg.yield %s : f32
  } -> tensor<1024xf32>
  return %r : tensor<1024xf32>
}
func.func @rows(%x: tensor<1024x8192xf32>) -> tensor<1024xf32> {
  %z = arith.constant 0.0 : f32
  %e = "kiln.empty"() {shape = affine_map<() -> (1024)>} : () -> tensor<1024xf32>
  %i = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>], iterator_types = ["parallel"]} outs(%e : tensor<1024xf32>) {
  ^bb0(%o: f32):
    linalg.yield %z : f32
  } -> tensor<1024xf32>
  %r = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0)>], iterator_types = ["parallel", "reduction"]}
      ins(%x : tensor<1024x8192xf32>) outs(%i : tensor<1024xf32>) {
  ^bb0(%a: f32, %o: f32):
    %s = arith.addf %o, %a : f32
    linalg.yield %s : f32
  } -> tensor<1024xf32>
  return %r : tensor<1024xf32>
}

// -----

// Of two reduced dims the one that gives more parts is split; 3,072 columns are few programs, too.

// GPU-LABEL: func.func @two_dims
// GPU: affine_map<(d0, d1, d2, d3) -> (d0, d3 * 128 + d1, d2)>
// GPU-SAME: iterator_types = ["reduction", "reduction", "parallel", "parallel"]
// GPU-SAME: outs(%{{.*}} : tensor<3072x8xf32>)
func.func @two_dims(%x: tensor<6x1024x3072xf32>) -> tensor<3072xf32> {
  %z = arith.constant 0.0 : f32
  %e = "kiln.empty"() {shape = affine_map<() -> (3072)>} : () -> tensor<3072xf32>
  %i = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>], iterator_types = ["parallel"]} outs(%e : tensor<3072xf32>) {
  ^bb0(%o: f32):
    linalg.yield %z : f32
  } -> tensor<3072xf32>
  %r = linalg.generic {indexing_maps = [affine_map<(d0, d1, d2) -> (d0, d1, d2)>, affine_map<(d0, d1, d2) -> (d2)>], iterator_types = ["reduction", "reduction", "parallel"]}
      ins(%x : tensor<6x1024x3072xf32>) outs(%i : tensor<3072xf32>) {
  ^bb0(%a: f32, %o: f32):
    %s = arith.addf %o, %a : f32
    linalg.yield %s : f32
  } -> tensor<3072xf32>
  return %r : tensor<3072xf32>
}

// -----

// Channels of an image are columns where they are neighbours: of an argument, of what loops and calls make of it, and of
// a view of a tensor whose last dim they are.

// GPU-LABEL: func.func @channels
// GPU: ins(%{{.*}}, %{{.*}} : tensor<64x256x56x56xf32>, tensor<28xf32>) outs(%{{.*}} : tensor<256x64x2xf32>)
// GPU-LABEL: func.func @planar_channels
// GPU-NOT: tensor<256x64x
// GPU-LABEL: func.func @moved_channels
// GPU: outs(%{{.*}} : tensor<256x64x2xf32>)
// GPU-LABEL: func.func @number
// GPU-NOT: tensor<256x64x
// GPU-LABEL: func.func @row_of_channels
// GPU-NOT: tensor<256x64x
func.func @channels(%x: tensor<64x256x56x56xf32> {kiln.strides = affine_map<() -> (802816, 1, 14336, 256)>}) -> tensor<256xf32> {
  %f = "kiln.empty"() {shape = affine_map<() -> (64, 256, 56, 56)>} : () -> tensor<64x256x56x56xf32>
  %y = linalg.generic {indexing_maps = [affine_map<(n, c, h, w) -> (n, c, h, w)>, affine_map<(n, c, h, w) -> (n, c, h, w)>], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%x : tensor<64x256x56x56xf32>) outs(%f : tensor<64x256x56x56xf32>) {
  ^bb0(%a: f32, %o: f32):
    %0 = arith.negf %a : f32
    linalg.yield %0 : f32
  } -> tensor<64x256x56x56xf32>
  %p:2 = "kiln.aten"(%y) {op = "aten.max_pool2d_with_indices.default", args = "[{\22operand\22: 0}, [3, 3], [1, 1], [1, 1], [1, 1], false]", kwargs = "{}", shapes = [affine_map<() -> (64, 256, 56, 56)>, affine_map<() -> (64, 256, 56, 56)>], strides = [unit, unit], pure = true} : (tensor<64x256x56x56xf32>) -> (tensor<64x256x56x56xf32>, tensor<64x256x56x56xi64>)
  %e = "kiln.empty"() {shape = affine_map<() -> (256)>} : () -> tensor<256xf32>
  %r = linalg.generic {indexing_maps = [affine_map<(n, c, h, w) -> (n, c, h, w)>, affine_map<(n, c, h, w) -> (c)>], iterator_types = ["reduction", "parallel", "reduction", "reduction"]} ins(%p#0 : tensor<64x256x56x56xf32>) outs(%e : tensor<256xf32>) {
  ^bb0(%a: f32, %o: f32):
    %0 = arith.addf %o, %a : f32
    linalg.yield %0 : f32
  } -> tensor<256xf32>
  return %r : tensor<256xf32>
}
func.func @planar_channels(%x: tensor<64x256x56x56xf32>) -> tensor<256xf32> {
  %e = "kiln.empty"() {shape = affine_map<() -> (256)>} : () -> tensor<256xf32>
  %r = linalg.generic {indexing_maps = [affine_map<(n, c, h, w) -> (n, c, h, w)>, affine_map<(n, c, h, w) -> (c)>], iterator_types = ["reduction", "parallel", "reduction", "reduction"]} ins(%x : tensor<64x256x56x56xf32>) outs(%e : tensor<256xf32>) {
  ^bb0(%a: f32, %o: f32):
    %0 = arith.addf %o, %a : f32
    linalg.yield %0 : f32
  } -> tensor<256xf32>
  return %r : tensor<256xf32>
}
func.func @moved_channels(%x: tensor<64x56x56x256xf32>) -> tensor<256xf32> {
  %v = "kiln.view"(%x) {map = affine_map<(n, c, h, w) -> (n, h, w, c)>, shape = affine_map<() -> (64, 256, 56, 56)>} : (tensor<64x56x56x256xf32>) -> tensor<64x256x56x56xf32>
  %e = "kiln.empty"() {shape = affine_map<() -> (256)>} : () -> tensor<256xf32>
  %r = linalg.generic {indexing_maps = [affine_map<(n, c, h, w) -> (n, c, h, w)>, affine_map<(n, c, h, w) -> (c)>], iterator_types = ["reduction", "parallel", "reduction", "reduction"]} ins(%v : tensor<64x256x56x56xf32>) outs(%e : tensor<256xf32>) {
  ^bb0(%a: f32, %o: f32):
    %0 = arith.addf %o, %a : f32
    linalg.yield %0 : f32
  } -> tensor<256xf32>
  return %r : tensor<256xf32>
}
func.func @number(%s: tensor<f32>) -> tensor<256xf32> {
  %v = "kiln.view"(%s) {map = affine_map<(n, c, h, w) -> ()>, shape = affine_map<() -> (64, 256, 56, 56)>} : (tensor<f32>) -> tensor<64x256x56x56xf32>
  %e = "kiln.empty"() {shape = affine_map<() -> (256)>} : () -> tensor<256xf32>
  %r = linalg.generic {indexing_maps = [affine_map<(n, c, h, w) -> (n, c, h, w)>, affine_map<(n, c, h, w) -> (c)>], iterator_types = ["reduction", "parallel", "reduction", "reduction"]} ins(%v : tensor<64x256x56x56xf32>) outs(%e : tensor<256xf32>) {
  ^bb0(%a: f32, %o: f32):
    %0 = arith.addf %o, %a : f32
    linalg.yield %0 : f32
  } -> tensor<256xf32>
  return %r : tensor<256xf32>
}
func.func @row_of_channels(%s: tensor<256xf32>) -> tensor<256xf32> {
  %v = "kiln.view"(%s) {map = affine_map<(n, c, h, w) -> (c)>, shape = affine_map<() -> (64, 256, 56, 56)>} : (tensor<256xf32>) -> tensor<64x256x56x56xf32>
  %e = "kiln.empty"() {shape = affine_map<() -> (256)>} : () -> tensor<256xf32>
  %r = linalg.generic {indexing_maps = [affine_map<(n, c, h, w) -> (n, c, h, w)>, affine_map<(n, c, h, w) -> (c)>], iterator_types = ["reduction", "parallel", "reduction", "reduction"]} ins(%v : tensor<64x256x56x56xf32>) outs(%e : tensor<256xf32>) {
  ^bb0(%a: f32, %o: f32):
    %0 = arith.addf %o, %a : f32
    linalg.yield %0 : f32
  } -> tensor<256xf32>
  return %r : tensor<256xf32>
}

// -----

// Few channels: images are parts, and rows of these. The results of one image would be 16 programs.

// GPU-LABEL: func.func @few_channels
// GPU: affine_map<(d0, d1, d2, d3, d4) -> (d0, d1, d4 * 4 + d2, d3)>
// GPU-SAME: affine_map<(d0, d1, d2, d3, d4) -> (d1, d0, d4)>
// GPU-SAME: iterator_types = ["parallel", "parallel", "reduction", "reduction", "parallel"]
// GPU-SAME: outs(%{{.*}} : tensor<64x8x64xf32>)
// GPU: iterator_types = ["parallel", "reduction", "reduction"]
func.func @few_channels(%x: tensor<8x64x256x256xf32> {kiln.strides = affine_map<() -> (4194304, 1, 16384, 64)>}) -> tensor<64xf32> {
  %e = "kiln.empty"() {shape = affine_map<() -> (64)>} : () -> tensor<64xf32>
  %r = linalg.generic {indexing_maps = [affine_map<(n, c, h, w) -> (n, c, h, w)>, affine_map<(n, c, h, w) -> (c)>], iterator_types = ["reduction", "parallel", "reduction", "reduction"]} ins(%x : tensor<8x64x256x256xf32>) outs(%e : tensor<64xf32>) {
  ^bb0(%a: f32, %o: f32):
    %0 = arith.addf %o, %a : f32
    linalg.yield %0 : f32
  } -> tensor<64xf32>
  return %r : tensor<64xf32>
}

// -----

// Rows that a program holds stay whole, with what follows in their kernel: 64 tokens of 4096 values. Of few
// neighbours, strips go on with the next part, and more parts are needed.

// GPU-LABEL: func.func @tokens
// GPU-NOT: "parallel", "parallel"
// GPU: return
// GPU-LABEL: func.func @points
// GPU: outs(%{{.*}} : tensor<3x10000xf32>)
func.func @tokens(%x: tensor<64x4096xf32>) -> tensor<64xf32> {
  %e = "kiln.empty"() {shape = affine_map<() -> (64)>} : () -> tensor<64xf32>
  %r = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0)>], iterator_types = ["parallel", "reduction"]}
      ins(%x : tensor<64x4096xf32>) outs(%e : tensor<64xf32>) {
  ^bb0(%a: f32, %o: f32):
    %s = arith.addf %o, %a : f32
    linalg.yield %s : f32
  } -> tensor<64xf32>
  return %r : tensor<64xf32>
}
func.func @points(%x: tensor<1000000x3xf32>) -> tensor<3xf32> {
  %e = "kiln.empty"() {shape = affine_map<() -> (3)>} : () -> tensor<3xf32>
  %r = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d1)>], iterator_types = ["reduction", "parallel"]}
      ins(%x : tensor<1000000x3xf32>) outs(%e : tensor<3xf32>) {
  ^bb0(%a: f32, %o: f32):
    %s = arith.addf %o, %a : f32
    linalg.yield %s : f32
  } -> tensor<3xf32>
  return %r : tensor<3xf32>
}

// -----

// Channels that a slice takes of an image lie as those of the image.

// GPU-LABEL: func.func @slice
// GPU: outs(%{{.*}} : tensor<64x8x64xf32>)
func.func @slice(%x: tensor<8x128x256x256xf32> {kiln.strides = affine_map<() -> (8388608, 1, 32768, 128)>}) -> tensor<64xf32> {
  %s = "kiln.view"(%x) {map = affine_map<(n, c, h, w) -> (n, c + 64, h, w)>, shape = affine_map<() -> (8, 64, 256, 256)>} : (tensor<8x128x256x256xf32>) -> tensor<8x64x256x256xf32>
  %e = "kiln.empty"() {shape = affine_map<() -> (64)>} : () -> tensor<64xf32>
  %r = linalg.generic {indexing_maps = [affine_map<(n, c, h, w) -> (n, c, h, w)>, affine_map<(n, c, h, w) -> (c)>], iterator_types = ["reduction", "parallel", "reduction", "reduction"]} ins(%s : tensor<8x64x256x256xf32>) outs(%e : tensor<64xf32>) {
  ^bb0(%a: f32, %o: f32):
    %0 = arith.addf %o, %a : f32
    linalg.yield %0 : f32
  } -> tensor<64xf32>
  return %r : tensor<64xf32>
}

// -----

// A batch of any size is reduced within the parts of the other dim.

// GPU-LABEL: func.func @batches
// GPU: tensor<768x[[PARTS:[0-9]+]]xf32>
// GPU: return
// GPU-LABEL: func.func @results
// GPU-NOT: iterator_types = ["parallel", "reduction", "parallel"]
// GPU: return
func.func @batches(%n: index {kiln.symbol = "n"}, %x: tensor<?x1024x768xf32> {kiln.shape = affine_map<()[s0] -> (s0, 1024, 768)>}) -> tensor<768xf32> {
  %e = "kiln.empty"() {shape = affine_map<() -> (768)>} : () -> tensor<768xf32>
  %r = linalg.generic {indexing_maps = [affine_map<(d0, d1, d2) -> (d0, d1, d2)>, affine_map<(d0, d1, d2) -> (d2)>], iterator_types = ["reduction", "reduction", "parallel"]}
      ins(%x : tensor<?x1024x768xf32>) outs(%e : tensor<768xf32>) {
  ^bb0(%a: f32, %o: f32):
    %s = arith.addf %o, %a : f32
    linalg.yield %s : f32
  } -> tensor<768xf32>
  return %r : tensor<768xf32>
}
func.func @results(%n: index {kiln.symbol = "n"}, %x: tensor<?x65536xf32> {kiln.shape = affine_map<()[s0] -> (s0, 65536)>}) -> tensor<?xf32> {
  %e = "kiln.empty"(%n) {shape = affine_map<()[s0] -> (s0)>} : (index) -> tensor<?xf32>
  %r = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0)>], iterator_types = ["parallel", "reduction"]}
      ins(%x : tensor<?x65536xf32>) outs(%e : tensor<?xf32>) {
  ^bb0(%a: f32, %o: f32):
    %s = arith.addf %o, %a : f32
    linalg.yield %s : f32
  } -> tensor<?xf32>
  return %r : tensor<?xf32>
}

// -----

// An extent without divisors: 50 parts of 2,000 elements, and a rest of 3 that is reduced by itself.

// CHECK-LABEL: func.func @prime
// CHECK: %[[PARTS:.*]] = linalg.generic {{.*}}(d1 * 2000 + d0){{.*}} ins(%[[X:.*]], %{{.*}} : tensor<100003xf32>, tensor<2000xf32>) outs(%{{.*}} : tensor<50xf32>)
// CHECK: %[[SUM:.*]] = linalg.generic {{.*}} ins(%[[PARTS]] : tensor<50xf32>)
// CHECK: %[[REST:.*]] = linalg.generic {{.*}}(d0 + 100000){{.*}} ins(%[[X]], %{{.*}} : tensor<100003xf32>, tensor<3xf32>)
// CHECK: %[[ALL:.*]] = linalg.generic {{.*}} ins(%[[SUM]], %[[REST]] : tensor<f32>, tensor<f32>)
// CHECK: return %[[ALL]]
func.func @prime(%x: tensor<100003xf32>) -> tensor<f32> {
  %e = "kiln.empty"() {shape = affine_map<() -> ()>} : () -> tensor<f32>
  %r = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> ()>], iterator_types = ["reduction"]}
      ins(%x : tensor<100003xf32>) outs(%e : tensor<f32>) {
  ^bb0(%a: f32, %o: f32):
    %s = arith.addf %o, %a : f32
    linalg.yield %s : f32
  } -> tensor<f32>
  return %r : tensor<f32>
}

// -----

// Of a size known at run time only, what it was about when the graph was traced says how long the parts are, and the
// size itself how many there are. What the last one has behind the end counts as 0. For a CPU they would need masks.

// CHECK-LABEL: func.func @any_length
// CHECK-COUNT-2: linalg.generic
// CHECK-NOT: linalg.generic
// CHECK: return
// GPU-LABEL: func.func @any_length
// GPU-SAME: %[[X:.*]]: tensor<?xf32>
// GPU: %[[PADDED:.*]] = "kiln.pad"(%[[X]], %{{.*}}) {high = affine_map<()[s0] -> (((s0 + 4095) floordiv 4096) * 4096 - s0)>
// GPU: %[[PARTS:.*]] = "kiln.view"(%[[PADDED]], %{{.*}}) {map = affine_map<(d0, d1)[s0] -> (d1 * 4096 + d0)>, shape = affine_map<()[s0] -> (4096, (s0 + 4095) floordiv 4096)>}
// GPU: %[[P:.*]] = linalg.generic {{.*}} iterator_types = ["reduction", "parallel"]} ins(%[[PARTS]], %{{.*}} : tensor<4096x?xf32>, tensor<4096x?xi1>)
// GPU-NEXT: ^bb0(%[[A:.*]]: f32, %[[IS:.*]]: i1, %[[S:.*]]: f32):
// GPU: %[[SQUARE:.*]] = arith.mulf %[[A]], %[[A]]
// GPU: %[[TERM:.*]] = arith.select %[[IS]], %[[SQUARE]], %{{.*}}
// GPU: arith.addf %[[S]], %[[TERM]]
// GPU: linalg.generic {{.*}} iterator_types = ["reduction"]} ins(%[[P]] : tensor<?xf32>)
func.func @any_length(%x: tensor<?xf32> {kiln.shape = affine_map<()[s0] -> (s0)>}, %n: index {kiln.hint = 131072 : i64, kiln.symbol = "s0"}) -> tensor<f32> {
  %zero = arith.constant 0.0 : f32
  %e = "kiln.empty"() {shape = affine_map<() -> ()>} : () -> tensor<f32>
  %i = linalg.generic {indexing_maps = [affine_map<() -> ()>], iterator_types = []} outs(%e : tensor<f32>) {
  ^bb0(%o: f32):
    linalg.yield %zero : f32
  } -> tensor<f32>
  %r = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> ()>], iterator_types = ["reduction"]} ins(%x : tensor<?xf32>) outs(%i : tensor<f32>) {
  ^bb0(%a: f32, %o: f32):
    %0 = arith.mulf %a, %a : f32
    %1 = arith.addf %o, %0 : f32
    linalg.yield %1 : f32
  } -> tensor<f32>
  return %r : tensor<f32>
}

// -----

// Several such dims are one: neighbours in memory stay neighbours.

// GPU-LABEL: func.func @several
// GPU-SAME: %[[X:.*]]: tensor<?x?x768xf32>
// GPU: %[[ROWS:.*]] = "kiln.view"(%[[X]], %{{.*}}, %{{.*}}) {map = affine_map<(d0, d1)[s0, s1] -> (d0 floordiv s1, d0 mod s1, d1)>, shape = affine_map<()[s0, s1] -> (s0 * s1, 768)>}
// GPU: %[[PADDED:.*]] = "kiln.pad"(%[[ROWS]]
// GPU: %[[PARTS:.*]] = "kiln.view"(%[[PADDED]], %{{.*}}, %{{.*}}) {map = affine_map<(d0, d1, d2)[s0, s1] -> (d2 * 256 + d0, d1)>, shape = affine_map<()[s0, s1] -> (256, 768, (s0 * s1 + 255) floordiv 256)>}
// GPU: linalg.generic {{.*}} iterator_types = ["reduction", "parallel", "parallel"]} ins(%[[PARTS]], %{{.*}} : tensor<256x768x?xf32>, tensor<256x?xi1>)
// GPU: linalg.generic {{.*}} iterator_types = ["parallel", "reduction"]}
func.func @several(%x: tensor<?x?x768xf32> {kiln.shape = affine_map<()[s0, s1] -> (s0, s1, 768)>}, %n: index {kiln.hint = 16 : i64, kiln.symbol = "s0"}, %m: index {kiln.hint = 512 : i64, kiln.symbol = "s1"}) -> tensor<768xf32> {
  %zero = arith.constant 0.0 : f32
  %e = "kiln.empty"() {shape = affine_map<() -> (768)>} : () -> tensor<768xf32>
  %i = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>], iterator_types = ["parallel"]} outs(%e : tensor<768xf32>) {
  ^bb0(%o: f32):
    linalg.yield %zero : f32
  } -> tensor<768xf32>
  %r = linalg.generic {indexing_maps = [affine_map<(d0, d1, d2) -> (d0, d1, d2)>, affine_map<(d0, d1, d2) -> (d2)>], iterator_types = ["reduction", "reduction", "parallel"]} ins(%x : tensor<?x?x768xf32>) outs(%i : tensor<768xf32>) {
  ^bb0(%a: f32, %o: f32):
    %0 = arith.addf %o, %a : f32
    linalg.yield %0 : f32
  } -> tensor<768xf32>
  return %r : tensor<768xf32>
}

// -----

// Nothing is known of this size: nothing says that it is large.

// GPU-LABEL: func.func @without_hint
// GPU-COUNT-2: linalg.generic
// GPU-NOT: linalg.generic
// GPU: return
func.func @without_hint(%x: tensor<?xf32> {kiln.shape = affine_map<()[s0] -> (s0)>}, %n: index {kiln.symbol = "s0"}) -> tensor<f32> {
  %zero = arith.constant 0.0 : f32
  %e = "kiln.empty"() {shape = affine_map<() -> ()>} : () -> tensor<f32>
  %i = linalg.generic {indexing_maps = [affine_map<() -> ()>], iterator_types = []} outs(%e : tensor<f32>) {
  ^bb0(%o: f32):
    linalg.yield %zero : f32
  } -> tensor<f32>
  %r = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> ()>], iterator_types = ["reduction"]} ins(%x : tensor<?xf32>) outs(%i : tensor<f32>) {
  ^bb0(%a: f32, %o: f32):
    %0 = arith.addf %o, %a : f32
    linalg.yield %0 : f32
  } -> tensor<f32>
  return %r : tensor<f32>
}
