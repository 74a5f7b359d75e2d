// RUN: kiln-opt %s --pass-pipeline="plan-host{device=cuda:0}" | filecheck %s
// RUN: kiln-opt %s --pass-pipeline="plan-host" | filecheck %s --check-prefix=CPU

// Products of the library are launches among the others, on the workspace: rows of any leading dims, weights either way
// round, GELU. Other calls stay calls.
// CHECK-DAG: #[[LHS:.*]] = affine_map<() -> (0, 520, 1)>
// CHECK-DAG: #[[RESULT:.*]] = affine_map<() -> (0, 256, 1)>
// CHECK-DAG: #[[RHS:.*]] = affine_map<() -> (0, 1, 520)>
// CHECK-DAG: #[[SIZES:.*]] = affine_map<() -> (1, 200, 256, 520)>
// CHECK: kind = "workspace"
// CHECK: kind = "aten"
// CHECK: "kiln.launch"
// CHECK-SAME: kernel = "cublasLtMatmul"
// CHECK-SAME: product = {lhs = #[[LHS]], result = #[[RESULT]], rhs = #[[RHS]], sizes = #[[SIZES]]}
// CHECK-SAME: reason = "cuBLAS: faster"
// CHECK: "kiln.launch"
// CHECK-SAME: activation = "gelu"
// CHECK-SAME: rhs = #[[RESULT]]
// CHECK: "kiln.call"
// CHECK-SAME: aten.sort.default
// CPU-COUNT-3: "kiln.call"
func.func @main(%x: tensor<2x100x520xbf16>, %w: tensor<256x520xbf16>, %u: tensor<256x256xbf16>, %b: tensor<256xbf16>)
    -> tensor<200x256xbf16> {
  %0 = "kiln.aten"(%x, %w) {args = "[{\22operand\22: 0}, {\22operand\22: 1}]", kwargs = "{}", op = "aten.linear.default",
    pure = true, reason = "cuBLAS: faster", shapes = [affine_map<() -> (2, 100, 256)>], strides = [unit]}
    : (tensor<2x100x520xbf16>, tensor<256x520xbf16>) -> tensor<2x100x256xbf16>
  %1 = "kiln.view"(%0) {map = affine_map<(d0, d1) -> (d0 floordiv 100, d0 mod 100, d1)>,
    shape = affine_map<() -> (200, 256)>} : (tensor<2x100x256xbf16>) -> tensor<200x256xbf16>
  %2 = "kiln.aten"(%b, %1, %u) {args = "[{\22operand\22: 0}, {\22operand\22: 1}, {\22operand\22: 2}]",
    kwargs = "{\22use_gelu\22: true}", op = "aten._addmm_activation.default", pure = true,
    shapes = [affine_map<() -> (200, 256)>], strides = [unit]}
    : (tensor<256xbf16>, tensor<200x256xbf16>, tensor<256x256xbf16>) -> tensor<200x256xbf16>
  %3:2 = "kiln.aten"(%2) {args = "[{\22operand\22: 0}]", kwargs = "{}", op = "aten.sort.default", pure = true,
    shapes = [affine_map<() -> (200, 256)>, affine_map<() -> (200, 256)>], strides = [unit, unit]}
    : (tensor<200x256xbf16>) -> (tensor<200x256xbf16>, tensor<200x256xi64>)
  return %3#0 : tensor<200x256xbf16>
}
