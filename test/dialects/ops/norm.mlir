// The ops of dialects/kiln/norm.py: printing gives back what was parsed, and each has a reference lowering.
// RUN: kiln-opt %s | filecheck %s
// RUN: kiln-opt %s | kiln-opt | filecheck %s
// RUN: kiln-opt --pass-pipeline=expand-named-ops %s | filecheck %s --check-prefix=REF

// CHECK-LABEL: func.func @layer_norm(
// CHECK: "kiln.layer_norm"(
// REF-LABEL: func.func @layer_norm(
// REF-NOT: "kiln.layer_norm"
// REF: arith.constant 6.400000e+01
// REF: arith.addf
// REF: arith.divf
// REF: arith.subf
// REF: arith.mulf
// REF: math.rsqrt
// REF: arith.mulf
// REF: arith.mulf
// REF: arith.addf
func.func @layer_norm(%x: tensor<?x64xf32>, %w: tensor<64xf32>, %b: tensor<64xf32>) -> tensor<?x64xf32> {
  %0 = "kiln.layer_norm"(%x, %w, %b) {axes = array<i64: 1>, eps = 1.0e-05 : f64}
    : (tensor<?x64xf32>, tensor<64xf32>, tensor<64xf32>) -> tensor<?x64xf32>
  return %0 : tensor<?x64xf32>
}

// CHECK-LABEL: func.func @rms_norm(
// CHECK: "kiln.rms_norm"(
// REF-LABEL: func.func @rms_norm(
// REF-NOT: "kiln.rms_norm"
// REF: arith.mulf
// REF: arith.addf
// REF: math.rsqrt
// REF: arith.mulf
func.func @rms_norm(%x: tensor<?x64xf32>, %w: tensor<64xf32>) -> tensor<?x64xf32> {
  %0 = "kiln.rms_norm"(%x, %w) {axes = array<i64: 1>, eps = 1.0e-06 : f64}
    : (tensor<?x64xf32>, tensor<64xf32>) -> tensor<?x64xf32>
  return %0 : tensor<?x64xf32>
}

// CHECK-LABEL: func.func @batch_norm(
// CHECK: "kiln.batch_norm"(
// REF-LABEL: func.func @batch_norm(
// REF-NOT: "kiln.batch_norm"
// REF: math.rsqrt
// REF: arith.subf
// REF: arith.mulf
// REF: arith.addf
func.func @batch_norm(%x: tensor<?x8x4x4xf32>, %m: tensor<8xf32>, %v: tensor<8xf32>) -> tensor<?x8x4x4xf32> {
  %0 = "kiln.batch_norm"(%x, %m, %v) {eps = 1.0e-05 : f64}
    : (tensor<?x8x4x4xf32>, tensor<8xf32>, tensor<8xf32>) -> tensor<?x8x4x4xf32>
  return %0 : tensor<?x8x4x4xf32>
}

// CHECK-LABEL: func.func @group_norm(
// CHECK: "kiln.group_norm"(
// REF-LABEL: func.func @group_norm(
// REF-NOT: "kiln.group_norm"
// REF: "kiln.view"({{.*}}shape = #{{.*}}tensor<?x2x4x4x4xf32>
// REF: math.rsqrt
// REF: "kiln.view"({{.*}}tensor<?x8x4x4xf32>
func.func @group_norm(%x: tensor<?x8x4x4xf32>, %w: tensor<8xf32>) -> tensor<?x8x4x4xf32> {
  %0 = "kiln.group_norm"(%x, %w) {groups = 2, eps = 1.0e-05 : f64}
    : (tensor<?x8x4x4xf32>, tensor<8xf32>) -> tensor<?x8x4x4xf32>
  return %0 : tensor<?x8x4x4xf32>
}
