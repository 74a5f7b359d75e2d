// Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// RUN: not kiln-opt %s --cpu=x86-64-v4 --split-input-file --pass-pipeline="emit-cpu-kernels" 2>&1 | filecheck %s

// What the code generator does not express: each error names the op, the place and what is wrong.

// A tensor of different constants.

func.func @dense() -> tensor<4xf32> {
  %0 = "kiln.fusion"() ({
    // CHECK: invalid.mlir:{{[0-9]+:[0-9]+}}: error: arith.constant is not supported: a dense constant inside a fusion
    %c = arith.constant dense<[1.0, 2.0, 3.0, 4.0]> : tensor<4xf32>
    "kiln.yield"(%c) : (tensor<4xf32>) -> ()
  }) {kind = "pointwise", name = "dense"} : () -> tensor<4xf32>
  return %0 : tensor<4xf32>
}

// -----

// A reduction that would be computed once for each element of a pad.

func.func @below_pad(%x: tensor<4x8xf32>) -> tensor<6xf32> {
  %0 = "kiln.fusion"(%x) ({
  ^bb0(%a: tensor<4x8xf32>):
    %zero = arith.constant 0.0 : f32
    %e = "kiln.empty"() {shape = affine_map<() -> (4)>} : () -> tensor<4xf32>
    %i = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>], iterator_types = ["parallel"]} outs(%e : tensor<4xf32>) {
    ^bb0(%o: f32):
      linalg.yield %zero : f32
    } -> tensor<4xf32>
    // CHECK: invalid.mlir:{{[0-9]+:[0-9]+}}: error: linalg.generic is not supported: a reduction below a pad or concatenation
    %r = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0)>], iterator_types = ["parallel", "reduction"]} ins(%a : tensor<4x8xf32>) outs(%i : tensor<4xf32>) {
    ^bb0(%p: f32, %o: f32):
      %1 = arith.addf %o, %p : f32
      linalg.yield %1 : f32
    } -> tensor<4xf32>
    %q = "kiln.pad"(%r, %zero) {low = affine_map<() -> (1)>, high = affine_map<() -> (1)>, shape = affine_map<() -> (6)>} : (tensor<4xf32>, f32) -> tensor<6xf32>
    "kiln.yield"(%q) : (tensor<6xf32>) -> ()
  }) {kind = "reduction", name = "below_pad"} : (tensor<4x8xf32>) -> tensor<6xf32>
  return %0 : tensor<6xf32>
}

// -----

// Control flow for each element.

func.func @branch(%x: tensor<8xf32>) -> tensor<8xf32> {
  %0 = "kiln.fusion"(%x) ({
  ^bb0(%a: tensor<8xf32>):
    %e = "kiln.empty"() {shape = affine_map<() -> (8)>} : () -> tensor<8xf32>
    %r = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>], iterator_types = ["parallel"]} ins(%a : tensor<8xf32>) outs(%e : tensor<8xf32>) {
    ^bb0(%p: f32, %o: f32):
      %zero = arith.constant 0.0 : f32
      %c = arith.cmpf ogt, %p, %zero : f32
      // CHECK: invalid.mlir:{{[0-9]+:[0-9]+}}: error: scf.if is not supported: control flow inside a linalg.generic
      %1 = scf.if %c -> (f32) {
        scf.yield %p : f32
      } else {
        scf.yield %zero : f32
      }
      linalg.yield %1 : f32
    } -> tensor<8xf32>
    "kiln.yield"(%r) : (tensor<8xf32>) -> ()
  }) {kind = "pointwise", name = "branch"} : (tensor<8xf32>) -> tensor<8xf32>
  return %0 : tensor<8xf32>
}

// -----

// A table computed in the kernel that gathers from it.

func.func @table(%x: tensor<8xf32>, %i: tensor<4xi64>) -> tensor<4xf32> {
  %0 = "kiln.fusion"(%x, %i) ({
  ^bb0(%a: tensor<8xf32>, %at: tensor<4xi64>):
    %zero = arith.constant 0.0 : f32
    %t = "kiln.pad"(%a, %zero) {low = affine_map<() -> (1)>, high = affine_map<() -> (1)>, shape = affine_map<() -> (10)>} : (tensor<8xf32>, f32) -> tensor<10xf32>
    %e = "kiln.empty"() {shape = affine_map<() -> (4)>} : () -> tensor<4xf32>
    %r = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>], iterator_types = ["parallel"]} ins(%at : tensor<4xi64>) outs(%e : tensor<4xf32>) {
    ^bb0(%p: i64, %o: f32):
      %n = arith.index_cast %p : i64 to index
      // CHECK: invalid.mlir:{{[0-9]+:[0-9]+}}: error: tensor.extract is not supported: a table that is computed in the fusion
      %1 = tensor.extract %t[%n] : tensor<10xf32>
      linalg.yield %1 : f32
    } -> tensor<4xf32>
    "kiln.yield"(%r) : (tensor<4xf32>) -> ()
  }) {kind = "pointwise", name = "table"} : (tensor<8xf32>, tensor<4xi64>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}

// -----

// A running maximum with its positions.

func.func @running_maximum(%x: tensor<8xf32>) -> (tensor<8xf32>, tensor<8xi64>) {
  %0:2 = "kiln.fusion"(%x) ({
  ^bb0(%a: tensor<8xf32>):
    // CHECK: invalid.mlir:{{[0-9]+:[0-9]+}}: error: kiln.scan is not supported: a running max on the CPU
    %r:2 = "kiln.scan"(%a) {dim = 0 : i64, kind = "max"} : (tensor<8xf32>) -> (tensor<8xf32>, tensor<8xi64>)
    "kiln.yield"(%r#0, %r#1) : (tensor<8xf32>, tensor<8xi64>) -> ()
  }) {kind = "scan", name = "running_maximum"} : (tensor<8xf32>) -> (tensor<8xf32>, tensor<8xi64>)
  return %0#0, %0#1 : tensor<8xf32>, tensor<8xi64>
}

// -----

// An operand of a product that would have to be computed in the kernel.

func.func @operand(%x: tensor<4x8xf32>, %y: tensor<8x4xf32>) -> tensor<4x4xf32> {
  %0 = "kiln.fusion"(%x, %y) ({
  ^bb0(%a: tensor<4x8xf32>, %b: tensor<8x4xf32>):
    %v = "kiln.view"(%b) {map = affine_map<(d0, d1) -> (7 - d0, d1)>, shape = affine_map<() -> (8, 4)>} : (tensor<8x4xf32>) -> tensor<8x4xf32>
    // CHECK: invalid.mlir:{{[0-9]+:[0-9]+}}: error: kiln.matmul is not supported: rhs is computed inside of the kernel
    %r = "kiln.matmul"(%a, %v) {transpose_lhs = false, transpose_rhs = false} : (tensor<4x8xf32>, tensor<8x4xf32>) -> tensor<4x4xf32>
    "kiln.yield"(%r) : (tensor<4x4xf32>) -> ()
  }) {kind = "matmul", name = "operand"} : (tensor<4x8xf32>, tensor<8x4xf32>) -> tensor<4x4xf32>
  return %0 : tensor<4x4xf32>
}
