// Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// RUN: kiln-opt %s --mlir-print-local-scope --pass-pipeline="assign-layouts,outline-kernels" | filecheck %s
// RUN: kiln-opt %s --remarks --pass-pipeline="assign-layouts,outline-kernels" 2>&1 | filecheck %s --check-prefix=REMARK
// RUN: kiln-opt %s --mlir-print-local-scope --pass-pipeline="assign-layouts,outline-kernels{gpu}" | filecheck %s --check-prefix=GPU

// Two fusions that differ in their names and in where they start to read are one kernel; the third has other code. On
// a GPU the second starts at no multiple of 16 bytes, and so is a kernel of its own.

// CHECK: module attributes {kiln.outlined}
// CHECK: "kiln.kernel"() ({
// CHECK-NEXT: ^bb0(%[[X:.*]]: tensor<3xf32>):
// CHECK-NEXT: "kiln.fusion"(%[[X]]) ({
// CHECK: math.exp
// CHECK: }) {kind = "pointwise", layouts = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>], name = "exp"}
// CHECK-NEXT: "kiln.yield"
// CHECK: {sym_name = "[[FIRST:exp_[0-9a-f]+]]"}
// CHECK: "kiln.kernel"() ({
// CHECK: arith.negf
// CHECK: {sym_name = "[[LAST:neg_[0-9a-f]+]]"}
// CHECK-LABEL: func.func @main
// CHECK: "kiln.launch"(%{{.*}}) {kernel = "[[FIRST]]", {{.*}}name = "exp"}
// CHECK: "kiln.launch"(%{{.*}}) {kernel = "[[FIRST]]", {{.*}}name = "exp_1", offsets = [affine_map<() -> (1)>
// CHECK: "kiln.launch"(%{{.*}}) {kernel = "[[LAST]]"
// CHECK-NOT: kiln.fusion

// REMARK: remark: kiln.launch{{.*}}: the same kernel as @exp_

// GPU: unaligned = array<i64: 0>
// GPU: {sym_name = "exp_1_
func.func @main(%x: tensor<4xf32>) -> (tensor<3xf32>, tensor<3xf32>, tensor<3xf32>) {
  %0 = "kiln.view"(%x) {map = affine_map<(d0) -> (d0)>, shape = affine_map<() -> (3)>} : (tensor<4xf32>) -> tensor<3xf32>
  %1 = "kiln.view"(%x) {map = affine_map<(d0) -> (d0 + 1)>, shape = affine_map<() -> (3)>} : (tensor<4xf32>) -> tensor<3xf32>
  %2 = "kiln.fusion"(%0) ({
  ^bb0(%a: tensor<3xf32>):
    %e = "kiln.empty"() {shape = affine_map<() -> (3)>} : () -> tensor<3xf32>
    %r = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>], iterator_types = ["parallel"]}
        ins(%a : tensor<3xf32>) outs(%e : tensor<3xf32>) {
    ^bb0(%i: f32, %o: f32):
      %s = math.exp %i : f32
      linalg.yield %s : f32
    } -> tensor<3xf32>
    "kiln.yield"(%r) : (tensor<3xf32>) -> ()
  }) {kind = "pointwise", name = "exp"} : (tensor<3xf32>) -> tensor<3xf32>
  %3 = "kiln.fusion"(%1) ({
  ^bb0(%a: tensor<3xf32>):
    %e = "kiln.empty"() {shape = affine_map<() -> (3)>} : () -> tensor<3xf32>
    %r = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>], iterator_types = ["parallel"]}
        ins(%a : tensor<3xf32>) outs(%e : tensor<3xf32>) {
    ^bb0(%i: f32, %o: f32):
      %s = math.exp %i : f32
      linalg.yield %s : f32
    } -> tensor<3xf32>
    "kiln.yield"(%r) : (tensor<3xf32>) -> ()
  }) {kind = "pointwise", name = "exp_1"} : (tensor<3xf32>) -> tensor<3xf32>
  %4 = "kiln.fusion"(%0) ({
  ^bb0(%a: tensor<3xf32>):
    %e = "kiln.empty"() {shape = affine_map<() -> (3)>} : () -> tensor<3xf32>
    %r = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>], iterator_types = ["parallel"]}
        ins(%a : tensor<3xf32>) outs(%e : tensor<3xf32>) {
    ^bb0(%i: f32, %o: f32):
      %s = arith.negf %i : f32
      linalg.yield %s : f32
    } -> tensor<3xf32>
    "kiln.yield"(%r) : (tensor<3xf32>) -> ()
  }) {kind = "pointwise", name = "neg"} : (tensor<3xf32>) -> tensor<3xf32>
  return %2, %3, %4 : tensor<3xf32>, tensor<3xf32>, tensor<3xf32>
}
