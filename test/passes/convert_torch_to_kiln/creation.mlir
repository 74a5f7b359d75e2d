// RUN: kiln-opt %s --split-input-file --pass-pipeline=convert-torch-to-kiln | filecheck %s

// CHECK-LABEL: func.func @full
// CHECK: linalg.generic
// CHECK-SAME: outs(%{{.*}} : tensor<2x3xf32>)
// CHECK: arith.constant 2.500000e+00 : f32
func.func @full() -> !torch.vtensor<[2,3],f32> {
  %int2 = torch.constant.int 2
  %int3 = torch.constant.int 3
  %size = torch.prim.ListConstruct %int2, %int3 : (!torch.int, !torch.int) -> !torch.list<int>
  %value = torch.constant.float 2.500000e+00
  %none = torch.constant.none
  %0 = torch.aten.full %size, %value, %none, %none, %none, %none : !torch.list<int>, !torch.float, !torch.none, !torch.none, !torch.none, !torch.none -> !torch.vtensor<[2,3],f32>
  return %0 : !torch.vtensor<[2,3],f32>
}

// -----

// CHECK-LABEL: func.func @arange
// CHECK: linalg.index 0 : index
// CHECK: arith.index_cast
// CHECK: arith.addi
func.func @arange() -> !torch.vtensor<[6],si64> {
  %int2 = torch.constant.int 2
  %int8 = torch.constant.int 8
  %none = torch.constant.none
  %0 = torch.aten.arange.start %int2, %int8, %none, %none, %none, %none : !torch.int, !torch.int, !torch.none, !torch.none, !torch.none, !torch.none -> !torch.vtensor<[6],si64>
  return %0 : !torch.vtensor<[6],si64>
}

// -----

// CHECK-LABEL: func.func @eye
// CHECK: arith.cmpi eq
// CHECK: arith.uitofp
func.func @eye() -> !torch.vtensor<[3,3],f32> {
  %int3 = torch.constant.int 3
  %none = torch.constant.none
  %0 = torch.aten.eye %int3, %none, %none, %none, %none : !torch.int, !torch.none, !torch.none, !torch.none, !torch.none -> !torch.vtensor<[3,3],f32>
  return %0 : !torch.vtensor<[3,3],f32>
}
