// RUN: kiln-opt %s --split-input-file --remarks --pass-pipeline=rewrite-patterns 2> %t.remarks | filecheck %s
// RUN: filecheck %s --check-prefix=WHY --input-file %t.remarks
// With weight and bias.
// CHECK-LABEL: func.func @layer_norm(
// CHECK: torch.aten.native_layer_norm %arg0, %{{.*}}, %arg1, %arg2
func.func @layer_norm(%arg0: !torch.vtensor<[4,8],f32> {kiln.shape = affine_map<() -> (4, 8)>, kiln.strides = affine_map<() -> (8, 1)>}, %arg1: !torch.vtensor<[8],f32> {kiln.shape = affine_map<() -> (8)>, kiln.strides = affine_map<() -> (1)>}, %arg2: !torch.vtensor<[8],f32> {kiln.shape = affine_map<() -> (8)>, kiln.strides = affine_map<() -> (1)>}) -> (!torch.vtensor<[4,8],f32> {kiln.strides = affine_map<() -> (8, 1)>}) {
  %int-1 = torch.constant.int -1
  %0 = torch.prim.ListConstruct %int-1 : (!torch.int) -> !torch.list<int>
  %true = torch.constant.bool true
  %none = torch.constant.none
  %1 = torch.aten.mean.dim %arg0, %0, %true, %none {kiln.strides = [affine_map<() -> (1, 1)>]} : !torch.vtensor<[4,8],f32>, !torch.list<int>, !torch.bool, !torch.none -> !torch.vtensor<[4,1],f32>
  %int1 = torch.constant.int 1
  %2 = torch.aten.sub.Tensor %arg0, %1, %int1 {kiln.strides = [affine_map<() -> (8, 1)>]} : !torch.vtensor<[4,8],f32>, !torch.vtensor<[4,1],f32>, !torch.int -> !torch.vtensor<[4,8],f32>
  %3 = torch.aten.mul.Tensor %2, %2 {kiln.strides = [affine_map<() -> (8, 1)>]} : !torch.vtensor<[4,8],f32>, !torch.vtensor<[4,8],f32> -> !torch.vtensor<[4,8],f32>
  %4 = torch.aten.mean.dim %3, %0, %true, %none {kiln.strides = [affine_map<() -> (1, 1)>]} : !torch.vtensor<[4,8],f32>, !torch.list<int>, !torch.bool, !torch.none -> !torch.vtensor<[4,1],f32>
  %float1.000000e-05 = torch.constant.float 1.000000e-05
  %5 = torch.aten.add.Scalar %4, %float1.000000e-05, %int1 {kiln.strides = [affine_map<() -> (1, 1)>]} : !torch.vtensor<[4,1],f32>, !torch.float, !torch.int -> !torch.vtensor<[4,1],f32>
  %6 = torch.aten.sqrt %5 {kiln.strides = [affine_map<() -> (1, 1)>]} : !torch.vtensor<[4,1],f32> -> !torch.vtensor<[4,1],f32>
  %7 = torch.aten.div.Tensor %2, %6 {kiln.strides = [affine_map<() -> (8, 1)>]} : !torch.vtensor<[4,8],f32>, !torch.vtensor<[4,1],f32> -> !torch.vtensor<[4,8],f32>
  %8 = torch.aten.mul.Tensor %7, %arg1 {kiln.strides = [affine_map<() -> (8, 1)>]} : !torch.vtensor<[4,8],f32>, !torch.vtensor<[8],f32> -> !torch.vtensor<[4,8],f32>
  %9 = torch.aten.add.Tensor %8, %arg2, %int1 {kiln.strides = [affine_map<() -> (8, 1)>]} : !torch.vtensor<[4,8],f32>, !torch.vtensor<[8],f32>, !torch.int -> !torch.vtensor<[4,8],f32>
  return %9 : !torch.vtensor<[4,8],f32>
}

// -----

