// RUN: kiln-opt %s --split-input-file --remarks --pass-pipeline=rewrite-patterns 2> %t.remarks | filecheck %s
// RUN: filecheck %s --check-prefix=WHY --input-file %t.remarks
// GELU by tanh, as in GPT-2.
// CHECK-LABEL: func.func @gelu_tanh(
// CHECK: %[[M:.*]] = torch.constant.str "tanh"
// CHECK-NEXT: torch.aten.gelu %arg0, %[[M]]
func.func @gelu_tanh(%arg0: !torch.vtensor<[4,8],f32> {kiln.shape = affine_map<() -> (4, 8)>, kiln.strides = affine_map<() -> (8, 1)>}) -> (!torch.vtensor<[4,8],f32> {kiln.strides = affine_map<() -> (8, 1)>}) {
  %float5.000000e-01 = torch.constant.float 5.000000e-01
  %0 = torch.aten.mul.Scalar %arg0, %float5.000000e-01 {kiln.strides = [affine_map<() -> (8, 1)>]} : !torch.vtensor<[4,8],f32>, !torch.float -> !torch.vtensor<[4,8],f32>
  %float4.471500e-02 = torch.constant.float 4.471500e-02
  %1 = torch.aten.mul.Scalar %arg0, %float4.471500e-02 {kiln.strides = [affine_map<() -> (8, 1)>]} : !torch.vtensor<[4,8],f32>, !torch.float -> !torch.vtensor<[4,8],f32>
  %2 = torch.aten.mul.Tensor %1, %arg0 {kiln.strides = [affine_map<() -> (8, 1)>]} : !torch.vtensor<[4,8],f32>, !torch.vtensor<[4,8],f32> -> !torch.vtensor<[4,8],f32>
  %3 = torch.aten.mul.Tensor %2, %arg0 {kiln.strides = [affine_map<() -> (8, 1)>]} : !torch.vtensor<[4,8],f32>, !torch.vtensor<[4,8],f32> -> !torch.vtensor<[4,8],f32>
  %int1 = torch.constant.int 1
  %4 = torch.aten.add.Tensor %arg0, %3, %int1 {kiln.strides = [affine_map<() -> (8, 1)>]} : !torch.vtensor<[4,8],f32>, !torch.vtensor<[4,8],f32>, !torch.int -> !torch.vtensor<[4,8],f32>
  %float7.978850e-01 = torch.constant.float 0.79788456080286541
  %5 = torch.aten.mul.Scalar %4, %float7.978850e-01 {kiln.strides = [affine_map<() -> (8, 1)>]} : !torch.vtensor<[4,8],f32>, !torch.float -> !torch.vtensor<[4,8],f32>
  %6 = torch.aten.tanh %5 {kiln.strides = [affine_map<() -> (8, 1)>]} : !torch.vtensor<[4,8],f32> -> !torch.vtensor<[4,8],f32>
  %7 = torch.aten.add.Scalar %6, %int1, %int1 {kiln.strides = [affine_map<() -> (8, 1)>]} : !torch.vtensor<[4,8],f32>, !torch.int, !torch.int -> !torch.vtensor<[4,8],f32>
  %8 = torch.aten.mul.Tensor %0, %7 {kiln.strides = [affine_map<() -> (8, 1)>]} : !torch.vtensor<[4,8],f32>, !torch.vtensor<[4,8],f32> -> !torch.vtensor<[4,8],f32>
  return %8 : !torch.vtensor<[4,8],f32>
}

// -----

