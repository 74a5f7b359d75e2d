// What the verifiers of the ops in dialects/kiln/sort.py reject.
// RUN: kiln-opt --split-input-file --verify-diagnostics %s

func.func @invalid(%x: tensor<4x8xf32>) {
  // expected-error @+1 {{'kiln.sort' op attribute descending: expected true or false, found 0 : i64}}
  %0:2 = "kiln.sort"(%x) {dim = 1, descending = 0, stable = true}
    : (tensor<4x8xf32>) -> (tensor<4x8xf32>, tensor<4x8xi64>)
  return
}

// -----

func.func @invalid(%x: tensor<4x8xf32>) {
  // expected-error @+1 {{'kiln.sort' op indices sizes: expected [4, 8], found [4, 7]}}
  %0:2 = "kiln.sort"(%x) {dim = 1, descending = false, stable = true}
    : (tensor<4x8xf32>) -> (tensor<4x8xf32>, tensor<4x7xi64>)
  return
}

// -----

func.func @invalid(%x: tensor<4x8xf32>) {
  // expected-error @+1 {{'kiln.topk' op attribute k: expected at least 0 and at most 8, found 9}}
  %0:2 = "kiln.topk"(%x) {k = 9, dim = 1, largest = true}
    : (tensor<4x8xf32>) -> (tensor<4x9xf32>, tensor<4x9xi64>)
  return
}

// -----

func.func @invalid(%x: tensor<4x8xf32>) {
  // expected-error @+1 {{'kiln.topk' op values sizes: expected [4, 2], found [4, 3]}}
  %0:2 = "kiln.topk"(%x) {k = 2, dim = 1, largest = true}
    : (tensor<4x8xf32>) -> (tensor<4x3xf32>, tensor<4x2xi64>)
  return
}
