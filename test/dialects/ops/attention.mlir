// The ops of dialects/kiln/attention.py: printing gives back what was parsed, and each has a reference lowering.
// RUN: kiln-opt %s | filecheck %s
// RUN: kiln-opt %s | kiln-opt | filecheck %s
// RUN: kiln-opt --pass-pipeline=expand-named-ops %s | filecheck %s --check-prefix=REF

// CHECK-LABEL: func.func @attention(
// CHECK: "kiln.attention"(
// REF-LABEL: func.func @attention(
// REF-NOT: "kiln.attention"
// REF: arith.mulf
// REF: arith.cmpi sle
// REF: arith.select
// REF: arith.maximumf
// REF: math.exp
// REF: arith.divf
// REF: arith.mulf
func.func @attention(%q: tensor<?x12x128x64xf32>, %k: tensor<?x4x128x64xf32>, %v: tensor<?x4x128x64xf32>)
    -> tensor<?x12x128x64xf32> {
  %0 = "kiln.attention"(%q, %k, %v) {scale = 1.250000e-01 : f64, causal = true}
    : (tensor<?x12x128x64xf32>, tensor<?x4x128x64xf32>, tensor<?x4x128x64xf32>) -> tensor<?x12x128x64xf32>
  return %0 : tensor<?x12x128x64xf32>
}
