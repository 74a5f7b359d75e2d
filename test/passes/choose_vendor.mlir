// RUN: kiln-opt %s --split-input-file --pass-pipeline="choose-vendor" | filecheck %s
// RUN: kiln-opt %s --split-input-file --pass-pipeline="choose-vendor{keep=conv}" | filecheck %s --check-prefix=KEEP
// RUN: not kiln-opt %s --split-input-file --pass-pipeline="choose-vendor{target=gpu}" 2>&1 | filecheck %s --check-prefix=UNKNOWN

// The bias goes into the call; sizes and strides come from the attributes.
// CHECK: [[STRIDES:#map[0-9]*]] = affine_map<()[s0] -> (1632, 1, 272, 4)>
// CHECK-LABEL: func.func @conv_bias
// CHECK-SAME: %[[X:[a-z0-9]*]]: tensor<?x3x8x40xf32>
// CHECK-SAME: %[[B:[a-z0-9]*]]: tensor<4xf32>
// CHECK-SAME: %{{[a-z0-9]*}}: index {kiln.symbol = "s9"}, %[[S:[a-z0-9]*]]: index
// CHECK-NOT: kiln.conv
// CHECK-NOT: linalg.generic
// CHECK: "kiln.aten"(%[[X]], %{{.*}}, %[[B]], %[[S]])
// CHECK-SAME: [1, 1], [2, 2], [1, 1], true, [0, 0], 1]
// CHECK-SAME: reason = "oneDNN: the convolution kernel takes windows of at most 32 columns"
// CHECK-SAME: strides = [[[STRIDES]]]
// UNKNOWN: unknown target 'gpu'
// KEEP-LABEL: func.func @conv_bias
// KEEP: kiln.conv
func.func @conv_bias(%x: tensor<?x3x8x40xf32> {kiln.shape = affine_map<()[s0, s1] -> (s1, 3, 8, 40)>}, %w: tensor<3x4x3x33xf32>, %b: tensor<4xf32>,
    %t: index {kiln.symbol = "s9"}, %s: index {kiln.symbol = "s27"}) -> tensor<?x4x6x68xf32> attributes {kiln.symbols = ["s9", "s27"]} {
  %0 = "kiln.conv"(%x, %w) {stride = array<i64: 1, 1>, padding = array<i64: 2, 2>, dilation = array<i64: 1, 1>, groups = 1,
    transposed = true, output_padding = array<i64: 0, 0>, symbols = ["s27", "s9"], shape = affine_map<()[s0, s1] -> (s0, 4, 6, 68)>,
    strides = affine_map<()[s0, s1] -> (1632, 1, 272, 4)>} : (tensor<?x3x8x40xf32>, tensor<3x4x3x33xf32>) -> tensor<?x4x6x68xf32>
  %e = "kiln.empty"(%s) {shape = affine_map<()[s0] -> (s0, 4, 6, 68)>} : (index) -> tensor<?x4x6x68xf32>
  %1 = linalg.generic {indexing_maps = [affine_map<(d0, d1, d2, d3) -> (d0, d1, d2, d3)>, affine_map<(d0, d1, d2, d3) -> (d1)>,
      affine_map<(d0, d1, d2, d3) -> (d0, d1, d2, d3)>], iterator_types = ["parallel", "parallel", "parallel", "parallel"]}
      ins(%0, %b : tensor<?x4x6x68xf32>, tensor<4xf32>) outs(%e : tensor<?x4x6x68xf32>) attrs = {conv_bias} {
  ^bb0(%c: f32, %d: f32, %o: f32):
    %r = arith.addf %c, %d : f32
    linalg.yield %r : f32
  } -> tensor<?x4x6x68xf32>
  return %1 : tensor<?x4x6x68xf32>
}

// -----

// A convolution that something else reads as well keeps its addition apart.
// CHECK-LABEL: func.func @static_two_uses
// CHECK: %[[C:.*]] = "kiln.aten"(%{{.*}}, %{{.*}}) {args = "[{\22operand\22: 0}, {\22operand\22: 1}, null,
// CHECK: return %[[C]], %[[C]]
// KEEP-LABEL: func.func @static_two_uses
// KEEP: kiln.conv
func.func @static_two_uses(%x: tensor<1x3x8xf32>, %w: tensor<3x4x33xf32>) -> (tensor<1x4x36xf32>, tensor<1x4x36xf32>) {
  %0 = "kiln.conv"(%x, %w) {stride = array<i64: 1>, padding = array<i64: 2>, dilation = array<i64: 1>, groups = 1,
    transposed = true, output_padding = array<i64: 0>} : (tensor<1x3x8xf32>, tensor<3x4x33xf32>) -> tensor<1x4x36xf32>
  return %0, %0 : tensor<1x4x36xf32>, tensor<1x4x36xf32>
}

// -----

