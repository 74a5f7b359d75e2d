// What the verifiers of the ops in dialects/kiln/norm.py reject.
// RUN: kiln-opt --split-input-file --verify-diagnostics %s

func.func @invalid(%x: tensor<4x8xf32>) {
  // expected-error @+1 {{'kiln.layer_norm' op attribute axes: expected the trailing dims of rank 2, ascending, found [0]}}
  %0 = "kiln.layer_norm"(%x) {axes = array<i64: 0>, eps = 1.0e-05 : f64} : (tensor<4x8xf32>) -> tensor<4x8xf32>
  return
}

// -----

func.func @invalid(%x: tensor<4x8xf32>, %w: tensor<4xf32>) {
  // expected-error @+1 {{'kiln.layer_norm' op weight sizes: expected [8], found [4]}}
  %0 = "kiln.layer_norm"(%x, %w) {axes = array<i64: 1>, eps = 1.0e-05 : f64}
    : (tensor<4x8xf32>, tensor<4xf32>) -> tensor<4x8xf32>
  return
}

// -----

func.func @invalid(%x: tensor<4x8xf32>, %w: tensor<8xf32>) {
  // expected-error @+1 {{'kiln.rms_norm' op params: expected at most 1, found 2}}
  %0 = "kiln.rms_norm"(%x, %w, %w) {axes = array<i64: 1>, eps = 1.0e-05 : f64}
    : (tensor<4x8xf32>, tensor<8xf32>, tensor<8xf32>) -> tensor<4x8xf32>
  return
}

// -----

func.func @invalid(%x: tensor<4x8xf32>, %w: tensor<8xf32>, %v: tensor<4xf32>) {
  // expected-error @+1 {{'kiln.batch_norm' op variance sizes: expected [8], found [4]}}
  %0 = "kiln.batch_norm"(%x, %w, %v) {eps = 1.0e-05 : f64}
    : (tensor<4x8xf32>, tensor<8xf32>, tensor<4xf32>) -> tensor<4x8xf32>
  return
}

// -----

func.func @invalid(%x: tensor<4x8xf32>) {
  // expected-error @+1 {{'kiln.group_norm' op attribute groups: expected a divisor of 8, found 3}}
  %0 = "kiln.group_norm"(%x) {groups = 3, eps = 1.0e-05 : f64} : (tensor<4x8xf32>) -> tensor<4x8xf32>
  return
}
