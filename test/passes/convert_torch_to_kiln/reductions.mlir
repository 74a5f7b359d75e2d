// RUN: kiln-opt %s --split-input-file --pass-pipeline=convert-torch-to-kiln | filecheck %s

// Sums start from a filled tensor and accumulate in loop order.
// CHECK-LABEL: func.func @sum
// CHECK: linalg.generic
// CHECK-SAME: outs(%{{.*}} : tensor<4xf32>)
// CHECK: arith.constant 0.000000e+00 : f32
// CHECK: linalg.generic
// CHECK-SAME: iterator_types = ["parallel", "reduction"]
// CHECK: arith.addf
// CHECK: "kiln.view"
// CHECK-SAME: -> tensor<4x1xf32>
func.func @sum(%x: !torch.vtensor<[4,8],f32>) -> !torch.vtensor<[4,1],f32> {
  %int-1 = torch.constant.int -1
  %dims = torch.prim.ListConstruct %int-1 : (!torch.int) -> !torch.list<int>
  %true = torch.constant.bool true
  %none = torch.constant.none
  %0 = torch.aten.sum.dim_IntList %x, %dims, %true, %none : !torch.vtensor<[4,8],f32>, !torch.list<int>, !torch.bool, !torch.none -> !torch.vtensor<[4,1],f32>
  return %0 : !torch.vtensor<[4,1],f32>
}

// -----

// bf16 accumulates in f32 and rounds at the end.
// CHECK-LABEL: func.func @sum_half
// CHECK: arith.extf
// CHECK: arith.addf %{{.*}} : f32
// CHECK: arith.truncf %{{.*}} : f32 to bf16
func.func @sum_half(%x: !torch.vtensor<[8],bf16>) -> !torch.vtensor<[],bf16> {
  %none = torch.constant.none
  %0 = torch.aten.sum %x, %none : !torch.vtensor<[8],bf16>, !torch.none -> !torch.vtensor<[],bf16>
  return %0 : !torch.vtensor<[],bf16>
}

// -----

// A maximum lets NaN through; it begins with -inf.
// CHECK-LABEL: func.func @amax
// CHECK: arith.constant 0xFF800000 : f32
// CHECK: arith.maximumf
func.func @amax(%x: !torch.vtensor<[4,8],f32>) -> !torch.vtensor<[4],f32> {
  %int1 = torch.constant.int 1
  %dims = torch.prim.ListConstruct %int1 : (!torch.int) -> !torch.list<int>
  %false = torch.constant.bool false
  %0 = torch.aten.amax %x, %dims, %false : !torch.vtensor<[4,8],f32>, !torch.list<int>, !torch.bool -> !torch.vtensor<[4],f32>
  return %0 : !torch.vtensor<[4],f32>
}

// -----

// Indices that nothing uses are not computed.
// CHECK-LABEL: func.func @max_values
// CHECK: arith.maximumf
// CHECK-NOT: linalg.index
func.func @max_values(%x: !torch.vtensor<[4,8],f32>) -> !torch.vtensor<[4],f32> {
  %int1 = torch.constant.int 1
  %false = torch.constant.bool false
  %values, %indices = torch.aten.max.dim %x, %int1, %false : !torch.vtensor<[4,8],f32>, !torch.int, !torch.bool -> !torch.vtensor<[4],f32>, !torch.vtensor<[4],si64>
  return %values : !torch.vtensor<[4],f32>
}

// -----

// Positions: the least index among the elements that equal the maximum, or are NaN.
// CHECK-LABEL: func.func @argmax
// CHECK: arith.maximumf
// CHECK: linalg.index 1 : index
// CHECK: arith.cmpf oeq
// CHECK: arith.cmpf uno
// CHECK: arith.select
// CHECK: arith.minsi
func.func @argmax(%x: !torch.vtensor<[4,8],f32>) -> !torch.vtensor<[4],si64> {
  %int1 = torch.constant.int 1
  %false = torch.constant.bool false
  %0 = torch.aten.argmax %x, %int1, %false : !torch.vtensor<[4,8],f32>, !torch.int, !torch.bool -> !torch.vtensor<[4],si64>
  return %0 : !torch.vtensor<[4],si64>
}

// -----

// Variance in two passes, all in f32.
// CHECK-LABEL: func.func @var
// CHECK-NOT: f64
// CHECK: arith.addf
// CHECK: arith.divf
// CHECK: arith.subf
// CHECK: arith.mulf
// CHECK: arith.constant 7.000000e+00 : f32
// CHECK: arith.divf
func.func @var(%x: !torch.vtensor<[4,8],f32>) -> !torch.vtensor<[4],f32> {
  %int1 = torch.constant.int 1
  %dims = torch.prim.ListConstruct %int1 : (!torch.int) -> !torch.list<int>
  %false = torch.constant.bool false
  %0 = torch.aten.var.correction %x, %dims, %int1, %false : !torch.vtensor<[4,8],f32>, !torch.list<int>, !torch.int, !torch.bool -> !torch.vtensor<[4],f32>
  return %0 : !torch.vtensor<[4],f32>
}

// -----

// CHECK-LABEL: func.func @any
// CHECK: arith.cmpi ne
// CHECK: arith.ori %{{.*}} : i1
func.func @any(%x: !torch.vtensor<[8],si32>) -> !torch.vtensor<[],i1> {
  %0 = torch.aten.any %x : !torch.vtensor<[8],si32> -> !torch.vtensor<[],i1>
  return %0 : !torch.vtensor<[],i1>
}

// -----

// CHECK-LABEL: func.func @cumsum
// CHECK: arith.extui %{{.*}} : i1 to i64
// CHECK: "kiln.scan"
// CHECK-SAME: dim = 1
// CHECK-SAME: kind = "sum"
func.func @cumsum(%x: !torch.vtensor<[4,8],i1>) -> !torch.vtensor<[4,8],si64> {
  %int1 = torch.constant.int 1
  %none = torch.constant.none
  %0 = torch.aten.cumsum %x, %int1, %none : !torch.vtensor<[4,8],i1>, !torch.int, !torch.none -> !torch.vtensor<[4,8],si64>
  return %0 : !torch.vtensor<[4,8],si64>
}
