// Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// RUN: kiln-opt %s --split-input-file --pass-pipeline=simplify-algebra | filecheck %s --check-prefixes=CHECK,SAFE
// RUN: kiln-opt %s --split-input-file --pass-pipeline='simplify-algebra{fast-math=true}' | filecheck %s --check-prefixes=CHECK,FAST

// One function for each rule of docs/algebra.md, by its name and in its order: the form of what the rule makes. CHECK
// holds for both runs, SAFE without fast_math. test_algebra_rules.py runs the same functions on numbers.

// mul(x, 1) -> x
// CHECK-LABEL: func.func @mul_one(
// CHECK-NOT: torch.aten.mul.Scalar 
// CHECK: torch.aten.neg %
// CHECK-NOT: torch.aten.
// CHECK: return
func.func @mul_one(%arg0: !torch.vtensor<[3,4],f32>) -> !torch.vtensor<[3,4],f32> {
  %int1 = torch.constant.int 1
  %0 = torch.aten.mul.Scalar %arg0, %int1 : !torch.vtensor<[3,4],f32>, !torch.int -> !torch.vtensor<[3,4],f32>
  %1 = torch.aten.neg %0 : !torch.vtensor<[3,4],f32> -> !torch.vtensor<[3,4],f32>
  return %1 : !torch.vtensor<[3,4],f32>
}

// -----

// div(x, 1) -> x
// CHECK-LABEL: func.func @div_one(
// CHECK-NOT: torch.aten.div.Scalar 
// CHECK: torch.aten.neg %
// CHECK-NOT: torch.aten.
// CHECK: return
func.func @div_one(%arg0: !torch.vtensor<[3,4],f32>) -> !torch.vtensor<[3,4],f32> {
  %float1.000000e00 = torch.constant.float 1.000000e+00
  %0 = torch.aten.div.Scalar %arg0, %float1.000000e00 : !torch.vtensor<[3,4],f32>, !torch.float -> !torch.vtensor<[3,4],f32>
  %1 = torch.aten.neg %0 : !torch.vtensor<[3,4],f32> -> !torch.vtensor<[3,4],f32>
  return %1 : !torch.vtensor<[3,4],f32>
}

// -----

// mul(x, 0) -> full(x, 0) (exact for integers)
// SAFE-LABEL: func.func @mul_zero(
// SAFE: torch.aten.mul.Scalar %
// SAFE: torch.aten.add.Scalar %
// SAFE-NOT: torch.aten.
// SAFE: return
// FAST-LABEL: func.func @mul_zero(
// FAST-NOT: torch.aten.mul.Scalar 
// FAST: torch.aten.full_like %
// FAST: torch.aten.add.Scalar %
// FAST-NOT: torch.aten.
// FAST: return
func.func @mul_zero(%arg0: !torch.vtensor<[2,3],f32>) -> !torch.vtensor<[2,3],f32> {
  %int0 = torch.constant.int 0
  %0 = torch.aten.mul.Scalar %arg0, %int0 : !torch.vtensor<[2,3],f32>, !torch.int -> !torch.vtensor<[2,3],f32>
  %int1 = torch.constant.int 1
  %int1_0 = torch.constant.int 1
  %1 = torch.aten.add.Scalar %0, %int1, %int1_0 : !torch.vtensor<[2,3],f32>, !torch.int, !torch.int -> !torch.vtensor<[2,3],f32>
  return %1 : !torch.vtensor<[2,3],f32>
}

// -----

// mul(x, -1) -> neg(x)
// CHECK-LABEL: func.func @mul_minus_one(
// CHECK-NOT: torch.aten.mul.Scalar 
// CHECK: torch.aten.neg %
// CHECK-NOT: torch.aten.
// CHECK: return
func.func @mul_minus_one(%arg0: !torch.vtensor<[3,4],f32>) -> !torch.vtensor<[3,4],f32> {
  %int-1 = torch.constant.int -1
  %0 = torch.aten.mul.Scalar %arg0, %int-1 : !torch.vtensor<[3,4],f32>, !torch.int -> !torch.vtensor<[3,4],f32>
  return %0 : !torch.vtensor<[3,4],f32>
}

// -----

// div(x, -1) -> neg(x)
// CHECK-LABEL: func.func @div_minus_one(
// CHECK-NOT: torch.aten.div.Scalar 
// CHECK: torch.aten.neg %
// CHECK-NOT: torch.aten.
// CHECK: return
func.func @div_minus_one(%arg0: !torch.vtensor<[3,4],f32>) -> !torch.vtensor<[3,4],f32> {
  %float-1.000000e00 = torch.constant.float -1.000000e+00
  %0 = torch.aten.div.Scalar %arg0, %float-1.000000e00 : !torch.vtensor<[3,4],f32>, !torch.float -> !torch.vtensor<[3,4],f32>
  return %0 : !torch.vtensor<[3,4],f32>
}

// -----

// sub(x, x) -> full(x, 0) (exact for integers)
// SAFE-LABEL: func.func @sub_self(
// SAFE: torch.aten.sub.Tensor %
// SAFE: torch.aten.add.Scalar %
// SAFE-NOT: torch.aten.
// SAFE: return
// FAST-LABEL: func.func @sub_self(
// FAST-NOT: torch.aten.sub.Tensor 
// FAST: torch.aten.full_like %
// FAST: torch.aten.add.Scalar %
// FAST-NOT: torch.aten.
// FAST: return
func.func @sub_self(%arg0: !torch.vtensor<[2,3],f32>) -> !torch.vtensor<[2,3],f32> {
  %int1 = torch.constant.int 1
  %0 = torch.aten.sub.Tensor %arg0, %arg0, %int1 : !torch.vtensor<[2,3],f32>, !torch.vtensor<[2,3],f32>, !torch.int -> !torch.vtensor<[2,3],f32>
  %int1_0 = torch.constant.int 1
  %int1_1 = torch.constant.int 1
  %1 = torch.aten.add.Scalar %0, %int1_0, %int1_1 : !torch.vtensor<[2,3],f32>, !torch.int, !torch.int -> !torch.vtensor<[2,3],f32>
  return %1 : !torch.vtensor<[2,3],f32>
}

// -----

// div(x, x) -> full(x, 1) (fast_math)
// SAFE-LABEL: func.func @div_self(
// SAFE: torch.aten.div.Tensor %
// SAFE-NOT: torch.aten.
// SAFE: return
// FAST-LABEL: func.func @div_self(
// FAST-NOT: torch.aten.div.Tensor 
// FAST: torch.aten.full_like %
// FAST-NOT: torch.aten.
// FAST: return
func.func @div_self(%arg0: !torch.vtensor<[3,4],f32>) -> !torch.vtensor<[3,4],f32> {
  %0 = torch.aten.div.Tensor %arg0, %arg0 : !torch.vtensor<[3,4],f32>, !torch.vtensor<[3,4],f32> -> !torch.vtensor<[3,4],f32>
  return %0 : !torch.vtensor<[3,4],f32>
}

// -----

// add(x, neg(y)) -> sub(x, y)
// CHECK-LABEL: func.func @add_neg(
// CHECK-NOT: torch.aten.neg 
// CHECK-NOT: torch.aten.add.Tensor 
// CHECK: torch.aten.sub.Tensor %
// CHECK-NOT: torch.aten.
// CHECK: return
func.func @add_neg(%arg0: !torch.vtensor<[3,4],f32>, %arg1: !torch.vtensor<[3,4],f32>) -> !torch.vtensor<[3,4],f32> {
  %0 = torch.aten.neg %arg1 : !torch.vtensor<[3,4],f32> -> !torch.vtensor<[3,4],f32>
  %int1 = torch.constant.int 1
  %1 = torch.aten.add.Tensor %arg0, %0, %int1 : !torch.vtensor<[3,4],f32>, !torch.vtensor<[3,4],f32>, !torch.int -> !torch.vtensor<[3,4],f32>
  return %1 : !torch.vtensor<[3,4],f32>
}

// -----

// sub(x, neg(y)) -> add(x, y)
// CHECK-LABEL: func.func @sub_neg(
// CHECK-NOT: torch.aten.neg 
// CHECK-NOT: torch.aten.sub.Tensor 
// CHECK: torch.aten.add.Tensor %
// CHECK-NOT: torch.aten.
// CHECK: return
func.func @sub_neg(%arg0: !torch.vtensor<[3,4],f32>, %arg1: !torch.vtensor<[3,4],f32>) -> !torch.vtensor<[3,4],f32> {
  %0 = torch.aten.neg %arg1 : !torch.vtensor<[3,4],f32> -> !torch.vtensor<[3,4],f32>
  %int1 = torch.constant.int 1
  %1 = torch.aten.sub.Tensor %arg0, %0, %int1 : !torch.vtensor<[3,4],f32>, !torch.vtensor<[3,4],f32>, !torch.int -> !torch.vtensor<[3,4],f32>
  return %1 : !torch.vtensor<[3,4],f32>
}

// -----

// mul(neg(x), neg(y)) -> mul(x, y)
// CHECK-LABEL: func.func @mul_neg_neg(
// CHECK-NOT: torch.aten.neg 
// CHECK: torch.aten.mul.Tensor %
// CHECK-NOT: torch.aten.
// CHECK: return
func.func @mul_neg_neg(%arg0: !torch.vtensor<[3,4],f32>, %arg1: !torch.vtensor<[3,4],f32>) -> !torch.vtensor<[3,4],f32> {
  %0 = torch.aten.neg %arg0 : !torch.vtensor<[3,4],f32> -> !torch.vtensor<[3,4],f32>
  %1 = torch.aten.neg %arg1 : !torch.vtensor<[3,4],f32> -> !torch.vtensor<[3,4],f32>
  %2 = torch.aten.mul.Tensor %0, %1 : !torch.vtensor<[3,4],f32>, !torch.vtensor<[3,4],f32> -> !torch.vtensor<[3,4],f32>
  return %2 : !torch.vtensor<[3,4],f32>
}

// -----

// abs(neg(x)) -> abs(x)
// CHECK-LABEL: func.func @abs_neg(
// CHECK-NOT: torch.aten.neg 
// CHECK: torch.aten.abs %
// CHECK-NOT: torch.aten.
// CHECK: return
func.func @abs_neg(%arg0: !torch.vtensor<[3,4],f32>) -> !torch.vtensor<[3,4],f32> {
  %0 = torch.aten.neg %arg0 : !torch.vtensor<[3,4],f32> -> !torch.vtensor<[3,4],f32>
  %1 = torch.aten.abs %0 : !torch.vtensor<[3,4],f32> -> !torch.vtensor<[3,4],f32>
  return %1 : !torch.vtensor<[3,4],f32>
}

// -----

// maximum(x, x) -> x
// CHECK-LABEL: func.func @maximum_self(
// CHECK-NOT: torch.aten.maximum 
// CHECK: torch.aten.neg %
// CHECK-NOT: torch.aten.
// CHECK: return
func.func @maximum_self(%arg0: !torch.vtensor<[3,4],f32>) -> !torch.vtensor<[3,4],f32> {
  %0 = torch.aten.maximum %arg0, %arg0 : !torch.vtensor<[3,4],f32>, !torch.vtensor<[3,4],f32> -> !torch.vtensor<[3,4],f32>
  %1 = torch.aten.neg %0 : !torch.vtensor<[3,4],f32> -> !torch.vtensor<[3,4],f32>
  return %1 : !torch.vtensor<[3,4],f32>
}

// -----

// minimum(x, x) -> x
// CHECK-LABEL: func.func @minimum_self(
// CHECK-NOT: torch.aten.minimum 
// CHECK: torch.aten.neg %
// CHECK-NOT: torch.aten.
// CHECK: return
func.func @minimum_self(%arg0: !torch.vtensor<[3,4],f32>) -> !torch.vtensor<[3,4],f32> {
  %0 = torch.aten.minimum %arg0, %arg0 : !torch.vtensor<[3,4],f32>, !torch.vtensor<[3,4],f32> -> !torch.vtensor<[3,4],f32>
  %1 = torch.aten.neg %0 : !torch.vtensor<[3,4],f32> -> !torch.vtensor<[3,4],f32>
  return %1 : !torch.vtensor<[3,4],f32>
}

// -----

// bitwise_and(x, x) -> x
// CHECK-LABEL: func.func @and_self(
// CHECK-NOT: torch.aten.bitwise_and.Tensor 
// CHECK: torch.aten.add.Scalar %
// CHECK-NOT: torch.aten.
// CHECK: return
func.func @and_self(%arg0: !torch.vtensor<[2,3],si32>) -> !torch.vtensor<[2,3],si32> {
  %0 = torch.aten.bitwise_and.Tensor %arg0, %arg0 : !torch.vtensor<[2,3],si32>, !torch.vtensor<[2,3],si32> -> !torch.vtensor<[2,3],si32>
  %int1 = torch.constant.int 1
  %int1_0 = torch.constant.int 1
  %1 = torch.aten.add.Scalar %0, %int1, %int1_0 : !torch.vtensor<[2,3],si32>, !torch.int, !torch.int -> !torch.vtensor<[2,3],si32>
  return %1 : !torch.vtensor<[2,3],si32>
}

// -----

// bitwise_xor(x, x) -> full(x, 0)
// CHECK-LABEL: func.func @xor_self(
// CHECK-NOT: torch.aten.bitwise_xor.Tensor 
// CHECK: torch.aten.full_like %
// CHECK: torch.aten.add.Scalar %
// CHECK-NOT: torch.aten.
// CHECK: return
func.func @xor_self(%arg0: !torch.vtensor<[2,3],si32>) -> !torch.vtensor<[2,3],si32> {
  %0 = torch.aten.bitwise_xor.Tensor %arg0, %arg0 : !torch.vtensor<[2,3],si32>, !torch.vtensor<[2,3],si32> -> !torch.vtensor<[2,3],si32>
  %int1 = torch.constant.int 1
  %int1_0 = torch.constant.int 1
  %1 = torch.aten.add.Scalar %0, %int1, %int1_0 : !torch.vtensor<[2,3],si32>, !torch.int, !torch.int -> !torch.vtensor<[2,3],si32>
  return %1 : !torch.vtensor<[2,3],si32>
}

// -----

// mul(abs(x), abs(x)) -> mul(x, x)
// CHECK-LABEL: func.func @mul_abs_abs(
// CHECK-NOT: torch.aten.abs 
// CHECK: torch.aten.mul.Tensor %
// CHECK-NOT: torch.aten.
// CHECK: return
func.func @mul_abs_abs(%arg0: !torch.vtensor<[3,4],f32>) -> !torch.vtensor<[3,4],f32> {
  %0 = torch.aten.abs %arg0 : !torch.vtensor<[3,4],f32> -> !torch.vtensor<[3,4],f32>
  %1 = torch.aten.abs %arg0 : !torch.vtensor<[3,4],f32> -> !torch.vtensor<[3,4],f32>
  %2 = torch.aten.mul.Tensor %0, %1 : !torch.vtensor<[3,4],f32>, !torch.vtensor<[3,4],f32> -> !torch.vtensor<[3,4],f32>
  return %2 : !torch.vtensor<[3,4],f32>
}

// -----

// neg(sub(x, y)) -> sub(y, x) (exact for integers)
// SAFE-LABEL: func.func @neg_sub(
// SAFE: torch.aten.sub.Tensor %
// SAFE: torch.aten.neg %
// SAFE-NOT: torch.aten.
// SAFE: return
// FAST-LABEL: func.func @neg_sub(
// FAST-NOT: torch.aten.neg 
// FAST: torch.aten.sub.Tensor %
// FAST-NOT: torch.aten.
// FAST: return
func.func @neg_sub(%arg0: !torch.vtensor<[2,3],f32>, %arg1: !torch.vtensor<[2,3],f32>) -> !torch.vtensor<[2,3],f32> {
  %int1 = torch.constant.int 1
  %0 = torch.aten.sub.Tensor %arg0, %arg1, %int1 : !torch.vtensor<[2,3],f32>, !torch.vtensor<[2,3],f32>, !torch.int -> !torch.vtensor<[2,3],f32>
  %1 = torch.aten.neg %0 : !torch.vtensor<[2,3],f32> -> !torch.vtensor<[2,3],f32>
  return %1 : !torch.vtensor<[2,3],f32>
}

