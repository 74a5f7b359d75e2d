// RUN: kiln-opt %s --split-input-file --remarks --pass-pipeline=simplify-algebra,rewrite-patterns 2> %t.remarks | filecheck %s
// RUN: filecheck %s --check-prefix=WHY --input-file %t.remarks
// Scores over sqrt(d).
// CHECK-LABEL: func.func @scaled(
// CHECK: %[[N:.*]] = torch.constant.none
// CHECK: torch.operator "torch.kiln.attention"(%arg0, %{{.*}}, %arg2, %[[N]],
// CHECK-NOT: torch.aten.bmm
func.func @scaled(%arg0: !torch.vtensor<[2,3,5,8],f32> {kiln.shape = affine_map<() -> (2, 3, 5, 8)>, kiln.strides = affine_map<() -> (120, 40, 8, 1)>}, %arg1: !torch.vtensor<[2,3,7,8],f32> {kiln.shape = affine_map<() -> (2, 3, 7, 8)>, kiln.strides = affine_map<() -> (168, 56, 8, 1)>}, %arg2: !torch.vtensor<[2,3,7,8],f32> {kiln.shape = affine_map<() -> (2, 3, 7, 8)>, kiln.strides = affine_map<() -> (168, 56, 8, 1)>}) -> (!torch.vtensor<[2,3,5,8],f32> {kiln.strides = affine_map<() -> (120, 40, 8, 1)>}) {
  %int-2 = torch.constant.int -2
  %int-1 = torch.constant.int -1
  %0 = torch.aten.transpose.int %arg1, %int-2, %int-1 {kiln.strides = [affine_map<() -> (168, 56, 1, 8)>]} : !torch.vtensor<[2,3,7,8],f32>, !torch.int, !torch.int -> !torch.vtensor<[2,3,8,7],f32>
  %int2 = torch.constant.int 2
  %int3 = torch.constant.int 3
  %int5 = torch.constant.int 5
  %int8 = torch.constant.int 8
  %1 = torch.prim.ListConstruct %int2, %int3, %int5, %int8 : (!torch.int, !torch.int, !torch.int, !torch.int) -> !torch.list<int>
  %false = torch.constant.bool false
  %int6 = torch.constant.int 6
  %2 = torch.prim.ListConstruct %int6, %int5, %int8 : (!torch.int, !torch.int, !torch.int) -> !torch.list<int>
  %3 = torch.aten.view %arg0, %2 {kiln.strides = [affine_map<() -> (40, 8, 1)>]} : !torch.vtensor<[2,3,5,8],f32>, !torch.list<int> -> !torch.vtensor<[6,5,8],f32>
  %int7 = torch.constant.int 7
  %4 = torch.prim.ListConstruct %int6, %int8, %int7 : (!torch.int, !torch.int, !torch.int) -> !torch.list<int>
  %5 = torch.aten.view %0, %4 {kiln.strides = [affine_map<() -> (56, 1, 8)>]} : !torch.vtensor<[2,3,8,7],f32>, !torch.list<int> -> !torch.vtensor<[6,8,7],f32>
  %6 = torch.aten.bmm %3, %5 {kiln.strides = [affine_map<() -> (35, 7, 1)>]} : !torch.vtensor<[6,5,8],f32>, !torch.vtensor<[6,8,7],f32> -> !torch.vtensor<[6,5,7],f32>
  %7 = torch.prim.ListConstruct %int2, %int3, %int5, %int7 : (!torch.int, !torch.int, !torch.int, !torch.int) -> !torch.list<int>
  %8 = torch.aten.view %6, %7 {kiln.strides = [affine_map<() -> (105, 35, 7, 1)>]} : !torch.vtensor<[6,5,7],f32>, !torch.list<int> -> !torch.vtensor<[2,3,5,7],f32>
  %float2.828430e00 = torch.constant.float 2.8284271247461903
  %9 = torch.aten.div.Scalar %8, %float2.828430e00 {kiln.strides = [affine_map<() -> (105, 35, 7, 1)>]} : !torch.vtensor<[2,3,5,7],f32>, !torch.float -> !torch.vtensor<[2,3,5,7],f32>
  %10 = torch.aten._softmax %9, %int-1, %false {kiln.strides = [affine_map<() -> (105, 35, 7, 1)>]} : !torch.vtensor<[2,3,5,7],f32>, !torch.int, !torch.bool -> !torch.vtensor<[2,3,5,7],f32>
  %11 = torch.prim.ListConstruct %int6, %int5, %int7 : (!torch.int, !torch.int, !torch.int) -> !torch.list<int>
  %12 = torch.aten.view %10, %11 {kiln.strides = [affine_map<() -> (35, 7, 1)>]} : !torch.vtensor<[2,3,5,7],f32>, !torch.list<int> -> !torch.vtensor<[6,5,7],f32>
  %13 = torch.prim.ListConstruct %int6, %int7, %int8 : (!torch.int, !torch.int, !torch.int) -> !torch.list<int>
  %14 = torch.aten.view %arg2, %13 {kiln.strides = [affine_map<() -> (56, 8, 1)>]} : !torch.vtensor<[2,3,7,8],f32>, !torch.list<int> -> !torch.vtensor<[6,7,8],f32>
  %15 = torch.aten.bmm %12, %14 {kiln.strides = [affine_map<() -> (40, 8, 1)>]} : !torch.vtensor<[6,5,7],f32>, !torch.vtensor<[6,7,8],f32> -> !torch.vtensor<[6,5,8],f32>
  %16 = torch.aten.view %15, %1 {kiln.strides = [affine_map<() -> (120, 40, 8, 1)>]} : !torch.vtensor<[6,5,8],f32>, !torch.list<int> -> !torch.vtensor<[2,3,5,8],f32>
  return %16 : !torch.vtensor<[2,3,5,8],f32>
}

