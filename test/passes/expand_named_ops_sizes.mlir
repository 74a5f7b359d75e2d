// A reference that knows more sizes than its op's type leaves no cast between kernels, which no later pass knows.
// RUN: kiln-opt --split-input-file --pass-pipeline='expand-named-ops{keep=attention},fuse,assign-layouts' %s | filecheck %s

// CHECK-LABEL: func.func @main(
// CHECK-NOT: tensor.cast
// CHECK: layouts =
// CHECK: return

func.func @main(%x: tensor<?x3x4x4xf32> {kiln.shape = affine_map<()[s0] -> (s0, 3, 4, 4)>}, %w: tensor<5x3x3x3xf32>,
                %n: index {kiln.symbol = "s0"}) -> tensor<?x5x2x2xf32> attributes {kiln.symbols = ["s0"]} {
  %0 = "kiln.conv"(%x, %w) {stride = array<i64: 1, 1>, padding = array<i64: 0, 0>, dilation = array<i64: 1, 1>,
    groups = 1, transposed = false, output_padding = array<i64: 0, 0>}
    : (tensor<?x3x4x4xf32>, tensor<5x3x3x3xf32>) -> tensor<?x5x?x?xf32>
  %1 = "kiln.pool"(%0) {mode = "max", kernel = array<i64: 1, 1>, stride = array<i64: 1, 1>, padding = array<i64: 0, 0>,
    dilation = array<i64: 1, 1>, ceil = false, count_include_pad = false, divisor = 0}
    : (tensor<?x5x?x?xf32>) -> tensor<?x5x2x2xf32>
  return %1 : tensor<?x5x2x2xf32>
}

// -----

// CHECK-LABEL: func.func @attention(
// CHECK-NOT: tensor.cast
// CHECK: "kiln.attention"
// CHECK-NOT: tensor.cast
// CHECK: return

func.func @attention(%x: tensor<?x3x4x4xf32> {kiln.shape = affine_map<()[s0] -> (s0, 3, 4, 4)>},
                     %w: tensor<5x3x3x3xf32>, %k: tensor<?x5x7x2xf32> {kiln.shape = affine_map<()[s0] -> (s0, 5, 7, 2)>},
                     %n: index {kiln.symbol = "s0"}) -> tensor<?x5x2x2xf32> attributes {kiln.symbols = ["s0"]} {
  %0 = "kiln.conv"(%x, %w) {stride = array<i64: 1, 1>, padding = array<i64: 0, 0>, dilation = array<i64: 1, 1>,
    groups = 1, transposed = false, output_padding = array<i64: 0, 0>}
    : (tensor<?x3x4x4xf32>, tensor<5x3x3x3xf32>) -> tensor<?x5x?x2xf32>
  %1 = "kiln.attention"(%0, %k, %k) {scale = 1.0 : f64, causal = false}
    : (tensor<?x5x?x2xf32>, tensor<?x5x7x2xf32>, tensor<?x5x7x2xf32>) -> tensor<?x5x2x2xf32>
  return %1 : tensor<?x5x2x2xf32>
}

// -----

// CHECK-LABEL: func.func @select(
// CHECK-NOT: tensor.cast
// CHECK: layouts =
// CHECK: return

func.func @select(%x: tensor<?x3x4x4xf32> {kiln.shape = affine_map<()[s0] -> (s0, 3, 4, 4)>}, %w: tensor<5x3x3x3xf32>,
                  %i: tensor<3xi64>, %n: index {kiln.symbol = "s0"}) -> tensor<?x3x2x2xf32>
    attributes {kiln.symbols = ["s0"]} {
  %0 = "kiln.conv"(%x, %w) {stride = array<i64: 1, 1>, padding = array<i64: 0, 0>, dilation = array<i64: 1, 1>,
    groups = 1, transposed = false, output_padding = array<i64: 0, 0>}
    : (tensor<?x3x4x4xf32>, tensor<5x3x3x3xf32>) -> tensor<?x5x?x?xf32>
  %1 = "kiln.index_select"(%0, %i) {dim = 1} : (tensor<?x5x?x?xf32>, tensor<3xi64>) -> tensor<?x3x2x2xf32>
  return %1 : tensor<?x3x2x2xf32>
}
