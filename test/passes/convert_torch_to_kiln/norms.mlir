// RUN: kiln-opt %s --split-input-file --pass-pipeline=convert-torch-to-kiln | filecheck %s

// CHECK-LABEL: func.func @softmax
// CHECK: "kiln.softmax"
// CHECK-SAME: dim = 1
// CHECK-SAME: log = false
func.func @softmax(%x: !torch.vtensor<[4,8],f32>) -> !torch.vtensor<[4,8],f32> {
  %int-1 = torch.constant.int -1
  %false = torch.constant.bool false
  %0 = torch.aten._softmax %x, %int-1, %false : !torch.vtensor<[4,8],f32>, !torch.int, !torch.bool -> !torch.vtensor<[4,8],f32>
  return %0 : !torch.vtensor<[4,8],f32>
}

// -----

// Statistics that nothing uses: one named op.
// CHECK-LABEL: func.func @layer_norm
// CHECK: "kiln.layer_norm"(%{{.*}}, %{{.*}}, %{{.*}}) {axes = array<i64: 1>, eps = 1.000000e-05 : f64}
// CHECK-NOT: linalg.generic
func.func @layer_norm(%x: !torch.vtensor<[4,8],f32>, %w: !torch.vtensor<[8],f32>, %b: !torch.vtensor<[8],f32>) -> !torch.vtensor<[4,8],f32> {
  %int8 = torch.constant.int 8
  %shape = torch.prim.ListConstruct %int8 : (!torch.int) -> !torch.list<int>
  %eps = torch.constant.float 1.000000e-05
  %0:3 = torch.aten.native_layer_norm %x, %shape, %w, %b, %eps : !torch.vtensor<[4,8],f32>, !torch.list<int>, !torch.vtensor<[8],f32>, !torch.vtensor<[8],f32>, !torch.float -> !torch.vtensor<[4,8],f32>, !torch.vtensor<[4,1],f32>, !torch.vtensor<[4,1],f32>
  return %0#0 : !torch.vtensor<[4,8],f32>
}

// -----

// Training wants the statistics: written out, computed once, in f32.
// CHECK-LABEL: func.func @layer_norm_statistics
// CHECK-NOT: f64
// CHECK-NOT: kiln.layer_norm
// CHECK: math.sqrt
// CHECK: "kiln.view"
// CHECK-SAME: -> tensor<4x1xf32>
// CHECK: return
func.func @layer_norm_statistics(%x: !torch.vtensor<[4,8],f32>) -> (!torch.vtensor<[4,8],f32>, !torch.vtensor<[4,1],f32>) {
  %int8 = torch.constant.int 8
  %shape = torch.prim.ListConstruct %int8 : (!torch.int) -> !torch.list<int>
  %none = torch.constant.none
  %eps = torch.constant.float 1.000000e-05
  %0:3 = torch.aten.native_layer_norm %x, %shape, %none, %none, %eps : !torch.vtensor<[4,8],f32>, !torch.list<int>, !torch.none, !torch.none, !torch.float -> !torch.vtensor<[4,8],f32>, !torch.vtensor<[4,1],f32>, !torch.vtensor<[4,1],f32>
  return %0#0, %0#2 : !torch.vtensor<[4,8],f32>, !torch.vtensor<[4,1],f32>
}

// -----

// CHECK-LABEL: func.func @rms_norm
// CHECK: "kiln.rms_norm"(%{{.*}}, %{{.*}}) {axes = array<i64: 1>
func.func @rms_norm(%x: !torch.vtensor<[4,8],f32>, %w: !torch.vtensor<[8],f32>) -> !torch.vtensor<[4,8],f32> {
  %int8 = torch.constant.int 8
  %shape = torch.prim.ListConstruct %int8 : (!torch.int) -> !torch.list<int>
  %eps = torch.constant.float 1.000000e-06
  %0:2 = torch.operator "torch.aten._fused_rms_norm"(%x, %shape, %w, %eps) : (!torch.vtensor<[4,8],f32>, !torch.list<int>, !torch.vtensor<[8],f32>, !torch.float) -> (!torch.vtensor<[4,8],f32>, !torch.vtensor<[4,1],f32>)
  return %0#0 : !torch.vtensor<[4,8],f32>
}

// -----

// CHECK-LABEL: func.func @batch_norm
// CHECK: "kiln.batch_norm"(%{{.*}}, %{{.*}}, %{{.*}}) {eps = 1.000000e-05 : f64}
func.func @batch_norm(%x: !torch.vtensor<[2,6,3,3],f32>, %m: !torch.vtensor<[6],f32>, %v: !torch.vtensor<[6],f32>) -> !torch.vtensor<[2,6,3,3],f32> {
  %none = torch.constant.none
  %momentum = torch.constant.float 1.000000e-01
  %eps = torch.constant.float 1.000000e-05
  %0:3 = torch.operator "torch.aten._native_batch_norm_legit_no_training"(%x, %none, %none, %m, %v, %momentum, %eps) : (!torch.vtensor<[2,6,3,3],f32>, !torch.none, !torch.none, !torch.vtensor<[6],f32>, !torch.vtensor<[6],f32>, !torch.float, !torch.float) -> (!torch.vtensor<[2,6,3,3],f32>, !torch.vtensor<[0],f32>, !torch.vtensor<[0],f32>)
  return %0#0 : !torch.vtensor<[2,6,3,3],f32>
}
