// RUN: kiln-opt %s --split-input-file --pass-pipeline="builtin.module(func.func(linalg-generalize-named-ops)),normalize-linalg" | filecheck %s

// CHECK: [[MAP:#map[0-9]*]] = affine_map<(d0) -> (d0 floordiv 8, d0 mod 8)>
// CHECK-LABEL: func.func @collapse
// CHECK-SAME: (%[[X:.*]]: tensor<4x8xf32>)
// CHECK: %[[V:.*]] = "kiln.view"(%[[X]]) {map = [[MAP]], shape = {{.*}}} : (tensor<4x8xf32>) -> tensor<32xf32>
// CHECK: return %[[V]]
func.func @collapse(%x: tensor<4x8xf32>) -> tensor<32xf32> {
  %0 = tensor.collapse_shape %x [[0, 1]] : tensor<4x8xf32> into tensor<32xf32>
  return %0 : tensor<32xf32>
}

// -----

// CHECK: affine_map<(d0, d1)[s0] -> (d0 * 2 + 1, d1)>
// CHECK-LABEL: func.func @slice_dynamic
// CHECK-SAME: %[[X:[a-z0-9]*]]: tensor<?x8xf32>
// CHECK-SAME: %[[N:[a-z0-9]*]]: index
// CHECK: "kiln.view"(%[[X]], %[[N]])
// CHECK-NOT: tensor.
func.func @slice_dynamic(%x: tensor<?x8xf32> {kiln.shape = affine_map<()[s0] -> (s0, 8)>}, %n: index {kiln.symbol = "s0"}) -> tensor<?x8xf32> {
  %c0 = arith.constant 0 : index
  %c2 = arith.constant 2 : index
  %d = tensor.dim %x, %c0 : tensor<?x8xf32>
  %h = arith.floordivsi %d, %c2 : index
  %0 = tensor.extract_slice %x[1, 0] [%h, 8] [2, 1] : tensor<?x8xf32> to tensor<?x8xf32>
  return %0 : tensor<?x8xf32>
}

// -----

// A fill has its constant in the body, a transpose is a generic.
// CHECK-LABEL: func.func @fill_transpose
// CHECK: %[[E:.*]] = "kiln.empty"
// CHECK: linalg.generic
// CHECK-SAME: outs(%[[E]] : tensor<4x4xf32>)
// CHECK: %[[C:.*]] = arith.constant 1.000000e+00 : f32
// CHECK: linalg.yield %[[C]] : f32
// CHECK: linalg.generic
// CHECK-NOT: linalg.fill
// CHECK-NOT: linalg.transpose
func.func @fill_transpose(%x: tensor<4x4xf32>) -> tensor<4x4xf32> {
  %one = arith.constant 1.0 : f32
  %e = tensor.empty() : tensor<4x4xf32>
  %f = linalg.fill ins(%one : f32) outs(%e : tensor<4x4xf32>) -> tensor<4x4xf32>
  %t = linalg.transpose ins(%x : tensor<4x4xf32>) outs(%e : tensor<4x4xf32>) permutation = [1, 0]
  %0 = linalg.add ins(%f, %t : tensor<4x4xf32>, tensor<4x4xf32>) outs(%e : tensor<4x4xf32>) -> tensor<4x4xf32>
  return %0 : tensor<4x4xf32>
}

// -----

// CHECK-LABEL: func.func @pad
// CHECK: "kiln.pad"
// CHECK-SAME: (tensor<4x?xf32>, f32, index) -> tensor<4x?xf32>
func.func @pad(%x: tensor<4x?xf32> {kiln.shape = affine_map<()[s0] -> (4, s0)>}, %n: index {kiln.symbol = "s0"}) -> tensor<4x?xf32> {
  %zero = arith.constant 0.0 : f32
  %0 = tensor.pad %x low[0, 1] high[0, 2] {
  ^bb0(%i: index, %j: index):
    tensor.yield %zero : f32
  } : tensor<4x?xf32> to tensor<4x?xf32>
  return %0 : tensor<4x?xf32>
}

// -----

// Indices computed from data are not kept in bounds by anything: the function stays as it is.
// CHECK-LABEL: func.func @unsafe_gather
// CHECK: tensor.empty
// CHECK: tensor.extract
func.func @unsafe_gather(%x: tensor<4xf32>, %i: tensor<3xindex>) -> tensor<3xf32> {
  %e = tensor.empty() : tensor<3xf32>
  %0 = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>], iterator_types = ["parallel"]}
    ins(%i : tensor<3xindex>) outs(%e : tensor<3xf32>) {
  ^bb0(%k: index, %o: f32):
    %v = tensor.extract %x[%k] : tensor<4xf32>
    linalg.yield %v : f32
  } -> tensor<3xf32>
  return %0 : tensor<3xf32>
}