// A kernel of its own is as fast, unless the window is wide.
// CHECK-LABEL: func.func @kept
// CHECK: "kiln.conv"(%{{.*}}, %{{.*}}) {dilation = array<i64: 1, 1>, groups = 1
// CHECK: "kiln.aten"
// CHECK-SAME: reason = "oneDNN: the convolution kernel takes windows of at most 32 columns"
// CHECK: "kiln.conv"(%{{.*}}, %{{.*}}) {dilation = array<i64: 1, 1>, groups = 16
// CHECK: "kiln.conv"(%{{.*}}, %{{.*}}) {dilation = array<i64: 1, 1>, groups = 16
// CHECK: "kiln.conv"(%{{.*}}, %{{.*}}) {dilation = array<i64: 1, 1>, groups = 8
// KEEP-LABEL: func.func @kept
func.func @kept(%x: tensor<1x16x8x8xf32>, %w: tensor<16x16x3x3xf32>, %v: tensor<16x16x3x33xf32>, %d: tensor<16x1x3x3xf32>, %g: tensor<16x2x3x3xf32>)
    -> (tensor<1x16x8x8xf32>, tensor<1x16x8x8xf32>, tensor<1x16x8x8xf32>, tensor<1x16x8x8xf32>, tensor<1x16x8x8xf32>) {
  %0 = "kiln.conv"(%x, %w) {stride = array<i64: 1, 1>, padding = array<i64: 1, 1>, dilation = array<i64: 1, 1>, groups = 1,
    transposed = false, output_padding = array<i64: 0, 0>} : (tensor<1x16x8x8xf32>, tensor<16x16x3x3xf32>) -> tensor<1x16x8x8xf32>
  %1 = "kiln.conv"(%x, %v) {stride = array<i64: 1, 1>, padding = array<i64: 1, 16>, dilation = array<i64: 1, 1>, groups = 1,
    transposed = false, output_padding = array<i64: 0, 0>} : (tensor<1x16x8x8xf32>, tensor<16x16x3x33xf32>) -> tensor<1x16x8x8xf32>
  %2 = "kiln.conv"(%x, %d) {stride = array<i64: 1, 1>, padding = array<i64: 1, 1>, dilation = array<i64: 1, 1>, groups = 16,
    transposed = false, output_padding = array<i64: 0, 0>} : (tensor<1x16x8x8xf32>, tensor<16x1x3x3xf32>) -> tensor<1x16x8x8xf32>
  %3 = "kiln.conv"(%x, %d) {stride = array<i64: 1, 1>, padding = array<i64: 1, 1>, dilation = array<i64: 1, 1>, groups = 16,
    transposed = false, output_padding = array<i64: 0, 0>, strides = affine_map<() -> (1024, 1, 128, 16)>}
    : (tensor<1x16x8x8xf32>, tensor<16x1x3x3xf32>) -> tensor<1x16x8x8xf32>
  %4 = "kiln.conv"(%x, %g) {stride = array<i64: 1, 1>, padding = array<i64: 1, 1>, dilation = array<i64: 1, 1>, groups = 8,
    transposed = false, output_padding = array<i64: 0, 0>} : (tensor<1x16x8x8xf32>, tensor<16x2x3x3xf32>) -> tensor<1x16x8x8xf32>
  return %0, %1, %2, %3, %4 : tensor<1x16x8x8xf32>, tensor<1x16x8x8xf32>, tensor<1x16x8x8xf32>, tensor<1x16x8x8xf32>, tensor<1x16x8x8xf32>
}

// -----

// Transposed and three-dimensional convolutions have kernels.
// CHECK-LABEL: func.func @transposed
// CHECK: "kiln.conv"{{.*}}transposed = true
// CHECK: "kiln.conv"
// CHECK-NOT: kiln.aten
// KEEP-LABEL: func.func @transposed
func.func @transposed(%x: tensor<1x16x8x8xf32>, %w: tensor<16x8x2x2xf32>, %y: tensor<1x4x6x8x8xf32>, %v: tensor<8x4x3x3x3xf32>)
    -> (tensor<1x8x16x16xf32>, tensor<1x8x6x8x8xf32>) {
  %0 = "kiln.conv"(%x, %w) {stride = array<i64: 2, 2>, padding = array<i64: 0, 0>, dilation = array<i64: 1, 1>, groups = 1,
    transposed = true, output_padding = array<i64: 0, 0>} : (tensor<1x16x8x8xf32>, tensor<16x8x2x2xf32>) -> tensor<1x8x16x16xf32>
  %1 = "kiln.conv"(%y, %v) {stride = array<i64: 1, 1, 1>, padding = array<i64: 1, 1, 1>, dilation = array<i64: 1, 1, 1>,
    groups = 1, transposed = false, output_padding = array<i64: 0, 0, 0>}
    : (tensor<1x4x6x8x8xf32>, tensor<8x4x3x3x3xf32>) -> tensor<1x8x6x8x8xf32>
  return %0, %1 : tensor<1x8x16x16xf32>, tensor<1x8x6x8x8xf32>
}
