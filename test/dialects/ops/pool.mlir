// The ops of dialects/kiln/pool.py: printing gives back what was parsed, and each has a reference lowering.
// RUN: kiln-opt %s | filecheck %s
// RUN: kiln-opt %s | kiln-opt | filecheck %s
// RUN: kiln-opt --pass-pipeline=expand-named-ops %s | filecheck %s --check-prefix=REF

// CHECK-LABEL: func.func @max_pool(
// CHECK: "kiln.pool"(
// REF-LABEL: func.func @max_pool(
// REF-NOT: "kiln.pool"
// REF: "kiln.pad"({{.*}} -> tensor<?x8x33x33xf32>
// REF: arith.maximumf
func.func @max_pool(%x: tensor<?x8x32x32xf32>) -> tensor<?x8x16x16xf32> {
  %0 = "kiln.pool"(%x) {mode = "max", kernel = array<i64: 3, 3>, stride = array<i64: 2, 2>,
    padding = array<i64: 1, 1>, dilation = array<i64: 1, 1>, ceil = false, count_include_pad = false, divisor = 0}
    : (tensor<?x8x32x32xf32>) -> tensor<?x8x16x16xf32>
  return %0 : tensor<?x8x16x16xf32>
}
