// Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// RUN: kiln-opt %s --split-input-file --mlir-print-local-scope --pipeline=cpu --until=vector | filecheck %s --check-prefix=CPU
// RUN: kiln-opt %s --split-input-file --mlir-print-local-scope --pipeline=gpu --until=ttir | filecheck %s --check-prefix=GPU

// From a graph to the kernels of both targets, one small graph for each kind of nest.

// One loop over all elements; nothing is stored between the ops.

// CPU: func.func @
// CPU: scf.for
// CPU-NEXT: %[[X:.*]] = vector.load %arg0[%[[I:.*]]] : memref<?xf32>, vector<{{[0-9]+}}xf32>
// CPU: arith.mulf %[[X]]
// CPU: arith.addf
// CPU: arith.select
// CPU-NOT: vector.load
// CPU: vector.store %{{.*}}, %arg1[%[[I]]]
// CPU: func.func @pointwise(

// GPU: "tt.func"
// GPU: "tt.load"
// GPU: arith.mulf
// GPU: arith.addf
// GPU: arith.select
// GPU-NOT: "tt.load"
// GPU: "tt.store"
// GPU: kiln.grid = affine_map<() -> (50, 1, 1)>
// GPU: func.func @pointwise(
func.func @pointwise(%arg0: !torch.vtensor<[64,100],f32>) -> (!torch.vtensor<[64,100],f32>) {
  %int2 = torch.constant.int 2
  %0 = torch.aten.mul.Scalar %arg0, %int2 : !torch.vtensor<[64,100],f32>, !torch.int -> !torch.vtensor<[64,100],f32>
  %int1 = torch.constant.int 1
  %int1_0 = torch.constant.int 1
  %1 = torch.aten.add.Scalar %0, %int1, %int1_0 : !torch.vtensor<[64,100],f32>, !torch.int, !torch.int -> !torch.vtensor<[64,100],f32>
  %2 = torch.aten.relu %1 : !torch.vtensor<[64,100],f32> -> !torch.vtensor<[64,100],f32>
  return %2 : !torch.vtensor<[64,100],f32>
}

// -----

// Three reductions and the quotient walk a row each; exponentials are computed once.

// CPU: func.func @
// CPU: scf.for
// CPU: arith.maximumf
// CPU: vector.reduction <maximumf>
// CPU: math.exp
// CPU: vector.store %{{.*}}, %{{.*}}[%{{.*}}] : memref<?xf32>
// CPU: vector.reduction <add>
// CPU-NOT: math.exp
// CPU: arith.divf
// CPU: vector.store %{{.*}}, %arg1
// CPU: func.func @rows_of_softmax(

// GPU: "tt.func"
// GPU: "tt.load"
// GPU: "tt.reduce"
// GPU: arith.maximumf
// GPU: math.exp
// GPU: "tt.reduce"
// GPU: arith.addf
// GPU-NOT: math.exp
// GPU: arith.divf
// GPU: "tt.store"
// GPU: kiln.grid = affine_map<() -> (32, 1, 1)>
// GPU: func.func @rows_of_softmax(
func.func @rows_of_softmax(%arg0: !torch.vtensor<[32,300],f32>) -> (!torch.vtensor<[32,300],f32>) {
  %int-1 = torch.constant.int -1
  %false = torch.constant.bool false
  %0 = torch.aten._softmax %arg0, %int-1, %false : !torch.vtensor<[32,300],f32>, !torch.int, !torch.bool -> !torch.vtensor<[32,300],f32>
  return %0 : !torch.vtensor<[32,300],f32>
}

// -----

// Sums along the first dim: lanes along the columns, which memory has side by side.

// CPU: func.func @
// CPU: scf.for
// CPU: %[[S:.*]] = scf.for %{{.*}} = %c0 to %c64 step %c1 iter_args
// CPU: vector.load %arg0
// CPU: arith.addf
// CPU: vector.store %[[S]], %arg1
// CPU-NOT: vector.reduction
// CPU: func.func @columns(

// GPU: "tt.func"
// GPU: "tt.load"({{.*}}) {{.*}} -> tensor<32x64xf32>
// GPU: "tt.reduce"
// GPU: }) {axis = 1 : i32} : (tensor<32x64xf32>) -> tensor<32xf32>
// GPU: "tt.store"
// GPU: func.func @columns(
func.func @columns(%arg0: !torch.vtensor<[64,256],f32>) -> (!torch.vtensor<[256],f32>) {
  %int0 = torch.constant.int 0
  %0 = torch.prim.ListConstruct %int0 : (!torch.int) -> !torch.list<int>
  %false = torch.constant.bool false
  %none = torch.constant.none
  %1 = torch.aten.sum.dim_IntList %arg0, %0, %false, %none : !torch.vtensor<[64,256],f32>, !torch.list<int>, !torch.bool, !torch.none -> !torch.vtensor<[256],f32>
  return %1 : !torch.vtensor<[256],f32>
}