// By var, without weight, of rank 3.
// CHECK-LABEL: func.func @layer_norm_var(
// CHECK: torch.aten.native_layer_norm %arg0
func.func @layer_norm_var(%arg0: !torch.vtensor<[2,4,8],f32> {kiln.shape = affine_map<() -> (2, 4, 8)>, kiln.strides = affine_map<() -> (32, 8, 1)>}) -> (!torch.vtensor<[2,4,8],f32> {kiln.strides = affine_map<() -> (32, 8, 1)>}) {
  %int-1 = torch.constant.int -1
  %0 = torch.prim.ListConstruct %int-1 : (!torch.int) -> !torch.list<int>
  %true = torch.constant.bool true
  %none = torch.constant.none
  %1 = torch.aten.mean.dim %arg0, %0, %true, %none {kiln.strides = [affine_map<() -> (4, 1, 1)>]} : !torch.vtensor<[2,4,8],f32>, !torch.list<int>, !torch.bool, !torch.none -> !torch.vtensor<[2,4,1],f32>
  %int1 = torch.constant.int 1
  %2 = torch.aten.sub.Tensor %arg0, %1, %int1 {kiln.strides = [affine_map<() -> (32, 8, 1)>]} : !torch.vtensor<[2,4,8],f32>, !torch.vtensor<[2,4,1],f32>, !torch.int -> !torch.vtensor<[2,4,8],f32>
  %int0 = torch.constant.int 0
  %3 = torch.aten.var.correction %arg0, %0, %int0, %true {kiln.strides = [affine_map<() -> (4, 1, 1)>]} : !torch.vtensor<[2,4,8],f32>, !torch.list<int>, !torch.int, !torch.bool -> !torch.vtensor<[2,4,1],f32>
  %float9.999990e-07 = torch.constant.float 9.9999999999999995E-7
  %4 = torch.aten.add.Scalar %3, %float9.999990e-07, %int1 {kiln.strides = [affine_map<() -> (4, 1, 1)>]} : !torch.vtensor<[2,4,1],f32>, !torch.float, !torch.int -> !torch.vtensor<[2,4,1],f32>
  %5 = torch.aten.rsqrt %4 {kiln.strides = [affine_map<() -> (4, 1, 1)>]} : !torch.vtensor<[2,4,1],f32> -> !torch.vtensor<[2,4,1],f32>
  %6 = torch.aten.mul.Tensor %2, %5 {kiln.strides = [affine_map<() -> (32, 8, 1)>]} : !torch.vtensor<[2,4,8],f32>, !torch.vtensor<[2,4,1],f32> -> !torch.vtensor<[2,4,8],f32>
  return %6 : !torch.vtensor<[2,4,8],f32>
}

// -----

// Near miss: the unbiased variance.
// CHECK-LABEL: func.func @layer_norm_unbiased(
// CHECK-NOT: torch.aten.native_layer_norm
// CHECK: return
// WHY-DAG: layer-norm-var-rsqrt: operand 2 of aten.var.correction: 0 expected, found 1
func.func @layer_norm_unbiased(%arg0: !torch.vtensor<[4,8],f32> {kiln.shape = affine_map<() -> (4, 8)>, kiln.strides = affine_map<() -> (8, 1)>}) -> (!torch.vtensor<[4,8],f32> {kiln.strides = affine_map<() -> (8, 1)>}) {
  %int-1 = torch.constant.int -1
  %0 = torch.prim.ListConstruct %int-1 : (!torch.int) -> !torch.list<int>
  %true = torch.constant.bool true
  %none = torch.constant.none
  %1 = torch.aten.mean.dim %arg0, %0, %true, %none {kiln.strides = [affine_map<() -> (1, 1)>]} : !torch.vtensor<[4,8],f32>, !torch.list<int>, !torch.bool, !torch.none -> !torch.vtensor<[4,1],f32>
  %int1 = torch.constant.int 1
  %2 = torch.aten.sub.Tensor %arg0, %1, %int1 {kiln.strides = [affine_map<() -> (8, 1)>]} : !torch.vtensor<[4,8],f32>, !torch.vtensor<[4,1],f32>, !torch.int -> !torch.vtensor<[4,8],f32>
  %3 = torch.aten.var.correction %arg0, %0, %int1, %true {kiln.strides = [affine_map<() -> (1, 1)>]} : !torch.vtensor<[4,8],f32>, !torch.list<int>, !torch.int, !torch.bool -> !torch.vtensor<[4,1],f32>
  %float9.999990e-07 = torch.constant.float 9.9999999999999995E-7
  %4 = torch.aten.add.Scalar %3, %float9.999990e-07, %int1 {kiln.strides = [affine_map<() -> (1, 1)>]} : !torch.vtensor<[4,1],f32>, !torch.float, !torch.int -> !torch.vtensor<[4,1],f32>
  %5 = torch.aten.rsqrt %4 {kiln.strides = [affine_map<() -> (1, 1)>]} : !torch.vtensor<[4,1],f32> -> !torch.vtensor<[4,1],f32>
  %6 = torch.aten.mul.Tensor %2, %5 {kiln.strides = [affine_map<() -> (8, 1)>]} : !torch.vtensor<[4,8],f32>, !torch.vtensor<[4,1],f32> -> !torch.vtensor<[4,8],f32>
  return %6 : !torch.vtensor<[4,8],f32>
}