// -----

// With a mask that broadcasts.
// CHECK-LABEL: func.func @additive_mask(
// CHECK: %[[F:.*]] = torch.constant.float 0xFFF0000000000000
// CHECK: torch.operator "torch.kiln.attention"(%arg0, %{{.*}}, %arg2, %arg3, %{{.*}}, %[[F]])
func.func @additive_mask(%arg0: !torch.vtensor<[2,3,5,8],f32> {kiln.shape = affine_map<() -> (2, 3, 5, 8)>, kiln.strides = affine_map<() -> (120, 40, 8, 1)>}, %arg1: !torch.vtensor<[2,3,7,8],f32> {kiln.shape = affine_map<() -> (2, 3, 7, 8)>, kiln.strides = affine_map<() -> (168, 56, 8, 1)>}, %arg2: !torch.vtensor<[2,3,7,8],f32> {kiln.shape = affine_map<() -> (2, 3, 7, 8)>, kiln.strides = affine_map<() -> (168, 56, 8, 1)>}, %arg3: !torch.vtensor<[2,1,1,7],f32> {kiln.shape = affine_map<() -> (2, 1, 1, 7)>, kiln.strides = affine_map<() -> (7, 7, 7, 1)>}) -> (!torch.vtensor<[2,3,5,8],f32> {kiln.strides = affine_map<() -> (120, 40, 8, 1)>}) {
  %int-2 = torch.constant.int -2
  %int-1 = torch.constant.int -1
  %0 = torch.aten.transpose.int %arg1, %int-2, %int-1 {kiln.strides = [affine_map<() -> (168, 56, 1, 8)>]} : !torch.vtensor<[2,3,7,8],f32>, !torch.int, !torch.int -> !torch.vtensor<[2,3,8,7],f32>
  %int2 = torch.constant.int 2
  %int3 = torch.constant.int 3
  %int5 = torch.constant.int 5
  %int8 = torch.constant.int 8
  %1 = torch.prim.ListConstruct %int2, %int3, %int5, %int8 : (!torch.int, !torch.int, !torch.int, !torch.int) -> !torch.list<int>
  %false = torch.constant.bool false
  %int6 = torch.constant.int 6
  %2 = torch.prim.ListConstruct %int6, %int5, %int8 : (!torch.int, !torch.int, !torch.int) -> !torch.list<int>
  %3 = torch.aten.view %arg0, %2 {kiln.strides = [affine_map<() -> (40, 8, 1)>]} : !torch.vtensor<[2,3,5,8],f32>, !torch.list<int> -> !torch.vtensor<[6,5,8],f32>
  %int7 = torch.constant.int 7
  %4 = torch.prim.ListConstruct %int6, %int8, %int7 : (!torch.int, !torch.int, !torch.int) -> !torch.list<int>
  %5 = torch.aten.view %0, %4 {kiln.strides = [affine_map<() -> (56, 1, 8)>]} : !torch.vtensor<[2,3,8,7],f32>, !torch.list<int> -> !torch.vtensor<[6,8,7],f32>
  %6 = torch.aten.bmm %3, %5 {kiln.strides = [affine_map<() -> (35, 7, 1)>]} : !torch.vtensor<[6,5,8],f32>, !torch.vtensor<[6,8,7],f32> -> !torch.vtensor<[6,5,7],f32>
  %7 = torch.prim.ListConstruct %int2, %int3, %int5, %int7 : (!torch.int, !torch.int, !torch.int, !torch.int) -> !torch.list<int>
  %8 = torch.aten.view %6, %7 {kiln.strides = [affine_map<() -> (105, 35, 7, 1)>]} : !torch.vtensor<[6,5,7],f32>, !torch.list<int> -> !torch.vtensor<[2,3,5,7],f32>
  %float3.000000e-01 = torch.constant.float 3.000000e-01
  %9 = torch.aten.mul.Scalar %8, %float3.000000e-01 {kiln.strides = [affine_map<() -> (105, 35, 7, 1)>]} : !torch.vtensor<[2,3,5,7],f32>, !torch.float -> !torch.vtensor<[2,3,5,7],f32>
  %int1 = torch.constant.int 1
  %10 = torch.aten.add.Tensor %9, %arg3, %int1 {kiln.strides = [affine_map<() -> (105, 35, 7, 1)>]} : !torch.vtensor<[2,3,5,7],f32>, !torch.vtensor<[2,1,1,7],f32>, !torch.int -> !torch.vtensor<[2,3,5,7],f32>
  %11 = torch.aten._softmax %10, %int-1, %false {kiln.strides = [affine_map<() -> (105, 35, 7, 1)>]} : !torch.vtensor<[2,3,5,7],f32>, !torch.int, !torch.bool -> !torch.vtensor<[2,3,5,7],f32>
  %12 = torch.prim.ListConstruct %int6, %int5, %int7 : (!torch.int, !torch.int, !torch.int) -> !torch.list<int>
  %13 = torch.aten.view %11, %12 {kiln.strides = [affine_map<() -> (35, 7, 1)>]} : !torch.vtensor<[2,3,5,7],f32>, !torch.list<int> -> !torch.vtensor<[6,5,7],f32>
  %14 = torch.prim.ListConstruct %int6, %int7, %int8 : (!torch.int, !torch.int, !torch.int) -> !torch.list<int>
  %15 = torch.aten.view %arg2, %14 {kiln.strides = [affine_map<() -> (56, 8, 1)>]} : !torch.vtensor<[2,3,7,8],f32>, !torch.list<int> -> !torch.vtensor<[6,7,8],f32>
  %16 = torch.aten.bmm %13, %15 {kiln.strides = [affine_map<() -> (40, 8, 1)>]} : !torch.vtensor<[6,5,7],f32>, !torch.vtensor<[6,7,8],f32> -> !torch.vtensor<[6,5,8],f32>
  %17 = torch.aten.view %16, %1 {kiln.strides = [affine_map<() -> (120, 40, 8, 1)>]} : !torch.vtensor<[6,5,8],f32>, !torch.list<int> -> !torch.vtensor<[2,3,5,8],f32>
  return %17 : !torch.vtensor<[2,3,5,8],f32>
}