// -----

// A transposed operand is read by tiles.

// CPU: func.func @
// CPU: scf.for
// CPU: vector.load %arg0
// CPU: vector.shuffle
// CPU: vector.store
// CPU: scf.for
// CPU: vector.load %arg1
// CPU: arith.addf
// CPU: vector.store %{{.*}}, %arg2
// CPU: func.func @transposed(

// GPU: "tt.func"
// GPU: "tt.load"({{.*}}) {{.*}} -> tensor<64x64xf32>
// GPU: "tt.load"({{.*}}) {{.*}} -> tensor<64x64xf32>
// GPU: "tt.store"
// GPU: kiln.grid = affine_map<() -> (2, 1, 1)>
// GPU: func.func @transposed(
func.func @transposed(%arg0: !torch.vtensor<[128,64],f32>, %arg1: !torch.vtensor<[64,128],f32>) -> (!torch.vtensor<[64,128],f32>) {
  %0 = torch.aten.t %arg0 : !torch.vtensor<[128,64],f32> -> !torch.vtensor<[64,128],f32>
  %int1 = torch.constant.int 1
  %1 = torch.aten.add.Tensor %0, %arg1, %int1 : !torch.vtensor<[64,128],f32>, !torch.vtensor<[64,128],f32>, !torch.int -> !torch.vtensor<[64,128],f32>
  return %1 : !torch.vtensor<[64,128],f32>
}

// -----

// Rows of a table: the index is read once a row, and clamped.

// CPU: func.func @
// CPU: scf.for
// CPU: %[[I:.*]] = memref.load %arg0
// CPU: vector.load %arg1
// CPU: vector.store %{{.*}}, %arg2
// CPU: func.func @table(

// GPU: "tt.func"
// GPU: %[[I:.*]] = "tt.load"({{.*}}) {{.*}} -> tensor<128xi64>
// GPU: "tt.assert"({{.*}}) {message = "index out of range in aten.embedding"}
// GPU: "tt.load"({{.*}}) {{.*}} -> tensor<128xf32>
// GPU: "tt.store"
// GPU: func.func @table(
func.func @table(%arg0: !torch.vtensor<[50,64],f32>, %arg1: !torch.vtensor<[16],si64>) -> (!torch.vtensor<[16,64],f32>) {
  %int-1 = torch.constant.int -1
  %false = torch.constant.bool false
  %false_0 = torch.constant.bool false
  %0 = torch.aten.embedding %arg0, %arg1, %int-1, %false, %false_0 : !torch.vtensor<[50,64],f32>, !torch.vtensor<[16],si64>, !torch.int, !torch.bool, !torch.bool -> !torch.vtensor<[16,64],f32>
  return %0 : !torch.vtensor<[16,64],f32>
}

// -----

// A concatenation: each operand is read where the index is inside of it; on a GPU by programs of its own.

// CPU: func.func @
// CPU: vector.maskedload %arg0
// CPU: vector.maskedload %arg1
// CPU: arith.select
// CPU: math.exp
// CPU-NOT: math.exp
// CPU: vector.store %{{.*}}, %arg2
// CPU: func.func @joined(

// GPU: "tt.func"
// GPU: scf.if
// GPU: "tt.load"({{.*}}, {{.*}}, {{.*}})
// GPU-NOT: arith.select
// GPU: math.exp
// GPU: "tt.store"
// GPU: scf.if
// GPU: "tt.load"({{.*}}, {{.*}}, {{.*}})
// GPU-NOT: arith.select
// GPU: math.exp
// GPU: "tt.store"
// GPU: func.func @joined(
func.func @joined(%arg0: !torch.vtensor<[8,24],f32>, %arg1: !torch.vtensor<[8,40],f32>) -> (!torch.vtensor<[8,64],f32>) {
  %0 = torch.prim.ListConstruct %arg0, %arg1 : (!torch.vtensor<[8,24],f32>, !torch.vtensor<[8,40],f32>) -> !torch.list<vtensor>
  %int1 = torch.constant.int 1
  %1 = torch.aten.cat %0, %int1 : !torch.list<vtensor>, !torch.int -> !torch.vtensor<[8,64],f32>
  %2 = torch.aten.exp %1 : !torch.vtensor<[8,64],f32> -> !torch.vtensor<[8,64],f32>
  return %2 : !torch.vtensor<[8,64],f32>
}

