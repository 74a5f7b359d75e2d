// RUN: kiln-opt %s --split-input-file --remarks --pass-pipeline=simplify-algebra 2> %t.remarks | filecheck %s
// RUN: filecheck %s --check-prefix=WHY --input-file %t.remarks
// RUN: kiln-opt %s --split-input-file --pass-pipeline='simplify-algebra{fast-math=true}' | filecheck %s --check-prefix=FAST

// x * 1.0 is x where nobody but relu sees it.
// CHECK-LABEL: func.func @mul_one
// CHECK-NOT: torch.aten.mul
// CHECK: %[[R:.*]] = torch.aten.relu %arg0
// CHECK: return %[[R]]
func.func @mul_one(%x: !torch.vtensor<[4,8],f32>) -> !torch.vtensor<[4,8],f32> {
  %c = torch.constant.float 1.0
  %0 = torch.aten.mul.Scalar %x, %c : !torch.vtensor<[4,8],f32>, !torch.float -> !torch.vtensor<[4,8],f32>
  %1 = torch.aten.relu %0 : !torch.vtensor<[4,8],f32> -> !torch.vtensor<[4,8],f32>
  return %1 : !torch.vtensor<[4,8],f32>
}

// -----

// Near miss: returned, x * 1.0 is memory of its own.
// CHECK-LABEL: func.func @mul_one_returned
// CHECK: torch.aten.mul.Scalar
func.func @mul_one_returned(%x: !torch.vtensor<[4],f32>) -> !torch.vtensor<[4],f32> {
  %c = torch.constant.float 1.0
  %0 = torch.aten.mul.Scalar %x, %c : !torch.vtensor<[4],f32>, !torch.float -> !torch.vtensor<[4],f32>
  return %0 : !torch.vtensor<[4],f32>
}

// -----

// Near miss: a boolean times 1 is an integer.
// CHECK-LABEL: func.func @mul_one_promotes
// CHECK: torch.aten.mul.Scalar
func.func @mul_one_promotes(%x: !torch.vtensor<[4],i1>) -> !torch.vtensor<[4],si64> {
  %c = torch.constant.int 1
  %0 = torch.aten.mul.Scalar %x, %c : !torch.vtensor<[4],i1>, !torch.int -> !torch.vtensor<[4],si64>
  %1 = torch.aten.neg %0 : !torch.vtensor<[4],si64> -> !torch.vtensor<[4],si64>
  return %1 : !torch.vtensor<[4],si64>
}

// -----

// Near miss: adding zeros of another size broadcasts.
// CHECK-LABEL: func.func @add_zeros_broadcast
// CHECK: torch.aten.add.Tensor
func.func @add_zeros_broadcast(%x: !torch.vtensor<[8],si64>) -> !torch.vtensor<[4,8],si64> {
  %n = torch.constant.none
  %i1 = torch.constant.int 1
  %i4 = torch.constant.int 4
  %i8 = torch.constant.int 8
  %size = torch.prim.ListConstruct %i4, %i8 : (!torch.int, !torch.int) -> !torch.list<int>
  %z = torch.aten.zeros %size, %i4, %n, %n, %n : !torch.list<int>, !torch.int, !torch.none, !torch.none, !torch.none -> !torch.vtensor<[4,8],si64>
  %0 = torch.aten.add.Tensor %x, %z, %i1 : !torch.vtensor<[8],si64>, !torch.vtensor<[4,8],si64>, !torch.int -> !torch.vtensor<[4,8],si64>
  %1 = torch.aten.neg %0 : !torch.vtensor<[4,8],si64> -> !torch.vtensor<[4,8],si64>
  return %1 : !torch.vtensor<[4,8],si64>
}

// -----

// -0.0 + 0.0 is +0.0: with fast_math only. After abs there is no -0.0.
// CHECK-LABEL: func.func @add_zero
// CHECK: torch.aten.add.Scalar %arg0
// CHECK: %[[A:.*]] = torch.aten.abs
// CHECK: torch.aten.exp %[[A]]
// FAST-LABEL: func.func @add_zero
// FAST-NOT: torch.aten.add.Scalar
func.func @add_zero(%x: !torch.vtensor<[4],f32>) -> (!torch.vtensor<[4],f32>, !torch.vtensor<[4],f32>) {
  %c = torch.constant.float 0.0
  %i1 = torch.constant.int 1
  %0 = torch.aten.add.Scalar %x, %c, %i1 : !torch.vtensor<[4],f32>, !torch.float, !torch.int -> !torch.vtensor<[4],f32>
  %1 = torch.aten.reciprocal %0 : !torch.vtensor<[4],f32> -> !torch.vtensor<[4],f32>
  %a = torch.aten.abs %x : !torch.vtensor<[4],f32> -> !torch.vtensor<[4],f32>
  %2 = torch.aten.add.Scalar %a, %c, %i1 : !torch.vtensor<[4],f32>, !torch.float, !torch.int -> !torch.vtensor<[4],f32>
  %3 = torch.aten.exp %2 : !torch.vtensor<[4],f32> -> !torch.vtensor<[4],f32>
  return %1, %3 : !torch.vtensor<[4],f32>, !torch.vtensor<[4],f32>
}