// -----

// rsub(x, 0) -> neg(x) (exact for integers)
// SAFE-LABEL: func.func @rsub_zero(
// SAFE: torch.aten.rsub.Scalar %
// SAFE-NOT: torch.aten.
// SAFE: return
// FAST-LABEL: func.func @rsub_zero(
// FAST-NOT: torch.aten.rsub.Scalar 
// FAST: torch.aten.neg %
// FAST-NOT: torch.aten.
// FAST: return
func.func @rsub_zero(%arg0: !torch.vtensor<[2,3],f32>) -> !torch.vtensor<[2,3],f32> {
  %int0 = torch.constant.int 0
  %int1 = torch.constant.int 1
  %0 = torch.aten.rsub.Scalar %arg0, %int0, %int1 : !torch.vtensor<[2,3],f32>, !torch.int, !torch.int -> !torch.vtensor<[2,3],f32>
  return %0 : !torch.vtensor<[2,3],f32>
}

// -----

// bitwise_or(x, x) -> x
// CHECK-LABEL: func.func @or_self(
// CHECK-NOT: torch.aten.bitwise_or.Tensor 
// CHECK: torch.aten.add.Scalar %
// CHECK-NOT: torch.aten.
// CHECK: return
func.func @or_self(%arg0: !torch.vtensor<[2,3],si32>) -> !torch.vtensor<[2,3],si32> {
  %0 = torch.aten.bitwise_or.Tensor %arg0, %arg0 : !torch.vtensor<[2,3],si32>, !torch.vtensor<[2,3],si32> -> !torch.vtensor<[2,3],si32>
  %int1 = torch.constant.int 1
  %int1_0 = torch.constant.int 1
  %1 = torch.aten.add.Scalar %0, %int1, %int1_0 : !torch.vtensor<[2,3],si32>, !torch.int, !torch.int -> !torch.vtensor<[2,3],si32>
  return %1 : !torch.vtensor<[2,3],si32>
}

// -----

// relu(relu(x)) -> relu(x)
// CHECK-LABEL: func.func @relu_relu(
// CHECK: torch.aten.relu %
// CHECK: torch.aten.neg %
// CHECK-NOT: torch.aten.
// CHECK: return
func.func @relu_relu(%arg0: !torch.vtensor<[3,4],f32>) -> !torch.vtensor<[3,4],f32> {
  %0 = torch.aten.relu %arg0 : !torch.vtensor<[3,4],f32> -> !torch.vtensor<[3,4],f32>
  %1 = torch.aten.relu %0 : !torch.vtensor<[3,4],f32> -> !torch.vtensor<[3,4],f32>
  %2 = torch.aten.neg %1 : !torch.vtensor<[3,4],f32> -> !torch.vtensor<[3,4],f32>
  return %2 : !torch.vtensor<[3,4],f32>
}

// -----

// abs(abs(x)) -> abs(x)
// CHECK-LABEL: func.func @abs_abs(
// CHECK: torch.aten.abs %
// CHECK: torch.aten.neg %
// CHECK-NOT: torch.aten.
// CHECK: return
func.func @abs_abs(%arg0: !torch.vtensor<[3,4],f32>) -> !torch.vtensor<[3,4],f32> {
  %0 = torch.aten.abs %arg0 : !torch.vtensor<[3,4],f32> -> !torch.vtensor<[3,4],f32>
  %1 = torch.aten.abs %0 : !torch.vtensor<[3,4],f32> -> !torch.vtensor<[3,4],f32>
  %2 = torch.aten.neg %1 : !torch.vtensor<[3,4],f32> -> !torch.vtensor<[3,4],f32>
  return %2 : !torch.vtensor<[3,4],f32>
}

// -----

// floor(floor(x)) -> floor(x)
// CHECK-LABEL: func.func @floor_floor(
// CHECK: torch.aten.floor %
// CHECK: torch.aten.neg %
// CHECK-NOT: torch.aten.
// CHECK: return
func.func @floor_floor(%arg0: !torch.vtensor<[3,4],f32>) -> !torch.vtensor<[3,4],f32> {
  %0 = torch.aten.floor %arg0 : !torch.vtensor<[3,4],f32> -> !torch.vtensor<[3,4],f32>
  %1 = torch.aten.floor %0 : !torch.vtensor<[3,4],f32> -> !torch.vtensor<[3,4],f32>
  %2 = torch.aten.neg %1 : !torch.vtensor<[3,4],f32> -> !torch.vtensor<[3,4],f32>
  return %2 : !torch.vtensor<[3,4],f32>
}

// -----

// ceil(ceil(x)) -> ceil(x)
// CHECK-LABEL: func.func @ceil_ceil(
// CHECK: torch.aten.ceil %
// CHECK: torch.aten.neg %
// CHECK-NOT: torch.aten.
// CHECK: return
func.func @ceil_ceil(%arg0: !torch.vtensor<[3,4],f32>) -> !torch.vtensor<[3,4],f32> {
  %0 = torch.aten.ceil %arg0 : !torch.vtensor<[3,4],f32> -> !torch.vtensor<[3,4],f32>
  %1 = torch.aten.ceil %0 : !torch.vtensor<[3,4],f32> -> !torch.vtensor<[3,4],f32>
  %2 = torch.aten.neg %1 : !torch.vtensor<[3,4],f32> -> !torch.vtensor<[3,4],f32>
  return %2 : !torch.vtensor<[3,4],f32>
}

// -----

// round(round(x)) -> round(x)
// CHECK-LABEL: func.func @round_round(
// CHECK: torch.aten.round %
// CHECK: torch.aten.neg %
// CHECK-NOT: torch.aten.
// CHECK: return
func.func @round_round(%arg0: !torch.vtensor<[3,4],f32>) -> !torch.vtensor<[3,4],f32> {
  %0 = torch.aten.round %arg0 : !torch.vtensor<[3,4],f32> -> !torch.vtensor<[3,4],f32>
  %1 = torch.aten.round %0 : !torch.vtensor<[3,4],f32> -> !torch.vtensor<[3,4],f32>
  %2 = torch.aten.neg %1 : !torch.vtensor<[3,4],f32> -> !torch.vtensor<[3,4],f32>
  return %2 : !torch.vtensor<[3,4],f32>
}

// -----

// trunc(trunc(x)) -> trunc(x)
// CHECK-LABEL: func.func @trunc_trunc(
// CHECK: torch.aten.trunc %
// CHECK: torch.aten.neg %
// CHECK-NOT: torch.aten.
// CHECK: return
func.func @trunc_trunc(%arg0: !torch.vtensor<[3,4],f32>) -> !torch.vtensor<[3,4],f32> {
  %0 = torch.aten.trunc %arg0 : !torch.vtensor<[3,4],f32> -> !torch.vtensor<[3,4],f32>
  %1 = torch.aten.trunc %0 : !torch.vtensor<[3,4],f32> -> !torch.vtensor<[3,4],f32>
  %2 = torch.aten.neg %1 : !torch.vtensor<[3,4],f32> -> !torch.vtensor<[3,4],f32>
  return %2 : !torch.vtensor<[3,4],f32>
}

// -----

// sign(sign(x)) -> sign(x)
// CHECK-LABEL: func.func @sign_sign(
// CHECK: torch.aten.sign %
// CHECK: torch.aten.neg %
// CHECK-NOT: torch.aten.
// CHECK: return
func.func @sign_sign(%arg0: !torch.vtensor<[3,4],f32>) -> !torch.vtensor<[3,4],f32> {
  %0 = torch.aten.sign %arg0 : !torch.vtensor<[3,4],f32> -> !torch.vtensor<[3,4],f32>
  %1 = torch.aten.sign %0 : !torch.vtensor<[3,4],f32> -> !torch.vtensor<[3,4],f32>
  %2 = torch.aten.neg %1 : !torch.vtensor<[3,4],f32> -> !torch.vtensor<[3,4],f32>
  return %2 : !torch.vtensor<[3,4],f32>
}

// -----

// relu(sigmoid(x)) -> sigmoid(x)
// CHECK-LABEL: func.func @relu_sigmoid(
// CHECK-NOT: torch.aten.relu 
// CHECK: torch.aten.sigmoid %
// CHECK: torch.aten.neg %
// CHECK-NOT: torch.aten.
// CHECK: return
func.func @relu_sigmoid(%arg0: !torch.vtensor<[3,4],f32>) -> !torch.vtensor<[3,4],f32> {
  %0 = torch.aten.sigmoid %arg0 : !torch.vtensor<[3,4],f32> -> !torch.vtensor<[3,4],f32>
  %1 = torch.aten.relu %0 : !torch.vtensor<[3,4],f32> -> !torch.vtensor<[3,4],f32>
  %2 = torch.aten.neg %1 : !torch.vtensor<[3,4],f32> -> !torch.vtensor<[3,4],f32>
  return %2 : !torch.vtensor<[3,4],f32>
}

// -----

// relu(exp(x)) -> exp(x)
// CHECK-LABEL: func.func @relu_exp(
// CHECK-NOT: torch.aten.relu 
// CHECK: torch.aten.exp %
// CHECK: torch.aten.neg %
// CHECK-NOT: torch.aten.
// CHECK: return
func.func @relu_exp(%arg0: !torch.vtensor<[3,4],f32>) -> !torch.vtensor<[3,4],f32> {
  %0 = torch.aten.exp %arg0 : !torch.vtensor<[3,4],f32> -> !torch.vtensor<[3,4],f32>
  %1 = torch.aten.relu %0 : !torch.vtensor<[3,4],f32> -> !torch.vtensor<[3,4],f32>
  %2 = torch.aten.neg %1 : !torch.vtensor<[3,4],f32> -> !torch.vtensor<[3,4],f32>
  return %2 : !torch.vtensor<[3,4],f32>
}

// -----

// abs(sigmoid(x)) -> sigmoid(x)
// CHECK-LABEL: func.func @abs_sigmoid(
// CHECK-NOT: torch.aten.abs 
// CHECK: torch.aten.sigmoid %
// CHECK: torch.aten.neg %
// CHECK-NOT: torch.aten.
// CHECK: return
func.func @abs_sigmoid(%arg0: !torch.vtensor<[3,4],f32>) -> !torch.vtensor<[3,4],f32> {
  %0 = torch.aten.sigmoid %arg0 : !torch.vtensor<[3,4],f32> -> !torch.vtensor<[3,4],f32>
  %1 = torch.aten.abs %0 : !torch.vtensor<[3,4],f32> -> !torch.vtensor<[3,4],f32>
  %2 = torch.aten.neg %1 : !torch.vtensor<[3,4],f32> -> !torch.vtensor<[3,4],f32>
  return %2 : !torch.vtensor<[3,4],f32>
}

// -----

// abs(exp(x)) -> exp(x)
// CHECK-LABEL: func.func @abs_exp(
// CHECK-NOT: torch.aten.abs 
// CHECK: torch.aten.exp %
// CHECK: torch.aten.neg %
// CHECK-NOT: torch.aten.
// CHECK: return
func.func @abs_exp(%arg0: !torch.vtensor<[3,4],f32>) -> !torch.vtensor<[3,4],f32> {
  %0 = torch.aten.exp %arg0 : !torch.vtensor<[3,4],f32> -> !torch.vtensor<[3,4],f32>
  %1 = torch.aten.abs %0 : !torch.vtensor<[3,4],f32> -> !torch.vtensor<[3,4],f32>
  %2 = torch.aten.neg %1 : !torch.vtensor<[3,4],f32> -> !torch.vtensor<[3,4],f32>
  return %2 : !torch.vtensor<[3,4],f32>
}

// -----

// add(x, c) -> x  (c = 0)
// CHECK-LABEL: func.func @add_zero(
// CHECK-NOT: torch.aten.add.Scalar 
// CHECK: torch.aten.neg %
// CHECK-NOT: torch.aten.
// CHECK: return
func.func @add_zero(%arg0: !torch.vtensor<[2,3],si32>) -> !torch.vtensor<[2,3],si32> {
  %int0 = torch.constant.int 0
  %int1 = torch.constant.int 1
  %0 = torch.aten.add.Scalar %arg0, %int0, %int1 : !torch.vtensor<[2,3],si32>, !torch.int, !torch.int -> !torch.vtensor<[2,3],si32>
  %1 = torch.aten.neg %0 : !torch.vtensor<[2,3],si32> -> !torch.vtensor<[2,3],si32>
  return %1 : !torch.vtensor<[2,3],si32>
}

// -----

// sub(x, c) -> x  (c = 0)
// CHECK-LABEL: func.func @sub_zero(
// CHECK-NOT: torch.aten.sub.Scalar 
// CHECK: torch.aten.neg %
// CHECK-NOT: torch.aten.
// CHECK: return
func.func @sub_zero(%arg0: !torch.vtensor<[3,4],f32>) -> !torch.vtensor<[3,4],f32> {
  %float0.000000e00 = torch.constant.float 0.000000e+00
  %int1 = torch.constant.int 1
  %0 = torch.aten.sub.Scalar %arg0, %float0.000000e00, %int1 : !torch.vtensor<[3,4],f32>, !torch.float, !torch.int -> !torch.vtensor<[3,4],f32>
  %1 = torch.aten.neg %0 : !torch.vtensor<[3,4],f32> -> !torch.vtensor<[3,4],f32>
  return %1 : !torch.vtensor<[3,4],f32>
}

// -----

// add(x, c) -> add(x, number)  (c constant, without dimensions)
// CHECK-LABEL: func.func @add_literal(
// CHECK-NOT: torch.aten.lift_fresh_copy 
// CHECK-NOT: torch.aten.detach 
// CHECK-NOT: torch.aten.add.Tensor 
// CHECK: torch.aten.add.Scalar %
// CHECK-NOT: torch.aten.
// CHECK: return
func.func @add_literal(%arg0: !torch.vtensor<[3,4],f32>, %arg1: !torch.vtensor<[],f32> {kiln.constant = "_tensor_constant0", kiln.value = dense<2.500000e+00> : tensor<f32>}) -> !torch.vtensor<[3,4],f32> {
  %0 = torch.aten.lift_fresh_copy %arg1 : !torch.vtensor<[],f32> -> !torch.vtensor<[],f32>
  %1 = torch.aten.detach %0 : !torch.vtensor<[],f32> -> !torch.vtensor<[],f32>
  %int1 = torch.constant.int 1
  %2 = torch.aten.add.Tensor %arg0, %1, %int1 : !torch.vtensor<[3,4],f32>, !torch.vtensor<[],f32>, !torch.int -> !torch.vtensor<[3,4],f32>
  return %2 : !torch.vtensor<[3,4],f32>
}

// -----

// sub(x, c) -> sub(x, number)  (c constant, without dimensions)
// CHECK-LABEL: func.func @sub_literal(
// CHECK-NOT: torch.aten.lift_fresh_copy 
// CHECK-NOT: torch.aten.detach 
// CHECK-NOT: torch.aten.sub.Tensor 
// CHECK: torch.aten.sub.Scalar %
// CHECK-NOT: torch.aten.
// CHECK: return
func.func @sub_literal(%arg0: !torch.vtensor<[3,4],f32>, %arg1: !torch.vtensor<[],f32> {kiln.constant = "_tensor_constant0", kiln.value = dense<2.500000e+00> : tensor<f32>}) -> !torch.vtensor<[3,4],f32> {
  %0 = torch.aten.lift_fresh_copy %arg1 : !torch.vtensor<[],f32> -> !torch.vtensor<[],f32>
  %1 = torch.aten.detach %0 : !torch.vtensor<[],f32> -> !torch.vtensor<[],f32>
  %int1 = torch.constant.int 1
  %2 = torch.aten.sub.Tensor %arg0, %1, %int1 : !torch.vtensor<[3,4],f32>, !torch.vtensor<[],f32>, !torch.int -> !torch.vtensor<[3,4],f32>
  return %2 : !torch.vtensor<[3,4],f32>
}