// -----

// Near miss: a weight for each element.
// CHECK-LABEL: func.func @layer_norm_wide_weight(
// CHECK-NOT: torch.aten.native_layer_norm %{{.*}}, %{{.*}}, %arg1
// CHECK: return
// WHY-DAG: layer-norm-sqrt-affine: weight or bias is no vector over the last dimension
func.func @layer_norm_wide_weight(%arg0: !torch.vtensor<[4,8],f32> {kiln.shape = affine_map<() -> (4, 8)>, kiln.strides = affine_map<() -> (8, 1)>}, %arg1: !torch.vtensor<[4,8],f32> {kiln.shape = affine_map<() -> (4, 8)>, kiln.strides = affine_map<() -> (8, 1)>}, %arg2: !torch.vtensor<[8],f32> {kiln.shape = affine_map<() -> (8)>, kiln.strides = affine_map<() -> (1)>}) -> (!torch.vtensor<[4,8],f32> {kiln.strides = affine_map<() -> (8, 1)>}) {
  %int-1 = torch.constant.int -1
  %0 = torch.prim.ListConstruct %int-1 : (!torch.int) -> !torch.list<int>
  %true = torch.constant.bool true
  %none = torch.constant.none
  %1 = torch.aten.mean.dim %arg0, %0, %true, %none {kiln.strides = [affine_map<() -> (1, 1)>]} : !torch.vtensor<[4,8],f32>, !torch.list<int>, !torch.bool, !torch.none -> !torch.vtensor<[4,1],f32>
  %int1 = torch.constant.int 1
  %2 = torch.aten.sub.Tensor %arg0, %1, %int1 {kiln.strides = [affine_map<() -> (8, 1)>]} : !torch.vtensor<[4,8],f32>, !torch.vtensor<[4,1],f32>, !torch.int -> !torch.vtensor<[4,8],f32>
  %3 = torch.aten.mul.Tensor %2, %2 {kiln.strides = [affine_map<() -> (8, 1)>]} : !torch.vtensor<[4,8],f32>, !torch.vtensor<[4,8],f32> -> !torch.vtensor<[4,8],f32>
  %4 = torch.aten.mean.dim %3, %0, %true, %none {kiln.strides = [affine_map<() -> (1, 1)>]} : !torch.vtensor<[4,8],f32>, !torch.list<int>, !torch.bool, !torch.none -> !torch.vtensor<[4,1],f32>
  %float1.000000e-05 = torch.constant.float 1.000000e-05
  %5 = torch.aten.add.Scalar %4, %float1.000000e-05, %int1 {kiln.strides = [affine_map<() -> (1, 1)>]} : !torch.vtensor<[4,1],f32>, !torch.float, !torch.int -> !torch.vtensor<[4,1],f32>
  %6 = torch.aten.sqrt %5 {kiln.strides = [affine_map<() -> (1, 1)>]} : !torch.vtensor<[4,1],f32> -> !torch.vtensor<[4,1],f32>
  %7 = torch.aten.div.Tensor %2, %6 {kiln.strides = [affine_map<() -> (8, 1)>]} : !torch.vtensor<[4,8],f32>, !torch.vtensor<[4,1],f32> -> !torch.vtensor<[4,8],f32>
  %8 = torch.aten.mul.Tensor %7, %arg1 {kiln.strides = [affine_map<() -> (8, 1)>]} : !torch.vtensor<[4,8],f32>, !torch.vtensor<[4,8],f32> -> !torch.vtensor<[4,8],f32>
  %9 = torch.aten.add.Tensor %8, %arg2, %int1 {kiln.strides = [affine_map<() -> (8, 1)>]} : !torch.vtensor<[4,8],f32>, !torch.vtensor<[8],f32>, !torch.int -> !torch.vtensor<[4,8],f32>
  return %9 : !torch.vtensor<[4,8],f32>
}

// -----