// Near miss: 0.05 in place of 0.044715.
// CHECK-LABEL: func.func @gelu_tanh_other_constant(
// CHECK-NOT: torch.aten.gelu
// CHECK: return
// WHY-DAG: gelu-tanh: operand 1 of aten.mul.Scalar: 0.044715 expected, found 0.05 (after 9 of 9 ops)
func.func @gelu_tanh_other_constant(%arg0: !torch.vtensor<[4,8],f32> {kiln.shape = affine_map<() -> (4, 8)>, kiln.strides = affine_map<() -> (8, 1)>}) -> (!torch.vtensor<[4,8],f32> {kiln.strides = affine_map<() -> (8, 1)>}) {
  %float5.000000e-01 = torch.constant.float 5.000000e-01
  %0 = torch.aten.mul.Scalar %arg0, %float5.000000e-01 {kiln.strides = [affine_map<() -> (8, 1)>]} : !torch.vtensor<[4,8],f32>, !torch.float -> !torch.vtensor<[4,8],f32>
  %float5.000000e-02 = torch.constant.float 5.000000e-02
  %1 = torch.aten.mul.Scalar %arg0, %float5.000000e-02 {kiln.strides = [affine_map<() -> (8, 1)>]} : !torch.vtensor<[4,8],f32>, !torch.float -> !torch.vtensor<[4,8],f32>
  %2 = torch.aten.mul.Tensor %1, %arg0 {kiln.strides = [affine_map<() -> (8, 1)>]} : !torch.vtensor<[4,8],f32>, !torch.vtensor<[4,8],f32> -> !torch.vtensor<[4,8],f32>
  %3 = torch.aten.mul.Tensor %2, %arg0 {kiln.strides = [affine_map<() -> (8, 1)>]} : !torch.vtensor<[4,8],f32>, !torch.vtensor<[4,8],f32> -> !torch.vtensor<[4,8],f32>
  %int1 = torch.constant.int 1
  %4 = torch.aten.add.Tensor %arg0, %3, %int1 {kiln.strides = [affine_map<() -> (8, 1)>]} : !torch.vtensor<[4,8],f32>, !torch.vtensor<[4,8],f32>, !torch.int -> !torch.vtensor<[4,8],f32>
  %float7.978850e-01 = torch.constant.float 0.79788456080286541
  %5 = torch.aten.mul.Scalar %4, %float7.978850e-01 {kiln.strides = [affine_map<() -> (8, 1)>]} : !torch.vtensor<[4,8],f32>, !torch.float -> !torch.vtensor<[4,8],f32>
  %6 = torch.aten.tanh %5 {kiln.strides = [affine_map<() -> (8, 1)>]} : !torch.vtensor<[4,8],f32> -> !torch.vtensor<[4,8],f32>
  %7 = torch.aten.add.Scalar %6, %int1, %int1 {kiln.strides = [affine_map<() -> (8, 1)>]} : !torch.vtensor<[4,8],f32>, !torch.int, !torch.int -> !torch.vtensor<[4,8],f32>
  %8 = torch.aten.mul.Tensor %0, %7 {kiln.strides = [affine_map<() -> (8, 1)>]} : !torch.vtensor<[4,8],f32>, !torch.vtensor<[4,8],f32> -> !torch.vtensor<[4,8],f32>
  return %8 : !torch.vtensor<[4,8],f32>
}

// -----

// Near miss: the tanh is returned as well.
// CHECK-LABEL: func.func @gelu_tanh_intermediate_used(
// CHECK-NOT: torch.aten.gelu
// CHECK: return
// WHY-DAG: gelu-tanh: aten.tanh has another user, func.return
func.func @gelu_tanh_intermediate_used(%arg0: !torch.vtensor<[4,8],f32> {kiln.shape = affine_map<() -> (4, 8)>, kiln.strides = affine_map<() -> (8, 1)>}) -> (!torch.vtensor<[4,8],f32> {kiln.strides = affine_map<() -> (8, 1)>}, !torch.vtensor<[4,8],f32> {kiln.strides = affine_map<() -> (8, 1)>}) {
  %float5.000000e-01 = torch.constant.float 5.000000e-01
  %0 = torch.aten.mul.Scalar %arg0, %float5.000000e-01 {kiln.strides = [affine_map<() -> (8, 1)>]} : !torch.vtensor<[4,8],f32>, !torch.float -> !torch.vtensor<[4,8],f32>
  %float4.471500e-02 = torch.constant.float 4.471500e-02
  %1 = torch.aten.mul.Scalar %arg0, %float4.471500e-02 {kiln.strides = [affine_map<() -> (8, 1)>]} : !torch.vtensor<[4,8],f32>, !torch.float -> !torch.vtensor<[4,8],f32>
  %2 = torch.aten.mul.Tensor %1, %arg0 {kiln.strides = [affine_map<() -> (8, 1)>]} : !torch.vtensor<[4,8],f32>, !torch.vtensor<[4,8],f32> -> !torch.vtensor<[4,8],f32>
  %3 = torch.aten.mul.Tensor %2, %arg0 {kiln.strides = [affine_map<() -> (8, 1)>]} : !torch.vtensor<[4,8],f32>, !torch.vtensor<[4,8],f32> -> !torch.vtensor<[4,8],f32>
  %int1 = torch.constant.int 1
  %4 = torch.aten.add.Tensor %arg0, %3, %int1 {kiln.strides = [affine_map<() -> (8, 1)>]} : !torch.vtensor<[4,8],f32>, !torch.vtensor<[4,8],f32>, !torch.int -> !torch.vtensor<[4,8],f32>
  %float7.978850e-01 = torch.constant.float 0.79788456080286541
  %5 = torch.aten.mul.Scalar %4, %float7.978850e-01 {kiln.strides = [affine_map<() -> (8, 1)>]} : !torch.vtensor<[4,8],f32>, !torch.float -> !torch.vtensor<[4,8],f32>
  %6 = torch.aten.tanh %5 {kiln.strides = [affine_map<() -> (8, 1)>]} : !torch.vtensor<[4,8],f32> -> !torch.vtensor<[4,8],f32>
  %7 = torch.aten.add.Scalar %6, %int1, %int1 {kiln.strides = [affine_map<() -> (8, 1)>]} : !torch.vtensor<[4,8],f32>, !torch.int, !torch.int -> !torch.vtensor<[4,8],f32>
  %8 = torch.aten.mul.Tensor %0, %7 {kiln.strides = [affine_map<() -> (8, 1)>]} : !torch.vtensor<[4,8],f32>, !torch.vtensor<[4,8],f32> -> !torch.vtensor<[4,8],f32>
  return %8, %6 : !torch.vtensor<[4,8],f32>, !torch.vtensor<[4,8],f32>
}