// -----

// mul(x, c) -> mul(x, number)  (c constant, without dimensions)
// CHECK-LABEL: func.func @mul_literal(
// CHECK-NOT: torch.aten.lift_fresh_copy 
// CHECK-NOT: torch.aten.detach 
// CHECK-NOT: torch.aten.mul.Tensor 
// CHECK: torch.aten.mul.Scalar %
// CHECK-NOT: torch.aten.
// CHECK: return
func.func @mul_literal(%arg0: !torch.vtensor<[3,4],f32>, %arg1: !torch.vtensor<[],f32> {kiln.constant = "_tensor_constant0", kiln.value = dense<2.500000e+00> : tensor<f32>}) -> !torch.vtensor<[3,4],f32> {
  %0 = torch.aten.lift_fresh_copy %arg1 : !torch.vtensor<[],f32> -> !torch.vtensor<[],f32>
  %1 = torch.aten.detach %0 : !torch.vtensor<[],f32> -> !torch.vtensor<[],f32>
  %2 = torch.aten.mul.Tensor %arg0, %1 : !torch.vtensor<[3,4],f32>, !torch.vtensor<[],f32> -> !torch.vtensor<[3,4],f32>
  return %2 : !torch.vtensor<[3,4],f32>
}

// -----

// div(x, c) -> div(x, number)  (c constant, without dimensions)
// SAFE-LABEL: func.func @div_literal(
// SAFE-NOT: torch.aten.lift_fresh_copy 
// SAFE-NOT: torch.aten.detach 
// SAFE-NOT: torch.aten.div.Tensor 
// SAFE: torch.aten.div.Scalar %
// SAFE-NOT: torch.aten.
// SAFE: return
// FAST-LABEL: func.func @div_literal(
// FAST-NOT: torch.aten.lift_fresh_copy 
// FAST-NOT: torch.aten.detach 
// FAST-NOT: torch.aten.div.Tensor 
// FAST: torch.aten.mul.Scalar %
// FAST-NOT: torch.aten.
// FAST: return
func.func @div_literal(%arg0: !torch.vtensor<[3,4],f32>, %arg1: !torch.vtensor<[],f32> {kiln.constant = "_tensor_constant0", kiln.value = dense<2.500000e+00> : tensor<f32>}) -> !torch.vtensor<[3,4],f32> {
  %0 = torch.aten.lift_fresh_copy %arg1 : !torch.vtensor<[],f32> -> !torch.vtensor<[],f32>
  %1 = torch.aten.detach %0 : !torch.vtensor<[],f32> -> !torch.vtensor<[],f32>
  %2 = torch.aten.div.Tensor %arg0, %1 : !torch.vtensor<[3,4],f32>, !torch.vtensor<[],f32> -> !torch.vtensor<[3,4],f32>
  return %2 : !torch.vtensor<[3,4],f32>
}

// -----

// mul(mul(x, a), b) -> mul(x, a * b) (exact for integers)
// SAFE-LABEL: func.func @mul_mul_constants(
// SAFE: torch.aten.mul.Scalar %
// SAFE: torch.aten.mul.Scalar %
// SAFE-NOT: torch.aten.
// SAFE: return
// FAST-LABEL: func.func @mul_mul_constants(
// FAST: torch.aten.mul.Scalar %
// FAST-NOT: torch.aten.
// FAST: return
func.func @mul_mul_constants(%arg0: !torch.vtensor<[2,3],f32>) -> !torch.vtensor<[2,3],f32> {
  %int3 = torch.constant.int 3
  %0 = torch.aten.mul.Scalar %arg0, %int3 : !torch.vtensor<[2,3],f32>, !torch.int -> !torch.vtensor<[2,3],f32>
  %int5 = torch.constant.int 5
  %1 = torch.aten.mul.Scalar %0, %int5 : !torch.vtensor<[2,3],f32>, !torch.int -> !torch.vtensor<[2,3],f32>
  return %1 : !torch.vtensor<[2,3],f32>
}

// -----

// add(add(x, a), b) -> add(x, a + b) (exact for integers)
// SAFE-LABEL: func.func @add_add_constants(
// SAFE: torch.aten.add.Scalar %
// SAFE: torch.aten.add.Scalar %
// SAFE-NOT: torch.aten.
// SAFE: return
// FAST-LABEL: func.func @add_add_constants(
// FAST: torch.aten.add.Scalar %
// FAST-NOT: torch.aten.
// FAST: return
func.func @add_add_constants(%arg0: !torch.vtensor<[2,3],f32>) -> !torch.vtensor<[2,3],f32> {
  %int3 = torch.constant.int 3
  %int1 = torch.constant.int 1
  %0 = torch.aten.add.Scalar %arg0, %int3, %int1 : !torch.vtensor<[2,3],f32>, !torch.int, !torch.int -> !torch.vtensor<[2,3],f32>
  %int5 = torch.constant.int 5
  %int1_0 = torch.constant.int 1
  %1 = torch.aten.add.Scalar %0, %int5, %int1_0 : !torch.vtensor<[2,3],f32>, !torch.int, !torch.int -> !torch.vtensor<[2,3],f32>
  return %1 : !torch.vtensor<[2,3],f32>
}

// -----

// neg(neg(x)) -> x
// CHECK-LABEL: func.func @neg_neg(
// CHECK-NOT: torch.aten.neg 
// CHECK: torch.aten.abs %
// CHECK-NOT: torch.aten.
// CHECK: return
func.func @neg_neg(%arg0: !torch.vtensor<[3,4],f32>) -> !torch.vtensor<[3,4],f32> {
  %0 = torch.aten.neg %arg0 : !torch.vtensor<[3,4],f32> -> !torch.vtensor<[3,4],f32>
  %1 = torch.aten.neg %0 : !torch.vtensor<[3,4],f32> -> !torch.vtensor<[3,4],f32>
  %2 = torch.aten.abs %1 : !torch.vtensor<[3,4],f32> -> !torch.vtensor<[3,4],f32>
  return %2 : !torch.vtensor<[3,4],f32>
}

// -----

// bitwise_not(bitwise_not(x)) -> x
// CHECK-LABEL: func.func @bitwise_not_twice(
// CHECK-NOT: torch.aten.bitwise_not 
// CHECK: torch.aten.add.Scalar %
// CHECK-NOT: torch.aten.
// CHECK: return
func.func @bitwise_not_twice(%arg0: !torch.vtensor<[2,3],si32>) -> !torch.vtensor<[2,3],si32> {
  %0 = torch.aten.bitwise_not %arg0 : !torch.vtensor<[2,3],si32> -> !torch.vtensor<[2,3],si32>
  %1 = torch.aten.bitwise_not %0 : !torch.vtensor<[2,3],si32> -> !torch.vtensor<[2,3],si32>
  %int1 = torch.constant.int 1
  %int1_0 = torch.constant.int 1
  %2 = torch.aten.add.Scalar %1, %int1, %int1_0 : !torch.vtensor<[2,3],si32>, !torch.int, !torch.int -> !torch.vtensor<[2,3],si32>
  return %2 : !torch.vtensor<[2,3],si32>
}

// -----

// logical_not(logical_not(x)) -> x
// CHECK-LABEL: func.func @logical_not_twice(
// CHECK-NOT: torch.aten.logical_not 
// CHECK: torch.aten.bitwise_and.Tensor %
// CHECK-NOT: torch.aten.
// CHECK: return
func.func @logical_not_twice(%arg0: !torch.vtensor<[2,2],i1>) -> !torch.vtensor<[2,2],i1> {
  %0 = torch.aten.logical_not %arg0 : !torch.vtensor<[2,2],i1> -> !torch.vtensor<[2,2],i1>
  %1 = torch.aten.logical_not %0 : !torch.vtensor<[2,2],i1> -> !torch.vtensor<[2,2],i1>
  %2 = torch.aten.bitwise_and.Tensor %1, %arg0 : !torch.vtensor<[2,2],i1>, !torch.vtensor<[2,2],i1> -> !torch.vtensor<[2,2],i1>
  return %2 : !torch.vtensor<[2,2],i1>
}

// -----

// logical_not(bitwise_not(x)) -> x
// CHECK-LABEL: func.func @logical_not_bitwise_not(
// CHECK-NOT: torch.aten.bitwise_not 
// CHECK-NOT: torch.aten.logical_not 
// CHECK: torch.aten.bitwise_and.Tensor %
// CHECK-NOT: torch.aten.
// CHECK: return
func.func @logical_not_bitwise_not(%arg0: !torch.vtensor<[2,2],i1>) -> !torch.vtensor<[2,2],i1> {
  %0 = torch.aten.bitwise_not %arg0 : !torch.vtensor<[2,2],i1> -> !torch.vtensor<[2,2],i1>
  %1 = torch.aten.logical_not %0 : !torch.vtensor<[2,2],i1> -> !torch.vtensor<[2,2],i1>
  %2 = torch.aten.bitwise_and.Tensor %1, %arg0 : !torch.vtensor<[2,2],i1>, !torch.vtensor<[2,2],i1> -> !torch.vtensor<[2,2],i1>
  return %2 : !torch.vtensor<[2,2],i1>
}

// -----

// bitwise_not(logical_not(x)) -> x
// CHECK-LABEL: func.func @bitwise_not_logical_not(
// CHECK-NOT: torch.aten.logical_not 
// CHECK-NOT: torch.aten.bitwise_not 
// CHECK: torch.aten.bitwise_and.Tensor %
// CHECK-NOT: torch.aten.
// CHECK: return
func.func @bitwise_not_logical_not(%arg0: !torch.vtensor<[2,2],i1>) -> !torch.vtensor<[2,2],i1> {
  %0 = torch.aten.logical_not %arg0 : !torch.vtensor<[2,2],i1> -> !torch.vtensor<[2,2],i1>
  %1 = torch.aten.bitwise_not %0 : !torch.vtensor<[2,2],i1> -> !torch.vtensor<[2,2],i1>
  %2 = torch.aten.bitwise_and.Tensor %1, %arg0 : !torch.vtensor<[2,2],i1>, !torch.vtensor<[2,2],i1> -> !torch.vtensor<[2,2],i1>
  return %2 : !torch.vtensor<[2,2],i1>
}

// -----

// exp(log(x)) -> x (fast_math)
// SAFE-LABEL: func.func @exp_log(
// SAFE: torch.aten.log %
// SAFE: torch.aten.exp %
// SAFE: torch.aten.neg %
// SAFE-NOT: torch.aten.
// SAFE: return
// FAST-LABEL: func.func @exp_log(
// FAST-NOT: torch.aten.log 
// FAST-NOT: torch.aten.exp 
// FAST: torch.aten.neg %
// FAST-NOT: torch.aten.
// FAST: return
func.func @exp_log(%arg0: !torch.vtensor<[3,4],f32>) -> !torch.vtensor<[3,4],f32> {
  %0 = torch.aten.log %arg0 : !torch.vtensor<[3,4],f32> -> !torch.vtensor<[3,4],f32>
  %1 = torch.aten.exp %0 : !torch.vtensor<[3,4],f32> -> !torch.vtensor<[3,4],f32>
  %2 = torch.aten.neg %1 : !torch.vtensor<[3,4],f32> -> !torch.vtensor<[3,4],f32>
  return %2 : !torch.vtensor<[3,4],f32>
}

// -----

// log(exp(x)) -> x (fast_math)
// SAFE-LABEL: func.func @log_exp(
// SAFE: torch.aten.exp %
// SAFE: torch.aten.log %
// SAFE: torch.aten.neg %
// SAFE-NOT: torch.aten.
// SAFE: return
// FAST-LABEL: func.func @log_exp(
// FAST-NOT: torch.aten.exp 
// FAST-NOT: torch.aten.log 
// FAST: torch.aten.neg %
// FAST-NOT: torch.aten.
// FAST: return
func.func @log_exp(%arg0: !torch.vtensor<[3,4],f32>) -> !torch.vtensor<[3,4],f32> {
  %0 = torch.aten.exp %arg0 : !torch.vtensor<[3,4],f32> -> !torch.vtensor<[3,4],f32>
  %1 = torch.aten.log %0 : !torch.vtensor<[3,4],f32> -> !torch.vtensor<[3,4],f32>
  %2 = torch.aten.neg %1 : !torch.vtensor<[3,4],f32> -> !torch.vtensor<[3,4],f32>
  return %2 : !torch.vtensor<[3,4],f32>
}

// -----

// sqrt(mul(x, x)) -> abs(x) (fast_math)
// SAFE-LABEL: func.func @sqrt_square(
// SAFE: torch.aten.mul.Tensor %
// SAFE: torch.aten.sqrt %
// SAFE-NOT: torch.aten.
// SAFE: return
// FAST-LABEL: func.func @sqrt_square(
// FAST-NOT: torch.aten.mul.Tensor 
// FAST-NOT: torch.aten.sqrt 
// FAST: torch.aten.abs %
// FAST-NOT: torch.aten.
// FAST: return
func.func @sqrt_square(%arg0: !torch.vtensor<[3,4],f32>) -> !torch.vtensor<[3,4],f32> {
  %0 = torch.aten.mul.Tensor %arg0, %arg0 : !torch.vtensor<[3,4],f32>, !torch.vtensor<[3,4],f32> -> !torch.vtensor<[3,4],f32>
  %1 = torch.aten.sqrt %0 : !torch.vtensor<[3,4],f32> -> !torch.vtensor<[3,4],f32>
  return %1 : !torch.vtensor<[3,4],f32>
}

// -----

// mul(sqrt(x), sqrt(x)) -> x (fast_math)
// SAFE-LABEL: func.func @square_sqrt(
// SAFE: torch.aten.sqrt %
// SAFE: torch.aten.sqrt %
// SAFE: torch.aten.mul.Tensor %
// SAFE: torch.aten.neg %
// SAFE-NOT: torch.aten.
// SAFE: return
// FAST-LABEL: func.func @square_sqrt(
// FAST-NOT: torch.aten.sqrt 
// FAST-NOT: torch.aten.mul.Tensor 
// FAST: torch.aten.neg %
// FAST-NOT: torch.aten.
// FAST: return
func.func @square_sqrt(%arg0: !torch.vtensor<[3,4],f32>) -> !torch.vtensor<[3,4],f32> {
  %0 = torch.aten.sqrt %arg0 : !torch.vtensor<[3,4],f32> -> !torch.vtensor<[3,4],f32>
  %1 = torch.aten.sqrt %arg0 : !torch.vtensor<[3,4],f32> -> !torch.vtensor<[3,4],f32>
  %2 = torch.aten.mul.Tensor %0, %1 : !torch.vtensor<[3,4],f32>, !torch.vtensor<[3,4],f32> -> !torch.vtensor<[3,4],f32>
  %3 = torch.aten.neg %2 : !torch.vtensor<[3,4],f32> -> !torch.vtensor<[3,4],f32>
  return %3 : !torch.vtensor<[3,4],f32>
}

// -----

// reciprocal(reciprocal(x)) -> x (fast_math)
// SAFE-LABEL: func.func @reciprocal_reciprocal(
// SAFE: torch.aten.reciprocal %
// SAFE: torch.aten.reciprocal %
// SAFE: torch.aten.neg %
// SAFE-NOT: torch.aten.
// SAFE: return
// FAST-LABEL: func.func @reciprocal_reciprocal(
// FAST-NOT: torch.aten.reciprocal 
// FAST: torch.aten.neg %
// FAST-NOT: torch.aten.
// FAST: return
func.func @reciprocal_reciprocal(%arg0: !torch.vtensor<[3,4],f32>) -> !torch.vtensor<[3,4],f32> {
  %0 = torch.aten.reciprocal %arg0 : !torch.vtensor<[3,4],f32> -> !torch.vtensor<[3,4],f32>
  %1 = torch.aten.reciprocal %0 : !torch.vtensor<[3,4],f32> -> !torch.vtensor<[3,4],f32>
  %2 = torch.aten.neg %1 : !torch.vtensor<[3,4],f32> -> !torch.vtensor<[3,4],f32>
  return %2 : !torch.vtensor<[3,4],f32>
}

