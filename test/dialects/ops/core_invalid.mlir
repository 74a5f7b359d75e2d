// What the verifiers of the ops in dialects/kiln/core.py reject.
// RUN: kiln-opt --split-input-file --verify-diagnostics %s

func.func @invalid(%x: tensor<4x?xf32>, %n: index) {
  // expected-error @+1 {{'kiln.view' op attribute map symbols: expected 1, one per index operand, found 2}}
  %0 = "kiln.view"(%x, %n) {map = affine_map<(d0, d1)[s0, s1] -> (d1, d0)>, shape = affine_map<()[s0] -> (s0, 4)>}
    : (tensor<4x?xf32>, index) -> tensor<?x4xf32>
  return
}

// -----

func.func @invalid(%x: tensor<4x8xf32>) {
  // expected-error @+1 {{'kiln.view' op attribute map dims: expected 2, found 1}}
  %0 = "kiln.view"(%x) {map = affine_map<(d0) -> (d0, 0)>, shape = affine_map<() -> (8, 4)>}
    : (tensor<4x8xf32>) -> tensor<8x4xf32>
  return
}

// -----

func.func @invalid(%x: tensor<4x8xf32>) {
  // expected-error @+1 {{'kiln.view' op attribute map results: expected 2, found 1}}
  %0 = "kiln.view"(%x) {map = affine_map<(d0, d1) -> (d1)>, shape = affine_map<() -> (8, 4)>}
    : (tensor<4x8xf32>) -> tensor<8x4xf32>
  return
}

// -----

func.func @invalid(%x: tensor<4x8xf32>) {
  // expected-error @+1 {{'kiln.view' op attribute map: reads index 8 of dimension 1, which has size 8}}
  %0 = "kiln.view"(%x) {map = affine_map<(d0, d1) -> (d1, d0)>, shape = affine_map<() -> (9, 4)>}
    : (tensor<4x8xf32>) -> tensor<9x4xf32>
  return
}

// -----

func.func @invalid(%x: tensor<4x8xf32>) {
  // expected-error @+1 {{'kiln.view' op attribute map: reads index 4 of dimension 0, which has size 4}}
  %0 = "kiln.view"(%x) {map = affine_map<(d0) -> (4, d0)>, shape = affine_map<() -> (8)>}
    : (tensor<4x8xf32>) -> tensor<8xf32>
  return
}

// -----

func.func @invalid(%x: tensor<4x8xf32>) {
  // expected-error @+1 {{'kiln.view' op result sizes: expected [8, 4], found [8, 5]}}
  %0 = "kiln.view"(%x) {map = affine_map<(d0, d1) -> (d1, d0)>, shape = affine_map<() -> (8, 4)>}
    : (tensor<4x8xf32>) -> tensor<8x5xf32>
  return
}

// -----

func.func @invalid(%x: tensor<4x8xf32>) {
  // expected-error @+1 {{'kiln.view' op result element type: expected f32, found f64}}
  %0 = "kiln.view"(%x) {map = affine_map<(d0, d1) -> (d1, d0)>, shape = affine_map<() -> (8, 4)>}
    : (tensor<4x8xf32>) -> tensor<8x4xf64>
  return
}

// -----

func.func @invalid() {
  // expected-error @+1 {{'kiln.empty' op result sizes: expected [8], found [?]}}
  %0 = "kiln.empty"() {shape = affine_map<() -> (8)>} : () -> tensor<?xf32>
  return
}

// -----

func.func @invalid(%x: tensor<4xf32>, %v: f32) {
  // expected-error @+1 {{'kiln.pad' op result size of dim 0: expected 6, found 7}}
  %0 = "kiln.pad"(%x, %v) {low = affine_map<() -> (1)>, high = affine_map<() -> (1)>, shape = affine_map<() -> (7)>}
    : (tensor<4xf32>, f32) -> tensor<7xf32>
  return
}

// -----

func.func @invalid(%x: tensor<4xf32>, %v: f64) {
  // expected-error @+1 {{'kiln.pad' op value type: expected f32, found f64}}
  %0 = "kiln.pad"(%x, %v) {low = affine_map<() -> (1)>, high = affine_map<() -> (2)>, shape = affine_map<() -> (7)>}
    : (tensor<4xf32>, f64) -> tensor<7xf32>
  return
}

// -----

