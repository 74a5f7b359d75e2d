// The ops of dialects/kiln/conv.py: printing gives back what was parsed, and each has a reference lowering.
// RUN: kiln-opt %s | filecheck %s
// RUN: kiln-opt %s | kiln-opt | filecheck %s
// RUN: kiln-opt --pass-pipeline=expand-named-ops %s | filecheck %s --check-prefix=REF

// CHECK-LABEL: func.func @conv(
// CHECK: "kiln.conv"(
// REF-LABEL: func.func @conv(
// REF-NOT: "kiln.conv"
// REF: "kiln.pad"({{.*}} -> tensor<?x3x34x34xf32>
// REF: linalg.generic {{{.*}}iterator_types = ["parallel", "parallel", "parallel", "parallel", "reduction", "reduction", "reduction"]}
func.func @conv(%x: tensor<?x3x32x32xf32>, %w: tensor<8x3x3x3xf32>) -> tensor<?x8x16x16xf32> {
  %0 = "kiln.conv"(%x, %w) {stride = array<i64: 2, 2>, padding = array<i64: 1, 1>, dilation = array<i64: 1, 1>,
    groups = 1, transposed = false, output_padding = array<i64: 0, 0>}
    : (tensor<?x3x32x32xf32>, tensor<8x3x3x3xf32>) -> tensor<?x8x16x16xf32>
  return %0 : tensor<?x8x16x16xf32>
}
