// RUN: kiln-opt %s --split-input-file --pass-pipeline="convert-torch-to-kiln" | filecheck %s

// CHECK: [[T:#map[0-9]*]] = affine_map<(d0, d1, d2) -> (d1, d2, d0)>
// CHECK-LABEL: func.func @permute
// CHECK-SAME: (%[[X:[a-z0-9]*]]: tensor<2x3x4xf32>) -> tensor<4x2x3xf32>
// CHECK-NEXT: %[[V:.*]] = "kiln.view"(%[[X]]) {map = [[T]]
// CHECK-NEXT: return %[[V]]
func.func @permute(%x: !torch.vtensor<[2,3,4],f32>) -> !torch.vtensor<[4,2,3],f32> {
  %i0 = torch.constant.int 0
  %i1 = torch.constant.int 1
  %i2 = torch.constant.int 2
  %dims = torch.prim.ListConstruct %i2, %i0, %i1 : (!torch.int, !torch.int, !torch.int) -> !torch.list<int>
  %0 = torch.aten.permute %x, %dims : !torch.vtensor<[2,3,4],f32>, !torch.list<int> -> !torch.vtensor<[4,2,3],f32>
  return %0 : !torch.vtensor<[4,2,3],f32>
}

// -----

// Splitting one dim by a symbolic one: only that dim takes a floordiv and a mod.
// CHECK: affine_map<(d0, d1, d2)[s0] -> (d0, d1 * 4 + d2)>
// CHECK-LABEL: func.func @split_dim
// CHECK-SAME: %[[X:[a-z0-9]*]]: tensor<?x8xf32>
// CHECK-SAME: %[[S:[a-z0-9]*]]: index
// CHECK: "kiln.view"(%[[X]], %[[S]]){{.*}}: (tensor<?x8xf32>, index) -> tensor<?x2x4xf32>
func.func @split_dim(%x: !torch.vtensor<[?,8],f32> {kiln.shape = affine_map<()[s0] -> (s0, 8)>}, %s: !torch.int {kiln.symbol = "s0"})
    -> !torch.vtensor<[?,2,4],f32> attributes {kiln.symbols = ["s0"]} {
  %i2 = torch.constant.int 2
  %i4 = torch.constant.int 4
  %size = torch.prim.ListConstruct %s, %i2, %i4 : (!torch.int, !torch.int, !torch.int) -> !torch.list<int>
  %0 = torch.aten.view %x, %size {kiln.shapes = [affine_map<()[s0] -> (s0, 2, 4)>]} : !torch.vtensor<[?,8],f32>, !torch.list<int> -> !torch.vtensor<[?,2,4],f32>
  return %0 : !torch.vtensor<[?,2,4],f32>
}

// -----

// CHECK: affine_map<(d0, d1, d2) -> (d1, 0)>
// CHECK-LABEL: func.func @expand
// CHECK: "kiln.view"{{.*}}: (tensor<3x1xf32>) -> tensor<2x3x5xf32>
func.func @expand(%x: !torch.vtensor<[3,1],f32>) -> !torch.vtensor<[2,3,5],f32> {
  %false = torch.constant.bool false
  %i2 = torch.constant.int 2
  %i3 = torch.constant.int 3
  %i5 = torch.constant.int 5
  %size = torch.prim.ListConstruct %i2, %i3, %i5 : (!torch.int, !torch.int, !torch.int) -> !torch.list<int>
  %0 = torch.aten.expand %x, %size, %false : !torch.vtensor<[3,1],f32>, !torch.list<int>, !torch.bool -> !torch.vtensor<[2,3,5],f32>
  return %0 : !torch.vtensor<[2,3,5],f32>
}

// -----

// A copy is made for the caller only.
// CHECK-LABEL: func.func @clone
// CHECK: %[[C:.*]] = linalg.generic
// CHECK-NOT: linalg.generic
// CHECK: return %[[C]]
func.func @clone(%x: !torch.vtensor<[4],f32>) -> !torch.vtensor<[4],f32> {
  %none = torch.constant.none
  %i0 = torch.constant.int 0
  %i1 = torch.constant.int 1
  %dims = torch.prim.ListConstruct %i0 : (!torch.int) -> !torch.list<int>
  %0 = torch.aten.clone %x, %none : !torch.vtensor<[4],f32>, !torch.none -> !torch.vtensor<[4],f32>
  %1 = torch.aten.flip %0, %dims : !torch.vtensor<[4],f32>, !torch.list<int> -> !torch.vtensor<[4],f32>
  %2 = torch.aten.clone %1, %none : !torch.vtensor<[4],f32>, !torch.none -> !torch.vtensor<[4],f32>
  return %2 : !torch.vtensor<[4],f32>
}
