// The ops of dialects/kiln/random.py: printing gives back what was parsed, and each has a reference lowering.
// RUN: kiln-opt %s | filecheck %s
// RUN: kiln-opt %s | kiln-opt | filecheck %s
// RUN: kiln-opt --pass-pipeline=expand-named-ops %s | filecheck %s --check-prefix=REF

// CHECK-LABEL: func.func @rand(
// CHECK: "kiln.random"(
// REF-LABEL: func.func @rand(
// REF-NOT: "kiln.random"
// REF: arith.mului_extended
// REF: arith.uitofp
func.func @rand(%seed: tensor<i64>, %offset: tensor<i64>, %n: index) -> tensor<?x8xf32> {
  %0 = "kiln.random"(%seed, %offset, %n) {kind = "uniform", shape = affine_map<()[s0] -> (s0, 8)>}
    : (tensor<i64>, tensor<i64>, index) -> tensor<?x8xf32>
  return %0 : tensor<?x8xf32>
}
