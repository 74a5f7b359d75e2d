// What the verifiers of the ops in dialects/kiln/random.py reject.
// RUN: kiln-opt --split-input-file --verify-diagnostics %s

func.func @invalid(%s: tensor<i64>) {
  // expected-error @+1 {{'kiln.random' op attribute kind: expected one of uniform, normal, bits, found "gamma"}}
  %0 = "kiln.random"(%s, %s) {kind = "gamma", shape = affine_map<() -> (8)>}
    : (tensor<i64>, tensor<i64>) -> tensor<8xf32>
  return
}

// -----

func.func @invalid(%s: tensor<i64>) {
  // expected-error @+1 {{'kiln.random' op result element type: expected i32, found f32}}
  %0 = "kiln.random"(%s, %s) {kind = "bits", shape = affine_map<() -> (8)>}
    : (tensor<i64>, tensor<i64>) -> tensor<8xf32>
  return
}

// -----

func.func @invalid(%s: tensor<1xi64>) {
  // expected-error @+1 {{'kiln.random' op seed rank: expected 0, found 1}}
  %0 = "kiln.random"(%s, %s) {kind = "normal", shape = affine_map<() -> (8)>}
    : (tensor<1xi64>, tensor<1xi64>) -> tensor<8xf32>
  return
}