// -----

// rsub(rsub(x, 1), 1) -> x (fast_math)
// SAFE-LABEL: func.func @rsub_rsub_one(
// SAFE: torch.aten.rsub.Scalar %
// SAFE: torch.aten.rsub.Scalar %
// SAFE: torch.aten.neg %
// SAFE-NOT: torch.aten.
// SAFE: return
// FAST-LABEL: func.func @rsub_rsub_one(
// FAST-NOT: torch.aten.rsub.Scalar 
// FAST: torch.aten.neg %
// FAST-NOT: torch.aten.
// FAST: return
func.func @rsub_rsub_one(%arg0: !torch.vtensor<[3,4],f32>) -> !torch.vtensor<[3,4],f32> {
  %int1 = torch.constant.int 1
  %int1_0 = torch.constant.int 1
  %0 = torch.aten.rsub.Scalar %arg0, %int1, %int1_0 : !torch.vtensor<[3,4],f32>, !torch.int, !torch.int -> !torch.vtensor<[3,4],f32>
  %int1_1 = torch.constant.int 1
  %int1_2 = torch.constant.int 1
  %1 = torch.aten.rsub.Scalar %0, %int1_1, %int1_2 : !torch.vtensor<[3,4],f32>, !torch.int, !torch.int -> !torch.vtensor<[3,4],f32>
  %2 = torch.aten.neg %1 : !torch.vtensor<[3,4],f32> -> !torch.vtensor<[3,4],f32>
  return %2 : !torch.vtensor<[3,4],f32>
}

// -----

// pow(x, 0) -> full(x, 1)
// CHECK-LABEL: func.func @pow_zero(
// CHECK-NOT: torch.aten.pow.Tensor_Scalar 
// CHECK: torch.aten.full_like %
// CHECK-NOT: torch.aten.
// CHECK: return
func.func @pow_zero(%arg0: !torch.vtensor<[3,4],f32>) -> !torch.vtensor<[3,4],f32> {
  %int0 = torch.constant.int 0
  %0 = torch.aten.pow.Tensor_Scalar %arg0, %int0 : !torch.vtensor<[3,4],f32>, !torch.int -> !torch.vtensor<[3,4],f32>
  return %0 : !torch.vtensor<[3,4],f32>
}

// -----

// pow(x, 1) -> x
// CHECK-LABEL: func.func @pow_one(
// CHECK-NOT: torch.aten.pow.Tensor_Scalar 
// CHECK: torch.aten.neg %
// CHECK-NOT: torch.aten.
// CHECK: return
func.func @pow_one(%arg0: !torch.vtensor<[3,4],f32>) -> !torch.vtensor<[3,4],f32> {
  %int1 = torch.constant.int 1
  %0 = torch.aten.pow.Tensor_Scalar %arg0, %int1 : !torch.vtensor<[3,4],f32>, !torch.int -> !torch.vtensor<[3,4],f32>
  %1 = torch.aten.neg %0 : !torch.vtensor<[3,4],f32> -> !torch.vtensor<[3,4],f32>
  return %1 : !torch.vtensor<[3,4],f32>
}

// -----

// pow(x, 2) -> mul(x, x)
// CHECK-LABEL: func.func @pow_two(
// CHECK-NOT: torch.aten.pow.Tensor_Scalar 
// CHECK: torch.aten.mul.Tensor %
// CHECK-NOT: torch.aten.
// CHECK: return
func.func @pow_two(%arg0: !torch.vtensor<[3,4],f32>) -> !torch.vtensor<[3,4],f32> {
  %int2 = torch.constant.int 2
  %0 = torch.aten.pow.Tensor_Scalar %arg0, %int2 : !torch.vtensor<[3,4],f32>, !torch.int -> !torch.vtensor<[3,4],f32>
  return %0 : !torch.vtensor<[3,4],f32>
}

// -----

// pow(x, 3) -> mul(mul(x, x), x)
// CHECK-LABEL: func.func @pow_three(
// CHECK-NOT: torch.aten.pow.Tensor_Scalar 
// CHECK: torch.aten.mul.Tensor %
// CHECK-NOT: torch.aten.pow.Tensor_Scalar 
// CHECK: torch.aten.mul.Tensor %
// CHECK-NOT: torch.aten.
// CHECK: return
func.func @pow_three(%arg0: !torch.vtensor<[3,4],f32>) -> !torch.vtensor<[3,4],f32> {
  %int3 = torch.constant.int 3
  %0 = torch.aten.pow.Tensor_Scalar %arg0, %int3 : !torch.vtensor<[3,4],f32>, !torch.int -> !torch.vtensor<[3,4],f32>
  return %0 : !torch.vtensor<[3,4],f32>
}

// -----

// pow(x, 0.5) -> sqrt(x)
// CHECK-LABEL: func.func @pow_half(
// CHECK-NOT: torch.aten.pow.Tensor_Scalar 
// CHECK: torch.aten.sqrt %
// CHECK-NOT: torch.aten.
// CHECK: return
func.func @pow_half(%arg0: !torch.vtensor<[3,4],f32>) -> !torch.vtensor<[3,4],f32> {
  %float5.000000e-01 = torch.constant.float 5.000000e-01
  %0 = torch.aten.pow.Tensor_Scalar %arg0, %float5.000000e-01 : !torch.vtensor<[3,4],f32>, !torch.float -> !torch.vtensor<[3,4],f32>
  return %0 : !torch.vtensor<[3,4],f32>
}

// -----

// pow(x, -1) -> reciprocal(x)
// CHECK-LABEL: func.func @pow_minus_one(
// CHECK-NOT: torch.aten.pow.Tensor_Scalar 
// CHECK: torch.aten.reciprocal %
// CHECK-NOT: torch.aten.
// CHECK: return
func.func @pow_minus_one(%arg0: !torch.vtensor<[3,4],f32>) -> !torch.vtensor<[3,4],f32> {
  %int-1 = torch.constant.int -1
  %0 = torch.aten.pow.Tensor_Scalar %arg0, %int-1 : !torch.vtensor<[3,4],f32>, !torch.int -> !torch.vtensor<[3,4],f32>
  return %0 : !torch.vtensor<[3,4],f32>
}

// -----

// pow(x, -0.5) -> rsqrt(x) (fast_math)
// SAFE-LABEL: func.func @pow_minus_half(
// SAFE: torch.aten.pow.Tensor_Scalar %
// SAFE-NOT: torch.aten.
// SAFE: return
// FAST-LABEL: func.func @pow_minus_half(
// FAST-NOT: torch.aten.pow.Tensor_Scalar 
// FAST: torch.aten.rsqrt %
// FAST-NOT: torch.aten.
// FAST: return
func.func @pow_minus_half(%arg0: !torch.vtensor<[3,4],f32>) -> !torch.vtensor<[3,4],f32> {
  %float-5.000000e-01 = torch.constant.float -5.000000e-01
  %0 = torch.aten.pow.Tensor_Scalar %arg0, %float-5.000000e-01 : !torch.vtensor<[3,4],f32>, !torch.float -> !torch.vtensor<[3,4],f32>
  return %0 : !torch.vtensor<[3,4],f32>
}

// -----

// div(x, c) -> mul(x, 1 / c)
// CHECK-LABEL: func.func @div_constant(
// CHECK-NOT: torch.aten.div.Scalar 
// CHECK: torch.aten.mul.Scalar %
// CHECK-NOT: torch.aten.
// CHECK: return
func.func @div_constant(%arg0: !torch.vtensor<[3,4],f32>) -> !torch.vtensor<[3,4],f32> {
  %float4.000000e00 = torch.constant.float 4.000000e+00
  %0 = torch.aten.div.Scalar %arg0, %float4.000000e00 : !torch.vtensor<[3,4],f32>, !torch.float -> !torch.vtensor<[3,4],f32>
  return %0 : !torch.vtensor<[3,4],f32>
}

// -----

// logical_not(eq(x, y)) -> ne(x, y)
// CHECK-LABEL: func.func @logical_not_eq(
// CHECK-NOT: torch.aten.eq.Tensor 
// CHECK-NOT: torch.aten.logical_not 
// CHECK: torch.aten.ne.Tensor %
// CHECK-NOT: torch.aten.
// CHECK: return
func.func @logical_not_eq(%arg0: !torch.vtensor<[3,4],f32>, %arg1: !torch.vtensor<[3,4],f32>) -> !torch.vtensor<[3,4],i1> {
  %0 = torch.aten.eq.Tensor %arg0, %arg1 : !torch.vtensor<[3,4],f32>, !torch.vtensor<[3,4],f32> -> !torch.vtensor<[3,4],i1>
  %1 = torch.aten.logical_not %0 : !torch.vtensor<[3,4],i1> -> !torch.vtensor<[3,4],i1>
  return %1 : !torch.vtensor<[3,4],i1>
}

// -----

// logical_not(ne(x, y)) -> eq(x, y)
// CHECK-LABEL: func.func @logical_not_ne(
// CHECK-NOT: torch.aten.ne.Tensor 
// CHECK-NOT: torch.aten.logical_not 
// CHECK: torch.aten.eq.Tensor %
// CHECK-NOT: torch.aten.
// CHECK: return
func.func @logical_not_ne(%arg0: !torch.vtensor<[3,4],f32>, %arg1: !torch.vtensor<[3,4],f32>) -> !torch.vtensor<[3,4],i1> {
  %0 = torch.aten.ne.Tensor %arg0, %arg1 : !torch.vtensor<[3,4],f32>, !torch.vtensor<[3,4],f32> -> !torch.vtensor<[3,4],i1>
  %1 = torch.aten.logical_not %0 : !torch.vtensor<[3,4],i1> -> !torch.vtensor<[3,4],i1>
  return %1 : !torch.vtensor<[3,4],i1>
}

// -----

// logical_not(lt(x, y)) -> ge(x, y) (exact for integers)
// SAFE-LABEL: func.func @logical_not_lt(
// SAFE: torch.aten.lt.Tensor %
// SAFE: torch.aten.logical_not %
// SAFE-NOT: torch.aten.
// SAFE: return
// FAST-LABEL: func.func @logical_not_lt(
// FAST-NOT: torch.aten.lt.Tensor 
// FAST-NOT: torch.aten.logical_not 
// FAST: torch.aten.ge.Tensor %
// FAST-NOT: torch.aten.
// FAST: return
func.func @logical_not_lt(%arg0: !torch.vtensor<[2,3],f32>, %arg1: !torch.vtensor<[2,3],f32>) -> !torch.vtensor<[2,3],i1> {
  %0 = torch.aten.lt.Tensor %arg0, %arg1 : !torch.vtensor<[2,3],f32>, !torch.vtensor<[2,3],f32> -> !torch.vtensor<[2,3],i1>
  %1 = torch.aten.logical_not %0 : !torch.vtensor<[2,3],i1> -> !torch.vtensor<[2,3],i1>
  return %1 : !torch.vtensor<[2,3],i1>
}

// -----

// logical_not(le(x, y)) -> gt(x, y) (exact for integers)
// SAFE-LABEL: func.func @logical_not_le(
// SAFE: torch.aten.le.Tensor %
// SAFE: torch.aten.logical_not %
// SAFE-NOT: torch.aten.
// SAFE: return
// FAST-LABEL: func.func @logical_not_le(
// FAST-NOT: torch.aten.le.Tensor 
// FAST-NOT: torch.aten.logical_not 
// FAST: torch.aten.gt.Tensor %
// FAST-NOT: torch.aten.
// FAST: return
func.func @logical_not_le(%arg0: !torch.vtensor<[2,3],f32>, %arg1: !torch.vtensor<[2,3],f32>) -> !torch.vtensor<[2,3],i1> {
  %0 = torch.aten.le.Tensor %arg0, %arg1 : !torch.vtensor<[2,3],f32>, !torch.vtensor<[2,3],f32> -> !torch.vtensor<[2,3],i1>
  %1 = torch.aten.logical_not %0 : !torch.vtensor<[2,3],i1> -> !torch.vtensor<[2,3],i1>
  return %1 : !torch.vtensor<[2,3],i1>
}

// -----

// logical_not(gt(x, y)) -> le(x, y) (exact for integers)
// SAFE-LABEL: func.func @logical_not_gt(
// SAFE: torch.aten.gt.Tensor %
// SAFE: torch.aten.logical_not %
// SAFE-NOT: torch.aten.
// SAFE: return
// FAST-LABEL: func.func @logical_not_gt(
// FAST-NOT: torch.aten.gt.Tensor 
// FAST-NOT: torch.aten.logical_not 
// FAST: torch.aten.le.Tensor %
// FAST-NOT: torch.aten.
// FAST: return
func.func @logical_not_gt(%arg0: !torch.vtensor<[2,3],f32>, %arg1: !torch.vtensor<[2,3],f32>) -> !torch.vtensor<[2,3],i1> {
  %0 = torch.aten.gt.Tensor %arg0, %arg1 : !torch.vtensor<[2,3],f32>, !torch.vtensor<[2,3],f32> -> !torch.vtensor<[2,3],i1>
  %1 = torch.aten.logical_not %0 : !torch.vtensor<[2,3],i1> -> !torch.vtensor<[2,3],i1>
  return %1 : !torch.vtensor<[2,3],i1>
}

// -----

// logical_not(ge(x, y)) -> lt(x, y) (exact for integers)
// SAFE-LABEL: func.func @logical_not_ge(
// SAFE: torch.aten.ge.Tensor %
// SAFE: torch.aten.logical_not %
// SAFE-NOT: torch.aten.
// SAFE: return
// FAST-LABEL: func.func @logical_not_ge(
// FAST-NOT: torch.aten.ge.Tensor 
// FAST-NOT: torch.aten.logical_not 
// FAST: torch.aten.lt.Tensor %
// FAST-NOT: torch.aten.
// FAST: return
func.func @logical_not_ge(%arg0: !torch.vtensor<[2,3],f32>, %arg1: !torch.vtensor<[2,3],f32>) -> !torch.vtensor<[2,3],i1> {
  %0 = torch.aten.ge.Tensor %arg0, %arg1 : !torch.vtensor<[2,3],f32>, !torch.vtensor<[2,3],f32> -> !torch.vtensor<[2,3],i1>
  %1 = torch.aten.logical_not %0 : !torch.vtensor<[2,3],i1> -> !torch.vtensor<[2,3],i1>
  return %1 : !torch.vtensor<[2,3],i1>
}

// -----

// bitwise_not(eq(x, y)) -> ne(x, y)
// CHECK-LABEL: func.func @bitwise_not_eq(
// CHECK-NOT: torch.aten.eq.Tensor 
// CHECK-NOT: torch.aten.bitwise_not 
// CHECK: torch.aten.ne.Tensor %
// CHECK-NOT: torch.aten.
// CHECK: return
func.func @bitwise_not_eq(%arg0: !torch.vtensor<[3,4],f32>, %arg1: !torch.vtensor<[3,4],f32>) -> !torch.vtensor<[3,4],i1> {
  %0 = torch.aten.eq.Tensor %arg0, %arg1 : !torch.vtensor<[3,4],f32>, !torch.vtensor<[3,4],f32> -> !torch.vtensor<[3,4],i1>
  %1 = torch.aten.bitwise_not %0 : !torch.vtensor<[3,4],i1> -> !torch.vtensor<[3,4],i1>
  return %1 : !torch.vtensor<[3,4],i1>
}

// -----

// bitwise_not(ne(x, y)) -> eq(x, y)
// CHECK-LABEL: func.func @bitwise_not_ne(
// CHECK-NOT: torch.aten.ne.Tensor 
// CHECK-NOT: torch.aten.bitwise_not 
// CHECK: torch.aten.eq.Tensor %
// CHECK-NOT: torch.aten.
// CHECK: return
func.func @bitwise_not_ne(%arg0: !torch.vtensor<[3,4],f32>, %arg1: !torch.vtensor<[3,4],f32>) -> !torch.vtensor<[3,4],i1> {
  %0 = torch.aten.ne.Tensor %arg0, %arg1 : !torch.vtensor<[3,4],f32>, !torch.vtensor<[3,4],f32> -> !torch.vtensor<[3,4],i1>
  %1 = torch.aten.bitwise_not %0 : !torch.vtensor<[3,4],i1> -> !torch.vtensor<[3,4],i1>
  return %1 : !torch.vtensor<[3,4],i1>
}

