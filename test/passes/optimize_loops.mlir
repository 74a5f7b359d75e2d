// Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// RUN: kiln-opt %s --mlir-print-local-scope --pass-pipeline="optimize-loops" | filecheck %s

// Loops of a product are as its schedule says; those of a convolution as well, but for loops that carry sums. LLVM may
// unroll those of other kernels.

// CHECK-LABEL: func.func @product
// CHECK: scf.for
// CHECK: } {loop_annotation = #llvm.loop_annotation<unroll = <disable = true>>}
// CHECK: scf.for
// CHECK: } {loop_annotation = #llvm.loop_annotation<unroll = <disable = true>>}
// CHECK-LABEL: func.func @image
// CHECK: scf.for
// CHECK: } {loop_annotation = #llvm.loop_annotation<unroll = <disable = true>>}
// CHECK: scf.for
// CHECK-NOT: loop_annotation
// CHECK-LABEL: func.func @elements
// CHECK-NOT: loop_annotation
module attributes {kiln.outlined} {
  "kiln.kernel"() ({
  ^bb0(%x: tensor<4xf32>):
    %0 = "kiln.fusion"(%x) ({
    ^bb0(%a: tensor<4xf32>):
      "kiln.yield"(%a) : (tensor<4xf32>) -> ()
    }) {kind = "matmul", name = "product"} : (tensor<4xf32>) -> tensor<4xf32>
    "kiln.yield"(%0) : (tensor<4xf32>) -> ()
  }, {
    builtin.module {
      func.func @product(%from: index, %to: index) -> f32 {
        %one = arith.constant 1 : index
        %zero = arith.constant 0.0 : f32
        scf.for %i = %from to %to step %one {
        }
        %sum = scf.for %i = %from to %to step %one iter_args(%acc = %zero) -> f32 {
          %next = arith.addf %acc, %acc : f32
          scf.yield %next : f32
        }
        return %sum : f32
      }
    }
  }) {sym_name = "product"} : () -> ()
  "kiln.kernel"() ({
  ^bb0(%x: tensor<4xf32>):
    %0 = "kiln.fusion"(%x) ({
    ^bb0(%a: tensor<4xf32>):
      "kiln.yield"(%a) : (tensor<4xf32>) -> ()
    }) {kind = "conv", name = "image"} : (tensor<4xf32>) -> tensor<4xf32>
    "kiln.yield"(%0) : (tensor<4xf32>) -> ()
  }, {
    builtin.module {
      func.func @image(%from: index, %to: index) -> f32 {
        %one = arith.constant 1 : index
        %zero = arith.constant 0.0 : f32
        scf.for %i = %from to %to step %one {
        }
        %sum = scf.for %i = %from to %to step %one iter_args(%acc = %zero) -> f32 {
          %next = arith.addf %acc, %acc : f32
          scf.yield %next : f32
        }
        return %sum : f32
      }
    }
  }) {sym_name = "image"} : () -> ()
  "kiln.kernel"() ({
  ^bb0(%x: tensor<4xf32>):
    %0 = "kiln.fusion"(%x) ({
    ^bb0(%a: tensor<4xf32>):
      "kiln.yield"(%a) : (tensor<4xf32>) -> ()
    }) {kind = "pointwise", name = "elements"} : (tensor<4xf32>) -> tensor<4xf32>
    "kiln.yield"(%0) : (tensor<4xf32>) -> ()
  }, {
    builtin.module {
      func.func @elements(%from: index, %to: index) -> f32 {
        %one = arith.constant 1 : index
        %zero = arith.constant 0.0 : f32
        scf.for %i = %from to %to step %one {
        }
        %sum = scf.for %i = %from to %to step %one iter_args(%acc = %zero) -> f32 {
          %next = arith.addf %acc, %acc : f32
          scf.yield %next : f32
        }
        return %sum : f32
      }
    }
  }) {sym_name = "elements"} : () -> ()
}
