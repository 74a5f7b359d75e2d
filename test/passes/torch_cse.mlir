// RUN: kiln-opt %s --split-input-file --pass-pipeline=torch-cse | filecheck %s

// Equal ops on equal operands merge, constants and lists included; what nothing needs goes.
// CHECK-LABEL: func.func @merge
// CHECK: torch.aten.sum.dim_IntList
// CHECK-NOT: torch.aten.sum.dim_IntList
// CHECK-NOT: torch.aten.exp
// CHECK: torch.aten.div.Tensor %[[S:.*]], %[[S]]
func.func @merge(%x: !torch.vtensor<[4,8],f32>) -> !torch.vtensor<[4,1],f32> {
  %t = torch.constant.bool true
  %n = torch.constant.none
  %a = torch.constant.int -1
  %b = torch.constant.int -1
  %l = torch.prim.ListConstruct %a : (!torch.int) -> !torch.list<int>
  %m = torch.prim.ListConstruct %b : (!torch.int) -> !torch.list<int>
  %0 = torch.aten.sum.dim_IntList %x, %l, %t, %n : !torch.vtensor<[4,8],f32>, !torch.list<int>, !torch.bool, !torch.none -> !torch.vtensor<[4,1],f32>
  %1 = torch.aten.sum.dim_IntList %x, %m, %t, %n : !torch.vtensor<[4,8],f32>, !torch.list<int>, !torch.bool, !torch.none -> !torch.vtensor<[4,1],f32>
  %dead = torch.aten.exp %x : !torch.vtensor<[4,8],f32> -> !torch.vtensor<[4,8],f32>
  %2 = torch.aten.div.Tensor %0, %1 : !torch.vtensor<[4,1],f32>, !torch.vtensor<[4,1],f32> -> !torch.vtensor<[4,1],f32>
  return %2 : !torch.vtensor<[4,1],f32>
}

// -----

// Two draws are two draws, though nobody looks at the second.
// CHECK-LABEL: func.func @random
// CHECK-COUNT-2: torch.aten.rand_like
func.func @random(%x: !torch.vtensor<[4],f32>) -> !torch.vtensor<[4],f32> {
  %n = torch.constant.none
  %0 = torch.aten.rand_like %x, %n, %n, %n, %n, %n : !torch.vtensor<[4],f32>, !torch.none, !torch.none, !torch.none, !torch.none, !torch.none -> !torch.vtensor<[4],f32>
  %1 = torch.aten.rand_like %x, %n, %n, %n, %n, %n : !torch.vtensor<[4],f32>, !torch.none, !torch.none, !torch.none, !torch.none, !torch.none -> !torch.vtensor<[4],f32>
  return %0 : !torch.vtensor<[4],f32>
}

// -----

// Two results are two tensors.
// CHECK-LABEL: func.func @both_returned
// CHECK-COUNT-2: torch.aten.relu
func.func @both_returned(%x: !torch.vtensor<[4],f32>) -> (!torch.vtensor<[4],f32>, !torch.vtensor<[4],f32>) {
  %0 = torch.aten.relu %x : !torch.vtensor<[4],f32> -> !torch.vtensor<[4],f32>
  %1 = torch.aten.relu %x : !torch.vtensor<[4],f32> -> !torch.vtensor<[4],f32>
  return %0, %1 : !torch.vtensor<[4],f32>, !torch.vtensor<[4],f32>
}