// -----

// A running sum along the rows.

// CPU: func.func @scan
// CPU: scf.for
// CPU: scf.for %{{.*}} iter_args(%{{.*}} = %{{.*}}) -> (f64)
// CPU: vector.load %arg0
// CPU: vector.shuffle
// CPU: vector.store %{{.*}}, %arg1
// CPU: func.func @running(

// GPU: "tt.func"
// GPU: "tt.load"({{.*}}) {{.*}} -> tensor<16x64xf32>
// GPU: "tt.scan"
// GPU: arith.addf
// GPU: }) {axis = 1 : i32
// GPU: "tt.store"
// GPU: func.func @running(
func.func @running(%arg0: !torch.vtensor<[16,64],f32>) -> (!torch.vtensor<[16,64],f32>) {
  %int1 = torch.constant.int 1
  %none = torch.constant.none
  %0 = torch.aten.cumsum %arg0, %int1, %none : !torch.vtensor<[16,64],f32>, !torch.int, !torch.none -> !torch.vtensor<[16,64],f32>
  return %0 : !torch.vtensor<[16,64],f32>
}

// -----

// Integers wrap; quotients round down. The last of an odd number of elements are masked.

// CPU: func.func @
// CPU: vector.load %arg0
// CPU: arith.muli
// CPU: arith.divsi
// CPU: vector.store %{{.*}}, %arg1
// CPU: vector.maskedload %arg0[%c{{992|1000}}]
// CPU: func.func @integers(

// GPU: "tt.func"
// GPU: "tt.load"({{.*}}, {{.*}}, {{.*}}) {{.*}} -> tensor<128xi64>
// GPU: arith.muli
// GPU: arith.divsi
// GPU: "tt.store"
// GPU: func.func @integers(
func.func @integers(%arg0: !torch.vtensor<[1001],si64>) -> (!torch.vtensor<[1001],si64>) {
  %int3 = torch.constant.int 3
  %0 = torch.aten.mul.Scalar %arg0, %int3 : !torch.vtensor<[1001],si64>, !torch.int -> !torch.vtensor<[1001],si64>
  %int2 = torch.constant.int 2
  %str = torch.constant.str "floor"
  %1 = torch.aten.div.Scalar_mode %0, %int2, %str : !torch.vtensor<[1001],si64>, !torch.int, !torch.str -> !torch.vtensor<[1001],si64>
  return %1 : !torch.vtensor<[1001],si64>
}

// -----

// A comparison and a selection are one kernel: the mask is never in memory.

// CPU: func.func @
// CPU: %[[X:.*]] = vector.load %arg0
// CPU: %[[Y:.*]] = vector.load %arg1
// CPU: %[[M:.*]] = arith.cmpf ogt, %[[X]], %[[Y]]
// CPU: %[[H:.*]] = arith.mulf %[[Y]]
// CPU: %[[R:.*]] = arith.select %[[M]], %[[X]], %[[H]]
// CPU: vector.store %[[R]], %arg2
// CPU: func.func @chosen(

// GPU: "tt.func"
// GPU: %[[X:.*]] = "tt.load"
// GPU: %[[Y:.*]] = "tt.load"
// GPU: %[[M:.*]] = arith.cmpf ogt, %[[X]], %[[Y]]
// GPU: arith.select %[[M]], %[[X]],
// GPU: "tt.store"
// GPU: func.func @chosen(
func.func @chosen(%arg0: !torch.vtensor<[4096],f32>, %arg1: !torch.vtensor<[4096],f32>) -> (!torch.vtensor<[4096],f32>) {
  %0 = torch.aten.gt.Tensor %arg0, %arg1 : !torch.vtensor<[4096],f32>, !torch.vtensor<[4096],f32> -> !torch.vtensor<[4096],i1>
  %float5.000000e-01 = torch.constant.float 5.000000e-01
  %1 = torch.aten.mul.Scalar %arg1, %float5.000000e-01 : !torch.vtensor<[4096],f32>, !torch.float -> !torch.vtensor<[4096],f32>
  %2 = torch.aten.where.self %0, %arg0, %1 : !torch.vtensor<[4096],i1>, !torch.vtensor<[4096],f32>, !torch.vtensor<[4096],f32> -> !torch.vtensor<[4096],f32>
  return %2 : !torch.vtensor<[4096],f32>
}

// -----

// Windows of a pool.

// CPU: func.func @
// CPU: scf.for
// CPU: scf.for
// CPU: arith.maximumf
// CPU: %arg1
// CPU: func.func @pooled(