func.func @invalid(%x: tensor<4x8xf32>, %y: tensor<4x2xf32>) {
  // expected-error @+1 {{'kiln.cat' op result size of dim 1: expected 10, found 11}}
  %0 = "kiln.cat"(%x, %y) {dim = 1, shape = affine_map<() -> (4, 11)>}
    : (tensor<4x8xf32>, tensor<4x2xf32>) -> tensor<4x11xf32>
  return
}

// -----

func.func @invalid(%x: tensor<4x8xf32>, %y: tensor<4x2xf32>) {
  // expected-error @+1 {{'kiln.cat' op operand 1 sizes: expected [?, 8], found [4, 2]}}
  %0 = "kiln.cat"(%x, %y) {dim = 0, shape = affine_map<() -> (8, 8)>}
    : (tensor<4x8xf32>, tensor<4x2xf32>) -> tensor<8x8xf32>
  return
}

// -----

func.func @invalid(%x: tensor<4x8xf32>) {
  // expected-error @+1 {{'kiln.cat' op attribute dim: expected a dim in [0, 2), found 2}}
  %0 = "kiln.cat"(%x) {dim = 2, shape = affine_map<() -> (4, 8)>} : (tensor<4x8xf32>) -> tensor<4x8xf32>
  return
}

// -----

func.func @invalid(%x: tensor<4xf32>) {
  // expected-error @+1 {{'kiln.aten' op attribute args: expected JSON, found Expecting property name enclosed in double quotes: line 1 column 3 (char 2)}}
  %0 = "kiln.aten"(%x) {op = "aten.sort.default", args = "[{", kwargs = "{}", shapes = [unit], strides = [unit], pure = true}
    : (tensor<4xf32>) -> tensor<4xf32>
  return
}

// -----

func.func @invalid(%x: tensor<4xf32>) {
  // expected-error @+1 {{'kiln.aten' op attribute shapes: expected 1 entries, found 0}}
  %0 = "kiln.aten"(%x) {op = "aten.sort.default", args = "[]", kwargs = "{}", shapes = [], strides = [unit], pure = true}
    : (tensor<4xf32>) -> tensor<4xf32>
  return
}

// -----

func.func @invalid(%x: tensor<4xf32>) {
  // expected-error @+1 {{'kiln.aten' op attribute pure: expected true or false, found 1 : i64}}
  %0 = "kiln.aten"(%x) {op = "aten.sort.default", args = "[]", kwargs = "{}", shapes = [unit], strides = [unit], pure = 1}
    : (tensor<4xf32>) -> tensor<4xf32>
  return
}

// -----

func.func @invalid(%x: tensor<4xf32>) {
  // expected-error @+1 {{'kiln.fusion' op block argument 0 type: expected tensor<4xf32>, found tensor<5xf32>}}
  %0 = "kiln.fusion"(%x) ({
  ^bb0(%a: tensor<5xf32>):
    "kiln.yield"(%a) : (tensor<5xf32>) -> ()
  }) {kind = "pointwise", name = "f"} : (tensor<4xf32>) -> tensor<5xf32>
  return
}

// -----

func.func @invalid(%x: tensor<4xf32>) {
  // expected-error @+1 {{'kiln.fusion' op kiln.yield operands: expected 1, one per result, found 0}}
  %0 = "kiln.fusion"(%x) ({
  ^bb0(%a: tensor<4xf32>):
    "kiln.yield"() : () -> ()
  }) {kind = "pointwise", name = "f"} : (tensor<4xf32>) -> tensor<4xf32>
  return
}

// -----

func.func @invalid(%n: index, %x: tensor<4xf32>) {
  // expected-error @+1 {{'kiln.fusion' op operand 1: expected index values last, found tensor<4xf32>}}
  %0 = "kiln.fusion"(%n, %x) ({
  ^bb0(%s: index, %a: tensor<4xf32>):
    "kiln.yield"(%a) : (tensor<4xf32>) -> ()
  }) {kind = "pointwise", name = "f"} : (index, tensor<4xf32>) -> tensor<4xf32>
  return
}

// -----

func.func @invalid(%x: tensor<?xf32>, %n: index) {
  // expected-error @+1 {{'kiln.fusion' op attribute shapes: expected 1 maps, found 0}}
  "kiln.fusion"(%x, %n) ({
  ^bb0(%a: tensor<?xf32>, %s: index):
    "kiln.yield"() : () -> ()
  }) {kind = "pointwise", name = "f", shapes = []} : (tensor<?xf32>, index) -> ()
  return
}