// -----

// bitwise_not(lt(x, y)) -> ge(x, y) (exact for integers)
// SAFE-LABEL: func.func @bitwise_not_lt(
// SAFE: torch.aten.lt.Tensor %
// SAFE: torch.aten.bitwise_not %
// SAFE-NOT: torch.aten.
// SAFE: return
// FAST-LABEL: func.func @bitwise_not_lt(
// FAST-NOT: torch.aten.lt.Tensor 
// FAST-NOT: torch.aten.bitwise_not 
// FAST: torch.aten.ge.Tensor %
// FAST-NOT: torch.aten.
// FAST: return
func.func @bitwise_not_lt(%arg0: !torch.vtensor<[2,3],f32>, %arg1: !torch.vtensor<[2,3],f32>) -> !torch.vtensor<[2,3],i1> {
  %0 = torch.aten.lt.Tensor %arg0, %arg1 : !torch.vtensor<[2,3],f32>, !torch.vtensor<[2,3],f32> -> !torch.vtensor<[2,3],i1>
  %1 = torch.aten.bitwise_not %0 : !torch.vtensor<[2,3],i1> -> !torch.vtensor<[2,3],i1>
  return %1 : !torch.vtensor<[2,3],i1>
}

// -----

// bitwise_not(le(x, y)) -> gt(x, y) (exact for integers)
// SAFE-LABEL: func.func @bitwise_not_le(
// SAFE: torch.aten.le.Tensor %
// SAFE: torch.aten.bitwise_not %
// SAFE-NOT: torch.aten.
// SAFE: return
// FAST-LABEL: func.func @bitwise_not_le(
// FAST-NOT: torch.aten.le.Tensor 
// FAST-NOT: torch.aten.bitwise_not 
// FAST: torch.aten.gt.Tensor %
// FAST-NOT: torch.aten.
// FAST: return
func.func @bitwise_not_le(%arg0: !torch.vtensor<[2,3],f32>, %arg1: !torch.vtensor<[2,3],f32>) -> !torch.vtensor<[2,3],i1> {
  %0 = torch.aten.le.Tensor %arg0, %arg1 : !torch.vtensor<[2,3],f32>, !torch.vtensor<[2,3],f32> -> !torch.vtensor<[2,3],i1>
  %1 = torch.aten.bitwise_not %0 : !torch.vtensor<[2,3],i1> -> !torch.vtensor<[2,3],i1>
  return %1 : !torch.vtensor<[2,3],i1>
}

// -----

// bitwise_not(gt(x, y)) -> le(x, y) (exact for integers)
// SAFE-LABEL: func.func @bitwise_not_gt(
// SAFE: torch.aten.gt.Tensor %
// SAFE: torch.aten.bitwise_not %
// SAFE-NOT: torch.aten.
// SAFE: return
// FAST-LABEL: func.func @bitwise_not_gt(
// FAST-NOT: torch.aten.gt.Tensor 
// FAST-NOT: torch.aten.bitwise_not 
// FAST: torch.aten.le.Tensor %
// FAST-NOT: torch.aten.
// FAST: return
func.func @bitwise_not_gt(%arg0: !torch.vtensor<[2,3],f32>, %arg1: !torch.vtensor<[2,3],f32>) -> !torch.vtensor<[2,3],i1> {
  %0 = torch.aten.gt.Tensor %arg0, %arg1 : !torch.vtensor<[2,3],f32>, !torch.vtensor<[2,3],f32> -> !torch.vtensor<[2,3],i1>
  %1 = torch.aten.bitwise_not %0 : !torch.vtensor<[2,3],i1> -> !torch.vtensor<[2,3],i1>
  return %1 : !torch.vtensor<[2,3],i1>
}

// -----

// bitwise_not(ge(x, y)) -> lt(x, y) (exact for integers)
// SAFE-LABEL: func.func @bitwise_not_ge(
// SAFE: torch.aten.ge.Tensor %
// SAFE: torch.aten.bitwise_not %
// SAFE-NOT: torch.aten.
// SAFE: return
// FAST-LABEL: func.func @bitwise_not_ge(
// FAST-NOT: torch.aten.ge.Tensor 
// FAST-NOT: torch.aten.bitwise_not 
// FAST: torch.aten.lt.Tensor %
// FAST-NOT: torch.aten.
// FAST: return
func.func @bitwise_not_ge(%arg0: !torch.vtensor<[2,3],f32>, %arg1: !torch.vtensor<[2,3],f32>) -> !torch.vtensor<[2,3],i1> {
  %0 = torch.aten.ge.Tensor %arg0, %arg1 : !torch.vtensor<[2,3],f32>, !torch.vtensor<[2,3],f32> -> !torch.vtensor<[2,3],i1>
  %1 = torch.aten.bitwise_not %0 : !torch.vtensor<[2,3],i1> -> !torch.vtensor<[2,3],i1>
  return %1 : !torch.vtensor<[2,3],i1>
}

// -----

// eq(x, 0) -> logical_not(x)
// CHECK-LABEL: func.func @eq_false(
// CHECK-NOT: torch.aten.eq.Scalar 
// CHECK: torch.aten.logical_not %
// CHECK-NOT: torch.aten.
// CHECK: return
func.func @eq_false(%arg0: !torch.vtensor<[2,2],i1>) -> !torch.vtensor<[2,2],i1> {
  %int0 = torch.constant.int 0
  %0 = torch.aten.eq.Scalar %arg0, %int0 : !torch.vtensor<[2,2],i1>, !torch.int -> !torch.vtensor<[2,2],i1>
  return %0 : !torch.vtensor<[2,2],i1>
}

// -----

// ne(x, 0) -> x
// CHECK-LABEL: func.func @ne_false(
// CHECK-NOT: torch.aten.ne.Scalar 
// CHECK: torch.aten.bitwise_and.Tensor %
// CHECK-NOT: torch.aten.
// CHECK: return
func.func @ne_false(%arg0: !torch.vtensor<[2,2],i1>) -> !torch.vtensor<[2,2],i1> {
  %int0 = torch.constant.int 0
  %0 = torch.aten.ne.Scalar %arg0, %int0 : !torch.vtensor<[2,2],i1>, !torch.int -> !torch.vtensor<[2,2],i1>
  %1 = torch.aten.bitwise_and.Tensor %0, %arg0 : !torch.vtensor<[2,2],i1>, !torch.vtensor<[2,2],i1> -> !torch.vtensor<[2,2],i1>
  return %1 : !torch.vtensor<[2,2],i1>
}

// -----

// where(1, x, y) -> x
// CHECK-LABEL: func.func @where_true(
// CHECK-NOT: torch.aten.ones 
// CHECK-NOT: torch.aten.where.self 
// CHECK: torch.aten.neg %
// CHECK-NOT: torch.aten.
// CHECK: return
func.func @where_true(%arg0: !torch.vtensor<[3,4],f32>, %arg1: !torch.vtensor<[3,4],f32>) -> !torch.vtensor<[3,4],f32> {
  %int3 = torch.constant.int 3
  %int4 = torch.constant.int 4
  %0 = torch.prim.ListConstruct %int3, %int4 : (!torch.int, !torch.int) -> !torch.list<int>
  %int11 = torch.constant.int 11
  %none = torch.constant.none
  %cpu = torch.constant.device "cpu"
  %false = torch.constant.bool false
  %1 = torch.aten.ones %0, %int11, %none, %cpu, %false : !torch.list<int>, !torch.int, !torch.none, !torch.Device, !torch.bool -> !torch.vtensor<[3,4],i1>
  %2 = torch.aten.where.self %1, %arg0, %arg1 : !torch.vtensor<[3,4],i1>, !torch.vtensor<[3,4],f32>, !torch.vtensor<[3,4],f32> -> !torch.vtensor<[3,4],f32>
  %3 = torch.aten.neg %2 : !torch.vtensor<[3,4],f32> -> !torch.vtensor<[3,4],f32>
  return %3 : !torch.vtensor<[3,4],f32>
}

// -----

// where(0, x, y) -> y
// CHECK-LABEL: func.func @where_false(
// CHECK-NOT: torch.aten.zeros 
// CHECK-NOT: torch.aten.where.self 
// CHECK: torch.aten.neg %
// CHECK-NOT: torch.aten.
// CHECK: return
func.func @where_false(%arg0: !torch.vtensor<[3,4],f32>, %arg1: !torch.vtensor<[3,4],f32>) -> !torch.vtensor<[3,4],f32> {
  %int3 = torch.constant.int 3
  %int4 = torch.constant.int 4
  %0 = torch.prim.ListConstruct %int3, %int4 : (!torch.int, !torch.int) -> !torch.list<int>
  %int11 = torch.constant.int 11
  %none = torch.constant.none
  %cpu = torch.constant.device "cpu"
  %false = torch.constant.bool false
  %1 = torch.aten.zeros %0, %int11, %none, %cpu, %false : !torch.list<int>, !torch.int, !torch.none, !torch.Device, !torch.bool -> !torch.vtensor<[3,4],i1>
  %2 = torch.aten.where.self %1, %arg0, %arg1 : !torch.vtensor<[3,4],i1>, !torch.vtensor<[3,4],f32>, !torch.vtensor<[3,4],f32> -> !torch.vtensor<[3,4],f32>
  %3 = torch.aten.neg %2 : !torch.vtensor<[3,4],f32> -> !torch.vtensor<[3,4],f32>
  return %3 : !torch.vtensor<[3,4],f32>
}

// -----

// where(c, x, x) -> x
// CHECK-LABEL: func.func @where_same(
// CHECK-NOT: torch.aten.gt.Scalar 
// CHECK-NOT: torch.aten.where.self 
// CHECK: torch.aten.neg %
// CHECK-NOT: torch.aten.
// CHECK: return
func.func @where_same(%arg0: !torch.vtensor<[3,4],f32>, %arg1: !torch.vtensor<[3,4],f32>) -> !torch.vtensor<[3,4],f32> {
  %int0 = torch.constant.int 0
  %0 = torch.aten.gt.Scalar %arg1, %int0 : !torch.vtensor<[3,4],f32>, !torch.int -> !torch.vtensor<[3,4],i1>
  %1 = torch.aten.where.self %0, %arg0, %arg0 : !torch.vtensor<[3,4],i1>, !torch.vtensor<[3,4],f32>, !torch.vtensor<[3,4],f32> -> !torch.vtensor<[3,4],f32>
  %2 = torch.aten.neg %1 : !torch.vtensor<[3,4],f32> -> !torch.vtensor<[3,4],f32>
  return %2 : !torch.vtensor<[3,4],f32>
}

// -----

// masked_fill(x, 0, v) -> x
// CHECK-LABEL: func.func @masked_fill_never(
// CHECK-NOT: torch.aten.zeros 
// CHECK-NOT: torch.aten.masked_fill.Scalar 
// CHECK: torch.aten.neg %
// CHECK-NOT: torch.aten.
// CHECK: return
func.func @masked_fill_never(%arg0: !torch.vtensor<[3,4],f32>) -> !torch.vtensor<[3,4],f32> {
  %int3 = torch.constant.int 3
  %int4 = torch.constant.int 4
  %0 = torch.prim.ListConstruct %int3, %int4 : (!torch.int, !torch.int) -> !torch.list<int>
  %int11 = torch.constant.int 11
  %none = torch.constant.none
  %cpu = torch.constant.device "cpu"
  %false = torch.constant.bool false
  %1 = torch.aten.zeros %0, %int11, %none, %cpu, %false : !torch.list<int>, !torch.int, !torch.none, !torch.Device, !torch.bool -> !torch.vtensor<[3,4],i1>
  %float2.000000e00 = torch.constant.float 2.000000e+00
  %2 = torch.aten.masked_fill.Scalar %arg0, %1, %float2.000000e00 : !torch.vtensor<[3,4],f32>, !torch.vtensor<[3,4],i1>, !torch.float -> !torch.vtensor<[3,4],f32>
  %3 = torch.aten.neg %2 : !torch.vtensor<[3,4],f32> -> !torch.vtensor<[3,4],f32>
  return %3 : !torch.vtensor<[3,4],f32>
}

// -----

// where(logical_not(c), x, y) -> where(c, y, x)
// CHECK-LABEL: func.func @where_not(
// CHECK-NOT: torch.aten.logical_not 
// CHECK: torch.aten.isnan %
// CHECK: torch.aten.where.self %
// CHECK-NOT: torch.aten.
// CHECK: return
func.func @where_not(%arg0: !torch.vtensor<[3,4],f32>, %arg1: !torch.vtensor<[3,4],f32>) -> !torch.vtensor<[3,4],f32> {
  %0 = torch.aten.isnan %arg1 : !torch.vtensor<[3,4],f32> -> !torch.vtensor<[3,4],i1>
  %1 = torch.aten.logical_not %0 : !torch.vtensor<[3,4],i1> -> !torch.vtensor<[3,4],i1>
  %2 = torch.aten.where.self %1, %arg0, %arg1 : !torch.vtensor<[3,4],i1>, !torch.vtensor<[3,4],f32>, !torch.vtensor<[3,4],f32> -> !torch.vtensor<[3,4],f32>
  return %2 : !torch.vtensor<[3,4],f32>
}

// -----

// alias(x) -> x
// CHECK-LABEL: func.func @alias(
// CHECK-NOT: torch.aten.alias 
// CHECK: torch.aten.neg %
// CHECK-NOT: torch.aten.
// CHECK: return
func.func @alias(%arg0: !torch.vtensor<[3,4],f32>) -> !torch.vtensor<[3,4],f32> {
  %0 = torch.aten.alias %arg0 : !torch.vtensor<[3,4],f32> -> !torch.vtensor<[3,4],f32>
  %1 = torch.aten.neg %0 : !torch.vtensor<[3,4],f32> -> !torch.vtensor<[3,4],f32>
  return %1 : !torch.vtensor<[3,4],f32>
}

// -----

// detach(x) -> x
// CHECK-LABEL: func.func @detach(
// CHECK-NOT: torch.aten.detach 
// CHECK: torch.aten.neg %
// CHECK-NOT: torch.aten.
// CHECK: return
func.func @detach(%arg0: !torch.vtensor<[3,4],f32>) -> !torch.vtensor<[3,4],f32> {
  %0 = torch.aten.detach %arg0 : !torch.vtensor<[3,4],f32> -> !torch.vtensor<[3,4],f32>
  %1 = torch.aten.neg %0 : !torch.vtensor<[3,4],f32> -> !torch.vtensor<[3,4],f32>
  return %1 : !torch.vtensor<[3,4],f32>
}

// -----

// lift_fresh_copy(x) -> x
// CHECK-LABEL: func.func @lift_fresh(
// CHECK-NOT: torch.aten.lift_fresh_copy 
// CHECK-NOT: torch.aten.detach 
// CHECK: torch.aten.add.Tensor %
// CHECK-NOT: torch.aten.
// CHECK: return
func.func @lift_fresh(%arg0: !torch.vtensor<[3,4],f32>, %arg1: !torch.vtensor<[4],f32> {kiln.constant = "_tensor_constant0", kiln.value = dense<[1.000000e+00, 2.000000e+00, 3.000000e+00, 4.000000e+00]> : tensor<4xf32>}) -> !torch.vtensor<[3,4],f32> {
  %0 = torch.aten.lift_fresh_copy %arg1 : !torch.vtensor<[4],f32> -> !torch.vtensor<[4],f32>
  %1 = torch.aten.detach %0 : !torch.vtensor<[4],f32> -> !torch.vtensor<[4],f32>
  %int1 = torch.constant.int 1
  %2 = torch.aten.add.Tensor %arg0, %1, %int1 : !torch.vtensor<[3,4],f32>, !torch.vtensor<[4],f32>, !torch.int -> !torch.vtensor<[3,4],f32>
  return %2 : !torch.vtensor<[3,4],f32>
}

