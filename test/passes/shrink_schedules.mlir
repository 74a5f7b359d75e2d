// Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// RUN: kiln-opt %s --pass-pipeline="shrink-schedules" | filecheck %s
// RUN: kiln-opt %s --remarks --pass-pipeline="shrink-schedules" 2>&1 | filecheck %s --check-prefix=REMARK

// A kernel that Triton refused is as before `emit-kernels`, with a smaller schedule and the name of its new contents.
// One on which Triton failed has more warps first. One whose schedule is the smallest, and one that the emitter refused, keep
// their marks.

// CHECK: "kiln.kernel"
// CHECK: tile = [256]
// CHECK: }, {
// CHECK-NEXT: ^bb0:
// CHECK-NEXT: }) {sym_name = "[[NEW:large_[0-9a-f]+]]"} : () -> ()
// CHECK: tile = [32]
// CHECK: {rejected, sym_name = "small_0", unsupported = "too large"
// CHECK: nests = [{num_warps = 8 : i64, tile = [512]}]
// CHECK: {sym_name = "[[WIDER:failed_[0-9a-f]+]]"}
// CHECK: tile = [512]
// CHECK: {sym_name = "other_0", unsupported = "no such kernel"
// CHECK: "kiln.launch"(%{{.*}}) {kernel = "[[NEW]]"
// CHECK: "kiln.launch"(%{{.*}}) {kernel = "small_0"
// CHECK: "kiln.launch"(%{{.*}}) {kernel = "[[WIDER]]"
// CHECK: "kiln.launch"(%{{.*}}) {kernel = "other_0"
// REMARK: remark: {{.*}}a smaller schedule: too large
// REMARK: remark: {{.*}}more warps: PassManager::run failed
// REMARK-NOT: a smaller schedule
module attributes {kiln.outlined} {
  "kiln.kernel"() ({
  ^bb0(%x: tensor<512xf32>):
    %0 = "kiln.fusion"(%x) ({
    ^bb0(%a: tensor<512xf32>):
      "kiln.yield"(%a) : (tensor<512xf32>) -> ()
    }) {kind = "pointwise", name = "large", schedule = {kernel = "gpu.loops", nests = [{num_warps = 4 : i64, tile = [512]}]}} : (tensor<512xf32>) -> tensor<512xf32>
    "kiln.yield"(%0) : (tensor<512xf32>) -> ()
  }, {
    builtin.module {
      "tt.func"() ({
        "tt.return"() : () -> ()
      }) {function_type = () -> (), sym_name = "large_0", sym_visibility = "public"} : () -> ()
    }
  }) {rejected, sym_name = "large_0", unsupported = "too large", unsupported_op = "kiln.fusion"} : () -> ()
  "kiln.kernel"() ({
  ^bb0(%x: tensor<512xf32>):
    %0 = "kiln.fusion"(%x) ({
    ^bb0(%a: tensor<512xf32>):
      "kiln.yield"(%a) : (tensor<512xf32>) -> ()
    }) {kind = "pointwise", name = "small", schedule = {kernel = "gpu.loops", nests = [{num_warps = 1 : i64, tile = [32]}]}} : (tensor<512xf32>) -> tensor<512xf32>
    "kiln.yield"(%0) : (tensor<512xf32>) -> ()
  }, {
    builtin.module {
      "tt.func"() ({
        "tt.return"() : () -> ()
      }) {function_type = () -> (), sym_name = "small_0", sym_visibility = "public"} : () -> ()
    }
  }) {rejected, sym_name = "small_0", unsupported = "too large", unsupported_op = "kiln.fusion"} : () -> ()
  "kiln.kernel"() ({
  ^bb0(%x: tensor<512xf32>):
    %0 = "kiln.fusion"(%x) ({
    ^bb0(%a: tensor<512xf32>):
      "kiln.yield"(%a) : (tensor<512xf32>) -> ()
    }) {kind = "pointwise", name = "failed", schedule = {kernel = "gpu.loops", nests = [{num_warps = 4 : i64, tile = [512]}]}} : (tensor<512xf32>) -> tensor<512xf32>
    "kiln.yield"(%0) : (tensor<512xf32>) -> ()
  }, {
    builtin.module {
      "tt.func"() ({
        "tt.return"() : () -> ()
      }) {function_type = () -> (), sym_name = "failed_0", sym_visibility = "public"} : () -> ()
    }
  }) {defect, rejected, sym_name = "failed_0", unsupported = "PassManager::run failed", unsupported_op = "kiln.fusion"} : () -> ()
  "kiln.kernel"() ({
  ^bb0(%x: tensor<512xf32>):
    %0 = "kiln.fusion"(%x) ({
    ^bb0(%a: tensor<512xf32>):
      "kiln.yield"(%a) : (tensor<512xf32>) -> ()
    }) {kind = "pointwise", name = "other", schedule = {kernel = "gpu.loops", nests = [{num_warps = 4 : i64, tile = [512]}]}} : (tensor<512xf32>) -> tensor<512xf32>
    "kiln.yield"(%0) : (tensor<512xf32>) -> ()
  }, {
    builtin.module {
      "tt.func"() ({
        "tt.return"() : () -> ()
      }) {function_type = () -> (), sym_name = "other_0", sym_visibility = "public"} : () -> ()
    }
  }) {sym_name = "other_0", unsupported = "no such kernel", unsupported_op = "kiln.fusion"} : () -> ()
  func.func @main(%x: tensor<512xf32>) -> (tensor<512xf32>, tensor<512xf32>, tensor<512xf32>, tensor<512xf32>) {
    %0 = "kiln.launch"(%x) {kernel = "large_0", name = "large"} : (tensor<512xf32>) -> tensor<512xf32>
    %1 = "kiln.launch"(%x) {kernel = "small_0", name = "small"} : (tensor<512xf32>) -> tensor<512xf32>
    %2 = "kiln.launch"(%x) {kernel = "failed_0", name = "failed"} : (tensor<512xf32>) -> tensor<512xf32>
    %3 = "kiln.launch"(%x) {kernel = "other_0", name = "other"} : (tensor<512xf32>) -> tensor<512xf32>
    return %0, %1, %2, %3 : tensor<512xf32>, tensor<512xf32>, tensor<512xf32>, tensor<512xf32>
  }
}
