// Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// RUN: kiln-opt %s --split-input-file --pass-pipeline=convert-torch-to-kiln | filecheck %s

// To unsigned integers of 8 bits: times one over the scale, to the nearest even, within the bounds.
// CHECK-LABEL: func.func @quantize
// CHECK: arith.constant 4.000000e+00 : f32
// CHECK-NEXT: %[[S:.*]] = arith.mulf
// CHECK-NEXT: %[[R:.*]] = math.roundeven %[[S]] : f32
// CHECK: arith.constant 3.000000e+00 : f32
// CHECK: arith.addf %[[R]]
// CHECK: arith.cmpf olt
// CHECK: arith.cmpf ogt
// CHECK: arith.trunci %{{.*}} to i8
func.func @quantize(%x: !torch.vtensor<[4,8],f32>) -> !torch.vtensor<[4,8],ui8> {
  %scale = torch.constant.float 2.500000e-01
  %zero = torch.constant.int 3
  %low = torch.constant.int 0
  %high = torch.constant.int 255
  %0 = torch.quantized_decomposed.quantize_per_tensor %x, %scale, %zero, %low, %high, %low : !torch.vtensor<[4,8],f32>, !torch.float, !torch.int, !torch.int, !torch.int, !torch.int -> !torch.vtensor<[4,8],ui8>
  return %0 : !torch.vtensor<[4,8],ui8>
}

// -----

// Back, from unsigned integers.
// CHECK-LABEL: func.func @dequantize
// CHECK: %[[Q:.*]] = arith.uitofp %{{.*}} : i8 to f32
// CHECK: %[[D:.*]] = arith.subf %[[Q]]
// CHECK: arith.mulf %[[D]]
func.func @dequantize(%x: !torch.vtensor<[4,8],ui8>) -> !torch.vtensor<[4,8],f32> {
  %scale = torch.constant.float 2.500000e-01
  %zero = torch.constant.int 3
  %low = torch.constant.int 0
  %high = torch.constant.int 255
  %none = torch.constant.none
  %0 = torch.quantized_decomposed.dequantize_per_tensor %x, %scale, %zero, %low, %high, %low, %none : !torch.vtensor<[4,8],ui8>, !torch.float, !torch.int, !torch.int, !torch.int, !torch.int, !torch.none -> !torch.vtensor<[4,8],f32>
  return %0 : !torch.vtensor<[4,8],f32>
}

// -----

// A scale for each row; no zero points.
// CHECK-LABEL: func.func @rows
// CHECK: ins(%arg0, %arg1 : tensor<4x8xi8>, tensor<4xf32>)
// CHECK-NOT: arith.subf
// CHECK: arith.mulf
func.func @rows(%x: !torch.vtensor<[4,8],si8>, %scales: !torch.vtensor<[4],f32>) -> !torch.vtensor<[4,8],f32> {
  %axis = torch.constant.int 0
  %low = torch.constant.int -127
  %high = torch.constant.int 127
  %dtype = torch.constant.int 1
  %none = torch.constant.none
  %0 = torch.quantized_decomposed.dequantize_per_channel %x, %scales, %none, %axis, %low, %high, %dtype, %none : !torch.vtensor<[4,8],si8>, !torch.vtensor<[4],f32>, !torch.none, !torch.int, !torch.int, !torch.int, !torch.int, !torch.none -> !torch.vtensor<[4,8],f32>
  return %0 : !torch.vtensor<[4,8],f32>
}
