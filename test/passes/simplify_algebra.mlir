// RUN: kiln-opt %s --split-input-file --remarks --pass-pipeline=simplify-algebra 2> %t.remarks | filecheck %s
// RUN: filecheck %s --check-prefix=WHY --input-file %t.remarks
// RUN: kiln-opt %s --split-input-file --pass-pipeline='simplify-algebra{fast-math=true}' | filecheck %s --check-prefix=FAST

// What rules do together, and where one that matches does not apply. simplify_algebra_rules.mlir has a function for
// each rule.

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

// Near miss: windows share memory, so that what is written to one changes the other.
// CHECK-LABEL: func.func @writes_to_windows
// CHECK-COUNT-2: torch.aten.select_scatter
// CHECK-NOT: torch.aten.cat
// CHECK: return
func.func @writes_to_windows(%x: !torch.vtensor<[2,2],f32>, %a: !torch.vtensor<[2],f32>, %b: !torch.vtensor<[2],f32>) -> !torch.vtensor<[2,2],f32> {
  %i0 = torch.constant.int 0
  %i1 = torch.constant.int 1
  %0 = torch.aten.select_scatter %x, %a, %i0, %i1 {kiln.strides = [affine_map<() -> (1, 1)>]} : !torch.vtensor<[2,2],f32>, !torch.vtensor<[2],f32>, !torch.int, !torch.int -> !torch.vtensor<[2,2],f32>
  %1 = torch.aten.select_scatter %0, %b, %i0, %i0 {kiln.strides = [affine_map<() -> (1, 1)>]} : !torch.vtensor<[2,2],f32>, !torch.vtensor<[2],f32>, !torch.int, !torch.int -> !torch.vtensor<[2,2],f32>
  return %1 : !torch.vtensor<[2,2],f32>
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

// -0.0 + 0.0 is +0.0, but after abs there is no -0.0.
// CHECK-LABEL: func.func @add_zero_to_an_absolute_value
// CHECK: %[[A:.*]] = torch.aten.abs
// CHECK: torch.aten.exp %[[A]]
func.func @add_zero_to_an_absolute_value(%x: !torch.vtensor<[4],f32>) -> !torch.vtensor<[4],f32> {
  %c = torch.constant.float 0.0
  %i1 = torch.constant.int 1
  %a = torch.aten.abs %x : !torch.vtensor<[4],f32> -> !torch.vtensor<[4],f32>
  %0 = torch.aten.add.Scalar %a, %c, %i1 : !torch.vtensor<[4],f32>, !torch.float, !torch.int -> !torch.vtensor<[4],f32>
  %1 = torch.aten.exp %0 : !torch.vtensor<[4],f32> -> !torch.vtensor<[4],f32>
  return %1 : !torch.vtensor<[4],f32>
}

// -----

// Near miss: 1 / 3 rounds, so a product would not be the quotient.
// CHECK-LABEL: func.func @div_by_three
// CHECK: torch.aten.div.Scalar
// FAST-LABEL: func.func @div_by_three
// FAST: torch.aten.mul.Scalar
func.func @div_by_three(%x: !torch.vtensor<[4],f32>) -> !torch.vtensor<[4],f32> {
  %three = torch.constant.float 3.0
  %0 = torch.aten.div.Scalar %x, %three : !torch.vtensor<[4],f32>, !torch.float -> !torch.vtensor<[4],f32>
  return %0 : !torch.vtensor<[4],f32>
}

// -----

// Rules apply until none does: relu(relu(x)), x.T.T and -(-x) in one another.
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

// Near miss: f32 -> f16 -> f32 loses bits.
// CHECK-LABEL: func.func @casts
// CHECK-COUNT-2: torch.aten._to_copy
func.func @casts(%x: !torch.vtensor<[4],f32>) -> !torch.vtensor<[4],f32> {
  %n = torch.constant.none
  %f = torch.constant.bool false
  %i5 = torch.constant.int 5
  %i6 = torch.constant.int 6
  %0 = torch.aten._to_copy %x, %i5, %n, %n, %n, %f, %n : !torch.vtensor<[4],f32>, !torch.int, !torch.none, !torch.none, !torch.none, !torch.bool, !torch.none -> !torch.vtensor<[4],f16>
  %1 = torch.aten._to_copy %0, %i6, %n, %n, %n, %f, %n : !torch.vtensor<[4],f16>, !torch.int, !torch.none, !torch.none, !torch.none, !torch.bool, !torch.none -> !torch.vtensor<[4],f32>
  return %1 : !torch.vtensor<[4],f32>
}

// The reasons, in the order of the functions.
// WHY-DAG: mul-one: the result is returned: it would be the argument itself
// WHY-DAG: mul-one: the result has the element type si64, not i1
// WHY-DAG: add-zero: the result has other sizes (broadcast)
// WHY-DAG: div-constant: needs fast_math: 1 / c rounds
// WHY-DAG: cast-cast: f16 does not hold every value of f32
