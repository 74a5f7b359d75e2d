// The ops of dialects/kiln/matmul.py: printing gives back what was parsed, and each has a reference lowering.
// RUN: kiln-opt %s | filecheck %s
// RUN: kiln-opt %s | kiln-opt | filecheck %s
// RUN: kiln-opt --pass-pipeline=expand-named-ops %s | filecheck %s --check-prefix=REF

// CHECK-LABEL: func.func @linear(
// CHECK: "kiln.matmul"(
// REF-LABEL: func.func @linear(
// REF-NOT: "kiln.matmul"
// REF: %[[INIT:.*]] = linalg.generic {{.*}} outs(
// REF: linalg.generic {{{.*}}iterator_types = ["parallel", "parallel", "parallel", "reduction"]} ins({{.*}}outs(%[[INIT]] :
// REF: arith.mulf
// REF: arith.addf
func.func @linear(%x: tensor<?x16x64xf32>, %w: tensor<32x64xf32>) -> tensor<?x16x32xf32> {
  %0 = "kiln.matmul"(%x, %w) {transpose_lhs = false, transpose_rhs = true}
    : (tensor<?x16x64xf32>, tensor<32x64xf32>) -> tensor<?x16x32xf32>
  return %0 : tensor<?x16x32xf32>
}