// As in Llama.
// CHECK-LABEL: func.func @rms_norm(
// CHECK: torch.aten.rms_norm
func.func @rms_norm(%arg0: !torch.vtensor<[4,8],f32> {kiln.shape = affine_map<() -> (4, 8)>, kiln.strides = affine_map<() -> (8, 1)>}, %arg1: !torch.vtensor<[8],f32> {kiln.shape = affine_map<() -> (8)>, kiln.strides = affine_map<() -> (1)>}) -> (!torch.vtensor<[4,8],f32> {kiln.strides = affine_map<() -> (8, 1)>}) {
  %0 = torch.aten.mul.Tensor %arg0, %arg0 {kiln.strides = [affine_map<() -> (8, 1)>]} : !torch.vtensor<[4,8],f32>, !torch.vtensor<[4,8],f32> -> !torch.vtensor<[4,8],f32>
  %int-1 = torch.constant.int -1
  %1 = torch.prim.ListConstruct %int-1 : (!torch.int) -> !torch.list<int>
  %true = torch.constant.bool true
  %none = torch.constant.none
  %2 = torch.aten.mean.dim %0, %1, %true, %none {kiln.strides = [affine_map<() -> (1, 1)>]} : !torch.vtensor<[4,8],f32>, !torch.list<int>, !torch.bool, !torch.none -> !torch.vtensor<[4,1],f32>
  %float9.999990e-07 = torch.constant.float 9.9999999999999995E-7
  %int1 = torch.constant.int 1
  %3 = torch.aten.add.Scalar %2, %float9.999990e-07, %int1 {kiln.strides = [affine_map<() -> (1, 1)>]} : !torch.vtensor<[4,1],f32>, !torch.float, !torch.int -> !torch.vtensor<[4,1],f32>
  %4 = torch.aten.rsqrt %3 {kiln.strides = [affine_map<() -> (1, 1)>]} : !torch.vtensor<[4,1],f32> -> !torch.vtensor<[4,1],f32>
  %5 = torch.aten.mul.Tensor %arg0, %4 {kiln.strides = [affine_map<() -> (8, 1)>]} : !torch.vtensor<[4,8],f32>, !torch.vtensor<[4,1],f32> -> !torch.vtensor<[4,8],f32>
  %6 = torch.aten.mul.Tensor %5, %arg1 {kiln.strides = [affine_map<() -> (8, 1)>]} : !torch.vtensor<[4,8],f32>, !torch.vtensor<[8],f32> -> !torch.vtensor<[4,8],f32>
  return %6 : !torch.vtensor<[4,8],f32>
}

// -----

// Near miss: over the first dimension.
// CHECK-LABEL: func.func @rms_norm_other_dim(
// CHECK-NOT: torch.aten.rms_norm
// CHECK: return
// WHY-DAG: rms-norm-rsqrt: operand 1 of aten.mean.dim: -1 expected, found 0
func.func @rms_norm_other_dim(%arg0: !torch.vtensor<[4,8],f32> {kiln.shape = affine_map<() -> (4, 8)>, kiln.strides = affine_map<() -> (8, 1)>}) -> (!torch.vtensor<[4,8],f32> {kiln.strides = affine_map<() -> (8, 1)>}) {
  %0 = torch.aten.mul.Tensor %arg0, %arg0 {kiln.strides = [affine_map<() -> (8, 1)>]} : !torch.vtensor<[4,8],f32>, !torch.vtensor<[4,8],f32> -> !torch.vtensor<[4,8],f32>
  %int0 = torch.constant.int 0
  %1 = torch.prim.ListConstruct %int0 : (!torch.int) -> !torch.list<int>
  %true = torch.constant.bool true
  %none = torch.constant.none
  %2 = torch.aten.mean.dim %0, %1, %true, %none {kiln.strides = [affine_map<() -> (8, 1)>]} : !torch.vtensor<[4,8],f32>, !torch.list<int>, !torch.bool, !torch.none -> !torch.vtensor<[1,8],f32>
  %float9.999990e-07 = torch.constant.float 9.9999999999999995E-7
  %int1 = torch.constant.int 1
  %3 = torch.aten.add.Scalar %2, %float9.999990e-07, %int1 {kiln.strides = [affine_map<() -> (8, 1)>]} : !torch.vtensor<[1,8],f32>, !torch.float, !torch.int -> !torch.vtensor<[1,8],f32>
  %4 = torch.aten.rsqrt %3 {kiln.strides = [affine_map<() -> (8, 1)>]} : !torch.vtensor<[1,8],f32> -> !torch.vtensor<[1,8],f32>
  %5 = torch.aten.mul.Tensor %arg0, %4 {kiln.strides = [affine_map<() -> (8, 1)>]} : !torch.vtensor<[4,8],f32>, !torch.vtensor<[1,8],f32> -> !torch.vtensor<[4,8],f32>
  return %5 : !torch.vtensor<[4,8],f32>
}