// -----

// GELU by erf, of any rank.
// CHECK-LABEL: func.func @gelu_erf(
// CHECK: %[[M:.*]] = torch.constant.str "none"
// CHECK-NEXT: torch.aten.gelu %arg0, %[[M]]
func.func @gelu_erf(%arg0: !torch.vtensor<[2,3,4],f32> {kiln.shape = affine_map<() -> (2, 3, 4)>, kiln.strides = affine_map<() -> (12, 4, 1)>}) -> (!torch.vtensor<[2,3,4],f32> {kiln.strides = affine_map<() -> (12, 4, 1)>}) {
  %float5.000000e-01 = torch.constant.float 5.000000e-01
  %0 = torch.aten.mul.Scalar %arg0, %float5.000000e-01 {kiln.strides = [affine_map<() -> (12, 4, 1)>]} : !torch.vtensor<[2,3,4],f32>, !torch.float -> !torch.vtensor<[2,3,4],f32>
  %float1.414210e00 = torch.constant.float 1.4142135623730951
  %1 = torch.aten.div.Scalar %arg0, %float1.414210e00 {kiln.strides = [affine_map<() -> (12, 4, 1)>]} : !torch.vtensor<[2,3,4],f32>, !torch.float -> !torch.vtensor<[2,3,4],f32>
  %2 = torch.aten.erf %1 {kiln.strides = [affine_map<() -> (12, 4, 1)>]} : !torch.vtensor<[2,3,4],f32> -> !torch.vtensor<[2,3,4],f32>
  %int1 = torch.constant.int 1
  %3 = torch.aten.add.Scalar %2, %int1, %int1 {kiln.strides = [affine_map<() -> (12, 4, 1)>]} : !torch.vtensor<[2,3,4],f32>, !torch.int, !torch.int -> !torch.vtensor<[2,3,4],f32>
  %4 = torch.aten.mul.Tensor %0, %3 {kiln.strides = [affine_map<() -> (12, 4, 1)>]} : !torch.vtensor<[2,3,4],f32>, !torch.vtensor<[2,3,4],f32> -> !torch.vtensor<[2,3,4],f32>
  return %4 : !torch.vtensor<[2,3,4],f32>
}

// -----

// SiLU.
// CHECK-LABEL: func.func @silu(
// CHECK: torch.aten.silu %arg0
// CHECK-NEXT: return
func.func @silu(%arg0: !torch.vtensor<[4,8],f32> {kiln.shape = affine_map<() -> (4, 8)>, kiln.strides = affine_map<() -> (8, 1)>}) -> (!torch.vtensor<[4,8],f32> {kiln.strides = affine_map<() -> (8, 1)>}) {
  %0 = torch.aten.sigmoid %arg0 {kiln.strides = [affine_map<() -> (8, 1)>]} : !torch.vtensor<[4,8],f32> -> !torch.vtensor<[4,8],f32>
  %1 = torch.aten.mul.Tensor %arg0, %0 {kiln.strides = [affine_map<() -> (8, 1)>]} : !torch.vtensor<[4,8],f32>, !torch.vtensor<[4,8],f32> -> !torch.vtensor<[4,8],f32>
  return %1 : !torch.vtensor<[4,8],f32>
}

// -----