// -----

// CHECK-LABEL: func.func @zero_product
// CHECK: torch.aten.mul.Scalar
// CHECK: torch.aten.div.Tensor
// CHECK: torch.aten.exp
// FAST-LABEL: func.func @zero_product
// FAST-NOT: torch.aten.mul
// FAST: torch.aten.full_like
// FAST: torch.aten.full_like
// FAST-NOT: torch.aten.exp
func.func @zero_product(%x: !torch.vtensor<[4],f32>) -> (!torch.vtensor<[4],f32>, !torch.vtensor<[4],f32>, !torch.vtensor<[4],f32>) {
  %c = torch.constant.float 0.0
  %0 = torch.aten.mul.Scalar %x, %c : !torch.vtensor<[4],f32>, !torch.float -> !torch.vtensor<[4],f32>
  %1 = torch.aten.div.Tensor %x, %x : !torch.vtensor<[4],f32>, !torch.vtensor<[4],f32> -> !torch.vtensor<[4],f32>
  %r = torch.aten.relu %x : !torch.vtensor<[4],f32> -> !torch.vtensor<[4],f32>
  %2 = torch.aten.log %r : !torch.vtensor<[4],f32> -> !torch.vtensor<[4],f32>
  %3 = torch.aten.exp %2 : !torch.vtensor<[4],f32> -> !torch.vtensor<[4],f32>
  return %0, %1, %3 : !torch.vtensor<[4],f32>, !torch.vtensor<[4],f32>, !torch.vtensor<[4],f32>
}

// -----

// CHECK-LABEL: func.func @powers
// CHECK: torch.aten.mul.Tensor %arg0, %arg0
// CHECK: torch.aten.sqrt %arg0
// CHECK: torch.aten.mul.Scalar %arg0, %float2.500000e-01
// CHECK: torch.aten.div.Scalar
// CHECK-NOT: torch.aten.pow
func.func @powers(%x: !torch.vtensor<[4],f32>) -> (!torch.vtensor<[4],f32>, !torch.vtensor<[4],f32>, !torch.vtensor<[4],f32>, !torch.vtensor<[4],f32>) {
  %two = torch.constant.int 2
  %half = torch.constant.float 5.0e-01
  %four = torch.constant.float 4.0
  %three = torch.constant.float 3.0
  %0 = torch.aten.pow.Tensor_Scalar %x, %two : !torch.vtensor<[4],f32>, !torch.int -> !torch.vtensor<[4],f32>
  %1 = torch.aten.pow.Tensor_Scalar %x, %half : !torch.vtensor<[4],f32>, !torch.float -> !torch.vtensor<[4],f32>
  %2 = torch.aten.div.Scalar %x, %four : !torch.vtensor<[4],f32>, !torch.float -> !torch.vtensor<[4],f32>
  %3 = torch.aten.div.Scalar %x, %three : !torch.vtensor<[4],f32>, !torch.float -> !torch.vtensor<[4],f32>
  return %0, %1, %2, %3 : !torch.vtensor<[4],f32>, !torch.vtensor<[4],f32>, !torch.vtensor<[4],f32>, !torch.vtensor<[4],f32>
}

// -----

// relu(relu(x)), x.T.T, -(-x).
// CHECK-LABEL: func.func @twice
// CHECK-NEXT: %[[R:.*]] = torch.aten.relu %arg0
// CHECK-NEXT: return %[[R]]
func.func @twice(%x: !torch.vtensor<[4,8],f32>) -> !torch.vtensor<[4,8],f32> {
  %0 = torch.aten.relu %x : !torch.vtensor<[4,8],f32> -> !torch.vtensor<[4,8],f32>
  %1 = torch.aten.relu %0 : !torch.vtensor<[4,8],f32> -> !torch.vtensor<[4,8],f32>
  %2 = torch.aten.t %1 : !torch.vtensor<[4,8],f32> -> !torch.vtensor<[8,4],f32>
  %3 = torch.aten.neg %2 : !torch.vtensor<[8,4],f32> -> !torch.vtensor<[8,4],f32>
  %4 = torch.aten.neg %3 : !torch.vtensor<[8,4],f32> -> !torch.vtensor<[8,4],f32>
  %5 = torch.aten.t %4 : !torch.vtensor<[8,4],f32> -> !torch.vtensor<[4,8],f32>
  return %5 : !torch.vtensor<[4,8],f32>
}

