// RUN: kiln-opt %s --split-input-file --pass-pipeline="convert-torch-to-kiln" | filecheck %s

// CHECK: [[W:#map[0-9]*]] = affine_map<(d0, d1, d2, d3, d4, d5) -> (d0, d1, d2 * 2 + d4, d3 * 2 + d5)>
// CHECK-LABEL: func.func @max_pool
// CHECK: %[[INF:.*]] = arith.constant 0xFF800000 : f32
// CHECK: %[[P:.*]] = "kiln.pad"(%{{.*}}, %[[INF]])
// CHECK: %[[E:.*]] = "kiln.empty"() {{.*}} : () -> tensor<3x3xf32>
// CHECK: linalg.generic {indexing_maps = [[[W]]
// CHECK-SAME: iterator_types = ["parallel", "parallel", "parallel", "parallel", "reduction", "reduction"]
// CHECK-SAME: ins(%[[P]], %[[E]]
// CHECK: arith.maximumf
func.func @max_pool(%x: !torch.vtensor<[1,2,8,8],f32>) -> !torch.vtensor<[1,2,4,4],f32> {
  %i1 = torch.constant.int 1
  %i2 = torch.constant.int 2
  %i3 = torch.constant.int 3
  %false = torch.constant.bool false
  %k = torch.prim.ListConstruct %i3, %i3 : (!torch.int, !torch.int) -> !torch.list<int>
  %s = torch.prim.ListConstruct %i2, %i2 : (!torch.int, !torch.int) -> !torch.list<int>
  %p = torch.prim.ListConstruct %i1, %i1 : (!torch.int, !torch.int) -> !torch.list<int>
  %0:2 = torch.aten.max_pool2d_with_indices %x, %k, %s, %p, %p, %false : !torch.vtensor<[1,2,8,8],f32>, !torch.list<int>, !torch.list<int>, !torch.list<int>, !torch.list<int>, !torch.bool -> !torch.vtensor<[1,2,4,4],f32>, !torch.vtensor<[1,2,4,4],si64>
  return %0#0 : !torch.vtensor<[1,2,4,4],f32>
}

// -----

// The bias is an addition after the convolution.
// CHECK-LABEL: func.func @conv
// CHECK: %[[C:.*]] = "kiln.conv"(%{{[a-z0-9]*}}, %{{[a-z0-9]*}})
// CHECK-SAME: stride = array<i64: 1, 1>
// CHECK: linalg.generic
// CHECK-SAME: ins(%[[C]], %{{.*}} : tensor<1x4x6x6xf32>, tensor<4xf32>)
// CHECK-SAME: attrs = {conv_bias}
func.func @conv(%x: !torch.vtensor<[1,3,8,8],f32>, %w: !torch.vtensor<[4,3,3,3],f32>, %b: !torch.vtensor<[4],f32>) -> !torch.vtensor<[1,4,6,6],f32> {
  %i0 = torch.constant.int 0
  %i1 = torch.constant.int 1
  %false = torch.constant.bool false
  %one = torch.prim.ListConstruct %i1, %i1 : (!torch.int, !torch.int) -> !torch.list<int>
  %zero = torch.prim.ListConstruct %i0, %i0 : (!torch.int, !torch.int) -> !torch.list<int>
  %0 = torch.aten.convolution %x, %w, %b, %one, %zero, %one, %false, %zero, %i1 : !torch.vtensor<[1,3,8,8],f32>, !torch.vtensor<[4,3,3,3],f32>, !torch.vtensor<[4],f32>, !torch.list<int>, !torch.list<int>, !torch.list<int>, !torch.bool, !torch.list<int>, !torch.int -> !torch.vtensor<[1,4,6,6],f32>
  return %0 : !torch.vtensor<[1,4,6,6],f32>
}

// -----

// Windows of unlike sizes: the longest one, masked.
// CHECK: affine_map<(d0, d1, d2, d3) -> (d0, d1, (d2 * 7) floordiv 3 + d3)>
// CHECK-LABEL: func.func @adaptive
// CHECK: arith.select
// CHECK: arith.addf
// CHECK: arith.divf
func.func @adaptive(%x: !torch.vtensor<[1,2,7],f32>) -> !torch.vtensor<[1,2,3],f32> {
  %i3 = torch.constant.int 3
  %s = torch.prim.ListConstruct %i3 : (!torch.int) -> !torch.list<int>
  %0 = torch.aten.adaptive_avg_pool1d %x, %s : !torch.vtensor<[1,2,7],f32>, !torch.list<int> -> !torch.vtensor<[1,2,3],f32>
  return %0 : !torch.vtensor<[1,2,3],f32>
}