// -----

// view(x) -> x  (same sizes)
// CHECK-LABEL: func.func @view_same(
// CHECK-NOT: torch.aten.view 
// CHECK: torch.aten.neg %
// CHECK-NOT: torch.aten.
// CHECK: return
func.func @view_same(%arg0: !torch.vtensor<[3,4],f32>) -> !torch.vtensor<[3,4],f32> {
  %int3 = torch.constant.int 3
  %int4 = torch.constant.int 4
  %0 = torch.prim.ListConstruct %int3, %int4 : (!torch.int, !torch.int) -> !torch.list<int>
  %1 = torch.aten.view %arg0, %0 : !torch.vtensor<[3,4],f32>, !torch.list<int> -> !torch.vtensor<[3,4],f32>
  %2 = torch.aten.neg %1 : !torch.vtensor<[3,4],f32> -> !torch.vtensor<[3,4],f32>
  return %2 : !torch.vtensor<[3,4],f32>
}

// -----

// expand(x) -> x  (same sizes)
// CHECK-LABEL: func.func @expand_same(
// CHECK-NOT: torch.aten.expand 
// CHECK: torch.aten.neg %
// CHECK-NOT: torch.aten.
// CHECK: return
func.func @expand_same(%arg0: !torch.vtensor<[3,4],f32>) -> !torch.vtensor<[3,4],f32> {
  %int3 = torch.constant.int 3
  %int4 = torch.constant.int 4
  %0 = torch.prim.ListConstruct %int3, %int4 : (!torch.int, !torch.int) -> !torch.list<int>
  %false = torch.constant.bool false
  %1 = torch.aten.expand %arg0, %0, %false : !torch.vtensor<[3,4],f32>, !torch.list<int>, !torch.bool -> !torch.vtensor<[3,4],f32>
  %2 = torch.aten.neg %1 : !torch.vtensor<[3,4],f32> -> !torch.vtensor<[3,4],f32>
  return %2 : !torch.vtensor<[3,4],f32>
}

// -----

// slice(x) -> x  (same sizes)
// CHECK-LABEL: func.func @slice_all(
// CHECK-NOT: torch.aten.slice.Tensor 
// CHECK: torch.aten.neg %
// CHECK-NOT: torch.aten.
// CHECK: return
func.func @slice_all(%arg0: !torch.vtensor<[3,4],f32>) -> !torch.vtensor<[3,4],f32> {
  %int1 = torch.constant.int 1
  %int0 = torch.constant.int 0
  %int4 = torch.constant.int 4
  %int1_0 = torch.constant.int 1
  %0 = torch.aten.slice.Tensor %arg0, %int1, %int0, %int4, %int1_0 : !torch.vtensor<[3,4],f32>, !torch.int, !torch.int, !torch.int, !torch.int -> !torch.vtensor<[3,4],f32>
  %1 = torch.aten.neg %0 : !torch.vtensor<[3,4],f32> -> !torch.vtensor<[3,4],f32>
  return %1 : !torch.vtensor<[3,4],f32>
}

// -----

// squeeze(x) -> x  (same sizes)
// CHECK-LABEL: func.func @squeeze_none(
// CHECK-NOT: torch.aten.squeeze.dim 
// CHECK: torch.aten.neg %
// CHECK-NOT: torch.aten.
// CHECK: return
func.func @squeeze_none(%arg0: !torch.vtensor<[3,4],f32>) -> !torch.vtensor<[3,4],f32> {
  %int0 = torch.constant.int 0
  %0 = torch.aten.squeeze.dim %arg0, %int0 : !torch.vtensor<[3,4],f32>, !torch.int -> !torch.vtensor<[3,4],f32>
  %1 = torch.aten.neg %0 : !torch.vtensor<[3,4],f32> -> !torch.vtensor<[3,4],f32>
  return %1 : !torch.vtensor<[3,4],f32>
}

// -----

// clone(x) -> x  (same strides)
// CHECK-LABEL: func.func @clone(
// CHECK-NOT: torch.aten.clone 
// CHECK: torch.aten.neg %
// CHECK-NOT: torch.aten.
// CHECK: return
func.func @clone(%arg0: !torch.vtensor<[3,4],f32>) -> !torch.vtensor<[3,4],f32> {
  %none = torch.constant.none
  %0 = torch.aten.clone %arg0, %none : !torch.vtensor<[3,4],f32>, !torch.none -> !torch.vtensor<[3,4],f32>
  %1 = torch.aten.neg %0 : !torch.vtensor<[3,4],f32> -> !torch.vtensor<[3,4],f32>
  return %1 : !torch.vtensor<[3,4],f32>
}

// -----

// view(view(x)) -> view(x)
// CHECK-LABEL: func.func @view_view(
// CHECK: torch.aten.view %
// CHECK: torch.aten.neg %
// CHECK-NOT: torch.aten.
// CHECK: return
func.func @view_view(%arg0: !torch.vtensor<[3,4],f32>) -> !torch.vtensor<[12],f32> {
  %int4 = torch.constant.int 4
  %int3 = torch.constant.int 3
  %0 = torch.prim.ListConstruct %int4, %int3 : (!torch.int, !torch.int) -> !torch.list<int>
  %1 = torch.aten.view %arg0, %0 : !torch.vtensor<[3,4],f32>, !torch.list<int> -> !torch.vtensor<[4,3],f32>
  %int12 = torch.constant.int 12
  %2 = torch.prim.ListConstruct %int12 : (!torch.int) -> !torch.list<int>
  %3 = torch.aten.view %1, %2 : !torch.vtensor<[4,3],f32>, !torch.list<int> -> !torch.vtensor<[12],f32>
  %4 = torch.aten.neg %3 : !torch.vtensor<[12],f32> -> !torch.vtensor<[12],f32>
  return %4 : !torch.vtensor<[12],f32>
}

// -----

// view(unsqueeze(x)) -> view(x)
// CHECK-LABEL: func.func @view_unsqueeze(
// CHECK-NOT: torch.aten.unsqueeze 
// CHECK: torch.aten.view %
// CHECK: torch.aten.neg %
// CHECK-NOT: torch.aten.
// CHECK: return
func.func @view_unsqueeze(%arg0: !torch.vtensor<[3,4],f32>) -> !torch.vtensor<[12],f32> {
  %int1 = torch.constant.int 1
  %0 = torch.aten.unsqueeze %arg0, %int1 : !torch.vtensor<[3,4],f32>, !torch.int -> !torch.vtensor<[3,1,4],f32>
  %int12 = torch.constant.int 12
  %1 = torch.prim.ListConstruct %int12 : (!torch.int) -> !torch.list<int>
  %2 = torch.aten.view %0, %1 : !torch.vtensor<[3,1,4],f32>, !torch.list<int> -> !torch.vtensor<[12],f32>
  %3 = torch.aten.neg %2 : !torch.vtensor<[12],f32> -> !torch.vtensor<[12],f32>
  return %3 : !torch.vtensor<[12],f32>
}

// -----

// view(permute(x)) -> view(x)
// CHECK-LABEL: func.func @view_permute(
// CHECK-NOT: torch.aten.permute 
// CHECK: torch.aten.view %
// CHECK: torch.aten.neg %
// CHECK-NOT: torch.aten.
// CHECK: return
func.func @view_permute(%arg0: !torch.vtensor<[3,4],f32>) -> !torch.vtensor<[12],f32> {
  %int3 = torch.constant.int 3
  %int1 = torch.constant.int 1
  %int4 = torch.constant.int 4
  %0 = torch.prim.ListConstruct %int3, %int1, %int4 : (!torch.int, !torch.int, !torch.int) -> !torch.list<int>
  %1 = torch.aten.view %arg0, %0 : !torch.vtensor<[3,4],f32>, !torch.list<int> -> !torch.vtensor<[3,1,4],f32>
  %int0 = torch.constant.int 0
  %int2 = torch.constant.int 2
  %int1_0 = torch.constant.int 1
  %2 = torch.prim.ListConstruct %int0, %int2, %int1_0 : (!torch.int, !torch.int, !torch.int) -> !torch.list<int>
  %3 = torch.aten.permute %1, %2 : !torch.vtensor<[3,1,4],f32>, !torch.list<int> -> !torch.vtensor<[3,4,1],f32>
  %int12 = torch.constant.int 12
  %4 = torch.prim.ListConstruct %int12 : (!torch.int) -> !torch.list<int>
  %5 = torch.aten.view %3, %4 : !torch.vtensor<[3,4,1],f32>, !torch.list<int> -> !torch.vtensor<[12],f32>
  %6 = torch.aten.neg %5 : !torch.vtensor<[12],f32> -> !torch.vtensor<[12],f32>
  return %6 : !torch.vtensor<[12],f32>
}

// -----

// expand(expand(x)) -> expand(x)
// CHECK-LABEL: func.func @expand_expand(
// CHECK: torch.aten.expand %
// CHECK: torch.aten.neg %
// CHECK-NOT: torch.aten.
// CHECK: return
func.func @expand_expand(%arg0: !torch.vtensor<[3,1],f32>) -> !torch.vtensor<[2,3,4],f32> {
  %int3 = torch.constant.int 3
  %int4 = torch.constant.int 4
  %0 = torch.prim.ListConstruct %int3, %int4 : (!torch.int, !torch.int) -> !torch.list<int>
  %false = torch.constant.bool false
  %1 = torch.aten.expand %arg0, %0, %false : !torch.vtensor<[3,1],f32>, !torch.list<int>, !torch.bool -> !torch.vtensor<[3,4],f32>
  %int2 = torch.constant.int 2
  %int3_0 = torch.constant.int 3
  %int4_1 = torch.constant.int 4
  %2 = torch.prim.ListConstruct %int2, %int3_0, %int4_1 : (!torch.int, !torch.int, !torch.int) -> !torch.list<int>
  %false_2 = torch.constant.bool false
  %3 = torch.aten.expand %1, %2, %false_2 : !torch.vtensor<[3,4],f32>, !torch.list<int>, !torch.bool -> !torch.vtensor<[2,3,4],f32>
  %4 = torch.aten.neg %3 : !torch.vtensor<[2,3,4],f32> -> !torch.vtensor<[2,3,4],f32>
  return %4 : !torch.vtensor<[2,3,4],f32>
}

// -----

// squeeze(unsqueeze(x, a), b) -> x  (a = b)
// CHECK-LABEL: func.func @squeeze_unsqueeze(
// CHECK-NOT: torch.aten.unsqueeze 
// CHECK-NOT: torch.aten.squeeze.dim 
// CHECK: torch.aten.neg %
// CHECK-NOT: torch.aten.
// CHECK: return
func.func @squeeze_unsqueeze(%arg0: !torch.vtensor<[3,4],f32>) -> !torch.vtensor<[3,4],f32> {
  %int1 = torch.constant.int 1
  %0 = torch.aten.unsqueeze %arg0, %int1 : !torch.vtensor<[3,4],f32>, !torch.int -> !torch.vtensor<[3,1,4],f32>
  %int1_0 = torch.constant.int 1
  %1 = torch.aten.squeeze.dim %0, %int1_0 : !torch.vtensor<[3,1,4],f32>, !torch.int -> !torch.vtensor<[3,4],f32>
  %2 = torch.aten.neg %1 : !torch.vtensor<[3,4],f32> -> !torch.vtensor<[3,4],f32>
  return %2 : !torch.vtensor<[3,4],f32>
}

// -----

// flip(flip(x, a), b) -> x  (a = b)
// CHECK-LABEL: func.func @flip_flip(
// CHECK-NOT: torch.aten.flip 
// CHECK: torch.aten.neg %
// CHECK-NOT: torch.aten.
// CHECK: return
func.func @flip_flip(%arg0: !torch.vtensor<[3,4],f32>) -> !torch.vtensor<[3,4],f32> {
  %int0 = torch.constant.int 0
  %0 = torch.prim.ListConstruct %int0 : (!torch.int) -> !torch.list<int>
  %1 = torch.aten.flip %arg0, %0 : !torch.vtensor<[3,4],f32>, !torch.list<int> -> !torch.vtensor<[3,4],f32>
  %int0_0 = torch.constant.int 0
  %2 = torch.prim.ListConstruct %int0_0 : (!torch.int) -> !torch.list<int>
  %3 = torch.aten.flip %1, %2 : !torch.vtensor<[3,4],f32>, !torch.list<int> -> !torch.vtensor<[3,4],f32>
  %4 = torch.aten.neg %3 : !torch.vtensor<[3,4],f32> -> !torch.vtensor<[3,4],f32>
  return %4 : !torch.vtensor<[3,4],f32>
}

// -----

// t(x) -> x  (order kept)
// CHECK-LABEL: func.func @t_nothing(
// CHECK-NOT: torch.aten.t 
// CHECK: torch.aten.neg %
// CHECK-NOT: torch.aten.
// CHECK: return
func.func @t_nothing(%arg0: !torch.vtensor<[5],f32>) -> !torch.vtensor<[5],f32> {
  %0 = torch.aten.t %arg0 : !torch.vtensor<[5],f32> -> !torch.vtensor<[5],f32>
  %1 = torch.aten.neg %0 : !torch.vtensor<[5],f32> -> !torch.vtensor<[5],f32>
  return %1 : !torch.vtensor<[5],f32>
}

// -----

// t(t(x)) -> permute(x) or x
// CHECK-LABEL: func.func @t_t(
// CHECK-NOT: torch.aten.t 
// CHECK: torch.aten.neg %
// CHECK-NOT: torch.aten.
// CHECK: return
func.func @t_t(%arg0: !torch.vtensor<[3,4],f32>) -> !torch.vtensor<[3,4],f32> {
  %0 = torch.aten.t %arg0 : !torch.vtensor<[3,4],f32> -> !torch.vtensor<[4,3],f32>
  %1 = torch.aten.t %0 : !torch.vtensor<[4,3],f32> -> !torch.vtensor<[3,4],f32>
  %2 = torch.aten.neg %1 : !torch.vtensor<[3,4],f32> -> !torch.vtensor<[3,4],f32>
  return %2 : !torch.vtensor<[3,4],f32>
}

// -----

// t(transpose(x)) -> permute(x) or x
// CHECK-LABEL: func.func @t_transpose(
// CHECK-NOT: torch.aten.transpose.int 
// CHECK-NOT: torch.aten.t 
// CHECK: torch.aten.neg %
// CHECK-NOT: torch.aten.
// CHECK: return
func.func @t_transpose(%arg0: !torch.vtensor<[3,4],f32>) -> !torch.vtensor<[3,4],f32> {
  %int0 = torch.constant.int 0
  %int1 = torch.constant.int 1
  %0 = torch.aten.transpose.int %arg0, %int0, %int1 : !torch.vtensor<[3,4],f32>, !torch.int, !torch.int -> !torch.vtensor<[4,3],f32>
  %1 = torch.aten.t %0 : !torch.vtensor<[4,3],f32> -> !torch.vtensor<[3,4],f32>
  %2 = torch.aten.neg %1 : !torch.vtensor<[3,4],f32> -> !torch.vtensor<[3,4],f32>
  return %2 : !torch.vtensor<[3,4],f32>
}

// -----

// t(permute(x)) -> permute(x) or x
// CHECK-LABEL: func.func @t_permute(
// CHECK-NOT: torch.aten.permute 
// CHECK-NOT: torch.aten.t 
// CHECK: torch.aten.neg %
// CHECK-NOT: torch.aten.
// CHECK: return
func.func @t_permute(%arg0: !torch.vtensor<[3,4],f32>) -> !torch.vtensor<[3,4],f32> {
  %int1 = torch.constant.int 1
  %int0 = torch.constant.int 0
  %0 = torch.prim.ListConstruct %int1, %int0 : (!torch.int, !torch.int) -> !torch.list<int>
  %1 = torch.aten.permute %arg0, %0 : !torch.vtensor<[3,4],f32>, !torch.list<int> -> !torch.vtensor<[4,3],f32>
  %2 = torch.aten.t %1 : !torch.vtensor<[4,3],f32> -> !torch.vtensor<[3,4],f32>
  %3 = torch.aten.neg %2 : !torch.vtensor<[3,4],f32> -> !torch.vtensor<[3,4],f32>
  return %3 : !torch.vtensor<[3,4],f32>
}

