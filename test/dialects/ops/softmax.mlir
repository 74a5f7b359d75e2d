// The ops of dialects/kiln/softmax.py: printing gives back what was parsed, and each has a reference lowering.
// RUN: kiln-opt %s | filecheck %s
// RUN: kiln-opt %s | kiln-opt | filecheck %s
// RUN: kiln-opt --pass-pipeline=expand-named-ops %s | filecheck %s --check-prefix=REF

// CHECK-LABEL: func.func @softmax(
// CHECK: "kiln.softmax"(
// REF-LABEL: func.func @softmax(
// REF-NOT: "kiln.softmax"
// REF: arith.maximumf
// REF: arith.subf
// REF: math.exp
// REF: iterator_types = ["parallel", "reduction"]
// REF: arith.addf
// REF: arith.divf
func.func @softmax(%x: tensor<8x?xf32>) -> tensor<8x?xf32> {
  %0 = "kiln.softmax"(%x) {dim = 1, log = false} : (tensor<8x?xf32>) -> tensor<8x?xf32>
  return %0 : tensor<8x?xf32>
}
