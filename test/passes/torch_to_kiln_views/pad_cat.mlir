// RUN: kiln-opt %s --split-input-file --pass-pipeline="convert-torch-to-kiln" | filecheck %s

// CHECK-LABEL: func.func @cat
// CHECK-SAME: (%[[X:[a-z0-9]*]]: tensor<4x?xf32> {{.*}}, %[[Y:[a-z0-9]*]]: tensor<4x2xf32>
// CHECK-SAME: %[[S:[a-z0-9]*]]: index
// CHECK: "kiln.cat"(%[[X]], %[[Y]], %[[S]]) {dim = 1 : i64, shape = {{.*}}} : (tensor<4x?xf32>, tensor<4x2xf32>, index) -> tensor<4x?xf32>
func.func @cat(%x: !torch.vtensor<[4,?],f32> {kiln.shape = affine_map<()[s0] -> (4, s0)>}, %y: !torch.vtensor<[4,2],f32>,
    %s: !torch.int {kiln.symbol = "s0"}) -> !torch.vtensor<[4,?],f32> attributes {kiln.symbols = ["s0"]} {
  %i = torch.constant.int -1
  %l = torch.prim.ListConstruct %x, %y : (!torch.vtensor<[4,?],f32>, !torch.vtensor<[4,2],f32>) -> !torch.list<vtensor>
  %0 = torch.aten.cat %l, %i {kiln.shapes = [affine_map<()[s0] -> (4, s0 + 2)>]} : !torch.list<vtensor>, !torch.int -> !torch.vtensor<[4,?],f32>
  return %0 : !torch.vtensor<[4,?],f32>
}

// -----

// CHECK-LABEL: func.func @pad
// CHECK: %[[V:.*]] = arith.constant 2.500000e+00 : f32
// CHECK: "kiln.pad"(%{{.*}}, %[[V]]) {{.*}}: (tensor<4x5xf32>, f32) -> tensor<4x8xf32>
func.func @pad(%x: !torch.vtensor<[4,5],f32>) -> !torch.vtensor<[4,8],f32> {
  %i1 = torch.constant.int 1
  %i2 = torch.constant.int 2
  %v = torch.constant.float 2.5
  %l = torch.prim.ListConstruct %i1, %i2 : (!torch.int, !torch.int) -> !torch.list<int>
  %0 = torch.aten.constant_pad_nd %x, %l, %v : !torch.vtensor<[4,5],f32>, !torch.list<int>, !torch.float -> !torch.vtensor<[4,8],f32>
  return %0 : !torch.vtensor<[4,8],f32>
}

// -----

// The mirrored edges are views; all indices stay affine.
// CHECK: affine_map<(d0, d1) -> (d0, -d1 + 2)>
// CHECK: affine_map<(d0, d1) -> (d0, -d1 + 3)>
// CHECK-LABEL: func.func @reflect
// CHECK-COUNT-2: "kiln.view"
// CHECK: "kiln.cat"{{.*}}: (tensor<4x2xf32>, tensor<4x5xf32>, tensor<4x1xf32>) -> tensor<4x8xf32>
func.func @reflect(%x: !torch.vtensor<[4,5],f32>) -> !torch.vtensor<[4,8],f32> {
  %i1 = torch.constant.int 1
  %i2 = torch.constant.int 2
  %l = torch.prim.ListConstruct %i2, %i1 : (!torch.int, !torch.int) -> !torch.list<int>
  %0 = torch.aten.reflection_pad1d %x, %l : !torch.vtensor<[4,5],f32>, !torch.list<int> -> !torch.vtensor<[4,8],f32>
  return %0 : !torch.vtensor<[4,8],f32>
}

// -----

// CHECK-LABEL: func.func @tril
// CHECK: linalg.generic
// CHECK: linalg.index 1
// CHECK: linalg.index 0
// CHECK: arith.cmpi sle
// CHECK: arith.select
func.func @tril(%x: !torch.vtensor<[4,5],f32>) -> !torch.vtensor<[4,5],f32> {
  %i0 = torch.constant.int 0
  %0 = torch.aten.tril %x, %i0 : !torch.vtensor<[4,5],f32>, !torch.int -> !torch.vtensor<[4,5],f32>
  return %0 : !torch.vtensor<[4,5],f32>
}