// A gate by another tensor is no SiLU.
// CHECK-LABEL: func.func @silu_of_two(
// CHECK-NOT: torch.aten.silu
// CHECK: torch.aten.sigmoid
// WHY-DAG: silu: argument 0 would be two different tensors
func.func @silu_of_two(%arg0: !torch.vtensor<[4,8],f32> {kiln.shape = affine_map<() -> (4, 8)>, kiln.strides = affine_map<() -> (8, 1)>}, %arg1: !torch.vtensor<[4,8],f32> {kiln.shape = affine_map<() -> (4, 8)>, kiln.strides = affine_map<() -> (8, 1)>}) -> (!torch.vtensor<[4,8],f32> {kiln.strides = affine_map<() -> (8, 1)>}) {
  %0 = torch.aten.sigmoid %arg1 {kiln.strides = [affine_map<() -> (8, 1)>]} : !torch.vtensor<[4,8],f32> -> !torch.vtensor<[4,8],f32>
  %1 = torch.aten.mul.Tensor %arg0, %0 {kiln.strides = [affine_map<() -> (8, 1)>]} : !torch.vtensor<[4,8],f32>, !torch.vtensor<[4,8],f32> -> !torch.vtensor<[4,8],f32>
  return %1 : !torch.vtensor<[4,8],f32>
}

// -----

// Hard-swish.
// CHECK-LABEL: func.func @hardswish(
// CHECK: torch.aten.hardswish %arg0
// CHECK-NEXT: return
func.func @hardswish(%arg0: !torch.vtensor<[4,8],f32> {kiln.shape = affine_map<() -> (4, 8)>, kiln.strides = affine_map<() -> (8, 1)>}) -> (!torch.vtensor<[4,8],f32> {kiln.strides = affine_map<() -> (8, 1)>}) {
  %int3 = torch.constant.int 3
  %int1 = torch.constant.int 1
  %0 = torch.aten.add.Scalar %arg0, %int3, %int1 {kiln.strides = [affine_map<() -> (8, 1)>]} : !torch.vtensor<[4,8],f32>, !torch.int, !torch.int -> !torch.vtensor<[4,8],f32>
  %int0 = torch.constant.int 0
  %int6 = torch.constant.int 6
  %1 = torch.aten.clamp %0, %int0, %int6 {kiln.strides = [affine_map<() -> (8, 1)>]} : !torch.vtensor<[4,8],f32>, !torch.int, !torch.int -> !torch.vtensor<[4,8],f32>
  %2 = torch.aten.mul.Tensor %arg0, %1 {kiln.strides = [affine_map<() -> (8, 1)>]} : !torch.vtensor<[4,8],f32>, !torch.vtensor<[4,8],f32> -> !torch.vtensor<[4,8],f32>
  %3 = torch.aten.div.Scalar %2, %int6 {kiln.strides = [affine_map<() -> (8, 1)>]} : !torch.vtensor<[4,8],f32>, !torch.int -> !torch.vtensor<[4,8],f32>
  return %3 : !torch.vtensor<[4,8],f32>
}

// -----

// Near miss: clamped at 5.
// CHECK-LABEL: func.func @hardswish_other_bound(
// CHECK-NOT: torch.aten.hardswish
// CHECK: return
// WHY-DAG: hardswish-clamp: operand 2 of aten.clamp: 6
func.func @hardswish_other_bound(%arg0: !torch.vtensor<[4,8],f32> {kiln.shape = affine_map<() -> (4, 8)>, kiln.strides = affine_map<() -> (8, 1)>}) -> (!torch.vtensor<[4,8],f32> {kiln.strides = affine_map<() -> (8, 1)>}) {
  %int3 = torch.constant.int 3
  %int1 = torch.constant.int 1
  %0 = torch.aten.add.Scalar %arg0, %int3, %int1 {kiln.strides = [affine_map<() -> (8, 1)>]} : !torch.vtensor<[4,8],f32>, !torch.int, !torch.int -> !torch.vtensor<[4,8],f32>
  %int0 = torch.constant.int 0
  %int5 = torch.constant.int 5
  %1 = torch.aten.clamp %0, %int0, %int5 {kiln.strides = [affine_map<() -> (8, 1)>]} : !torch.vtensor<[4,8],f32>, !torch.int, !torch.int -> !torch.vtensor<[4,8],f32>
  %2 = torch.aten.mul.Tensor %arg0, %1 {kiln.strides = [affine_map<() -> (8, 1)>]} : !torch.vtensor<[4,8],f32>, !torch.vtensor<[4,8],f32> -> !torch.vtensor<[4,8],f32>
  %int6 = torch.constant.int 6
  %3 = torch.aten.div.Scalar %2, %int6 {kiln.strides = [affine_map<() -> (8, 1)>]} : !torch.vtensor<[4,8],f32>, !torch.int -> !torch.vtensor<[4,8],f32>
  return %3 : !torch.vtensor<[4,8],f32>
}