// -----

// Over all but batch and group.
// CHECK-LABEL: func.func @group_norm(
// CHECK: %[[V:.*]] = torch.aten.view %arg0
// CHECK: torch.aten.native_group_norm %[[V]]
// CHECK-NOT: torch.aten.var
func.func @group_norm(%arg0: !torch.vtensor<[2,6,5,7],f32> {kiln.shape = affine_map<() -> (2, 6, 5, 7)>, kiln.strides = affine_map<() -> (210, 35, 7, 1)>}) -> (!torch.vtensor<[2,6,5,7],f32> {kiln.strides = affine_map<() -> (210, 35, 7, 1)>}) {
  %int2 = torch.constant.int 2
  %int3 = torch.constant.int 3
  %int5 = torch.constant.int 5
  %int7 = torch.constant.int 7
  %0 = torch.prim.ListConstruct %int2, %int3, %int2, %int5, %int7 : (!torch.int, !torch.int, !torch.int, !torch.int, !torch.int) -> !torch.list<int>
  %1 = torch.aten.view %arg0, %0 {kiln.strides = [affine_map<() -> (210, 70, 35, 7, 1)>]} : !torch.vtensor<[2,6,5,7],f32>, !torch.list<int> -> !torch.vtensor<[2,3,2,5,7],f32>
  %int4 = torch.constant.int 4
  %2 = torch.prim.ListConstruct %int2, %int3, %int4 : (!torch.int, !torch.int, !torch.int) -> !torch.list<int>
  %true = torch.constant.bool true
  %none = torch.constant.none
  %3 = torch.aten.mean.dim %1, %2, %true, %none {kiln.strides = [affine_map<() -> (3, 1, 1, 1, 1)>]} : !torch.vtensor<[2,3,2,5,7],f32>, !torch.list<int>, !torch.bool, !torch.none -> !torch.vtensor<[2,3,1,1,1],f32>
  %int0 = torch.constant.int 0
  %4 = torch.aten.var.correction %1, %2, %int0, %true {kiln.strides = [affine_map<() -> (3, 1, 1, 1, 1)>]} : !torch.vtensor<[2,3,2,5,7],f32>, !torch.list<int>, !torch.int, !torch.bool -> !torch.vtensor<[2,3,1,1,1],f32>
  %int1 = torch.constant.int 1
  %5 = torch.aten.sub.Tensor %1, %3, %int1 {kiln.strides = [affine_map<() -> (210, 70, 35, 7, 1)>]} : !torch.vtensor<[2,3,2,5,7],f32>, !torch.vtensor<[2,3,1,1,1],f32>, !torch.int -> !torch.vtensor<[2,3,2,5,7],f32>
  %float1.000000e-05 = torch.constant.float 1.000000e-05
  %6 = torch.aten.add.Scalar %4, %float1.000000e-05, %int1 {kiln.strides = [affine_map<() -> (3, 1, 1, 1, 1)>]} : !torch.vtensor<[2,3,1,1,1],f32>, !torch.float, !torch.int -> !torch.vtensor<[2,3,1,1,1],f32>
  %7 = torch.aten.rsqrt %6 {kiln.strides = [affine_map<() -> (3, 1, 1, 1, 1)>]} : !torch.vtensor<[2,3,1,1,1],f32> -> !torch.vtensor<[2,3,1,1,1],f32>
  %8 = torch.aten.mul.Tensor %5, %7 {kiln.strides = [affine_map<() -> (210, 70, 35, 7, 1)>]} : !torch.vtensor<[2,3,2,5,7],f32>, !torch.vtensor<[2,3,1,1,1],f32> -> !torch.vtensor<[2,3,2,5,7],f32>
  %int6 = torch.constant.int 6
  %9 = torch.prim.ListConstruct %int2, %int6, %int5, %int7 : (!torch.int, !torch.int, !torch.int, !torch.int) -> !torch.list<int>
  %10 = torch.aten.view %8, %9 {kiln.strides = [affine_map<() -> (210, 35, 7, 1)>]} : !torch.vtensor<[2,3,2,5,7],f32>, !torch.list<int> -> !torch.vtensor<[2,6,5,7],f32>
  return %10 : !torch.vtensor<[2,6,5,7],f32>
}

