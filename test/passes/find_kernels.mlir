// Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// RUN: kiln-opt %s --split-input-file --pass-pipeline="find-kernels" | filecheck %s
// RUN: kiln-opt %s --split-input-file --print-ir-after=find-kernels --pass-pipeline="find-kernels,emit-kernels,lower-to-llvm,assemble,plan-host" -o %t.plans 2> %t.found
// RUN: filecheck %s --check-prefix=FOUND --input-file %t.found
// RUN: filecheck %s --check-prefix=PLAN --input-file %t.plans

// Two graphs with one kernel. Where the first one is compiled, the second one finds its machine code, and nothing is
// emitted for it; otherwise both are to keep theirs for later graphs.

// CHECK: {kept, sym_name = "neg_0123456789"}
// CHECK: // -----
// CHECK: {kept, sym_name = "neg_0123456789"}

// FOUND: {kept, sym_name = "neg_0123456789"}
// FOUND: {object = "neg_0123456789"
// FOUND-SAME: sym_name = "neg_0123456789"
// FOUND-NOT: kept

// PLAN: "kiln.launch"{{.*}}kernel = "neg_0123456789"
// PLAN: // -----
// PLAN: "kiln.launch"{{.*}}kernel = "neg_0123456789"
module attributes {kiln.outlined} {
  "kiln.kernel"() ({
  ^bb0(%x: tensor<8xf32>):
    %0 = "kiln.fusion"(%x) ({
    ^bb0(%a: tensor<8xf32>):
      %e = "kiln.empty"() {shape = affine_map<() -> (8)>} : () -> tensor<8xf32>
      %r = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>], iterator_types = ["parallel"]} ins(%a : tensor<8xf32>) outs(%e : tensor<8xf32>) {
      ^bb0(%p: f32, %o: f32):
        %s = arith.negf %p : f32
        linalg.yield %s : f32
      } -> tensor<8xf32>
      "kiln.yield"(%r) : (tensor<8xf32>) -> ()
    }) {kind = "pointwise", name = "neg"} : (tensor<8xf32>) -> tensor<8xf32>
    "kiln.yield"(%0) : (tensor<8xf32>) -> ()
  }, {
  }) {sym_name = "neg_0123456789"} : () -> ()
  func.func @main(%x: tensor<8xf32>) -> tensor<8xf32> {
    %0 = "kiln.launch"(%x) {kernel = "neg_0123456789", layouts = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>], name = "neg"} : (tensor<8xf32>) -> tensor<8xf32>
    return %0 : tensor<8xf32>
  }
}

// -----

module attributes {kiln.outlined} {
  "kiln.kernel"() ({
  ^bb0(%x: tensor<8xf32>):
    %0 = "kiln.fusion"(%x) ({
    ^bb0(%a: tensor<8xf32>):
      %e = "kiln.empty"() {shape = affine_map<() -> (8)>} : () -> tensor<8xf32>
      %r = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>], iterator_types = ["parallel"]} ins(%a : tensor<8xf32>) outs(%e : tensor<8xf32>) {
      ^bb0(%p: f32, %o: f32):
        %s = arith.negf %p : f32
        linalg.yield %s : f32
      } -> tensor<8xf32>
      "kiln.yield"(%r) : (tensor<8xf32>) -> ()
    }) {kind = "pointwise", name = "neg"} : (tensor<8xf32>) -> tensor<8xf32>
    "kiln.yield"(%0) : (tensor<8xf32>) -> ()
  }, {
  }) {sym_name = "neg_0123456789"} : () -> ()
  func.func @main(%x: tensor<8xf32>) -> tensor<8xf32> {
    %0 = "kiln.launch"(%x) {kernel = "neg_0123456789", layouts = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>], name = "neg"} : (tensor<8xf32>) -> tensor<8xf32>
    return %0 : tensor<8xf32>
  }
}