// -----

// Where the mask says not to look, -inf.
// CHECK-LABEL: func.func @filled_mask(
// CHECK: %[[K:.*]] = torch.aten.logical_not %arg3
// CHECK: %[[F:.*]] = torch.constant.float 0xFFF0000000000000
// CHECK: torch.operator "torch.kiln.attention"(%arg0, %{{.*}}, %arg2, %[[K]], %{{.*}}, %[[F]])
func.func @filled_mask(%arg0: !torch.vtensor<[2,3,5,8],f32> {kiln.shape = affine_map<() -> (2, 3, 5, 8)>, kiln.strides = affine_map<() -> (120, 40, 8, 1)>}, %arg1: !torch.vtensor<[2,3,7,8],f32> {kiln.shape = affine_map<() -> (2, 3, 7, 8)>, kiln.strides = affine_map<() -> (168, 56, 8, 1)>}, %arg2: !torch.vtensor<[2,3,7,8],f32> {kiln.shape = affine_map<() -> (2, 3, 7, 8)>, kiln.strides = affine_map<() -> (168, 56, 8, 1)>}, %arg3: !torch.vtensor<[5,7],i1> {kiln.shape = affine_map<() -> (5, 7)>, kiln.strides = affine_map<() -> (7, 1)>}) -> (!torch.vtensor<[2,3,5,8],f32> {kiln.strides = affine_map<() -> (120, 40, 8, 1)>}) {
  %int-2 = torch.constant.int -2
  %int-1 = torch.constant.int -1
  %0 = torch.aten.transpose.int %arg1, %int-2, %int-1 {kiln.strides = [affine_map<() -> (168, 56, 1, 8)>]} : !torch.vtensor<[2,3,7,8],f32>, !torch.int, !torch.int -> !torch.vtensor<[2,3,8,7],f32>
  %int2 = torch.constant.int 2
  %int3 = torch.constant.int 3
  %int5 = torch.constant.int 5
  %int8 = torch.constant.int 8
  %1 = torch.prim.ListConstruct %int2, %int3, %int5, %int8 : (!torch.int, !torch.int, !torch.int, !torch.int) -> !torch.list<int>
  %false = torch.constant.bool false
  %int6 = torch.constant.int 6
  %2 = torch.prim.ListConstruct %int6, %int5, %int8 : (!torch.int, !torch.int, !torch.int) -> !torch.list<int>
  %3 = torch.aten.view %arg0, %2 {kiln.strides = [affine_map<() -> (40, 8, 1)>]} : !torch.vtensor<[2,3,5,8],f32>, !torch.list<int> -> !torch.vtensor<[6,5,8],f32>
  %int7 = torch.constant.int 7
  %4 = torch.prim.ListConstruct %int6, %int8, %int7 : (!torch.int, !torch.int, !torch.int) -> !torch.list<int>
  %5 = torch.aten.view %0, %4 {kiln.strides = [affine_map<() -> (56, 1, 8)>]} : !torch.vtensor<[2,3,8,7],f32>, !torch.list<int> -> !torch.vtensor<[6,8,7],f32>
  %6 = torch.aten.bmm %3, %5 {kiln.strides = [affine_map<() -> (35, 7, 1)>]} : !torch.vtensor<[6,5,8],f32>, !torch.vtensor<[6,8,7],f32> -> !torch.vtensor<[6,5,7],f32>
  %7 = torch.prim.ListConstruct %int2, %int3, %int5, %int7 : (!torch.int, !torch.int, !torch.int, !torch.int) -> !torch.list<int>
  %8 = torch.aten.view %6, %7 {kiln.strides = [affine_map<() -> (105, 35, 7, 1)>]} : !torch.vtensor<[6,5,7],f32>, !torch.list<int> -> !torch.vtensor<[2,3,5,7],f32>
  %float3.000000e-01 = torch.constant.float 3.000000e-01
  %9 = torch.aten.mul.Scalar %8, %float3.000000e-01 {kiln.strides = [affine_map<() -> (105, 35, 7, 1)>]} : !torch.vtensor<[2,3,5,7],f32>, !torch.float -> !torch.vtensor<[2,3,5,7],f32>
  %float-Inf = torch.constant.float 0xFFF0000000000000
  %10 = torch.aten.masked_fill.Scalar %9, %arg3, %float-Inf {kiln.strides = [affine_map<() -> (105, 35, 7, 1)>]} : !torch.vtensor<[2,3,5,7],f32>, !torch.vtensor<[5,7],i1>, !torch.float -> !torch.vtensor<[2,3,5,7],f32>
  %11 = torch.aten._softmax %10, %int-1, %false {kiln.strides = [affine_map<() -> (105, 35, 7, 1)>]} : !torch.vtensor<[2,3,5,7],f32>, !torch.int, !torch.bool -> !torch.vtensor<[2,3,5,7],f32>
  %12 = torch.prim.ListConstruct %int6, %int5, %int7 : (!torch.int, !torch.int, !torch.int) -> !torch.list<int>
  %13 = torch.aten.view %11, %12 {kiln.strides = [affine_map<() -> (35, 7, 1)>]} : !torch.vtensor<[2,3,5,7],f32>, !torch.list<int> -> !torch.vtensor<[6,5,7],f32>
  %14 = torch.prim.ListConstruct %int6, %int7, %int8 : (!torch.int, !torch.int, !torch.int) -> !torch.list<int>
  %15 = torch.aten.view %arg2, %14 {kiln.strides = [affine_map<() -> (56, 8, 1)>]} : !torch.vtensor<[2,3,7,8],f32>, !torch.list<int> -> !torch.vtensor<[6,7,8],f32>
  %16 = torch.aten.bmm %13, %15 {kiln.strides = [affine_map<() -> (40, 8, 1)>]} : !torch.vtensor<[6,5,7],f32>, !torch.vtensor<[6,7,8],f32> -> !torch.vtensor<[6,5,8],f32>
  %17 = torch.aten.view %16, %1 {kiln.strides = [affine_map<() -> (120, 40, 8, 1)>]} : !torch.vtensor<[6,5,8],f32>, !torch.list<int> -> !torch.vtensor<[2,3,5,8],f32>
  return %17 : !torch.vtensor<[2,3,5,8],f32>
}

