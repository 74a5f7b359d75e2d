// What the verifiers of the ops in dialects/kiln/pool.py reject.
// RUN: kiln-opt --split-input-file --verify-diagnostics %s

func.func @invalid(%x: tensor<1x3x8xf32>) {
  // expected-error @+1 {{'kiln.pool' op attribute mode: expected one of max, avg, found "min"}}
  %0 = "kiln.pool"(%x) {mode = "min", kernel = array<i64: 2>, stride = array<i64: 2>, padding = array<i64: 0>, dilation = array<i64: 1>, ceil = false, count_include_pad = false, divisor = 0}
    : (tensor<1x3x8xf32>) -> tensor<1x3x4xf32>
  return
}

// -----

func.func @invalid(%x: tensor<1x3x8xf32>) {
  // expected-error @+1 {{'kiln.pool' op attribute padding: expected at most half of the kernel [2], found [2]}}
  %0 = "kiln.pool"(%x) {mode = "max", kernel = array<i64: 2>, stride = array<i64: 2>, padding = array<i64: 2>, dilation = array<i64: 1>, ceil = false, count_include_pad = false, divisor = 0}
    : (tensor<1x3x8xf32>) -> tensor<1x3x6xf32>
  return
}

// -----

func.func @invalid(%x: tensor<1x3x8xf32>) {
  // expected-error @+1 {{'kiln.pool' op result sizes: expected [1, 3, 4], found [1, 3, 5]}}
  %0 = "kiln.pool"(%x) {mode = "max", kernel = array<i64: 2>, stride = array<i64: 2>, padding = array<i64: 0>, dilation = array<i64: 1>, ceil = false, count_include_pad = false, divisor = 0}
    : (tensor<1x3x8xf32>) -> tensor<1x3x5xf32>
  return
}

// -----

func.func @invalid(%x: tensor<1x3x8xf32>) {
  // expected-error @+1 {{'kiln.pool' op attribute dilation: expected ones for mode avg, found [2]}}
  %0 = "kiln.pool"(%x) {mode = "avg", kernel = array<i64: 2>, stride = array<i64: 2>, padding = array<i64: 0>, dilation = array<i64: 2>, ceil = false, count_include_pad = false, divisor = 0}
    : (tensor<1x3x8xf32>) -> tensor<1x3x3xf32>
  return
}
