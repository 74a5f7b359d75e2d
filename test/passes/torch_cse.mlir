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

// -----

// Dropout draws, whatever it is called; other numbers are other ops.
// CHECK-LABEL: func.func @dropout
// CHECK-COUNT-2: torch.aten.native_dropout
// CHECK-COUNT-2: torch.aten.bernoulli.p
// CHECK-COUNT-2: torch.aten.add.Tensor
func.func @dropout(%x: !torch.vtensor<[4],f32>) -> (!torch.vtensor<[4],f32>, !torch.vtensor<[4],f32>) {
  %p = torch.constant.float 5.000000e-01
  %t = torch.constant.bool true
  %n = torch.constant.none
  %i1 = torch.constant.int 1
  %i2 = torch.constant.int 2
  %0, %m0 = torch.aten.native_dropout %x, %p, %t : !torch.vtensor<[4],f32>, !torch.float, !torch.bool -> !torch.vtensor<[4],f32>, !torch.vtensor<[4],i1>
  %1, %m1 = torch.aten.native_dropout %x, %p, %t : !torch.vtensor<[4],f32>, !torch.float, !torch.bool -> !torch.vtensor<[4],f32>, !torch.vtensor<[4],i1>
  %2 = torch.aten.bernoulli.p %x, %p, %n : !torch.vtensor<[4],f32>, !torch.float, !torch.none -> !torch.vtensor<[4],f32>
  %3 = torch.aten.bernoulli.p %x, %p, %n : !torch.vtensor<[4],f32>, !torch.float, !torch.none -> !torch.vtensor<[4],f32>
  %4 = torch.aten.add.Tensor %0, %1, %i1 : !torch.vtensor<[4],f32>, !torch.vtensor<[4],f32>, !torch.int -> !torch.vtensor<[4],f32>
  %5 = torch.aten.add.Tensor %0, %1, %i2 : !torch.vtensor<[4],f32>, !torch.vtensor<[4],f32>, !torch.int -> !torch.vtensor<[4],f32>
  return %4, %5 : !torch.vtensor<[4],f32>, !torch.vtensor<[4],f32>
}

// -----

// An op of a custom library may do anything, one that writes does: both stay, twice, though nobody reads their results.
// CHECK-LABEL: func.func @effects
// CHECK-COUNT-2: torch.operator "torch.mylib.log"
// CHECK-COUNT-2: torch.operator "torch.aten.relu_"
func.func @effects(%x: !torch.vtensor<[4],f32>) -> !torch.vtensor<[4],f32> {
  %0 = torch.operator "torch.mylib.log"(%x) : (!torch.vtensor<[4],f32>) -> !torch.vtensor<[4],f32>
  %1 = torch.operator "torch.mylib.log"(%x) : (!torch.vtensor<[4],f32>) -> !torch.vtensor<[4],f32>
  %2 = torch.operator "torch.aten.relu_"(%x) : (!torch.vtensor<[4],f32>) -> !torch.vtensor<[4],f32>
  %3 = torch.operator "torch.aten.relu_"(%x) : (!torch.vtensor<[4],f32>) -> !torch.vtensor<[4],f32>
  return %x : !torch.vtensor<[4],f32>
}

// -----

// Memory that nobody wrote to is not the same memory, and what depends on data has a size of its own.
// CHECK-LABEL: func.func @own_memory
// CHECK-COUNT-2: torch.aten.empty.memory_format
// CHECK-COUNT-2: torch.aten.nonzero
func.func @own_memory(%x: !torch.vtensor<[4],f32>) -> (!torch.vtensor<[4],f32>, !torch.vtensor<[4],f32>, !torch.vtensor<[?,1],si64>, !torch.vtensor<[?,1],si64>) {
  %i4 = torch.constant.int 4
  %n = torch.constant.none
  %l = torch.prim.ListConstruct %i4 : (!torch.int) -> !torch.list<int>
  %0 = torch.aten.empty.memory_format %l, %n, %n, %n, %n, %n : !torch.list<int>, !torch.none, !torch.none, !torch.none, !torch.none, !torch.none -> !torch.vtensor<[4],f32>
  %1 = torch.aten.empty.memory_format %l, %n, %n, %n, %n, %n : !torch.list<int>, !torch.none, !torch.none, !torch.none, !torch.none, !torch.none -> !torch.vtensor<[4],f32>
  %2 = torch.aten.nonzero %x {kiln.unbacked = ["u0"]} : !torch.vtensor<[4],f32> -> !torch.vtensor<[?,1],si64>
  %3 = torch.aten.nonzero %x {kiln.unbacked = ["u1"]} : !torch.vtensor<[4],f32> -> !torch.vtensor<[?,1],si64>
  return %0, %1, %2, %3 : !torch.vtensor<[4],f32>, !torch.vtensor<[4],f32>, !torch.vtensor<[?,1],si64>, !torch.vtensor<[?,1],si64>
}

// -----

// Equal reads of both merged and dead code go, however deep.
// CHECK-LABEL: func.func @dead
// CHECK-NEXT: return %arg0
func.func @dead(%x: !torch.vtensor<[4],f32>) -> !torch.vtensor<[4],f32> {
  %0 = torch.aten.exp %x : !torch.vtensor<[4],f32> -> !torch.vtensor<[4],f32>
  %1 = torch.aten.relu %0 : !torch.vtensor<[4],f32> -> !torch.vtensor<[4],f32>
  %2 = torch.aten.log %1 : !torch.vtensor<[4],f32> -> !torch.vtensor<[4],f32>
  return %x : !torch.vtensor<[4],f32>
}
