// What the verifiers of the ops in dialects/kiln/scan.py reject.
// RUN: kiln-opt --split-input-file --verify-diagnostics %s

func.func @invalid(%x: tensor<4x8xf32>) {
  // expected-error @+1 {{'kiln.scan' op attribute kind: expected one of sum, prod, max, min, logsumexp, found "mean"}}
  %0 = "kiln.scan"(%x) {dim = 1, kind = "mean"} : (tensor<4x8xf32>) -> tensor<4x8xf32>
  return
}

// -----

func.func @invalid(%x: tensor<4x8xf32>) {
  // expected-error @+1 {{'kiln.scan' op attribute dim: expected a dim in [0, 2), found 2}}
  %0 = "kiln.scan"(%x) {dim = 2, kind = "sum"} : (tensor<4x8xf32>) -> tensor<4x8xf32>
  return
}

// -----

func.func @invalid(%x: tensor<4x8xf32>) {
  // expected-error @+1 {{'kiln.scan' op results: expected 1 for kind sum, found 2}}
  %0:2 = "kiln.scan"(%x) {dim = 1, kind = "sum"} : (tensor<4x8xf32>) -> (tensor<4x8xf32>, tensor<4x8xi64>)
  return
}

// -----

func.func @invalid(%x: tensor<4x8xf32>) {
  // expected-error @+1 {{'kiln.scan' op indices element type: expected i64, found i32}}
  %0:2 = "kiln.scan"(%x) {dim = 1, kind = "max"} : (tensor<4x8xf32>) -> (tensor<4x8xf32>, tensor<4x8xi32>)
  return
}