// -----

// transpose(x) -> x  (order kept)
// CHECK-LABEL: func.func @transpose_nothing(
// CHECK-NOT: torch.aten.transpose.int 
// CHECK: torch.aten.neg %
// CHECK-NOT: torch.aten.
// CHECK: return
func.func @transpose_nothing(%arg0: !torch.vtensor<[3,4],f32>) -> !torch.vtensor<[3,4],f32> {
  %int1 = torch.constant.int 1
  %int1_0 = torch.constant.int 1
  %0 = torch.aten.transpose.int %arg0, %int1, %int1_0 : !torch.vtensor<[3,4],f32>, !torch.int, !torch.int -> !torch.vtensor<[3,4],f32>
  %1 = torch.aten.neg %0 : !torch.vtensor<[3,4],f32> -> !torch.vtensor<[3,4],f32>
  return %1 : !torch.vtensor<[3,4],f32>
}

// -----

// transpose(t(x)) -> permute(x) or x
// CHECK-LABEL: func.func @transpose_t(
// CHECK-NOT: torch.aten.t 
// CHECK-NOT: torch.aten.transpose.int 
// CHECK: torch.aten.neg %
// CHECK-NOT: torch.aten.
// CHECK: return
func.func @transpose_t(%arg0: !torch.vtensor<[3,4],f32>) -> !torch.vtensor<[3,4],f32> {
  %0 = torch.aten.t %arg0 : !torch.vtensor<[3,4],f32> -> !torch.vtensor<[4,3],f32>
  %int0 = torch.constant.int 0
  %int1 = torch.constant.int 1
  %1 = torch.aten.transpose.int %0, %int0, %int1 : !torch.vtensor<[4,3],f32>, !torch.int, !torch.int -> !torch.vtensor<[3,4],f32>
  %2 = torch.aten.neg %1 : !torch.vtensor<[3,4],f32> -> !torch.vtensor<[3,4],f32>
  return %2 : !torch.vtensor<[3,4],f32>
}

// -----

// transpose(transpose(x)) -> permute(x) or x
// CHECK-LABEL: func.func @transpose_transpose(
// CHECK-NOT: torch.aten.transpose.int 
// CHECK: torch.aten.neg %
// CHECK-NOT: torch.aten.
// CHECK: return
func.func @transpose_transpose(%arg0: !torch.vtensor<[3,4],f32>) -> !torch.vtensor<[3,4],f32> {
  %int0 = torch.constant.int 0
  %int1 = torch.constant.int 1
  %0 = torch.aten.transpose.int %arg0, %int0, %int1 : !torch.vtensor<[3,4],f32>, !torch.int, !torch.int -> !torch.vtensor<[4,3],f32>
  %int0_0 = torch.constant.int 0
  %int1_1 = torch.constant.int 1
  %1 = torch.aten.transpose.int %0, %int0_0, %int1_1 : !torch.vtensor<[4,3],f32>, !torch.int, !torch.int -> !torch.vtensor<[3,4],f32>
  %2 = torch.aten.neg %1 : !torch.vtensor<[3,4],f32> -> !torch.vtensor<[3,4],f32>
  return %2 : !torch.vtensor<[3,4],f32>
}

// -----

// transpose(permute(x)) -> permute(x) or x
// CHECK-LABEL: func.func @transpose_permute(
// CHECK-NOT: torch.aten.permute 
// CHECK-NOT: torch.aten.transpose.int 
// CHECK: torch.aten.neg %
// CHECK-NOT: torch.aten.
// CHECK: return
func.func @transpose_permute(%arg0: !torch.vtensor<[3,4],f32>) -> !torch.vtensor<[3,4],f32> {
  %int1 = torch.constant.int 1
  %int0 = torch.constant.int 0
  %0 = torch.prim.ListConstruct %int1, %int0 : (!torch.int, !torch.int) -> !torch.list<int>
  %1 = torch.aten.permute %arg0, %0 : !torch.vtensor<[3,4],f32>, !torch.list<int> -> !torch.vtensor<[4,3],f32>
  %int0_0 = torch.constant.int 0
  %int1_1 = torch.constant.int 1
  %2 = torch.aten.transpose.int %1, %int0_0, %int1_1 : !torch.vtensor<[4,3],f32>, !torch.int, !torch.int -> !torch.vtensor<[3,4],f32>
  %3 = torch.aten.neg %2 : !torch.vtensor<[3,4],f32> -> !torch.vtensor<[3,4],f32>
  return %3 : !torch.vtensor<[3,4],f32>
}

// -----

// permute(x) -> x  (order kept)
// CHECK-LABEL: func.func @permute_nothing(
// CHECK-NOT: torch.aten.permute 
// CHECK: torch.aten.neg %
// CHECK-NOT: torch.aten.
// CHECK: return
func.func @permute_nothing(%arg0: !torch.vtensor<[3,4],f32>) -> !torch.vtensor<[3,4],f32> {
  %int0 = torch.constant.int 0
  %int1 = torch.constant.int 1
  %0 = torch.prim.ListConstruct %int0, %int1 : (!torch.int, !torch.int) -> !torch.list<int>
  %1 = torch.aten.permute %arg0, %0 : !torch.vtensor<[3,4],f32>, !torch.list<int> -> !torch.vtensor<[3,4],f32>
  %2 = torch.aten.neg %1 : !torch.vtensor<[3,4],f32> -> !torch.vtensor<[3,4],f32>
  return %2 : !torch.vtensor<[3,4],f32>
}

// -----

// permute(t(x)) -> permute(x) or x
// CHECK-LABEL: func.func @permute_t(
// CHECK-NOT: torch.aten.t 
// CHECK-NOT: torch.aten.permute 
// CHECK: torch.aten.neg %
// CHECK-NOT: torch.aten.
// CHECK: return
func.func @permute_t(%arg0: !torch.vtensor<[3,4],f32>) -> !torch.vtensor<[3,4],f32> {
  %0 = torch.aten.t %arg0 : !torch.vtensor<[3,4],f32> -> !torch.vtensor<[4,3],f32>
  %int1 = torch.constant.int 1
  %int0 = torch.constant.int 0
  %1 = torch.prim.ListConstruct %int1, %int0 : (!torch.int, !torch.int) -> !torch.list<int>
  %2 = torch.aten.permute %0, %1 : !torch.vtensor<[4,3],f32>, !torch.list<int> -> !torch.vtensor<[3,4],f32>
  %3 = torch.aten.neg %2 : !torch.vtensor<[3,4],f32> -> !torch.vtensor<[3,4],f32>
  return %3 : !torch.vtensor<[3,4],f32>
}

// -----

// permute(transpose(x)) -> permute(x) or x
// CHECK-LABEL: func.func @permute_transpose(
// CHECK-NOT: torch.aten.transpose.int 
// CHECK-NOT: torch.aten.permute 
// CHECK: torch.aten.neg %
// CHECK-NOT: torch.aten.
// CHECK: return
func.func @permute_transpose(%arg0: !torch.vtensor<[3,4],f32>) -> !torch.vtensor<[3,4],f32> {
  %int0 = torch.constant.int 0
  %int1 = torch.constant.int 1
  %0 = torch.aten.transpose.int %arg0, %int0, %int1 : !torch.vtensor<[3,4],f32>, !torch.int, !torch.int -> !torch.vtensor<[4,3],f32>
  %int1_0 = torch.constant.int 1
  %int0_1 = torch.constant.int 0
  %1 = torch.prim.ListConstruct %int1_0, %int0_1 : (!torch.int, !torch.int) -> !torch.list<int>
  %2 = torch.aten.permute %0, %1 : !torch.vtensor<[4,3],f32>, !torch.list<int> -> !torch.vtensor<[3,4],f32>
  %3 = torch.aten.neg %2 : !torch.vtensor<[3,4],f32> -> !torch.vtensor<[3,4],f32>
  return %3 : !torch.vtensor<[3,4],f32>
}

// -----

// permute(permute(x)) -> permute(x) or x
// CHECK-LABEL: func.func @permute_permute(
// CHECK-NOT: torch.aten.permute 
// CHECK: torch.aten.neg %
// CHECK-NOT: torch.aten.
// CHECK: return
func.func @permute_permute(%arg0: !torch.vtensor<[3,4],f32>) -> !torch.vtensor<[3,4],f32> {
  %int1 = torch.constant.int 1
  %int0 = torch.constant.int 0
  %0 = torch.prim.ListConstruct %int1, %int0 : (!torch.int, !torch.int) -> !torch.list<int>
  %1 = torch.aten.permute %arg0, %0 : !torch.vtensor<[3,4],f32>, !torch.list<int> -> !torch.vtensor<[4,3],f32>
  %int1_0 = torch.constant.int 1
  %int0_1 = torch.constant.int 0
  %2 = torch.prim.ListConstruct %int1_0, %int0_1 : (!torch.int, !torch.int) -> !torch.list<int>
  %3 = torch.aten.permute %1, %2 : !torch.vtensor<[4,3],f32>, !torch.list<int> -> !torch.vtensor<[3,4],f32>
  %4 = torch.aten.neg %3 : !torch.vtensor<[3,4],f32> -> !torch.vtensor<[3,4],f32>
  return %4 : !torch.vtensor<[3,4],f32>
}

// -----

// cat(xs) -> x  (one tensor)
// CHECK-LABEL: func.func @cat_one(
// CHECK-NOT: torch.aten.cat 
// CHECK: torch.aten.neg %
// CHECK-NOT: torch.aten.
// CHECK: return
func.func @cat_one(%arg0: !torch.vtensor<[3,4],f32>) -> !torch.vtensor<[3,4],f32> {
  %0 = torch.prim.ListConstruct %arg0 : (!torch.vtensor<[3,4],f32>) -> !torch.list<vtensor>
  %int1 = torch.constant.int 1
  %1 = torch.aten.cat %0, %int1 : !torch.list<vtensor>, !torch.int -> !torch.vtensor<[3,4],f32>
  %2 = torch.aten.neg %1 : !torch.vtensor<[3,4],f32> -> !torch.vtensor<[3,4],f32>
  return %2 : !torch.vtensor<[3,4],f32>
}

// -----

// cat(xs, d) -> x  (all its slices, in order)
// CHECK-LABEL: func.func @cat_slices(
// CHECK-NOT: torch.aten.slice.Tensor 
// CHECK-NOT: torch.aten.cat 
// CHECK: torch.aten.neg %
// CHECK-NOT: torch.aten.
// CHECK: return
func.func @cat_slices(%arg0: !torch.vtensor<[3,4],f32>) -> !torch.vtensor<[3,4],f32> {
  %int1 = torch.constant.int 1
  %int0 = torch.constant.int 0
  %int1_0 = torch.constant.int 1
  %int1_1 = torch.constant.int 1
  %0 = torch.aten.slice.Tensor %arg0, %int1, %int0, %int1_0, %int1_1 : !torch.vtensor<[3,4],f32>, !torch.int, !torch.int, !torch.int, !torch.int -> !torch.vtensor<[3,1],f32>
  %int1_2 = torch.constant.int 1
  %int1_3 = torch.constant.int 1
  %int3 = torch.constant.int 3
  %int1_4 = torch.constant.int 1
  %1 = torch.aten.slice.Tensor %arg0, %int1_2, %int1_3, %int3, %int1_4 : !torch.vtensor<[3,4],f32>, !torch.int, !torch.int, !torch.int, !torch.int -> !torch.vtensor<[3,2],f32>
  %int1_5 = torch.constant.int 1
  %int3_6 = torch.constant.int 3
  %int9223372036854775807 = torch.constant.int 9223372036854775807
  %int1_7 = torch.constant.int 1
  %2 = torch.aten.slice.Tensor %arg0, %int1_5, %int3_6, %int9223372036854775807, %int1_7 : !torch.vtensor<[3,4],f32>, !torch.int, !torch.int, !torch.int, !torch.int -> !torch.vtensor<[3,1],f32>
  %3 = torch.prim.ListConstruct %0, %1, %2 : (!torch.vtensor<[3,1],f32>, !torch.vtensor<[3,2],f32>, !torch.vtensor<[3,1],f32>) -> !torch.list<vtensor>
  %int1_8 = torch.constant.int 1
  %4 = torch.aten.cat %3, %int1_8 : !torch.list<vtensor>, !torch.int -> !torch.vtensor<[3,4],f32>
  %5 = torch.aten.neg %4 : !torch.vtensor<[3,4],f32> -> !torch.vtensor<[3,4],f32>
  return %5 : !torch.vtensor<[3,4],f32>
}

// -----

// stack(xs, d) -> x  (all it was unbound into)
// CHECK-LABEL: func.func @stack_unbind(
// CHECK-NOT: torch.aten.unbind.int 
// CHECK-NOT: torch.aten.stack 
// CHECK: torch.aten.neg %
// CHECK-NOT: torch.aten.
// CHECK: return
func.func @stack_unbind(%arg0: !torch.vtensor<[3,4],f32>) -> !torch.vtensor<[3,4],f32> {
  %int1 = torch.constant.int 1
  %0 = torch.aten.unbind.int %arg0, %int1 : !torch.vtensor<[3,4],f32>, !torch.int -> !torch.list<vtensor>
  %1:4 = torch.prim.ListUnpack %0 : !torch.list<vtensor> -> !torch.vtensor<[3],f32>, !torch.vtensor<[3],f32>, !torch.vtensor<[3],f32>, !torch.vtensor<[3],f32>
  %2 = torch.prim.ListConstruct %1#0, %1#1, %1#2, %1#3 : (!torch.vtensor<[3],f32>, !torch.vtensor<[3],f32>, !torch.vtensor<[3],f32>, !torch.vtensor<[3],f32>) -> !torch.list<vtensor>
  %int1_0 = torch.constant.int 1
  %3 = torch.aten.stack %2, %int1_0 : !torch.list<vtensor>, !torch.int -> !torch.vtensor<[3,4],f32>
  %4 = torch.aten.neg %3 : !torch.vtensor<[3,4],f32> -> !torch.vtensor<[3,4],f32>
  return %4 : !torch.vtensor<[3,4],f32>
}

// -----

// slice(cat(xs, e), d) -> a slice of one of xs, or all of it
// CHECK-LABEL: func.func @slice_cat(
// CHECK-NOT: torch.aten.cat 
// CHECK: torch.aten.slice.Tensor %
// CHECK: torch.aten.neg %
// CHECK-NOT: torch.aten.
// CHECK: return
func.func @slice_cat(%arg0: !torch.vtensor<[3,4],f32>, %arg1: !torch.vtensor<[3,4],f32>) -> !torch.vtensor<[3,2],f32> {
  %0 = torch.prim.ListConstruct %arg0, %arg1 : (!torch.vtensor<[3,4],f32>, !torch.vtensor<[3,4],f32>) -> !torch.list<vtensor>
  %int1 = torch.constant.int 1
  %1 = torch.aten.cat %0, %int1 : !torch.list<vtensor>, !torch.int -> !torch.vtensor<[3,8],f32>
  %int1_0 = torch.constant.int 1
  %int5 = torch.constant.int 5
  %int7 = torch.constant.int 7
  %int1_1 = torch.constant.int 1
  %2 = torch.aten.slice.Tensor %1, %int1_0, %int5, %int7, %int1_1 : !torch.vtensor<[3,8],f32>, !torch.int, !torch.int, !torch.int, !torch.int -> !torch.vtensor<[3,2],f32>
  %3 = torch.aten.neg %2 : !torch.vtensor<[3,2],f32> -> !torch.vtensor<[3,2],f32>
  return %3 : !torch.vtensor<[3,2],f32>
}

// -----

