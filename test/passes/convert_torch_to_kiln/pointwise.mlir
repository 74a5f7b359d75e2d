// RUN: kiln-opt %s --split-input-file --pass-pipeline=convert-torch-to-kiln | filecheck %s

// Broadcasting is in the indexing maps; alpha becomes a factor.
// CHECK-LABEL: func.func @add
// CHECK-SAME: (%[[X:.*]]: tensor<4x8xf32>, %[[Y:.*]]: tensor<8xf32>) -> tensor<4x8xf32>
// CHECK: linalg.generic
// CHECK-SAME: iterator_types = ["parallel", "parallel"]
// CHECK-SAME: ins(%[[X]], %[[Y]] : tensor<4x8xf32>, tensor<8xf32>)
// CHECK: %[[TWO:.*]] = arith.constant 2.000000e+00 : f32
// CHECK: %[[P:.*]] = arith.mulf %{{.*}}, %[[TWO]] : f32
// CHECK: arith.addf %{{.*}}, %[[P]] : f32
func.func @add(%x: !torch.vtensor<[4,8],f32>, %y: !torch.vtensor<[8],f32>) -> !torch.vtensor<[4,8],f32> {
  %int2 = torch.constant.int 2
  %0 = torch.aten.add.Tensor %x, %y, %int2 : !torch.vtensor<[4,8],f32>, !torch.vtensor<[8],f32>, !torch.int -> !torch.vtensor<[4,8],f32>
  return %0 : !torch.vtensor<[4,8],f32>
}

// -----

// bf16 computes in f32 and rounds once per op.
// CHECK-LABEL: func.func @half
// CHECK: arith.extf %{{.*}} : bf16 to f32
// CHECK: math.exp %{{.*}} : f32
// CHECK: arith.truncf %{{.*}} : f32 to bf16
func.func @half(%x: !torch.vtensor<[8],bf16>) -> !torch.vtensor<[8],bf16> {
  %0 = torch.aten.exp %x : !torch.vtensor<[8],bf16> -> !torch.vtensor<[8],bf16>
  return %0 : !torch.vtensor<[8],bf16>
}

// -----

// Promotion: an unsigned integer becomes the result's float type.
// CHECK-LABEL: func.func @promote
// CHECK-SAME: %{{.*}}: tensor<8xi8>
// CHECK: arith.uitofp %{{.*}} : i8 to f32
// CHECK: arith.constant 2.500000e+00 : f32
// CHECK: arith.mulf
func.func @promote(%x: !torch.vtensor<[8],ui8>) -> !torch.vtensor<[8],f32> {
  %f = torch.constant.float 2.500000e+00
  %0 = torch.aten.mul.Scalar %x, %f : !torch.vtensor<[8],ui8>, !torch.float -> !torch.vtensor<[8],f32>
  return %0 : !torch.vtensor<[8],f32>
}

// -----

// Comparisons of unsigned integers are unsigned.
// CHECK-LABEL: func.func @unsigned
// CHECK: arith.cmpi ugt, %{{.*}}, %{{.*}} : i8
func.func @unsigned(%x: !torch.vtensor<[8],ui8>) -> !torch.vtensor<[8],i1> {
  %int3 = torch.constant.int 3
  %0 = torch.aten.gt.Scalar %x, %int3 : !torch.vtensor<[8],ui8>, !torch.int -> !torch.vtensor<[8],i1>
  return %0 : !torch.vtensor<[8],i1>
}

// -----

// relu keeps NaN and -0.0: the comparison is ordered and strict, so they are selected.
// CHECK-LABEL: func.func @relu
// CHECK: arith.cmpf olt
// CHECK: arith.select
func.func @relu(%x: !torch.vtensor<[8],f32>) -> !torch.vtensor<[8],f32> {
  %0 = torch.aten.relu %x : !torch.vtensor<[8],f32> -> !torch.vtensor<[8],f32>
  return %0 : !torch.vtensor<[8],f32>
}

// -----

