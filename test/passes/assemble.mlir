// Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// RUN: kiln-opt %s --pass-pipeline="assemble" | filecheck %s
// RUN: kiln-opt %s --pass-pipeline="assemble{level=0}" | filecheck %s

// Machine code is not in the IR: `object` names it. A kernel that can have none, or has some, is left alone.

// CHECK: llvm.func @nothing_entry(%arg0: !llvm.ptr) {
// CHECK: {object = "nothing", pointers = 2 : i64, sym_name = "nothing", symbols = 0 : i64}
// CHECK: {pointers = 2 : i64, sym_name = "refused", symbols = 0 : i64, unsupported = "for a reason"}
// CHECK: {object = "earlier", sym_name = "again"}
module attributes {kiln.outlined} {
  "kiln.kernel"() ({
  ^bb0(%x: tensor<1xf32>):
    %0 = "kiln.fusion"(%x) ({
    ^bb0(%a: tensor<1xf32>):
      "kiln.yield"(%a) : (tensor<1xf32>) -> ()
    }) {kind = "pointwise", name = "nothing"} : (tensor<1xf32>) -> tensor<1xf32>
    "kiln.yield"(%0) : (tensor<1xf32>) -> ()
  }, {
    builtin.module {
      llvm.func @nothing_entry(%block: !llvm.ptr) {
        llvm.return
      }
    }
  }) {pointers = 2, sym_name = "nothing", symbols = 0} : () -> ()
  "kiln.kernel"() ({
  ^bb0(%x: tensor<1xf32>):
    %0 = "kiln.fusion"(%x) ({
    ^bb0(%a: tensor<1xf32>):
      "kiln.yield"(%a) : (tensor<1xf32>) -> ()
    }) {kind = "pointwise", name = "refused"} : (tensor<1xf32>) -> tensor<1xf32>
    "kiln.yield"(%0) : (tensor<1xf32>) -> ()
  }, {
    builtin.module {
      llvm.func @refused_entry(%block: !llvm.ptr) {
        llvm.return
      }
    }
  }) {pointers = 2, sym_name = "refused", symbols = 0, unsupported = "for a reason"} : () -> ()
  "kiln.kernel"() ({
  ^bb0(%x: tensor<1xf32>):
    %0 = "kiln.fusion"(%x) ({
    ^bb0(%a: tensor<1xf32>):
      "kiln.yield"(%a) : (tensor<1xf32>) -> ()
    }) {kind = "pointwise", name = "again"} : (tensor<1xf32>) -> tensor<1xf32>
    "kiln.yield"(%0) : (tensor<1xf32>) -> ()
  }, {
  }) {object = "earlier", sym_name = "again"} : () -> ()
}