// add(write(x, a), write(y, b)) -> write(write(x, a + 0), b + 0)  (x, y = 0)
// CHECK-LABEL: func.func @add_scatters(
// SAFE: torch.aten.add.Scalar %arg0
// SAFE: torch.aten.add.Scalar %arg1
// CHECK: %[[X:.+]] = torch.aten.slice_scatter %{{.+}}, %{{.+}}, %int1, %int0, %int8, %int2
// CHECK: %[[Y:.+]] = torch.aten.slice_scatter %[[X]], %{{.+}}, %int1, %int1, %int4, %int2
// SAFE: torch.aten.add.Scalar %arg2
// CHECK: torch.aten.slice_scatter %[[Y]], %{{.+}}, %int1, %int5, %none, %int2
// CHECK-NOT: torch.aten.add.Tensor
// CHECK: return
func.func @add_scatters(%arg0: !torch.vtensor<[3,4],f32>, %arg1: !torch.vtensor<[3,2],f32>, %arg2: !torch.vtensor<[3,2],f32>) -> !torch.vtensor<[3,8],f32> {
  %int0 = torch.constant.int 0
  %int1 = torch.constant.int 1
  %int2 = torch.constant.int 2
  %int3 = torch.constant.int 3
  %int4 = torch.constant.int 4
  %int5 = torch.constant.int 5
  %int8 = torch.constant.int 8
  %none = torch.constant.none
  %sizes = torch.prim.ListConstruct %int3, %int8 : (!torch.int, !torch.int) -> !torch.list<int>
  %zeros = torch.aten.zeros %sizes, %none, %none, %none, %none : !torch.list<int>, !torch.none, !torch.none, !torch.none, !torch.none -> !torch.vtensor<[3,8],f32>
  %0 = torch.aten.slice_scatter %zeros, %arg0, %int1, %int0, %int8, %int2 : !torch.vtensor<[3,8],f32>, !torch.vtensor<[3,4],f32>, !torch.int, !torch.int, !torch.int, !torch.int -> !torch.vtensor<[3,8],f32>
  %1 = torch.aten.slice_scatter %zeros, %arg1, %int1, %int1, %int4, %int2 : !torch.vtensor<[3,8],f32>, !torch.vtensor<[3,2],f32>, !torch.int, !torch.int, !torch.int, !torch.int -> !torch.vtensor<[3,8],f32>
  %2 = torch.aten.slice_scatter %zeros, %arg2, %int1, %int5, %none, %int2 : !torch.vtensor<[3,8],f32>, !torch.vtensor<[3,2],f32>, !torch.int, !torch.int, !torch.none, !torch.int -> !torch.vtensor<[3,8],f32>
  %3 = torch.aten.add.Tensor %0, %1, %int1 : !torch.vtensor<[3,8],f32>, !torch.vtensor<[3,8],f32>, !torch.int -> !torch.vtensor<[3,8],f32>
  %4 = torch.aten.add.Tensor %3, %2, %int1 : !torch.vtensor<[3,8],f32>, !torch.vtensor<[3,8],f32>, !torch.int -> !torch.vtensor<[3,8],f32>
  return %4 : !torch.vtensor<[3,8],f32>
}

// -----

// write(write(x, a), b) -> cat([a, b])  (all of x)
// CHECK-LABEL: func.func @writes_cat(
// CHECK: %[[X:.+]] = torch.aten.unsqueeze %arg1, %int1
// CHECK: %[[ALL:.+]] = torch.prim.ListConstruct %[[X]], %arg2
// CHECK: torch.aten.cat %[[ALL]], %int1
// CHECK-NOT: torch.aten.select_scatter
// CHECK: return
func.func @writes_cat(%arg0: !torch.vtensor<[3,2,4],f32>, %arg1: !torch.vtensor<[3,4],f32>, %arg2: !torch.vtensor<[3,1,4],f32>) -> !torch.vtensor<[3,2,4],f32> {
  %int0 = torch.constant.int 0
  %int1 = torch.constant.int 1
  %int2 = torch.constant.int 2
  %0 = torch.aten.slice_scatter %arg0, %arg2, %int1, %int1, %int2, %int1 : !torch.vtensor<[3,2,4],f32>, !torch.vtensor<[3,1,4],f32>, !torch.int, !torch.int, !torch.int, !torch.int -> !torch.vtensor<[3,2,4],f32>
  %1 = torch.aten.select_scatter %0, %arg1, %int1, %int0 : !torch.vtensor<[3,2,4],f32>, !torch.vtensor<[3,4],f32>, !torch.int, !torch.int -> !torch.vtensor<[3,2,4],f32>
  return %1 : !torch.vtensor<[3,2,4],f32>
}

// -----

// cast(x) -> x  (same element type)
// CHECK-LABEL: func.func @cast_same(
// CHECK-NOT: torch.aten._to_copy 
// CHECK: torch.aten.neg %
// CHECK-NOT: torch.aten.
// CHECK: return
func.func @cast_same(%arg0: !torch.vtensor<[3,4],f32>) -> !torch.vtensor<[3,4],f32> {
  %int6 = torch.constant.int 6
  %none = torch.constant.none
  %none_0 = torch.constant.none
  %none_1 = torch.constant.none
  %false = torch.constant.bool false
  %none_2 = torch.constant.none
  %0 = torch.aten._to_copy %arg0, %int6, %none, %none_0, %none_1, %false, %none_2 : !torch.vtensor<[3,4],f32>, !torch.int, !torch.none, !torch.none, !torch.none, !torch.bool, !torch.none -> !torch.vtensor<[3,4],f32>
  %1 = torch.aten.neg %0 : !torch.vtensor<[3,4],f32> -> !torch.vtensor<[3,4],f32>
  return %1 : !torch.vtensor<[3,4],f32>
}

// -----

// cast(cast(x)) -> cast(x)
// CHECK-LABEL: func.func @cast_cast(
// CHECK-NOT: torch.aten._to_copy 
// CHECK: torch.aten.neg %
// CHECK-NOT: torch.aten.
// CHECK: return
func.func @cast_cast(%arg0: !torch.vtensor<[6],f16>) -> !torch.vtensor<[6],f16> {
  %int6 = torch.constant.int 6
  %none = torch.constant.none
  %none_0 = torch.constant.none
  %none_1 = torch.constant.none
  %false = torch.constant.bool false
  %none_2 = torch.constant.none
  %0 = torch.aten._to_copy %arg0, %int6, %none, %none_0, %none_1, %false, %none_2 : !torch.vtensor<[6],f16>, !torch.int, !torch.none, !torch.none, !torch.none, !torch.bool, !torch.none -> !torch.vtensor<[6],f32>
  %int5 = torch.constant.int 5
  %none_3 = torch.constant.none
  %none_4 = torch.constant.none
  %none_5 = torch.constant.none
  %false_6 = torch.constant.bool false
  %none_7 = torch.constant.none
  %1 = torch.aten._to_copy %0, %int5, %none_3, %none_4, %none_5, %false_6, %none_7 : !torch.vtensor<[6],f32>, !torch.int, !torch.none, !torch.none, !torch.none, !torch.bool, !torch.none -> !torch.vtensor<[6],f16>
  %2 = torch.aten.neg %1 : !torch.vtensor<[6],f16> -> !torch.vtensor<[6],f16>
  return %2 : !torch.vtensor<[6],f16>
}

// -----

// sum(x, dims, keep) -> x  (dims of size 1)
// CHECK-LABEL: func.func @sum_of_one(
// CHECK-NOT: torch.aten.sum.dim_IntList 
// CHECK: torch.aten.abs %
// CHECK: torch.aten.neg %
// CHECK-NOT: torch.aten.
// CHECK: return
func.func @sum_of_one(%arg0: !torch.vtensor<[3,1],f32>) -> !torch.vtensor<[3,1],f32> {
  %0 = torch.aten.abs %arg0 : !torch.vtensor<[3,1],f32> -> !torch.vtensor<[3,1],f32>
  %int1 = torch.constant.int 1
  %1 = torch.prim.ListConstruct %int1 : (!torch.int) -> !torch.list<int>
  %true = torch.constant.bool true
  %none = torch.constant.none
  %2 = torch.aten.sum.dim_IntList %0, %1, %true, %none : !torch.vtensor<[3,1],f32>, !torch.list<int>, !torch.bool, !torch.none -> !torch.vtensor<[3,1],f32>
  %3 = torch.aten.neg %2 : !torch.vtensor<[3,1],f32> -> !torch.vtensor<[3,1],f32>
  return %3 : !torch.vtensor<[3,1],f32>
}

// -----

// mean(x, dims, keep) -> x  (dims of size 1)
// CHECK-LABEL: func.func @mean_of_one(
// CHECK-NOT: torch.aten.mean.dim 
// CHECK: torch.aten.abs %
// CHECK: torch.aten.neg %
// CHECK-NOT: torch.aten.
// CHECK: return
func.func @mean_of_one(%arg0: !torch.vtensor<[3,1],f32>) -> !torch.vtensor<[3,1],f32> {
  %0 = torch.aten.abs %arg0 : !torch.vtensor<[3,1],f32> -> !torch.vtensor<[3,1],f32>
  %int1 = torch.constant.int 1
  %1 = torch.prim.ListConstruct %int1 : (!torch.int) -> !torch.list<int>
  %true = torch.constant.bool true
  %none = torch.constant.none
  %2 = torch.aten.mean.dim %0, %1, %true, %none : !torch.vtensor<[3,1],f32>, !torch.list<int>, !torch.bool, !torch.none -> !torch.vtensor<[3,1],f32>
  %3 = torch.aten.neg %2 : !torch.vtensor<[3,1],f32> -> !torch.vtensor<[3,1],f32>
  return %3 : !torch.vtensor<[3,1],f32>
}

// -----

// amax(x, dims, keep) -> x  (dims of size 1)
// CHECK-LABEL: func.func @amax_of_one(
// CHECK-NOT: torch.aten.amax 
// CHECK: torch.aten.neg %
// CHECK-NOT: torch.aten.
// CHECK: return
func.func @amax_of_one(%arg0: !torch.vtensor<[3,1],f32>) -> !torch.vtensor<[3,1],f32> {
  %int1 = torch.constant.int 1
  %0 = torch.prim.ListConstruct %int1 : (!torch.int) -> !torch.list<int>
  %true = torch.constant.bool true
  %1 = torch.aten.amax %arg0, %0, %true : !torch.vtensor<[3,1],f32>, !torch.list<int>, !torch.bool -> !torch.vtensor<[3,1],f32>
  %2 = torch.aten.neg %1 : !torch.vtensor<[3,1],f32> -> !torch.vtensor<[3,1],f32>
  return %2 : !torch.vtensor<[3,1],f32>
}

// -----

// amin(x, dims, keep) -> x  (dims of size 1)
// CHECK-LABEL: func.func @amin_of_one(
// CHECK-NOT: torch.aten.amin 
// CHECK: torch.aten.neg %
// CHECK-NOT: torch.aten.
// CHECK: return
func.func @amin_of_one(%arg0: !torch.vtensor<[3,1],f32>) -> !torch.vtensor<[3,1],f32> {
  %int1 = torch.constant.int 1
  %0 = torch.prim.ListConstruct %int1 : (!torch.int) -> !torch.list<int>
  %true = torch.constant.bool true
  %1 = torch.aten.amin %arg0, %0, %true : !torch.vtensor<[3,1],f32>, !torch.list<int>, !torch.bool -> !torch.vtensor<[3,1],f32>
  %2 = torch.aten.neg %1 : !torch.vtensor<[3,1],f32> -> !torch.vtensor<[3,1],f32>
  return %2 : !torch.vtensor<[3,1],f32>
}

// -----

// bmm(x, y) -> matmul(x, y)
// CHECK-LABEL: func.func @bmm(
// CHECK-NOT: torch.aten.bmm 
// CHECK: torch.aten.matmul %
// CHECK: torch.aten.neg %
// CHECK-NOT: torch.aten.
// CHECK: return
func.func @bmm(%arg0: !torch.vtensor<[2,3,4],f32>, %arg1: !torch.vtensor<[2,4,3],f32>) -> !torch.vtensor<[2,3,3],f32> {
  %0 = torch.aten.bmm %arg0, %arg1 : !torch.vtensor<[2,3,4],f32>, !torch.vtensor<[2,4,3],f32> -> !torch.vtensor<[2,3,3],f32>
  %1 = torch.aten.neg %0 : !torch.vtensor<[2,3,3],f32> -> !torch.vtensor<[2,3,3],f32>
  return %1 : !torch.vtensor<[2,3,3],f32>
}

// -----

// view(matmul(view(x), view(y))) -> matmul(x, y)
// CHECK-LABEL: func.func @matmul_of_views(
// CHECK-NOT: torch.aten.view 
// CHECK-NOT: torch.aten.bmm 
// CHECK: torch.aten.matmul %
// CHECK: torch.aten.sin %
// CHECK-NOT: torch.aten.
// CHECK: return
func.func @matmul_of_views(%arg0: !torch.vtensor<[2,3,4,5],f32>, %arg1: !torch.vtensor<[2,3,5,4],f32>) -> !torch.vtensor<[2,3,4,4],f32> {
  %int6 = torch.constant.int 6
  %int4 = torch.constant.int 4
  %int5 = torch.constant.int 5
  %0 = torch.prim.ListConstruct %int6, %int4, %int5 : (!torch.int, !torch.int, !torch.int) -> !torch.list<int>
  %1 = torch.aten.view %arg0, %0 : !torch.vtensor<[2,3,4,5],f32>, !torch.list<int> -> !torch.vtensor<[6,4,5],f32>
  %int6_0 = torch.constant.int 6
  %int5_1 = torch.constant.int 5
  %int4_2 = torch.constant.int 4
  %2 = torch.prim.ListConstruct %int6_0, %int5_1, %int4_2 : (!torch.int, !torch.int, !torch.int) -> !torch.list<int>
  %3 = torch.aten.view %arg1, %2 : !torch.vtensor<[2,3,5,4],f32>, !torch.list<int> -> !torch.vtensor<[6,5,4],f32>
  %4 = torch.aten.bmm %1, %3 : !torch.vtensor<[6,4,5],f32>, !torch.vtensor<[6,5,4],f32> -> !torch.vtensor<[6,4,4],f32>
  %int2 = torch.constant.int 2
  %int3 = torch.constant.int 3
  %int4_3 = torch.constant.int 4
  %int4_4 = torch.constant.int 4
  %5 = torch.prim.ListConstruct %int2, %int3, %int4_3, %int4_4 : (!torch.int, !torch.int, !torch.int, !torch.int) -> !torch.list<int>
  %6 = torch.aten.view %4, %5 : !torch.vtensor<[6,4,4],f32>, !torch.list<int> -> !torch.vtensor<[2,3,4,4],f32>
  %7 = torch.aten.sin %6 : !torch.vtensor<[2,3,4,4],f32> -> !torch.vtensor<[2,3,4,4],f32>
  return %7 : !torch.vtensor<[2,3,4,4],f32>
}

// -----

// baddbmm(x, a, b, 0, c) -> mul(bmm(a, b), c)
// CHECK-LABEL: func.func @baddbmm_beta_zero(
// CHECK-NOT: torch.aten.baddbmm 
// CHECK: torch.aten.matmul %
// CHECK: torch.aten.mul.Scalar %
// CHECK-NOT: torch.aten.
// CHECK: return
func.func @baddbmm_beta_zero(%arg0: !torch.vtensor<[2,3,3],f32>, %arg1: !torch.vtensor<[2,3,4],f32>, %arg2: !torch.vtensor<[2,4,3],f32>) -> !torch.vtensor<[2,3,3],f32> {
  %int0 = torch.constant.int 0
  %float5.000000e-01 = torch.constant.float 5.000000e-01
  %0 = torch.aten.baddbmm %arg0, %arg1, %arg2, %int0, %float5.000000e-01 : !torch.vtensor<[2,3,3],f32>, !torch.vtensor<[2,3,4],f32>, !torch.vtensor<[2,4,3],f32>, !torch.int, !torch.float -> !torch.vtensor<[2,3,3],f32>
  return %0 : !torch.vtensor<[2,3,3],f32>
}
