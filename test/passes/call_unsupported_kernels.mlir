// Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// RUN: kiln-opt %s --mlir-print-local-scope --pass-pipeline="call-unsupported-kernels" | filecheck %s
// RUN: kiln-opt %s --mlir-print-local-scope --pass-pipeline="call-unsupported-kernels{device=cuda:0}" | filecheck %s --check-prefix=GPU
// RUN: kiln-opt %s --remarks --pass-pipeline="call-unsupported-kernels" 2>&1 | filecheck %s --check-prefix=REMARK
// RUN: not kiln-opt %s --pass-pipeline="call-unsupported-kernels{strict}" 2>&1 | filecheck %s --check-prefix=STRICT

// A kernel without code becomes a call of what its fusion says. The call's results have the strides of the kernel's
// layouts, here those of columns and of a dynamic size. Memory that the kernel would have shared (`in_place`) it does
// not share. A constant is read as it is, not as the kernel would have had it packed. The kernel that has code stays.

// CHECK: module attributes {kiln.outlined}
// CHECK-NOT: sym_name = "exp"
// CHECK: sym_name = "negf"
// CHECK-NOT: sym_name = "exp"
// CHECK: func.func @main(%[[X:[a-z0-9]+]]: tensor<?x4xf32> {kiln.shape{{.*}}}, %[[W:[a-z0-9]+]]: tensor<4xf32> {{.*}}, %[[N:[a-z0-9]+]]: index {
// CHECK: %[[CALL:[0-9]+]] = "kiln.aten"(%[[X]], %[[W]], %[[N]])
// CHECK-SAME: math.exp
// CHECK-SAME: [{\22expr\22: \221\22}, {\22expr\22: \22s0\22}], {\22device\22: \22cpu\22}]"
// CHECK-SAME: , elsewhere, kwargs = "{}", name = "exp", op = "kiln.evaluate.default", pure = true, reason = "no kernel at {{.*}}: a planted reason"
// CHECK-SAME: shapes = [affine_map<()[s0] -> (s0, 4)>], strides = [affine_map<()[s0] -> (1, s0)>]
// CHECK-SAME: -> tensor<?x4xf32>
// CHECK-NEXT: "kiln.launch"(%[[CALL]], %[[N]]) {{{.*}}kernel = "negf"
// GPU: {\22device\22: \22cuda:0\22}]"
// REMARK: remark: {{.*}}called: a planted reason
// STRICT: a planted reason

#rows = affine_map<(d0, d1)[s0] -> (d0 * 4 + d1)>
#columns = affine_map<(d0, d1)[s0] -> (d0 + d1 * s0)>
#one = affine_map<(d0)[s0] -> (d0)>
#same = affine_map<(d0, d1) -> (d0, d1)>
module attributes {kiln.outlined} {
  "kiln.kernel"() ({
  ^bb0(%x: tensor<?x4xf32>, %w: tensor<4xf32>, %n: index):
    %0 = "kiln.fusion"(%x, %w, %n) ({
    ^bb0(%a: tensor<?x4xf32>, %b: tensor<4xf32>, %k: index):
      %e = "kiln.empty"(%k) {shape = affine_map<()[s0] -> (s0, 4)>} : (index) -> tensor<?x4xf32>
      %r = linalg.generic {indexing_maps = [#same, affine_map<(d0, d1) -> (d1)>, #same], iterator_types = ["parallel", "parallel"]} ins(%a, %b : tensor<?x4xf32>, tensor<4xf32>) outs(%e : tensor<?x4xf32>) {
      ^bb0(%p: f32, %q: f32, %o: f32):
        %s = math.exp %p : f32
        %t = arith.mulf %s, %q : f32
        linalg.yield %t : f32
      } -> tensor<?x4xf32>
      "kiln.yield"(%r) : (tensor<?x4xf32>) -> ()
    }) {kind = "pointwise", layouts = [#rows, #one, #columns], name = "exp", shapes = [affine_map<()[s0] -> (s0, 4)>, affine_map<()[s0] -> (4)>]} : (tensor<?x4xf32>, tensor<4xf32>, index) -> tensor<?x4xf32>
    "kiln.yield"(%0) : (tensor<?x4xf32>) -> ()
  }, {
  }) {defect, sym_name = "exp", unsupported = "a planted reason", unsupported_op = "math.exp"} : () -> ()
  "kiln.kernel"() ({
  ^bb0(%x: tensor<?x4xf32>, %n: index):
    %0 = "kiln.fusion"(%x, %n) ({
    ^bb0(%a: tensor<?x4xf32>, %k: index):
      %e = "kiln.empty"(%k) {shape = affine_map<()[s0] -> (s0, 4)>} : (index) -> tensor<?x4xf32>
      %r = linalg.generic {indexing_maps = [#same, #same], iterator_types = ["parallel", "parallel"]} ins(%a : tensor<?x4xf32>) outs(%e : tensor<?x4xf32>) {
      ^bb0(%p: f32, %o: f32):
        %s = arith.negf %p : f32
        linalg.yield %s : f32
      } -> tensor<?x4xf32>
      "kiln.yield"(%r) : (tensor<?x4xf32>) -> ()
    }) {kind = "pointwise", layouts = [#columns, #columns], name = "negf", shapes = [affine_map<()[s0] -> (s0, 4)>]} : (tensor<?x4xf32>, index) -> tensor<?x4xf32>
    "kiln.yield"(%0) : (tensor<?x4xf32>) -> ()
  }, {
  }) {sym_name = "negf"} : () -> ()
  func.func @main(%x: tensor<?x4xf32> {kiln.shape = affine_map<()[s0] -> (s0, 4)>}, %w: tensor<4xf32> {kiln.constant = "w"}, %n: index {kiln.symbol = "n"}) -> tensor<?x4xf32> attributes {kiln.symbols = ["n"]} {
    %p = "kiln.pack"(%w) {elements = 8 : i64, layout = affine_map<(d0) -> (d0 * 2)>} : (tensor<4xf32>) -> tensor<4xf32>
    %0 = "kiln.launch"(%x, %p, %n) {in_place = array<i64: 0, 0>, kernel = "exp", layouts = [#rows, #one, #columns], name = "exp"} : (tensor<?x4xf32>, tensor<4xf32>, index) -> tensor<?x4xf32>
    %1 = "kiln.launch"(%0, %n) {in_place = array<i64: 0, 0>, kernel = "negf", layouts = [#columns, #columns], name = "negf"} : (tensor<?x4xf32>, index) -> tensor<?x4xf32>
    return %1 : tensor<?x4xf32>
  }
}
