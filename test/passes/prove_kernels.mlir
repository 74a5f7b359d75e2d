// Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// RUN: kiln-opt %s --pass-pipeline="prove-kernels{policy=warn}" 2> %t.warnings | filecheck %s
// RUN: filecheck %s --check-prefix=WARNING --input-file %t.warnings
// RUN: not kiln-opt %s --pass-pipeline="prove-kernels" 2>&1 | filecheck %s --check-prefix=ERROR

// A kernel that copies the one element, and one that writes it behind the buffer: this stops the compilation, or with
// `warn` leaves what it proved of the kernel otherwise.

// CHECK: }) {proved = 4 : i64, sym_name = "copy"}
// CHECK: }) {proved = 2 : i64, sym_name = "past"}

// WARNING-NOT: kernel @copy
// WARNING: RuntimeWarning: kernel @past {{.*}}: bounds refuted: "tt.store"
// WARNING-SAME: offset 4 of argument 1, whose elements are 0 to 0

// ERROR: error: kernel @past {{.*}}: bounds refuted: "tt.store"
// ERROR-SAME: offset 4 of argument 1, whose elements are 0 to 0
module attributes {kiln.outlined} {
  "kiln.kernel"() ({
  ^bb0(%x: tensor<1xf32>):
    %0 = "kiln.fusion"(%x) ({
    ^bb0(%a: tensor<1xf32>):
      "kiln.yield"(%a) : (tensor<1xf32>) -> ()
    }) {kind = "pointwise", name = "copy"} : (tensor<1xf32>) -> tensor<1xf32>
    "kiln.yield"(%0) : (tensor<1xf32>) -> ()
  }, {
    builtin.module {
      "tt.func"() ({
      ^bb0(%x: !tt.ptr<f32>, %y: !tt.ptr<f32>):
        %v = "tt.load"(%x) {operandSegmentSizes = array<i32: 1, 0, 0>} : (!tt.ptr<f32>) -> f32
        "tt.store"(%y, %v) : (!tt.ptr<f32>, f32) -> ()
        "tt.return"() : () -> ()
      }) {arg_attrs = [{tt.divisibility = 16 : i32}, {tt.divisibility = 16 : i32}],
          function_type = (!tt.ptr<f32>, !tt.ptr<f32>) -> (), kiln.grid = affine_map<() -> (1, 1, 1)>, noinline = false,
          num_stages = 3 : i32, num_warps = 1 : i32, sym_name = "copy", sym_visibility = "public"} : () -> ()
    }
  }) {sym_name = "copy"} : () -> ()
  "kiln.kernel"() ({
  ^bb0(%x: tensor<1xf32>):
    %0 = "kiln.fusion"(%x) ({
    ^bb0(%a: tensor<1xf32>):
      "kiln.yield"(%a) : (tensor<1xf32>) -> ()
    }) {kind = "pointwise", name = "past"} : (tensor<1xf32>) -> tensor<1xf32>
    "kiln.yield"(%0) : (tensor<1xf32>) -> ()
  }, {
    builtin.module {
      "tt.func"() ({
      ^bb0(%x: !tt.ptr<f32>, %y: !tt.ptr<f32>):
        %four = "arith.constant"() {value = 4 : i32} : () -> i32
        %past = "tt.addptr"(%y, %four) : (!tt.ptr<f32>, i32) -> !tt.ptr<f32>
        %v = "tt.load"(%x) {operandSegmentSizes = array<i32: 1, 0, 0>} : (!tt.ptr<f32>) -> f32
        "tt.store"(%past, %v) : (!tt.ptr<f32>, f32) -> ()
        "tt.return"() : () -> ()
      }) {arg_attrs = [{tt.divisibility = 16 : i32}, {tt.divisibility = 16 : i32}],
          function_type = (!tt.ptr<f32>, !tt.ptr<f32>) -> (), kiln.grid = affine_map<() -> (1, 1, 1)>, noinline = false,
          num_stages = 3 : i32, num_warps = 1 : i32, sym_name = "past", sym_visibility = "public"} : () -> ()
    }
  }) {sym_name = "past"} : () -> ()
}