// -----

// -1e9 leaves a row that is masked altogether uniform: the op has that score.
// CHECK-LABEL: func.func @filled_with_a_number(
// CHECK: %[[F:.*]] = torch.constant.float -1.000000e+09
// CHECK: torch.operator "torch.kiln.attention"(%arg0, %{{.*}}, %arg2, %{{.*}}, %{{.*}}, %[[F]])
func.func @filled_with_a_number(%arg0: !torch.vtensor<[2,3,5,8],f32> {kiln.shape = affine_map<() -> (2, 3, 5, 8)>, kiln.strides = affine_map<() -> (120, 40, 8, 1)>}, %arg1: !torch.vtensor<[2,3,7,8],f32> {kiln.shape = affine_map<() -> (2, 3, 7, 8)>, kiln.strides = affine_map<() -> (168, 56, 8, 1)>}, %arg2: !torch.vtensor<[2,3,7,8],f32> {kiln.shape = affine_map<() -> (2, 3, 7, 8)>, kiln.strides = affine_map<() -> (168, 56, 8, 1)>}, %arg3: !torch.vtensor<[5,7],i1> {kiln.shape = affine_map<() -> (5, 7)>, kiln.strides = affine_map<() -> (7, 1)>}) -> (!torch.vtensor<[2,3,5,8],f32> {kiln.strides = affine_map<() -> (120, 40, 8, 1)>}) {
  %int-2 = torch.constant.int -2
  %int-1 = torch.constant.int -1
  %0 = torch.aten.transpose.int %arg1, %int-2, %int-1 {kiln.strides = [affine_map<() -> (168, 56, 1, 8)>]} : !torch.vtensor<[2,3,7,8],f32>, !torch.int, !torch.int -> !torch.vtensor<[2,3,8,7],f32>
  %int2 = torch.constant.int 2
  %int3 = torch.constant.int 3
  %int5 = torch.constant.int 5
  %int8 = torch.constant.int 8
  %1 = torch.prim.ListConstruct %int2, %int3, %int5, %int8 : (!torch.int, !torch.int, !torch.int, !torch.int) -> !torch.list<int>
  %false = torch.constant.bool false
  %int6 = torch.constant.int 6
  %2 = torch.prim.ListConstruct %int6, %int5, %int8 : (!torch.int, !torch.int, !torch.int) -> !torch.list<int>
  %3 = torch.aten.view %arg0, %2 {kiln.strides = [affine_map<() -> (40, 8, 1)>]} : !torch.vtensor<[2,3,5,8],f32>, !torch.list<int> -> !torch.vtensor<[6,5,8],f32>
  %int7 = torch.constant.int 7
  %4 = torch.prim.ListConstruct %int6, %int8, %int7 : (!torch.int, !torch.int, !torch.int) -> !torch.list<int>
  %5 = torch.aten.view %0, %4 {kiln.strides = [affine_map<() -> (56, 1, 8)>]} : !torch.vtensor<[2,3,8,7],f32>, !torch.list<int> -> !torch.vtensor<[6,8,7],f32>
  %6 = torch.aten.bmm %3, %5 {kiln.strides = [affine_map<() -> (35, 7, 1)>]} : !torch.vtensor<[6,5,8],f32>, !torch.vtensor<[6,8,7],f32> -> !torch.vtensor<[6,5,7],f32>
  %7 = torch.prim.ListConstruct %int2, %int3, %int5, %int7 : (!torch.int, !torch.int, !torch.int, !torch.int) -> !torch.list<int>
  %8 = torch.aten.view %6, %7 {kiln.strides = [affine_map<() -> (105, 35, 7, 1)>]} : !torch.vtensor<[6,5,7],f32>, !torch.list<int> -> !torch.vtensor<[2,3,5,7],f32>
  %float3.000000e-01 = torch.constant.float 3.000000e-01
  %9 = torch.aten.mul.Scalar %8, %float3.000000e-01 {kiln.strides = [affine_map<() -> (105, 35, 7, 1)>]} : !torch.vtensor<[2,3,5,7],f32>, !torch.float -> !torch.vtensor<[2,3,5,7],f32>
  %float-1.000000e09 = torch.constant.float -1.000000e+09
  %10 = torch.aten.masked_fill.Scalar %9, %arg3, %float-1.000000e09 {kiln.strides = [affine_map<() -> (105, 35, 7, 1)>]} : !torch.vtensor<[2,3,5,7],f32>, !torch.vtensor<[5,7],i1>, !torch.float -> !torch.vtensor<[2,3,5,7],f32>
  %11 = torch.aten._softmax %10, %int-1, %false {kiln.strides = [affine_map<() -> (105, 35, 7, 1)>]} : !torch.vtensor<[2,3,5,7],f32>, !torch.int, !torch.bool -> !torch.vtensor<[2,3,5,7],f32>
  %12 = torch.prim.ListConstruct %int6, %int5, %int7 : (!torch.int, !torch.int, !torch.int) -> !torch.list<int>
  %13 = torch.aten.view %11, %12 {kiln.strides = [affine_map<() -> (35, 7, 1)>]} : !torch.vtensor<[2,3,5,7],f32>, !torch.list<int> -> !torch.vtensor<[6,5,7],f32>
  %14 = torch.prim.ListConstruct %int6, %int7, %int8 : (!torch.int, !torch.int, !torch.int) -> !torch.list<int>
  %15 = torch.aten.view %arg2, %14 {kiln.strides = [affine_map<() -> (56, 8, 1)>]} : !torch.vtensor<[2,3,7,8],f32>, !torch.list<int> -> !torch.vtensor<[6,7,8],f32>
  %16 = torch.aten.bmm %13, %15 {kiln.strides = [affine_map<() -> (40, 8, 1)>]} : !torch.vtensor<[6,5,7],f32>, !torch.vtensor<[6,7,8],f32> -> !torch.vtensor<[6,5,8],f32>
  %17 = torch.aten.view %16, %1 {kiln.strides = [affine_map<() -> (120, 40, 8, 1)>]} : !torch.vtensor<[6,5,8],f32>, !torch.list<int> -> !torch.vtensor<[2,3,5,8],f32>
  return %17 : !torch.vtensor<[2,3,5,8],f32>
}