// GPU: "tt.func"
// GPU: "tt.load"
// GPU: "tt.load"
// GPU: arith.maximumf
// GPU: "tt.load"
// GPU: arith.maximumf
// GPU: "tt.load"
// GPU: arith.maximumf
// GPU: "tt.store"
// GPU: func.func @pooled(
func.func @pooled(%arg0: !torch.vtensor<[2,4,8,8],f32>) -> (!torch.vtensor<[2,4,4,4],f32>) {
  %int2 = torch.constant.int 2
  %int2_0 = torch.constant.int 2
  %0 = torch.prim.ListConstruct %int2, %int2_0 : (!torch.int, !torch.int) -> !torch.list<int>
  %1 = torch.prim.ListConstruct  : () -> !torch.list<int>
  %int0 = torch.constant.int 0
  %int0_1 = torch.constant.int 0
  %2 = torch.prim.ListConstruct %int0, %int0_1 : (!torch.int, !torch.int) -> !torch.list<int>
  %int1 = torch.constant.int 1
  %int1_2 = torch.constant.int 1
  %3 = torch.prim.ListConstruct %int1, %int1_2 : (!torch.int, !torch.int) -> !torch.list<int>
  %false = torch.constant.bool false
  %result0, %result1 = torch.aten.max_pool2d_with_indices %arg0, %0, %1, %2, %3, %false : !torch.vtensor<[2,4,8,8],f32>, !torch.list<int>, !torch.list<int>, !torch.list<int>, !torch.list<int>, !torch.bool -> !torch.vtensor<[2,4,4,4],f32>, !torch.vtensor<[2,4,4,4],si64>
  return %result0 : !torch.vtensor<[2,4,4,4],f32>
}

// -----

// A product with its epilogue: on the CPU bias and ReLU are in its kernel; on a GPU the f32 product is cuBLAS, and ReLU a kernel.

// CPU: func.func @matmul
// CPU: scf.for
// CPU: arith.addf
// CPU: arith.select
// CPU: vector.store %{{.*}}, %arg3
// CPU: func.func @product(

// GPU: "tt.func"
// GPU: arith.select
// GPU: "tt.store"
// GPU: func.func @product(
// GPU: "kiln.aten"({{.*}}) {{.*}}op = "aten.linear.default"
func.func @product(%arg0: !torch.vtensor<[64,128],f32>, %arg1: !torch.vtensor<[128,96],f32>, %arg2: !torch.vtensor<[96],f32>) -> (!torch.vtensor<[64,96],f32>) {
  %int1 = torch.constant.int 1
  %int1_0 = torch.constant.int 1
  %0 = torch.aten.addmm %arg2, %arg0, %arg1, %int1, %int1_0 : !torch.vtensor<[96],f32>, !torch.vtensor<[64,128],f32>, !torch.vtensor<[128,96],f32>, !torch.int, !torch.int -> !torch.vtensor<[64,96],f32>
  %1 = torch.aten.relu %0 : !torch.vtensor<[64,96],f32> -> !torch.vtensor<[64,96],f32>
  return %1 : !torch.vtensor<[64,96],f32>
}

// -----

// A layer norm is one kernel.

// CPU: func.func @
// CPU: vector.reduction <add>
// CPU: vector.reduction <add>
// CPU: math.rsqrt
// CPU: scf.for
// CPU: vector.load %arg0
// CPU: vector.load %arg1
// CPU: vector.load %arg2
// CPU: vector.store %{{.*}}, %arg3
// CPU: func.func @normed(

// GPU: "tt.func"
// GPU: "tt.load"
// GPU: "tt.reduce"
// GPU: "tt.reduce"
// GPU: rsqrt.approx
// GPU-NOT: "tt.reduce"
// GPU: "tt.store"
// GPU: func.func @normed(
func.func @normed(%arg0: !torch.vtensor<[32,128],f32>, %arg1: !torch.vtensor<[128],f32>, %arg2: !torch.vtensor<[128],f32>) -> (!torch.vtensor<[32,128],f32>) {
  %int128 = torch.constant.int 128
  %0 = torch.prim.ListConstruct %int128 : (!torch.int) -> !torch.list<int>
  %float1.000000e-05 = torch.constant.float 1.000000e-05
  %result0, %result1, %result2 = torch.aten.native_layer_norm %arg0, %0, %arg1, %arg2, %float1.000000e-05 : !torch.vtensor<[32,128],f32>, !torch.list<int>, !torch.vtensor<[128],f32>, !torch.vtensor<[128],f32>, !torch.float -> !torch.vtensor<[32,128],f32>, !torch.vtensor<[32,1],f32>, !torch.vtensor<[32,1],f32>
  return %result0 : !torch.vtensor<[32,128],f32>
}
