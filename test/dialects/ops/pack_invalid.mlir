// What the verifier of the op in dialects/kiln/pack.py rejects.
// RUN: kiln-opt --split-input-file --verify-diagnostics %s

func.func @invalid(%x: tensor<4x8xf32>) {
  // expected-error @+1 {{'kiln.pack' op attribute elements: expected at least 32, found 31}}
  %0 = "kiln.pack"(%x) {layout = affine_map<(d0, d1) -> (d0 * 8 + d1)>, elements = 31 : i64} : (tensor<4x8xf32>) -> tensor<4x8xf32>
  return
}

// -----

func.func @invalid(%x: tensor<4x8xf32>) {
  // expected-error @+1 {{'kiln.pack' op attribute layout dims: expected 2, found 1}}
  %0 = "kiln.pack"(%x) {layout = affine_map<(d0) -> (d0)>, elements = 32 : i64} : (tensor<4x8xf32>) -> tensor<4x8xf32>
  return
}

// -----

func.func @invalid(%x: tensor<?x8xf32>) {
  // expected-error @+1 {{'kiln.pack' op x: expected a static shape}}
  %0 = "kiln.pack"(%x) {layout = affine_map<(d0, d1) -> (d0 * 8 + d1)>, elements = 32 : i64} : (tensor<?x8xf32>) -> tensor<?x8xf32>
  return
}

// -----

func.func @invalid(%x: tensor<4x8xf32>) {
  // expected-error @+1 {{'kiln.pack' op result}}
  %0 = "kiln.pack"(%x) {layout = affine_map<(d0, d1) -> (d0 * 8 + d1)>, elements = 32 : i64} : (tensor<4x8xf32>) -> tensor<8x4xf32>
  return
}
