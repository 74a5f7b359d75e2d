// What the verifiers of the ops in dialects/kiln/index.py reject.
// RUN: kiln-opt --split-input-file --verify-diagnostics %s

func.func @invalid(%x: tensor<4x8xf32>, %i: tensor<4xi64>) {
  // expected-error @+1 {{'kiln.gather' op index rank: expected 2, found 1}}
  %0 = "kiln.gather"(%x, %i) {dim = 1} : (tensor<4x8xf32>, tensor<4xi64>) -> tensor<4xf32>
  return
}

// -----

func.func @invalid(%x: tensor<4x8xf32>, %i: tensor<4x2xf32>) {
  // expected-error @+1 {{'kiln.gather' op index element type: expected an integer type, found f32}}
  %0 = "kiln.gather"(%x, %i) {dim = 1} : (tensor<4x8xf32>, tensor<4x2xf32>) -> tensor<4x2xf32>
  return
}

// -----

func.func @invalid(%x: tensor<4x8xf32>, %i: tensor<3xi64>) {
  // expected-error @+1 {{'kiln.index_select' op result sizes: expected [4, 3], found [3, 8]}}
  %0 = "kiln.index_select"(%x, %i) {dim = 1} : (tensor<4x8xf32>, tensor<3xi64>) -> tensor<3x8xf32>
  return
}

// -----

func.func @invalid(%x: tensor<4x8x2xf32>, %i: tensor<3xi64>) {
  // expected-error @+1 {{'kiln.embedding' op weight rank: expected 2, found 3}}
  %0 = "kiln.embedding"(%x, %i) : (tensor<4x8x2xf32>, tensor<3xi64>) -> tensor<3x8xf32>
  return
}

// -----

func.func @invalid(%x: tensor<4x8xf32>, %i: tensor<3xi64>) {
  // expected-error @+1 {{'kiln.index' op attribute dims: expected 1 entries, found 2}}
  %0 = "kiln.index"(%x, %i) {dims = array<i64: 0, 1>} : (tensor<4x8xf32>, tensor<3xi64>) -> tensor<3xf32>
  return
}

// -----

func.func @invalid(%x: tensor<4x8xf32>, %i: tensor<3xi64>) {
  // expected-error @+1 {{'kiln.index' op attribute dims: expected dims of rank 2, ascending, found [1, 0]}}
  %0 = "kiln.index"(%x, %i, %i) {dims = array<i64: 1, 0>}
    : (tensor<4x8xf32>, tensor<3xi64>, tensor<3xi64>) -> tensor<3xf32>
  return
}

// -----

func.func @invalid(%x: tensor<4x8xf32>, %i: tensor<3xi64>) {
  // expected-error @+1 {{'kiln.index' op result sizes: expected [3], found [3, 3]}}
  %0 = "kiln.index"(%x, %i, %i) {dims = array<i64: 0, 1>}
    : (tensor<4x8xf32>, tensor<3xi64>, tensor<3xi64>) -> tensor<3x3xf32>
  return
}

// -----

func.func @invalid(%x: tensor<4x8xf32>, %i: tensor<4x2xi64>) {
  // expected-error @+1 {{'kiln.scatter' op src sizes: expected [4, 2], found [4, 8]}}
  %0 = "kiln.scatter"(%x, %i, %x) {dim = 1, reduce = "sum"}
    : (tensor<4x8xf32>, tensor<4x2xi64>, tensor<4x8xf32>) -> tensor<4x8xf32>
  return
}

// -----

func.func @invalid(%x: tensor<4x8xf32>, %i: tensor<4x2xi64>, %s: tensor<4x2xf32>) {
  // expected-error @+1 {{'kiln.scatter' op attribute reduce: expected one of none, sum, prod, amax, amin, found "mean"}}
  %0 = "kiln.scatter"(%x, %i, %s) {dim = 1, reduce = "mean"}
    : (tensor<4x8xf32>, tensor<4x2xi64>, tensor<4x2xf32>) -> tensor<4x8xf32>
  return
}

// -----

func.func @invalid(%x: tensor<4x8xf32>, %i: tensor<3x2xi64>, %s: tensor<3x8xf32>) {
  // expected-error @+1 {{'kiln.scatter_nd' op index operand 0 sizes: expected [3, 8], found [3, 2]}}
  %0 = "kiln.scatter_nd"(%x, %s, %i) {dims = array<i64: 0>, loops = array<i64: 1>, reduce = "sum", from_zero = false}
    : (tensor<4x8xf32>, tensor<3x8xf32>, tensor<3x2xi64>) -> tensor<4x8xf32>
  return
}

// -----

func.func @invalid(%x: tensor<4x8xf32>, %i: tensor<3x8xi64>, %s: tensor<3x8xf32>) {
  // expected-error @+1 {{'kiln.scatter_nd' op attribute loops: expected distinct dims of src, of rank 2, found [2]}}
  %0 = "kiln.scatter_nd"(%x, %s, %i) {dims = array<i64: 0>, loops = array<i64: 2>, reduce = "sum", from_zero = false}
    : (tensor<4x8xf32>, tensor<3x8xf32>, tensor<3x8xi64>) -> tensor<4x8xf32>
  return
}

// -----

func.func @invalid(%x: tensor<4x8xf32>, %i: tensor<3x9xi64>, %s: tensor<3x9xf32>) {
  // expected-error @+1 {{'kiln.scatter_nd' op src size of dim 1: expected at most 8, found 9}}
  %0 = "kiln.scatter_nd"(%x, %s, %i) {dims = array<i64: 0>, loops = array<i64: 1>, reduce = "amax", from_zero = false}
    : (tensor<4x8xf32>, tensor<3x9xf32>, tensor<3x9xi64>) -> tensor<4x8xf32>
  return
}