// -----

// A transpose and a permutation compose; views of views are one view, with dynamic sizes too.
// CHECK-LABEL: func.func @views
// CHECK-DAG: %[[L:.*]] = torch.prim.ListConstruct %int2, %int0, %int1
// CHECK: torch.aten.permute %arg0, %[[L]]
// CHECK: torch.aten.view %arg0
// CHECK-NOT: torch.aten.view
func.func @views(%x: !torch.vtensor<[?,3,4],f32> {kiln.shape = affine_map<()[s0] -> (s0, 3, 4)>}, %n: !torch.int {kiln.symbol = "s0"}) -> (!torch.vtensor<[4,?,3],f32>, !torch.vtensor<[?,4,3],f32>) attributes {kiln.symbols = ["s0"]} {
  %i0 = torch.constant.int 0
  %i1 = torch.constant.int 1
  %i2 = torch.constant.int 2
  %i3 = torch.constant.int 3
  %i4 = torch.constant.int 4
  %i12 = torch.constant.int 12
  %t = torch.aten.transpose.int %x, %i0, %i2 {kiln.shapes = [affine_map<()[s0] -> (4, 3, s0)>]} : !torch.vtensor<[?,3,4],f32>, !torch.int, !torch.int -> !torch.vtensor<[4,3,?],f32>
  %l = torch.prim.ListConstruct %i0, %i2, %i1 : (!torch.int, !torch.int, !torch.int) -> !torch.list<int>
  %p = torch.aten.permute %t, %l {kiln.shapes = [affine_map<()[s0] -> (4, s0, 3)>]} : !torch.vtensor<[4,3,?],f32>, !torch.list<int> -> !torch.vtensor<[4,?,3],f32>
  %a = torch.prim.ListConstruct %n, %i12 : (!torch.int, !torch.int) -> !torch.list<int>
  %v = torch.aten.view %x, %a {kiln.shapes = [affine_map<()[s0] -> (s0, 12)>]} : !torch.vtensor<[?,3,4],f32>, !torch.list<int> -> !torch.vtensor<[?,12],f32>
  %b = torch.prim.ListConstruct %n, %i4, %i3 : (!torch.int, !torch.int, !torch.int) -> !torch.list<int>
  %w = torch.aten.view %v, %b {kiln.shapes = [affine_map<()[s0] -> (s0, 4, 3)>]} : !torch.vtensor<[?,12],f32>, !torch.list<int> -> !torch.vtensor<[?,4,3],f32>
  return %p, %w : !torch.vtensor<[4,?,3],f32>, !torch.vtensor<[?,4,3],f32>
}

// -----

// f16 -> f32 -> f16 loses nothing; f32 -> f16 -> f32 does.
// CHECK-LABEL: func.func @casts
// CHECK-NEXT: %[[R:.*]] = torch.aten.relu %arg0
// CHECK: torch.aten.neg %[[R]]
// CHECK: torch.aten._to_copy
// CHECK: torch.aten._to_copy
// CHECK-NOT: torch.aten._to_copy
func.func @casts(%x: !torch.vtensor<[4],f16>, %y: !torch.vtensor<[4],f32>) -> (!torch.vtensor<[4],f16>, !torch.vtensor<[4],f32>) {
  %0 = torch.aten.relu %x : !torch.vtensor<[4],f16> -> !torch.vtensor<[4],f16>
  %n = torch.constant.none
  %f = torch.constant.bool false
  %i6 = torch.constant.int 6
  %i5 = torch.constant.int 5
  %1 = torch.aten._to_copy %0, %i6, %n, %n, %n, %f, %n : !torch.vtensor<[4],f16>, !torch.int, !torch.none, !torch.none, !torch.none, !torch.bool, !torch.none -> !torch.vtensor<[4],f32>
  %2 = torch.aten._to_copy %1, %i5, %n, %n, %n, %f, %n : !torch.vtensor<[4],f32>, !torch.int, !torch.none, !torch.none, !torch.none, !torch.bool, !torch.none -> !torch.vtensor<[4],f16>
  %3 = torch.aten.neg %2 : !torch.vtensor<[4],f16> -> !torch.vtensor<[4],f16>
  %4 = torch.aten._to_copy %y, %i5, %n, %n, %n, %f, %n : !torch.vtensor<[4],f32>, !torch.int, !torch.none, !torch.none, !torch.none, !torch.bool, !torch.none -> !torch.vtensor<[4],f16>
  %5 = torch.aten._to_copy %4, %i6, %n, %n, %n, %f, %n : !torch.vtensor<[4],f16>, !torch.int, !torch.none, !torch.none, !torch.none, !torch.bool, !torch.none -> !torch.vtensor<[4],f32>
  return %3, %5 : !torch.vtensor<[4],f16>, !torch.vtensor<[4],f32>
}

