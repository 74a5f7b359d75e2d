// RUN: kiln-opt %s --split-input-file --pass-pipeline="convert-integer-products" | filecheck %s

// A transposed operand is a flag, one with a stride stays a view.
// CHECK-LABEL: func.func @transposed
// CHECK-NOT: kiln.view
// CHECK: %[[R:.*]] = "kiln.matmul"(%{{.*}}, %{{.*}}) {transpose_lhs = true, transpose_rhs = true} : (tensor<8x4xi8>, tensor<16x8xi8>) -> tensor<4x16xi32>
// CHECK: return %[[R]]
func.func @transposed(%x: tensor<8x4xi8>, %w: tensor<16x8xi8>) -> tensor<4x16xi32> {
  %s = "kiln.view"(%x) {map = affine_map<(m, k) -> (k, m)>, shape = affine_map<() -> (4, 8)>} : (tensor<8x4xi8>) -> tensor<4x8xi8>
  %t = "kiln.view"(%w) {map = affine_map<(k, n) -> (n, k)>, shape = affine_map<() -> (8, 16)>} : (tensor<16x8xi8>) -> tensor<8x16xi8>
  %0 = "kiln.aten"(%s, %t) {args = "[{\22operand\22: 0}, {\22operand\22: 1}]", kwargs = "{}", op = "aten._int_mm.default",
    pure = true, shapes = [affine_map<() -> (4, 16)>], strides = [unit]} : (tensor<4x8xi8>, tensor<8x16xi8>) -> tensor<4x16xi32>
  return %0 : tensor<4x16xi32>
}

// -----

// CHECK-LABEL: func.func @strided
// CHECK: %[[T:.*]] = "kiln.view"
// CHECK: "kiln.matmul"(%{{.*}}, %[[T]]) {transpose_lhs = false, transpose_rhs = false}
// CHECK: return %[[T]]
func.func @strided(%x: tensor<4x8xi8>, %w: tensor<8x32xi8>) -> (tensor<8x16xi8>, tensor<4x16xi32>) {
  %t = "kiln.view"(%w) {map = affine_map<(k, n) -> (k, n * 2)>, shape = affine_map<() -> (8, 16)>} : (tensor<8x32xi8>) -> tensor<8x16xi8>
  %0 = "kiln.aten"(%x, %t) {args = "[{\22operand\22: 0}, {\22operand\22: 1}]", kwargs = "{}", op = "aten._int_mm.default",
    pure = true, shapes = [affine_map<() -> (4, 16)>], strides = [unit]} : (tensor<4x8xi8>, tensor<8x16xi8>) -> tensor<4x16xi32>
  return %t, %0 : tensor<8x16xi8>, tensor<4x16xi32>
}

// -----

// Other calls stay.
// CHECK-LABEL: func.func @other
// CHECK: "kiln.aten"
func.func @other(%x: tensor<4x8xi8>) -> tensor<4x8xi8> {
  %0 = "kiln.aten"(%x) {args = "[{\22operand\22: 0}]", kwargs = "{}", op = "aten.neg.default",
    pure = true, shapes = [affine_map<() -> (4, 8)>], strides = [unit]} : (tensor<4x8xi8>) -> tensor<4x8xi8>
  return %0 : tensor<4x8xi8>
}
