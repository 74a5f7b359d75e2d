// RUN: kiln-opt %s --split-input-file --pass-pipeline="convert-torch-to-kiln" | filecheck %s

// Indices are clamped: no kernel reads outside of the table.
// CHECK-LABEL: func.func @embedding
// CHECK-SAME: (%[[W:[a-z0-9]*]]: tensor<10x4xf32>, %[[I:[a-z0-9]*]]: tensor<3xi64>)
// CHECK: linalg.generic
// CHECK-SAME: ins(%[[I]] : tensor<3xi64>)
// CHECK: arith.maxsi
// CHECK: arith.minsi {{.*}} {kiln.checked = "aten.embedding"}
// CHECK: tensor.extract %[[W]]
func.func @embedding(%w: !torch.vtensor<[10,4],f32>, %i: !torch.vtensor<[3],si64>) -> !torch.vtensor<[3,4],f32> {
  %p = torch.constant.int -1
  %false = torch.constant.bool false
  %0 = torch.aten.embedding %w, %i, %p, %false, %false : !torch.vtensor<[10,4],f32>, !torch.vtensor<[3],si64>, !torch.int, !torch.bool, !torch.bool -> !torch.vtensor<[3,4],f32>
  return %0 : !torch.vtensor<[3,4],f32>
}

// -----

// Negative indices wrap; the size is a captured symbol.
// CHECK-LABEL: func.func @index
// CHECK-SAME: %[[S:[a-z0-9]*]]: index
// CHECK: linalg.generic
// CHECK: arith.index_cast %[[S]] : index to i64
// CHECK: arith.cmpi slt
// CHECK: tensor.extract
func.func @index(%x: !torch.vtensor<[?,4],f32> {kiln.shape = affine_map<()[s0] -> (s0, 4)>}, %i: !torch.vtensor<[3],si64>,
    %s: !torch.int {kiln.symbol = "s0"}) -> !torch.vtensor<[3,4],f32> attributes {kiln.symbols = ["s0"]} {
  %l = torch.prim.ListConstruct %i : (!torch.vtensor<[3],si64>) -> !torch.list<vtensor>
  %0 = torch.aten.index.Tensor_hacked_twin %x, %l : !torch.vtensor<[?,4],f32>, !torch.list<vtensor> -> !torch.vtensor<[3,4],f32>
  return %0 : !torch.vtensor<[3,4],f32>
}

// -----

// CHECK-LABEL: func.func @empty_table
// CHECK: "kiln.aten"
// CHECK-SAME: reason = "the indexed dimension is empty
func.func @empty_table(%w: !torch.vtensor<[0,4],f32>, %i: !torch.vtensor<[3],si64>) -> !torch.vtensor<[3,4],f32> {
  %p = torch.constant.int -1
  %false = torch.constant.bool false
  %0 = torch.aten.embedding %w, %i, %p, %false, %false : !torch.vtensor<[0,4],f32>, !torch.vtensor<[3],si64>, !torch.int, !torch.bool, !torch.bool -> !torch.vtensor<[3,4],f32>
  return %0 : !torch.vtensor<[3,4],f32>
}

// -----

// CHECK-LABEL: func.func @scatter
// CHECK: "kiln.aten"
// CHECK-SAME: op = "aten.scatter_add.default"
func.func @scatter(%x: !torch.vtensor<[4],f32>, %i: !torch.vtensor<[2],si64>, %y: !torch.vtensor<[2],f32>) -> !torch.vtensor<[4],f32> {
  %d = torch.constant.int 0
  %0 = torch.aten.scatter_add %x, %d, %i, %y : !torch.vtensor<[4],f32>, !torch.int, !torch.vtensor<[2],si64>, !torch.vtensor<[2],f32> -> !torch.vtensor<[4],f32>
  return %0 : !torch.vtensor<[4],f32>
}

// -----

// Bags of one length: the rows are read and added up by loops, no offsets.
// CHECK-LABEL: func.func @embedding_bag
// CHECK-SAME: (%[[W:[a-z0-9]*]]: tensor<10x4xf32>, %[[I:[a-z0-9]*]]: tensor<15xi64>)
// CHECK: %[[BAGS:.*]] = "kiln.view"(%[[I]]) {{.*}} -> tensor<3x5xi64>
// CHECK: %[[ROWS:.*]] = linalg.generic {{.*}} ins(%[[BAGS]] : tensor<3x5xi64>)
// CHECK: {kiln.checked = "aten._embedding_bag"}
// CHECK: tensor.extract %[[W]]
// CHECK: linalg.generic {{.*}}iterator_types = ["parallel", "reduction", "parallel"]{{.*}} ins(%[[ROWS]] : tensor<3x5x4xf32>)
func.func @embedding_bag(%w: !torch.vtensor<[10,4],f32>, %i: !torch.vtensor<[15],si64>) -> !torch.vtensor<[3,4],f32> {
  %int0 = torch.constant.int 0
  %int15 = torch.constant.int 15
  %int5 = torch.constant.int 5
  %int4 = torch.constant.int 4
  %none = torch.constant.none
  %cpu = torch.constant.device "cpu"
  %false = torch.constant.bool false
  %p = torch.constant.int -1
  %o = torch.aten.arange.start_step %int0, %int15, %int5, %int4, %none, %cpu, %false : !torch.int, !torch.int, !torch.int, !torch.int, !torch.none, !torch.Device, !torch.bool -> !torch.vtensor<[3],si64>
  %0, %1, %2, %3 = torch.aten._embedding_bag %w, %i, %o, %false, %int0, %false, %none, %false, %p : !torch.vtensor<[10,4],f32>, !torch.vtensor<[15],si64>, !torch.vtensor<[3],si64>, !torch.bool, !torch.int, !torch.bool, !torch.none, !torch.bool, !torch.int -> !torch.vtensor<[3,4],f32>, !torch.vtensor<[0],si64>, !torch.vtensor<[3],si64>, !torch.vtensor<[3],si64>
  return %0 : !torch.vtensor<[3,4],f32>
}

// -----

// CHECK-LABEL: func.func @bags_of_any_length
// CHECK: "kiln.aten"
// CHECK-SAME: reason = "the lengths of the bags are known at run time only
func.func @bags_of_any_length(%w: !torch.vtensor<[10,4],f32>, %i: !torch.vtensor<[15],si64>, %o: !torch.vtensor<[3],si64>) -> !torch.vtensor<[3,4],f32> {
  %int0 = torch.constant.int 0
  %none = torch.constant.none
  %false = torch.constant.bool false
  %p = torch.constant.int -1
  %0, %1, %2, %3 = torch.aten._embedding_bag %w, %i, %o, %false, %int0, %false, %none, %false, %p : !torch.vtensor<[10,4],f32>, !torch.vtensor<[15],si64>, !torch.vtensor<[3],si64>, !torch.bool, !torch.int, !torch.bool, !torch.none, !torch.bool, !torch.int -> !torch.vtensor<[3,4],f32>, !torch.vtensor<[0],si64>, !torch.vtensor<[3],si64>, !torch.vtensor<[3],si64>
  return %0 : !torch.vtensor<[3,4],f32>
}