// -----

// A constant condition selects; a maximum of one element is that element.
// CHECK-LABEL: func.func @selection
// CHECK-NEXT: %[[A:.*]] = torch.aten.relu %arg0
// CHECK-NEXT: return %[[A]]
func.func @selection(%x: !torch.vtensor<[4,1],f32>, %y: !torch.vtensor<[4,1],f32>) -> !torch.vtensor<[4,1],f32> {
  %i1 = torch.constant.int 1
  %i4 = torch.constant.int 4
  %i11 = torch.constant.int 11
  %n = torch.constant.none
  %true = torch.constant.bool true
  %size = torch.prim.ListConstruct %i4, %i1 : (!torch.int, !torch.int) -> !torch.list<int>
  %c = torch.aten.full %size, %i1, %i11, %n, %n, %n : !torch.list<int>, !torch.int, !torch.int, !torch.none, !torch.none, !torch.none -> !torch.vtensor<[4,1],i1>
  %0 = torch.aten.relu %x : !torch.vtensor<[4,1],f32> -> !torch.vtensor<[4,1],f32>
  %1 = torch.aten.where.self %c, %0, %y : !torch.vtensor<[4,1],i1>, !torch.vtensor<[4,1],f32>, !torch.vtensor<[4,1],f32> -> !torch.vtensor<[4,1],f32>
  %dims = torch.prim.ListConstruct %i1 : (!torch.int) -> !torch.list<int>
  %2 = torch.aten.amax %1, %dims, %true : !torch.vtensor<[4,1],f32>, !torch.list<int>, !torch.bool -> !torch.vtensor<[4,1],f32>
  return %2 : !torch.vtensor<[4,1],f32>
}

// -----

// All slices of a tensor, put together again.
// CHECK-LABEL: func.func @slices
// CHECK-NEXT: %[[R:.*]] = torch.aten.relu %arg0
// CHECK-NEXT: return %[[R]]
func.func @slices(%x: !torch.vtensor<[2,8],f32>) -> !torch.vtensor<[2,8],f32> {
  %i0 = torch.constant.int 0
  %i1 = torch.constant.int 1
  %i3 = torch.constant.int 3
  %end = torch.constant.int 9223372036854775807
  %0 = torch.aten.relu %x : !torch.vtensor<[2,8],f32> -> !torch.vtensor<[2,8],f32>
  %a = torch.aten.slice.Tensor %0, %i1, %i0, %i3, %i1 : !torch.vtensor<[2,8],f32>, !torch.int, !torch.int, !torch.int, !torch.int -> !torch.vtensor<[2,3],f32>
  %b = torch.aten.slice.Tensor %0, %i1, %i3, %end, %i1 : !torch.vtensor<[2,8],f32>, !torch.int, !torch.int, !torch.int, !torch.int -> !torch.vtensor<[2,5],f32>
  %l = torch.prim.ListConstruct %a, %b : (!torch.vtensor<[2,3],f32>, !torch.vtensor<[2,5],f32>) -> !torch.list<vtensor>
  %c = torch.aten.cat %l, %i1 : !torch.list<vtensor>, !torch.int -> !torch.vtensor<[2,8],f32>
  return %c : !torch.vtensor<[2,8],f32>
}

// The reasons, in the order of the functions.
// WHY-DAG: mul-one: the result is returned: it would be the argument itself
// WHY-DAG: mul-one: the result has the element type si64, not i1
// WHY-DAG: add-zero: the result has other sizes (broadcast)
// WHY-DAG: add-zero: needs fast_math: -0.0 + 0.0 is +0.0
// WHY-DAG: mul-zero: needs fast_math: NaN * 0 and Inf * 0 are NaN, -1 * 0 is -0
// WHY-DAG: div-constant: needs fast_math: 1 / c rounds
// WHY-DAG: cast-cast: f16 does not hold every value of f32
