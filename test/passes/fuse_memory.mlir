// RUN: kiln-opt --split-input-file --pass-pipeline=fuse %s | filecheck %s
// RUN: kiln-opt --split-input-file --pass-pipeline=fuse --remarks --verify-diagnostics=only-expected %s | filecheck %s

// Both products read %x. As parts of one kernel the second result would be alive beside the hidden layer.

// CHECK-LABEL: func.func @kept_apart
// CHECK-COUNT-4: "kiln.fusion"
// CHECK-NOT: parts
func.func @kept_apart(%x: tensor<8x8xf32>, %w: tensor<8x8xf32>, %up: tensor<8x64xf32>, %down: tensor<64x8xf32>,
    %side: tensor<8x64xf32>) -> (tensor<8x8xf32>, tensor<8x64xf32>) {
  %a = "kiln.matmul"(%x, %w) {transpose_lhs = false, transpose_rhs = false}
    : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
  %hidden = "kiln.matmul"(%a, %up) {transpose_lhs = false, transpose_rhs = false}
    : (tensor<8x8xf32>, tensor<8x64xf32>) -> tensor<8x64xf32>
  %u = "kiln.matmul"(%hidden, %down) {transpose_lhs = false, transpose_rhs = false}
    : (tensor<8x64xf32>, tensor<64x8xf32>) -> tensor<8x8xf32>
  // expected-remark @+1 {{its results would be alive for longer, and 1.76 kB more at once than there is room for}}
  %c = "kiln.matmul"(%x, %side) {transpose_lhs = false, transpose_rhs = false}
    : (tensor<8x8xf32>, tensor<8x64xf32>) -> tensor<8x64xf32>
  return %u, %c : tensor<8x8xf32>, tensor<8x64xf32>
}

// -----

// Here both are alive at the end anyway.

// CHECK-LABEL: func.func @parts
// CHECK: "kiln.fusion"
// CHECK: parts = array<i64: 0, 1>
func.func @parts(%x: tensor<8x8xf32>, %w: tensor<8x8xf32>, %side: tensor<8x64xf32>)
    -> (tensor<8x8xf32>, tensor<8x64xf32>) {
  %a = "kiln.matmul"(%x, %w) {transpose_lhs = false, transpose_rhs = false}
    : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
  // expected-remark @+1 {{a product of the same matrix, saves 256 B of traffic}}
  %c = "kiln.matmul"(%x, %side) {transpose_lhs = false, transpose_rhs = false}
    : (tensor<8x8xf32>, tensor<8x64xf32>) -> tensor<8x64xf32>
  return %a, %c : tensor<8x8xf32>, tensor<8x64xf32>
}

// -----

// One hidden layer after the other: both at once are never alive.

// CHECK-LABEL: func.func @frees_early
// CHECK: %[[A:.*]] = "kiln.fusion"(%arg0, %arg2)
// CHECK: %[[B:.*]] = "kiln.fusion"(%[[A]], %arg3)
// CHECK: %[[C:.*]] = "kiln.fusion"(%arg1, %arg2)
// CHECK: %[[D:.*]] = "kiln.fusion"(%[[C]], %arg3)
// CHECK: return %[[B]], %[[D]]
func.func @frees_early(%x: tensor<8x8xf32>, %y: tensor<8x8xf32>, %up: tensor<8x64xf32>, %down: tensor<64x8xf32>)
    -> (tensor<8x8xf32>, tensor<8x8xf32>) {
  %a = "kiln.matmul"(%x, %up) {transpose_lhs = false, transpose_rhs = false}
    : (tensor<8x8xf32>, tensor<8x64xf32>) -> tensor<8x64xf32>
  %c = "kiln.matmul"(%y, %up) {transpose_lhs = false, transpose_rhs = false}
    : (tensor<8x8xf32>, tensor<8x64xf32>) -> tensor<8x64xf32>
  %b = "kiln.matmul"(%a, %down) {transpose_lhs = false, transpose_rhs = false}
    : (tensor<8x64xf32>, tensor<64x8xf32>) -> tensor<8x8xf32>
  %d = "kiln.matmul"(%c, %down) {transpose_lhs = false, transpose_rhs = false}
    : (tensor<8x64xf32>, tensor<64x8xf32>) -> tensor<8x8xf32>
  return %b, %d : tensor<8x8xf32>, tensor<8x8xf32>
}