// -----

// Near miss: one statistic for each channel of a group.
// CHECK-LABEL: func.func @group_norm_without_a_dimension(
// CHECK-NOT: torch.aten.native_group_norm
// CHECK: return
func.func @group_norm_without_a_dimension(%arg0: !torch.vtensor<[2,6,5,7],f32> {kiln.shape = affine_map<() -> (2, 6, 5, 7)>, kiln.strides = affine_map<() -> (210, 35, 7, 1)>}) -> (!torch.vtensor<[2,6,5,7],f32> {kiln.strides = affine_map<() -> (210, 35, 7, 1)>}) {
  %int2 = torch.constant.int 2
  %int3 = torch.constant.int 3
  %int5 = torch.constant.int 5
  %int7 = torch.constant.int 7
  %0 = torch.prim.ListConstruct %int2, %int3, %int2, %int5, %int7 : (!torch.int, !torch.int, !torch.int, !torch.int, !torch.int) -> !torch.list<int>
  %1 = torch.aten.view %arg0, %0 {kiln.strides = [affine_map<() -> (210, 70, 35, 7, 1)>]} : !torch.vtensor<[2,6,5,7],f32>, !torch.list<int> -> !torch.vtensor<[2,3,2,5,7],f32>
  %int4 = torch.constant.int 4
  %2 = torch.prim.ListConstruct %int3, %int4 : (!torch.int, !torch.int) -> !torch.list<int>
  %true = torch.constant.bool true
  %none = torch.constant.none
  %3 = torch.aten.mean.dim %1, %2, %true, %none {kiln.strides = [affine_map<() -> (6, 2, 1, 1, 1)>]} : !torch.vtensor<[2,3,2,5,7],f32>, !torch.list<int>, !torch.bool, !torch.none -> !torch.vtensor<[2,3,2,1,1],f32>
  %int0 = torch.constant.int 0
  %4 = torch.aten.var.correction %1, %2, %int0, %true {kiln.strides = [affine_map<() -> (6, 2, 1, 1, 1)>]} : !torch.vtensor<[2,3,2,5,7],f32>, !torch.list<int>, !torch.int, !torch.bool -> !torch.vtensor<[2,3,2,1,1],f32>
  %int1 = torch.constant.int 1
  %5 = torch.aten.sub.Tensor %1, %3, %int1 {kiln.strides = [affine_map<() -> (210, 70, 35, 7, 1)>]} : !torch.vtensor<[2,3,2,5,7],f32>, !torch.vtensor<[2,3,2,1,1],f32>, !torch.int -> !torch.vtensor<[2,3,2,5,7],f32>
  %float1.000000e-05 = torch.constant.float 1.000000e-05
  %6 = torch.aten.add.Scalar %4, %float1.000000e-05, %int1 {kiln.strides = [affine_map<() -> (6, 2, 1, 1, 1)>]} : !torch.vtensor<[2,3,2,1,1],f32>, !torch.float, !torch.int -> !torch.vtensor<[2,3,2,1,1],f32>
  %7 = torch.aten.rsqrt %6 {kiln.strides = [affine_map<() -> (6, 2, 1, 1, 1)>]} : !torch.vtensor<[2,3,2,1,1],f32> -> !torch.vtensor<[2,3,2,1,1],f32>
  %8 = torch.aten.mul.Tensor %5, %7 {kiln.strides = [affine_map<() -> (210, 70, 35, 7, 1)>]} : !torch.vtensor<[2,3,2,5,7],f32>, !torch.vtensor<[2,3,2,1,1],f32> -> !torch.vtensor<[2,3,2,5,7],f32>
  %int6 = torch.constant.int 6
  %9 = torch.prim.ListConstruct %int2, %int6, %int5, %int7 : (!torch.int, !torch.int, !torch.int, !torch.int) -> !torch.list<int>
  %10 = torch.aten.view %8, %9 {kiln.strides = [affine_map<() -> (210, 35, 7, 1)>]} : !torch.vtensor<[2,3,2,5,7],f32>, !torch.list<int> -> !torch.vtensor<[2,6,5,7],f32>
  return %10 : !torch.vtensor<[2,6,5,7],f32>
}
