// What the verifiers of the ops in dialects/kiln/softmax.py reject.
// RUN: kiln-opt --split-input-file --verify-diagnostics %s

func.func @invalid(%x: tensor<4x8xf32>) {
  // expected-error @+1 {{'kiln.softmax' op attribute dim: expected a dim in [0, 2), found 2}}
  %0 = "kiln.softmax"(%x) {dim = 2, log = false} : (tensor<4x8xf32>) -> tensor<4x8xf32>
  return
}

// -----

func.func @invalid(%x: tensor<4x8xf32>) {
  // expected-error @+1 {{'kiln.softmax' op attribute dim: expected a dim in [0, 2), found -1}}
  %0 = "kiln.softmax"(%x) {dim = -1, log = false} : (tensor<4x8xf32>) -> tensor<4x8xf32>
  return
}

// -----

func.func @invalid(%x: tensor<4x8xi32>) {
  // expected-error @+1 {{'kiln.softmax' op x element type: expected a float type, found i32}}
  %0 = "kiln.softmax"(%x) {dim = 1, log = false} : (tensor<4x8xi32>) -> tensor<4x8xi32>
  return
}

// -----

func.func @invalid(%x: tensor<4x8xf32>) {
  // expected-error @+1 {{'kiln.softmax' op result type: expected tensor<4x8xf32>, found tensor<4x8xf64>}}
  %0 = "kiln.softmax"(%x) {dim = 1, log = false} : (tensor<4x8xf32>) -> tensor<4x8xf64>
  return
}

// -----

func.func @invalid(%x: tensor<4x8xf32>) {
  // expected-error @+1 {{'kiln.softmax' op attribute log: expected true or false, found "no"}}
  %0 = "kiln.softmax"(%x) {dim = 1, log = "no"} : (tensor<4x8xf32>) -> tensor<4x8xf32>
  return
}

// -----

func.func @invalid(%x: tensor<4x8xf32>) {
  // expected-error @+1 {{attribute "log" is expected but not provided}}
  %0 = "kiln.softmax"(%x) {dim = 1} : (tensor<4x8xf32>) -> tensor<4x8xf32>
  return
}
