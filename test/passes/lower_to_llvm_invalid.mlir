// Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// RUN: kiln-opt %s --split-input-file --verify-diagnostics --pass-pipeline="lower-to-llvm"

// expected-error @below {{kernel @bool takes memref<?xi1>; expected a 1-D memref<?xT> of byte-sized elements (i1 as i8)}}
func.func @bool(%x: memref<?xi1>, %scratch: memref<?xi8>, %tid: index, %nt: index) {
  return
}

// -----

// expected-error @below {{kernel @order has type}}
func.func @order(%n: index, %x: memref<?xf32>, %scratch: memref<?xi8>, %tid: index, %nt: index) {
  return
}

// -----

// expected-error @below {{kernel @nothing_behind has type}}
func.func @nothing_behind(%x: memref<?xf32>) {
  return
}

// -----

// expected-error @below {{kernel @sized takes memref<4xf32>; expected a 1-D memref}}
func.func @sized(%x: memref<4xf32>, %scratch: memref<?xi8>, %tid: index, %nt: index) {
  return
}

// -----

// expected-error @below {{kernel @number has type}}
func.func @number(%x: f32, %scratch: memref<?xi8>, %tid: index, %nt: index) {
  return
}
