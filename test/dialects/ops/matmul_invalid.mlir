// What the verifiers of the ops in dialects/kiln/matmul.py reject.
// RUN: kiln-opt --split-input-file --verify-diagnostics %s

func.func @invalid(%a: tensor<4x8xf32>, %b: tensor<4x8xf32>) {
  // expected-error @+1 {{'kiln.matmul' op rhs reduction size: expected 8, found 4}}
  %0 = "kiln.matmul"(%a, %b) {transpose_lhs = false, transpose_rhs = false}
    : (tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x8xf32>
  return
}

// -----

func.func @invalid(%a: tensor<4x8xf32>, %b: tensor<4x8xf32>) {
  // expected-error @+1 {{'kiln.matmul' op result sizes: expected [4, 4], found [4, 8]}}
  %0 = "kiln.matmul"(%a, %b) {transpose_lhs = false, transpose_rhs = true}
    : (tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x8xf32>
  return
}

// -----

func.func @invalid(%a: tensor<2x4x8xf32>, %b: tensor<3x8x4xf32>) {
  // expected-error @+1 {{'kiln.matmul' op rhs batch sizes: expected [2], found [3]}}
  %0 = "kiln.matmul"(%a, %b) {transpose_lhs = false, transpose_rhs = false}
    : (tensor<2x4x8xf32>, tensor<3x8x4xf32>) -> tensor<2x4x4xf32>
  return
}

// -----

func.func @invalid(%a: tensor<4x8xf32>, %b: tensor<8x4xf64>) {
  // expected-error @+1 {{'kiln.matmul' op rhs element type: expected f32, found f64}}
  %0 = "kiln.matmul"(%a, %b) {transpose_lhs = false, transpose_rhs = false}
    : (tensor<4x8xf32>, tensor<8x4xf64>) -> tensor<4x4xf32>
  return
}

// -----

func.func @invalid(%a: tensor<8xf32>, %b: tensor<8x4xf32>) {
  // expected-error @+1 {{'kiln.matmul' op lhs rank: expected at least 2, found 1}}
  %0 = "kiln.matmul"(%a, %b) {transpose_lhs = false, transpose_rhs = false}
    : (tensor<8xf32>, tensor<8x4xf32>) -> tensor<4xf32>
  return
}

// -----

func.func @invalid(%a: tensor<4x8xf32>, %b: tensor<8x4xf32>) {
  // expected-error @+1 {{'kiln.matmul' op attribute transpose_lhs: expected true or false, found 0 : i64}}
  %0 = "kiln.matmul"(%a, %b) {transpose_lhs = 0, transpose_rhs = false}
    : (tensor<4x8xf32>, tensor<8x4xf32>) -> tensor<4x4xf32>
  return
}
