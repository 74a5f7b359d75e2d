// What the verifiers of the ops in dialects/kiln/attention.py reject.
// RUN: kiln-opt --split-input-file --verify-diagnostics %s

func.func @invalid(%q: tensor<2x4x3x8xf32>, %k: tensor<2x3x5x8xf32>) {
  // expected-error @+1 {{'kiln.attention' op key heads: expected a divisor of 4, found 3}}
  %0 = "kiln.attention"(%q, %k, %k) {scale = 1.0 : f64, causal = false}
    : (tensor<2x4x3x8xf32>, tensor<2x3x5x8xf32>, tensor<2x3x5x8xf32>) -> tensor<2x4x3x8xf32>
  return
}

// -----

func.func @invalid(%q: tensor<2x4x3x8xf32>, %k: tensor<2x4x5x6xf32>) {
  // expected-error @+1 {{'kiln.attention' op key sizes: expected [2, ?, ?, 8], found [2, 4, 5, 6]}}
  %0 = "kiln.attention"(%q, %k, %k) {scale = 1.0 : f64, causal = false}
    : (tensor<2x4x3x8xf32>, tensor<2x4x5x6xf32>, tensor<2x4x5x6xf32>) -> tensor<2x4x3x6xf32>
  return
}

// -----

func.func @invalid(%q: tensor<2x4x3x8xf32>, %k: tensor<2x4x5x8xf32>, %v: tensor<2x4x6x8xf32>) {
  // expected-error @+1 {{'kiln.attention' op value sizes: expected [2, 4, 5, ?], found [2, 4, 6, 8]}}
  %0 = "kiln.attention"(%q, %k, %v) {scale = 1.0 : f64, causal = false}
    : (tensor<2x4x3x8xf32>, tensor<2x4x5x8xf32>, tensor<2x4x6x8xf32>) -> tensor<2x4x3x8xf32>
  return
}

// -----

func.func @invalid(%q: tensor<2x4x3x8xf32>, %m: tensor<3x4xi1>) {
  // expected-error @+1 {{'kiln.attention' op mask sizes: expected to broadcast to [2, 4, 3, 3], found [3, 4]}}
  %0 = "kiln.attention"(%q, %q, %q, %m) {scale = 1.0 : f64, causal = false}
    : (tensor<2x4x3x8xf32>, tensor<2x4x3x8xf32>, tensor<2x4x3x8xf32>, tensor<3x4xi1>) -> tensor<2x4x3x8xf32>
  return
}

// -----

func.func @invalid(%q: tensor<2x4x3x8xf32>, %m: tensor<3x3xi64>) {
  // expected-error @+1 {{'kiln.attention' op mask element type: expected a float type, found i64}}
  %0 = "kiln.attention"(%q, %q, %q, %m) {scale = 1.0 : f64, causal = false}
    : (tensor<2x4x3x8xf32>, tensor<2x4x3x8xf32>, tensor<2x4x3x8xf32>, tensor<3x3xi64>) -> tensor<2x4x3x8xf32>
  return
}
