// The ops of dialects/kiln/scan.py: printing gives back what was parsed, and each has a reference lowering.
// RUN: kiln-opt %s | filecheck %s
// RUN: kiln-opt %s | kiln-opt | filecheck %s
// RUN: kiln-opt --pass-pipeline=expand-named-ops %s | filecheck %s --check-prefix=REF

// CHECK-LABEL: func.func @cumsum(
// CHECK: "kiln.scan"(
// REF-LABEL: func.func @cumsum(
// REF-NOT: "kiln.scan"
// REF: iterator_types = ["parallel", "parallel", "reduction"]
// REF: arith.cmpi sle
// REF: arith.select
func.func @cumsum(%x: tensor<8x?xf32>) -> tensor<8x?xf32> {
  %0 = "kiln.scan"(%x) {dim = 1, kind = "sum"} : (tensor<8x?xf32>) -> tensor<8x?xf32>
  return %0 : tensor<8x?xf32>
}
