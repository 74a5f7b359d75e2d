// RUN: kiln-opt --split-input-file --pass-pipeline=fuse %s | filecheck %s
// RUN: kiln-opt --split-input-file --pass-pipeline=fuse --remarks --verify-diagnostics=only-expected %s | filecheck %s

// The sum of each channel goes to the small kernel that reads it first; the large one along the same rows joins them.

#all = affine_map<(d0, d1, d2) -> (d0, d1, d2)>
#row = affine_map<(d0, d1, d2) -> (d1)>
#vector = affine_map<(d0) -> (d0)>

// CHECK-LABEL: func.func @row_major
// CHECK-COUNT-1: "kiln.fusion
// CHECK-NOT: "kiln.fusion
// CHECK: return
func.func @row_major(%x: tensor<4x16x32xf32>, %running: tensor<16xf32>) -> (tensor<16xf32>, tensor<4x16x32xf32>) {
  %zero = arith.constant dense<0.0> : tensor<16xf32>
  %e1 = "kiln.empty"() {shape = affine_map<() -> (16)>} : () -> tensor<16xf32>
  %e3 = "kiln.empty"() {shape = affine_map<() -> (4, 16, 32)>} : () -> tensor<4x16x32xf32>
  %sum = linalg.generic {indexing_maps = [#all, #row], iterator_types = ["reduction", "parallel", "reduction"]}
      ins(%x : tensor<4x16x32xf32>) outs(%zero : tensor<16xf32>) {
  ^bb0(%i: f32, %o: f32):
    %a = arith.addf %o, %i : f32
    linalg.yield %a : f32
  } -> tensor<16xf32>
  %new = linalg.generic {indexing_maps = [#vector, #vector, #vector], iterator_types = ["parallel"]}
      ins(%sum, %running : tensor<16xf32>, tensor<16xf32>) outs(%e1 : tensor<16xf32>) {
  ^bb0(%i: f32, %r: f32, %o: f32):
    %a = arith.addf %i, %r : f32
    linalg.yield %a : f32
  } -> tensor<16xf32>
  // expected-remark @+1 {{walks the rows of its reductions, saves 8.32 kB of traffic}}
  %centred = linalg.generic {indexing_maps = [#all, #row, #all], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%x, %sum : tensor<4x16x32xf32>, tensor<16xf32>) outs(%e3 : tensor<4x16x32xf32>) {
  ^bb0(%i: f32, %s: f32, %o: f32):
    %a = arith.subf %i, %s : f32
    linalg.yield %a : f32
  } -> tensor<4x16x32xf32>
  return %new, %centred : tensor<16xf32>, tensor<4x16x32xf32>
}

// -----

// With channels next to each other the rows are columns in memory: two passes in order are faster.

#all = affine_map<(d0, d1, d2) -> (d0, d1, d2)>
#row = affine_map<(d0, d1, d2) -> (d1)>
#vector = affine_map<(d0) -> (d0)>

// CHECK-LABEL: func.func @channels_last
// CHECK-COUNT-2: "kiln.fusion
// CHECK-NOT: "kiln.fusion
// CHECK: return
func.func @channels_last(%x: tensor<4x16x32xf32> {kiln.strides = affine_map<() -> (512, 1, 16)>},
    %running: tensor<16xf32>) -> (tensor<16xf32>, tensor<4x16x32xf32>) {
  %zero = arith.constant dense<0.0> : tensor<16xf32>
  %e1 = "kiln.empty"() {shape = affine_map<() -> (16)>} : () -> tensor<16xf32>
  %e3 = "kiln.empty"() {shape = affine_map<() -> (4, 16, 32)>} : () -> tensor<4x16x32xf32>
  %sum = linalg.generic {indexing_maps = [#all, #row], iterator_types = ["reduction", "parallel", "reduction"]}
      ins(%x : tensor<4x16x32xf32>) outs(%zero : tensor<16xf32>) {
  ^bb0(%i: f32, %o: f32):
    %a = arith.addf %o, %i : f32
    linalg.yield %a : f32
  } -> tensor<16xf32>
  %new = linalg.generic {indexing_maps = [#vector, #vector, #vector], iterator_types = ["parallel"]}
      ins(%sum, %running : tensor<16xf32>, tensor<16xf32>) outs(%e1 : tensor<16xf32>) {
  ^bb0(%i: f32, %r: f32, %o: f32):
    %a = arith.addf %i, %r : f32
    linalg.yield %a : f32
  } -> tensor<16xf32>
  // expected-remark @+1 {{its rows are neighbours in memory: not with their reductions}}
  %centred = linalg.generic {indexing_maps = [#all, #row, #all], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%x, %sum : tensor<4x16x32xf32>, tensor<16xf32>) outs(%e3 : tensor<4x16x32xf32>) {
  ^bb0(%i: f32, %s: f32, %o: f32):
    %a = arith.subf %i, %s : f32
    linalg.yield %a : f32
  } -> tensor<4x16x32xf32>
  return %new, %centred : tensor<16xf32>, tensor<4x16x32xf32>
}

// -----

// A count that has to do with nothing else: no launch of its own.

// CHECK-LABEL: func.func @count
// CHECK-COUNT-1: "kiln.fusion
// CHECK: parts = array<i64: 0, 1>
// CHECK-NOT: "kiln.fusion
// CHECK: return
func.func @count(%x: tensor<64x64xf32>, %n: tensor<i64>) -> (tensor<64x64xf32>, tensor<i64>) {
  %one = arith.constant 1 : i64
  %e = "kiln.empty"() {shape = affine_map<() -> (64, 64)>} : () -> tensor<64x64xf32>
  %e0 = "kiln.empty"() {shape = affine_map<() -> ()>} : () -> tensor<i64>
  %y = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0, d1)>],
      iterator_types = ["parallel", "parallel"]} ins(%x : tensor<64x64xf32>) outs(%e : tensor<64x64xf32>) {
  ^bb0(%i: f32, %o: f32):
    %a = math.exp %i : f32
    linalg.yield %a : f32
  } -> tensor<64x64xf32>
  // expected-remark @+1 {{computes less than a launch costs}}
  %m = linalg.generic {indexing_maps = [affine_map<() -> ()>, affine_map<() -> ()>], iterator_types = []}
      ins(%n : tensor<i64>) outs(%e0 : tensor<i64>) {
  ^bb0(%i: i64, %o: i64):
    %a = arith.addi %i, %one : i64
    linalg.yield %a : i64
  } -> tensor<i64>
  return %y, %m : tensor<64x64xf32>, tensor<i64>
}
