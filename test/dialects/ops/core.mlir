// The ops of dialects/kiln/core.py: printing gives back what was parsed.
// RUN: kiln-opt %s | filecheck %s
// RUN: kiln-opt %s | kiln-opt | filecheck %s

// CHECK-LABEL: func.func @transpose(
// CHECK: "kiln.view"(
func.func @transpose(%x: tensor<4x?xf32>, %n: index) -> tensor<?x4xf32> {
  %0 = "kiln.view"(%x, %n) {map = affine_map<(d0, d1)[s0] -> (d1, d0)>, shape = affine_map<()[s0] -> (s0, 4)>}
    : (tensor<4x?xf32>, index) -> tensor<?x4xf32>
  return %0 : tensor<?x4xf32>
}
func.func @collapse(%x: tensor<4x8xf32>) -> tensor<32xf32> {
  %0 = "kiln.view"(%x) {map = affine_map<(d0) -> (d0 floordiv 8, d0 mod 8)>, shape = affine_map<() -> (32)>}
    : (tensor<4x8xf32>) -> tensor<32xf32>
  return %0 : tensor<32xf32>
}

// CHECK-LABEL: func.func @empty(
// CHECK: "kiln.empty"(
func.func @empty(%n: index) -> tensor<?x8xf32> {
  %0 = "kiln.empty"(%n) {shape = affine_map<()[s0] -> (s0, 8)>} : (index) -> tensor<?x8xf32>
  return %0 : tensor<?x8xf32>
}

// CHECK-LABEL: func.func @pad(
// CHECK: "kiln.pad"(
func.func @pad(%x: tensor<4xf32>) -> tensor<7xf32> {
  %zero = arith.constant 0.0 : f32
  %0 = "kiln.pad"(%x, %zero) {low = affine_map<() -> (1)>, high = affine_map<() -> (2)>,
    shape = affine_map<() -> (7)>} : (tensor<4xf32>, f32) -> tensor<7xf32>
  return %0 : tensor<7xf32>
}

// CHECK-LABEL: func.func @cat(
// CHECK: "kiln.cat"(
func.func @cat(%x: tensor<4x?xf32>, %y: tensor<4x2xf32>, %n: index) -> tensor<4x?xf32> {
  %0 = "kiln.cat"(%x, %y, %n) {dim = 1, shape = affine_map<()[s0] -> (4, s0 + 2)>} : (tensor<4x?xf32>, tensor<4x2xf32>, index) -> tensor<4x?xf32>
  return %0 : tensor<4x?xf32>
}

// CHECK-LABEL: func.func @sort(
// CHECK: "kiln.aten"(
func.func @sort(%x: tensor<?xf32>, %n: index) -> tensor<?xf32> {
  %0:2 = "kiln.aten"(%x, %n) {op = "aten.sort.default", args = "[{\22operand\22: 0}]", kwargs = "{}",
    shapes = [affine_map<()[s0] -> (s0)>, affine_map<()[s0] -> (s0)>], strides = [unit, unit], pure = true} : (tensor<?xf32>, index) -> (tensor<?xf32>, tensor<?xi64>)
  return %0#0 : tensor<?xf32>
}

// CHECK-LABEL: func.func @relu(
// CHECK: "kiln.fusion"(
func.func @relu(%x: tensor<?xf32>, %n: index) -> tensor<?xf32> {
  %0 = "kiln.fusion"(%x, %n) ({
  ^bb0(%a: tensor<?xf32>, %s: index):
    %e = "kiln.empty"(%s) {shape = affine_map<()[s0] -> (s0)>} : (index) -> tensor<?xf32>
    %r = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>],
        iterator_types = ["parallel"]} ins(%a : tensor<?xf32>) outs(%e : tensor<?xf32>) {
    ^bb0(%in: f32, %out: f32):
      %zero = arith.constant 0.0 : f32
      %m = arith.maximumf %in, %zero : f32
      linalg.yield %m : f32
    } -> tensor<?xf32>
    "kiln.yield"(%r) : (tensor<?xf32>) -> ()
  }) {kind = "pointwise", name = "relu", shapes = [affine_map<()[s0] -> (s0)>]} : (tensor<?xf32>, index) -> tensor<?xf32>
  return %0 : tensor<?xf32>
}

// CHECK-LABEL: func.func @identity(
// CHECK: "kiln.yield"(
func.func @identity(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = "kiln.fusion"(%x) ({
  ^bb0(%a: tensor<4xf32>):
    "kiln.yield"(%a) : (tensor<4xf32>) -> ()
  }) {kind = "pointwise", name = "identity"}
    : (tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}