// Python's integer division by a constant: truncate, then borrow where the remainder is negative.
// CHECK-LABEL: func.func @floor_divide
// CHECK: arith.divsi
// CHECK: arith.muli
// CHECK: arith.cmpi slt
// CHECK: arith.extui %{{.*}} : i1 to i64
// CHECK: arith.subi
func.func @floor_divide(%x: !torch.vtensor<[8],si64>) -> !torch.vtensor<[8],si64> {
  %int3 = torch.constant.int 3
  %str = torch.constant.str "floor"
  %0 = torch.aten.div.Scalar_mode %x, %int3, %str : !torch.vtensor<[8],si64>, !torch.int, !torch.str -> !torch.vtensor<[8],si64>
  return %0 : !torch.vtensor<[8],si64>
}

// -----

// A number that the importer wrapped into a tensor is still a number.
// CHECK-LABEL: func.func @wrapped
// CHECK: linalg.generic
// CHECK-SAME: ins(%{{[^,]*}} : tensor<8xf32>)
// CHECK: math.trunc
func.func @wrapped(%x: !torch.vtensor<[8],f32>) -> !torch.vtensor<[8],f32> {
  %int3 = torch.constant.int 3
  %n = torch.prim.NumToTensor.Scalar %int3 : !torch.int -> !torch.vtensor<[],si64>
  %str = torch.constant.str "trunc"
  %0 = torch.aten.div.Tensor_mode %x, %n, %str : !torch.vtensor<[8],f32>, !torch.vtensor<[],si64>, !torch.str -> !torch.vtensor<[8],f32>
  return %0 : !torch.vtensor<[8],f32>
}

// -----

// Selecting moves half values as they are.
// CHECK-LABEL: func.func @where
// CHECK-NOT: arith.extf
// CHECK: arith.select %{{.*}} : f16
func.func @where(%c: !torch.vtensor<[8],i1>, %x: !torch.vtensor<[8],f16>, %y: !torch.vtensor<[8],f16>) -> !torch.vtensor<[8],f16> {
  %0 = torch.aten.where.self %c, %x, %y : !torch.vtensor<[8],i1>, !torch.vtensor<[8],f16>, !torch.vtensor<[8],f16> -> !torch.vtensor<[8],f16>
  return %0 : !torch.vtensor<[8],f16>
}

// -----

// gelu stays one generic.
// CHECK-LABEL: func.func @gelu
// CHECK-COUNT-1: linalg.generic
// CHECK: math.erf
// CHECK-NOT: linalg.generic
func.func @gelu(%x: !torch.vtensor<[8],f32>) -> !torch.vtensor<[8],f32> {
  %str = torch.constant.str "none"
  %0 = torch.aten.gelu %x, %str : !torch.vtensor<[8],f32>, !torch.str -> !torch.vtensor<[8],f32>
  return %0 : !torch.vtensor<[8],f32>
}

// -----

// A cast to bool tests against zero.
// CHECK-LABEL: func.func @to_bool
// CHECK: arith.cmpf une
func.func @to_bool(%x: !torch.vtensor<[8],f32>) -> !torch.vtensor<[8],i1> {
  %int11 = torch.constant.int 11
  %none = torch.constant.none
  %false = torch.constant.bool false
  %0 = torch.aten._to_copy %x, %int11, %none, %none, %none, %false, %none : !torch.vtensor<[8],f32>, !torch.int, !torch.none, !torch.none, !torch.none, !torch.bool, !torch.none -> !torch.vtensor<[8],i1>
  return %0 : !torch.vtensor<[8],i1>
}

// -----

// The distance from a mean, which the import marks, is rounded by itself.
// CHECK-LABEL: func.func @distance
// CHECK: arith.subf %{{.*}}, %{{.*}} {kiln.exact} : f32
func.func @distance(%x: !torch.vtensor<[8,4],bf16>, %mean: !torch.vtensor<[8,1],f32>) -> !torch.vtensor<[8,4],f32> {
  %int1 = torch.constant.int 1
  %0 = torch.aten.sub.Tensor %x, %mean, %int1 {kiln.exact} : !torch.vtensor<[8,4],bf16>, !torch.vtensor<[8,1],f32>, !torch.int -> !torch.vtensor<[8,4],f32>
  return %0 : !torch.vtensor<[8,4],f32>
}
