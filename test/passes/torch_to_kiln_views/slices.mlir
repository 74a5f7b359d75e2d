// RUN: kiln-opt %s --split-input-file --pass-pipeline="convert-torch-to-kiln" | filecheck %s

// A negative start with a symbolic size: the result's size tells that it was not clamped.
// CHECK: affine_map<(d0)[s0] -> (d0 + s0 - 2)>
// CHECK-LABEL: func.func @last_two
// CHECK: "kiln.view"{{.*}}: (tensor<?xf32>, index) -> tensor<2xf32>
func.func @last_two(%x: !torch.vtensor<[?],f32> {kiln.shape = affine_map<()[s0] -> (s0)>}, %s: !torch.int {kiln.symbol = "s0"})
    -> !torch.vtensor<[2],f32> attributes {kiln.symbols = ["s0"]} {
  %i0 = torch.constant.int 0
  %i1 = torch.constant.int 1
  %start = torch.constant.int -2
  %end = torch.constant.int 9223372036854775807
  %0 = torch.aten.slice.Tensor %x, %i0, %start, %end, %i1 : !torch.vtensor<[?],f32>, !torch.int, !torch.int, !torch.int, !torch.int -> !torch.vtensor<[2],f32>
  return %0 : !torch.vtensor<[2],f32>
}

// -----

// CHECK: affine_map<(d0, d1) -> (d0 * 2 + 1, d1)>
// CHECK-LABEL: func.func @step
// CHECK: "kiln.view"{{.*}}: (tensor<7x3xf32>) -> tensor<3x3xf32>
func.func @step(%x: !torch.vtensor<[7,3],f32>) -> !torch.vtensor<[3,3],f32> {
  %i0 = torch.constant.int 0
  %start = torch.constant.int -6
  %end = torch.constant.int 100
  %step = torch.constant.int 2
  %0 = torch.aten.slice.Tensor %x, %i0, %start, %end, %step : !torch.vtensor<[7,3],f32>, !torch.int, !torch.int, !torch.int, !torch.int -> !torch.vtensor<[3,3],f32>
  return %0 : !torch.vtensor<[3,3],f32>
}

// -----

// A start that may be negative, and a result that does not tell: left to ATen.
// CHECK-LABEL: func.func @may_be_negative
// CHECK: "kiln.aten"
// CHECK-SAME: op = "aten.slice.Tensor"
// CHECK-SAME: reason = "whether the slice start
func.func @may_be_negative(%x: !torch.vtensor<[9],f32>, %i: !torch.int {kiln.symbol = "i"}) -> !torch.vtensor<[2],f32> attributes {kiln.symbols = ["i"]} {
  %i0 = torch.constant.int 0
  %i1 = torch.constant.int 1
  %i2 = torch.constant.int 2
  %end = torch.aten.add.int %i, %i2 : !torch.int, !torch.int -> !torch.int
  %0 = torch.aten.slice.Tensor %x, %i0, %i, %end, %i1 : !torch.vtensor<[9],f32>, !torch.int, !torch.int, !torch.int, !torch.int -> !torch.vtensor<[2],f32>
  return %0 : !torch.vtensor<[2],f32>
}

// -----

// CHECK: [[A:#map[0-9]*]] = affine_map<(d0) -> (d0)>
// CHECK: [[B:#map[0-9]*]] = affine_map<(d0) -> (d0 + 2)>
// CHECK-LABEL: func.func @split
// CHECK-SAME: (%[[X:[a-z0-9]*]]: tensor<5xf32>)
// CHECK: %[[P:.*]] = "kiln.view"(%[[X]]) {map = [[A]]
// CHECK: %[[Q:.*]] = "kiln.view"(%[[X]]) {map = [[B]]
// CHECK: return %[[P]], %[[Q]] : tensor<2xf32>, tensor<3xf32>
func.func @split(%x: !torch.vtensor<[5],f32>) -> (!torch.vtensor<[2],f32>, !torch.vtensor<[3],f32>) {
  %i0 = torch.constant.int 0
  %i2 = torch.constant.int 2
  %i3 = torch.constant.int 3
  %sizes = torch.prim.ListConstruct %i2, %i3 : (!torch.int, !torch.int) -> !torch.list<int>
  %l = torch.aten.split_with_sizes %x, %sizes, %i0 : !torch.vtensor<[5],f32>, !torch.list<int>, !torch.int -> !torch.list<vtensor>
  %0:2 = torch.prim.ListUnpack %l : !torch.list<vtensor> -> !torch.vtensor<[2],f32>, !torch.vtensor<[3],f32>
  return %0#0, %0#1 : !torch.vtensor<[2],f32>, !torch.vtensor<[3],f32>
}

// -----

// CHECK-LABEL: func.func @slice_scatter
// CHECK-SAME: (%[[X:[a-z0-9]*]]: tensor<8xf32>, %[[Y:[a-z0-9]*]]: tensor<3xf32>)
// CHECK: %[[L:.*]] = "kiln.view"(%[[X]])
// CHECK: %[[R:.*]] = "kiln.view"(%[[X]])
// CHECK: "kiln.cat"(%[[L]], %[[Y]], %[[R]]) {dim = 0
func.func @slice_scatter(%x: !torch.vtensor<[8],f32>, %y: !torch.vtensor<[3],f32>) -> !torch.vtensor<[8],f32> {
  %i0 = torch.constant.int 0
  %i1 = torch.constant.int 1
  %i2 = torch.constant.int 2
  %i5 = torch.constant.int 5
  %0 = torch.aten.slice_scatter %x, %y, %i0, %i2, %i5, %i1 : !torch.vtensor<[8],f32>, !torch.vtensor<[3],f32>, !torch.int, !torch.int, !torch.int, !torch.int -> !torch.vtensor<[8],f32>
  return %0 : !torch.vtensor<[8],f32>
}
