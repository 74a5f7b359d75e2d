// RUN: kiln-opt %s --split-input-file --pass-pipeline="fuse,assign-layouts,schedule-cpu" --check-stage=sched | filecheck %s
// RUN: kiln-opt %s --split-input-file --pass-pipeline="fuse" --remarks 2>&1 | filecheck %s --check-prefix=WHY

#id = affine_map<(d0, d1, d2, d3) -> (d0, d1, d2, d3)>
#channel = affine_map<(d0, d1, d2, d3) -> (d1)>

// Bias, residual and activation are the convolution's epilogue: one kernel.
// CHECK-LABEL: func.func @epilogue
// CHECK: "kiln.fusion"
// CHECK: kiln.conv
// CHECK: arith.maximumf
// CHECK: kind = "conv"
// CHECK-SAME: schedule = {kernel = "cpu.conv.direct"
// CHECK-NOT: kiln.fusion
// CHECK: return
func.func @epilogue(%x: tensor<1x16x8x8xf32>, %w: tensor<32x16x3x3xf32>, %b: tensor<32xf32>, %r: tensor<1x32x8x8xf32>)
    -> tensor<1x32x8x8xf32> {
  %0 = "kiln.conv"(%x, %w) {stride = array<i64: 1, 1>, padding = array<i64: 1, 1>, dilation = array<i64: 1, 1>, groups = 1,
    transposed = false, output_padding = array<i64: 0, 0>} : (tensor<1x16x8x8xf32>, tensor<32x16x3x3xf32>) -> tensor<1x32x8x8xf32>
  %e = "kiln.empty"() {shape = affine_map<() -> (1, 32, 8, 8)>} : () -> tensor<1x32x8x8xf32>
  %1 = linalg.generic {indexing_maps = [#id, #channel, #id, #id], iterator_types = ["parallel", "parallel", "parallel", "parallel"]}
      ins(%0, %b, %r : tensor<1x32x8x8xf32>, tensor<32xf32>, tensor<1x32x8x8xf32>) outs(%e : tensor<1x32x8x8xf32>) {
  ^bb0(%c: f32, %d: f32, %f: f32, %o: f32):
    %zero = arith.constant 0.0 : f32
    %s = arith.addf %c, %d : f32
    %t = arith.addf %s, %f : f32
    %m = arith.maximumf %t, %zero : f32
    linalg.yield %m : f32
  } -> tensor<1x32x8x8xf32>
  return %1 : tensor<1x32x8x8xf32>
}

// -----

#id = affine_map<(d0, d1, d2, d3) -> (d0, d1, d2, d3)>

// A producer is stored: each of its elements would be computed for each place in the window.
// CHECK-LABEL: func.func @prologue
// CHECK: kind = "pointwise"
// CHECK: kind = "conv"
// CHECK-SAME: schedule = {kernel = "cpu.conv.planar"
// CHECK: return
func.func @prologue(%x: tensor<1x16x8x8xf32>, %w: tensor<16x1x3x3xf32>) -> tensor<1x16x8x8xf32> {
  %e = "kiln.empty"() {shape = affine_map<() -> (1, 16, 8, 8)>} : () -> tensor<1x16x8x8xf32>
  %0 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel", "parallel", "parallel"]}
      ins(%x : tensor<1x16x8x8xf32>) outs(%e : tensor<1x16x8x8xf32>) {
  ^bb0(%c: f32, %o: f32):
    %s = arith.addf %c, %c : f32
    linalg.yield %s : f32
  } -> tensor<1x16x8x8xf32>
  %1 = "kiln.conv"(%0, %w) {stride = array<i64: 1, 1>, padding = array<i64: 1, 1>, dilation = array<i64: 1, 1>, groups = 16,
    transposed = false, output_padding = array<i64: 0, 0>} : (tensor<1x16x8x8xf32>, tensor<16x1x3x3xf32>) -> tensor<1x16x8x8xf32>
  return %1 : tensor<1x16x8x8xf32>
}

// -----

// The loops behind a convolution are the dims of its result, in their order: a transposed reader is a kernel of its own.
// CHECK-LABEL: func.func @transposed
// CHECK: kind = "conv"
// CHECK: kind = "pointwise"
// WHY: remark: kiln.conv: the consumer's loops are not those of the result
func.func @transposed(%x: tensor<1x16x8x8xf32>, %w: tensor<32x16x3x3xf32>, %r: tensor<1x8x8x32xf32>) -> tensor<1x8x8x32xf32> {
  %0 = "kiln.conv"(%x, %w) {stride = array<i64: 1, 1>, padding = array<i64: 1, 1>, dilation = array<i64: 1, 1>, groups = 1,
    transposed = false, output_padding = array<i64: 0, 0>} : (tensor<1x16x8x8xf32>, tensor<32x16x3x3xf32>) -> tensor<1x32x8x8xf32>
  %e = "kiln.empty"() {shape = affine_map<() -> (1, 8, 8, 32)>} : () -> tensor<1x8x8x32xf32>
  %1 = linalg.generic {indexing_maps = [affine_map<(d0, d1, d2, d3) -> (d0, d3, d1, d2)>, affine_map<(d0, d1, d2, d3) -> (d0, d1, d2, d3)>,
      affine_map<(d0, d1, d2, d3) -> (d0, d1, d2, d3)>], iterator_types = ["parallel", "parallel", "parallel", "parallel"]}
      ins(%0, %r : tensor<1x32x8x8xf32>, tensor<1x8x8x32xf32>) outs(%e : tensor<1x8x8x32xf32>) {
  ^bb0(%c: f32, %d: f32, %o: f32):
    %s = arith.addf %c, %d : f32
    linalg.yield %s : f32
  } -> tensor<1x8x8x32xf32>
  return %1 : tensor<1x8x8x32xf32>
}

// -----

#id = affine_map<(d0, d1, d2, d3) -> (d0, d1, d2, d3)>
#window = affine_map<(n, c, h, w, y, x) -> (n, c, h + y, w + x)>
#result = affine_map<(n, c, h, w, y, x) -> (n, c, h, w)>

// What a window reads several times is computed once, behind the sums: it is as large as they are.
// CHECK-LABEL: func.func @before_a_window
// CHECK: kiln.conv
// CHECK: arith.maximumf
// CHECK: kind = "conv"
// CHECK: arith.maxnumf
// CHECK: kind = "reduction"
// WHY: computed once behind a convolution's sums
func.func @before_a_window(%x: tensor<2x16x8x8xf32>, %w: tensor<32x16x1x1xf32>) -> tensor<2x32x6x6xf32> {
  %0 = "kiln.conv"(%x, %w) {stride = array<i64: 1, 1>, padding = array<i64: 0, 0>, dilation = array<i64: 1, 1>, groups = 1,
    transposed = false, output_padding = array<i64: 0, 0>} : (tensor<2x16x8x8xf32>, tensor<32x16x1x1xf32>) -> tensor<2x32x8x8xf32>
  %e = "kiln.empty"() {shape = affine_map<() -> (2, 32, 8, 8)>} : () -> tensor<2x32x8x8xf32>
  %1 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel", "parallel", "parallel"]}
      ins(%0 : tensor<2x32x8x8xf32>) outs(%e : tensor<2x32x8x8xf32>) {
  ^bb0(%c: f32, %o: f32):
    %zero = arith.constant 0.0 : f32
    %m = arith.maximumf %c, %zero : f32
    linalg.yield %m : f32
  } -> tensor<2x32x8x8xf32>
  %least = arith.constant dense<0xFF800000> : tensor<2x32x6x6xf32>
  %k = "kiln.empty"() {shape = affine_map<() -> (3, 3)>} : () -> tensor<3x3xf32>
  %2 = linalg.generic {indexing_maps = [#window, affine_map<(n, c, h, w, y, x) -> (y, x)>, #result],
      iterator_types = ["parallel", "parallel", "parallel", "parallel", "reduction", "reduction"]}
      ins(%1, %k : tensor<2x32x8x8xf32>, tensor<3x3xf32>) outs(%least : tensor<2x32x6x6xf32>) {
  ^bb0(%a: f32, %u: f32, %o: f32):
    %m = arith.maxnumf %a, %o : f32
    linalg.yield %m : f32
  } -> tensor<2x32x6x6xf32>
  return %2 : tensor<2x32x6x6xf32>
}
