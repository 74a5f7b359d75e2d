// The ops of dialects/kiln/sort.py: printing gives back what was parsed, and each has a reference lowering.
// RUN: kiln-opt %s | filecheck %s
// RUN: kiln-opt %s | kiln-opt | filecheck %s
// RUN: kiln-opt --pass-pipeline=expand-named-ops %s | filecheck %s --check-prefix=REF

// CHECK-LABEL: func.func @sort(
// CHECK: "kiln.sort"(
// REF-LABEL: func.func @sort(
// REF-NOT: "kiln.sort"
// REF: arith.cmpf olt
// REF: arith.cmpi eq
func.func @sort(%x: tensor<8x?xf32>) -> tensor<8x?xf32> {
  %0:2 = "kiln.sort"(%x) {dim = 1, descending = false, stable = true}
    : (tensor<8x?xf32>) -> (tensor<8x?xf32>, tensor<8x?xi64>)
  return %0#0 : tensor<8x?xf32>
}

// CHECK-LABEL: func.func @topk(
// CHECK: "kiln.topk"(
// REF-LABEL: func.func @topk(
// REF-NOT: "kiln.topk"
// REF: arith.cmpf olt
// REF: -> (tensor<8x4xf32>, tensor<8x4xi64>)
func.func @topk(%x: tensor<8x?xf32>) -> tensor<8x4xf32> {
  %0:2 = "kiln.topk"(%x) {k = 4, dim = 1, largest = true} : (tensor<8x?xf32>) -> (tensor<8x4xf32>, tensor<8x4xi64>)
  return %0#0 : tensor<8x4xf32>
}
