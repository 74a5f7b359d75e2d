// RUN: kiln-opt %s --split-input-file --pass-pipeline=convert-torch-to-kiln | filecheck %s

// The bias is an elementwise op after the product.
// CHECK-LABEL: func.func @addmm
// CHECK: %[[P:.*]] = "kiln.matmul"(%{{.*}}, %{{.*}}) {transpose_lhs = false, transpose_rhs = false}
// CHECK: linalg.generic
// CHECK-SAME: ins(%[[P]], %{{.*}} : tensor<4x5xf32>, tensor<5xf32>)
// CHECK: arith.addf
func.func @addmm(%b: !torch.vtensor<[5],f32>, %x: !torch.vtensor<[4,8],f32>, %y: !torch.vtensor<[8,5],f32>) -> !torch.vtensor<[4,5],f32> {
  %int1 = torch.constant.int 1
  %0 = torch.aten.addmm %b, %x, %y, %int1, %int1 : !torch.vtensor<[5],f32>, !torch.vtensor<[4,8],f32>, !torch.vtensor<[8,5],f32>, !torch.int, !torch.int -> !torch.vtensor<[4,5],f32>
  return %0 : !torch.vtensor<[4,5],f32>
}

// -----

// beta = 0 must not read the bias, which may hold NaN.
// CHECK-LABEL: func.func @addmm_beta_0
// CHECK: "kiln.matmul"
// CHECK-NOT: linalg.generic
func.func @addmm_beta_0(%b: !torch.vtensor<[5],f32>, %x: !torch.vtensor<[4,8],f32>, %y: !torch.vtensor<[8,5],f32>) -> !torch.vtensor<[4,5],f32> {
  %int0 = torch.constant.int 0
  %int1 = torch.constant.int 1
  %0 = torch.aten.addmm %b, %x, %y, %int0, %int1 : !torch.vtensor<[5],f32>, !torch.vtensor<[4,8],f32>, !torch.vtensor<[8,5],f32>, !torch.int, !torch.int -> !torch.vtensor<[4,5],f32>
  return %0 : !torch.vtensor<[4,5],f32>
}

// -----

// A matrix times a vector is a reduction.
// CHECK-LABEL: func.func @mv
// CHECK-NOT: kiln.matmul
// CHECK: iterator_types = ["parallel", "reduction"]
func.func @mv(%x: !torch.vtensor<[4,8],f32>, %y: !torch.vtensor<[8],f32>) -> !torch.vtensor<[4],f32> {
  %0 = torch.aten.mv %x, %y : !torch.vtensor<[4,8],f32>, !torch.vtensor<[8],f32> -> !torch.vtensor<[4],f32>
  return %0 : !torch.vtensor<[4],f32>
}

// -----

// CHECK-LABEL: func.func @linear
// CHECK: "kiln.matmul"
// CHECK-SAME: transpose_rhs = true
// CHECK-SAME: (tensor<2x4x8xf32>, tensor<5x8xf32>) -> tensor<2x4x5xf32>
func.func @linear(%x: !torch.vtensor<[2,4,8],f32>, %w: !torch.vtensor<[5,8],f32>) -> !torch.vtensor<[2,4,5],f32> {
  %none = torch.constant.none
  %0 = torch.aten.linear %x, %w, %none : !torch.vtensor<[2,4,8],f32>, !torch.vtensor<[5,8],f32>, !torch.none -> !torch.vtensor<[2,4,5],f32>
  return %0 : !torch.vtensor<[2,4,5],f32>
}

// -----

// The scale defaults to 1 / sqrt(E).
// CHECK-LABEL: func.func @attention
// CHECK: "kiln.attention"
// CHECK-SAME: causal = true
// CHECK-SAME: scale = 2.500000e-01 : f64
func.func @attention(%q: !torch.vtensor<[2,4,5,16],f32>) -> !torch.vtensor<[2,4,5,16],f32> {
  %p = torch.constant.float 0.000000e+00
  %true = torch.constant.bool true
  %none = torch.constant.none
  %0:2 = torch.operator "torch.aten._scaled_dot_product_flash_attention_for_cpu"(%q, %q, %q, %p, %true, %none, %none) : (!torch.vtensor<[2,4,5,16],f32>, !torch.vtensor<[2,4,5,16],f32>, !torch.vtensor<[2,4,5,16],f32>, !torch.float, !torch.bool, !torch.none, !torch.none) -> (!torch.vtensor<[2,4,5,16],f32>, !torch.vtensor<[2,4,5],f32>)
  return %0#0 : !torch.vtensor<[2,4,5,16],f32>
}