// -----

// Near miss: the weights are returned as well.
// CHECK-LABEL: func.func @weights_returned(
// CHECK-NOT: attention
// CHECK: return
// WHY-DAG: attention-over: aten._softmax has another user
func.func @weights_returned(%arg0: !torch.vtensor<[2,3,5,8],f32> {kiln.shape = affine_map<() -> (2, 3, 5, 8)>, kiln.strides = affine_map<() -> (120, 40, 8, 1)>}, %arg1: !torch.vtensor<[2,3,7,8],f32> {kiln.shape = affine_map<() -> (2, 3, 7, 8)>, kiln.strides = affine_map<() -> (168, 56, 8, 1)>}, %arg2: !torch.vtensor<[2,3,7,8],f32> {kiln.shape = affine_map<() -> (2, 3, 7, 8)>, kiln.strides = affine_map<() -> (168, 56, 8, 1)>}) -> (!torch.vtensor<[2,3,5,8],f32> {kiln.strides = affine_map<() -> (120, 40, 8, 1)>}, !torch.vtensor<[2,3,5,7],f32> {kiln.strides = affine_map<() -> (105, 35, 7, 1)>}) {
  %int-2 = torch.constant.int -2
  %int-1 = torch.constant.int -1
  %0 = torch.aten.transpose.int %arg1, %int-2, %int-1 {kiln.strides = [affine_map<() -> (168, 56, 1, 8)>]} : !torch.vtensor<[2,3,7,8],f32>, !torch.int, !torch.int -> !torch.vtensor<[2,3,8,7],f32>
  %int2 = torch.constant.int 2
  %int3 = torch.constant.int 3
  %int5 = torch.constant.int 5
  %int8 = torch.constant.int 8
  %1 = torch.prim.ListConstruct %int2, %int3, %int5, %int8 : (!torch.int, !torch.int, !torch.int, !torch.int) -> !torch.list<int>
  %false = torch.constant.bool false
  %int6 = torch.constant.int 6
  %2 = torch.prim.ListConstruct %int6, %int5, %int8 : (!torch.int, !torch.int, !torch.int) -> !torch.list<int>
  %3 = torch.aten.view %arg0, %2 {kiln.strides = [affine_map<() -> (40, 8, 1)>]} : !torch.vtensor<[2,3,5,8],f32>, !torch.list<int> -> !torch.vtensor<[6,5,8],f32>
  %int7 = torch.constant.int 7
  %4 = torch.prim.ListConstruct %int6, %int8, %int7 : (!torch.int, !torch.int, !torch.int) -> !torch.list<int>
  %5 = torch.aten.view %0, %4 {kiln.strides = [affine_map<() -> (56, 1, 8)>]} : !torch.vtensor<[2,3,8,7],f32>, !torch.list<int> -> !torch.vtensor<[6,8,7],f32>
  %6 = torch.aten.bmm %3, %5 {kiln.strides = [affine_map<() -> (35, 7, 1)>]} : !torch.vtensor<[6,5,8],f32>, !torch.vtensor<[6,8,7],f32> -> !torch.vtensor<[6,5,7],f32>
  %7 = torch.prim.ListConstruct %int2, %int3, %int5, %int7 : (!torch.int, !torch.int, !torch.int, !torch.int) -> !torch.list<int>
  %8 = torch.aten.view %6, %7 {kiln.strides = [affine_map<() -> (105, 35, 7, 1)>]} : !torch.vtensor<[6,5,7],f32>, !torch.list<int> -> !torch.vtensor<[2,3,5,7],f32>
  %float2.828430e00 = torch.constant.float 2.8284271247461903
  %9 = torch.aten.div.Scalar %8, %float2.828430e00 {kiln.strides = [affine_map<() -> (105, 35, 7, 1)>]} : !torch.vtensor<[2,3,5,7],f32>, !torch.float -> !torch.vtensor<[2,3,5,7],f32>
  %10 = torch.aten._softmax %9, %int-1, %false {kiln.strides = [affine_map<() -> (105, 35, 7, 1)>]} : !torch.vtensor<[2,3,5,7],f32>, !torch.int, !torch.bool -> !torch.vtensor<[2,3,5,7],f32>
  %11 = torch.prim.ListConstruct %int6, %int5, %int7 : (!torch.int, !torch.int, !torch.int) -> !torch.list<int>
  %12 = torch.aten.view %10, %11 {kiln.strides = [affine_map<() -> (35, 7, 1)>]} : !torch.vtensor<[2,3,5,7],f32>, !torch.list<int> -> !torch.vtensor<[6,5,7],f32>
  %13 = torch.prim.ListConstruct %int6, %int7, %int8 : (!torch.int, !torch.int, !torch.int) -> !torch.list<int>
  %14 = torch.aten.view %arg2, %13 {kiln.strides = [affine_map<() -> (56, 8, 1)>]} : !torch.vtensor<[2,3,7,8],f32>, !torch.list<int> -> !torch.vtensor<[6,7,8],f32>
  %15 = torch.aten.bmm %12, %14 {kiln.strides = [affine_map<() -> (40, 8, 1)>]} : !torch.vtensor<[6,5,7],f32>, !torch.vtensor<[6,7,8],f32> -> !torch.vtensor<[6,5,8],f32>
  %16 = torch.aten.view %15, %1 {kiln.strides = [affine_map<() -> (120, 40, 8, 1)>]} : !torch.vtensor<[6,5,8],f32>, !torch.list<int> -> !torch.vtensor<[2,3,5,8],f32>
  return %16, %10 : !torch.vtensor<[2,3,5,8],f32>, !torch.vtensor<[2,3,5,7],f32>
}

// -----

// Near miss: normalised over the queries.
// CHECK-LABEL: func.func @other_dim(
// CHECK-NOT: attention"
// CHECK: return
// WHY-DAG: attention-over: operand 1 of aten._softmax: -1 expected, found -2
func.func @other_dim(%arg0: !torch.vtensor<[2,3,5,8],f32> {kiln.shape = affine_map<() -> (2, 3, 5, 8)>, kiln.strides = affine_map<() -> (120, 40, 8, 1)>}, %arg1: !torch.vtensor<[2,3,7,8],f32> {kiln.shape = affine_map<() -> (2, 3, 7, 8)>, kiln.strides = affine_map<() -> (168, 56, 8, 1)>}, %arg2: !torch.vtensor<[2,3,7,8],f32> {kiln.shape = affine_map<() -> (2, 3, 7, 8)>, kiln.strides = affine_map<() -> (168, 56, 8, 1)>}) -> (!torch.vtensor<[2,3,5,8],f32> {kiln.strides = affine_map<() -> (120, 40, 8, 1)>}) {
  %int-2 = torch.constant.int -2
  %int-1 = torch.constant.int -1
  %0 = torch.aten.transpose.int %arg1, %int-2, %int-1 {kiln.strides = [affine_map<() -> (168, 56, 1, 8)>]} : !torch.vtensor<[2,3,7,8],f32>, !torch.int, !torch.int -> !torch.vtensor<[2,3,8,7],f32>
  %int2 = torch.constant.int 2
  %int3 = torch.constant.int 3
  %int5 = torch.constant.int 5
  %int8 = torch.constant.int 8
  %1 = torch.prim.ListConstruct %int2, %int3, %int5, %int8 : (!torch.int, !torch.int, !torch.int, !torch.int) -> !torch.list<int>
  %false = torch.constant.bool false
  %int6 = torch.constant.int 6
  %2 = torch.prim.ListConstruct %int6, %int5, %int8 : (!torch.int, !torch.int, !torch.int) -> !torch.list<int>
  %3 = torch.aten.view %arg0, %2 {kiln.strides = [affine_map<() -> (40, 8, 1)>]} : !torch.vtensor<[2,3,5,8],f32>, !torch.list<int> -> !torch.vtensor<[6,5,8],f32>
  %int7 = torch.constant.int 7
  %4 = torch.prim.ListConstruct %int6, %int8, %int7 : (!torch.int, !torch.int, !torch.int) -> !torch.list<int>
  %5 = torch.aten.view %0, %4 {kiln.strides = [affine_map<() -> (56, 1, 8)>]} : !torch.vtensor<[2,3,8,7],f32>, !torch.list<int> -> !torch.vtensor<[6,8,7],f32>
  %6 = torch.aten.bmm %3, %5 {kiln.strides = [affine_map<() -> (35, 7, 1)>]} : !torch.vtensor<[6,5,8],f32>, !torch.vtensor<[6,8,7],f32> -> !torch.vtensor<[6,5,7],f32>
  %7 = torch.prim.ListConstruct %int2, %int3, %int5, %int7 : (!torch.int, !torch.int, !torch.int, !torch.int) -> !torch.list<int>
  %8 = torch.aten.view %6, %7 {kiln.strides = [affine_map<() -> (105, 35, 7, 1)>]} : !torch.vtensor<[6,5,7],f32>, !torch.list<int> -> !torch.vtensor<[2,3,5,7],f32>
  %float2.828430e00 = torch.constant.float 2.8284271247461903
  %9 = torch.aten.div.Scalar %8, %float2.828430e00 {kiln.strides = [affine_map<() -> (105, 35, 7, 1)>]} : !torch.vtensor<[2,3,5,7],f32>, !torch.float -> !torch.vtensor<[2,3,5,7],f32>
  %10 = torch.aten._softmax %9, %int-2, %false {kiln.strides = [affine_map<() -> (105, 35, 7, 1)>]} : !torch.vtensor<[2,3,5,7],f32>, !torch.int, !torch.bool -> !torch.vtensor<[2,3,5,7],f32>
  %11 = torch.prim.ListConstruct %int6, %int5, %int7 : (!torch.int, !torch.int, !torch.int) -> !torch.list<int>
  %12 = torch.aten.view %10, %11 {kiln.strides = [affine_map<() -> (35, 7, 1)>]} : !torch.vtensor<[2,3,5,7],f32>, !torch.list<int> -> !torch.vtensor<[6,5,7],f32>
  %13 = torch.prim.ListConstruct %int6, %int7, %int8 : (!torch.int, !torch.int, !torch.int) -> !torch.list<int>
  %14 = torch.aten.view %arg2, %13 {kiln.strides = [affine_map<() -> (56, 8, 1)>]} : !torch.vtensor<[2,3,7,8],f32>, !torch.list<int> -> !torch.vtensor<[6,7,8],f32>
  %15 = torch.aten.bmm %12, %14 {kiln.strides = [affine_map<() -> (40, 8, 1)>]} : !torch.vtensor<[6,5,7],f32>, !torch.vtensor<[6,7,8],f32> -> !torch.vtensor<[6,5,8],f32>
  %16 = torch.aten.view %15, %1 {kiln.strides = [affine_map<() -> (120, 40, 8, 1)>]} : !torch.vtensor<[6,5,8],f32>, !torch.list<int> -> !torch.vtensor<[2,3,5,8],f32>
  return %16 : !torch.vtensor<[2,3,5,8],f32>
}
