// Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// RUN: kiln-opt %s --split-input-file --mlir-print-local-scope --pipeline=cpu --until=vector | filecheck %s --check-prefix=CPU
// RUN: kiln-opt %s --split-input-file --mlir-print-local-scope --pipeline=gpu --until=ttir | filecheck %s --check-prefix=GPU

// From a graph to the kernels of both targets, types, indices and named ops.

// bf16 is f32 between the ops of a kernel, and rounded when it is stored.

// CPU: func.func @
// CPU: %[[X:.*]] = vector.load %arg0
// CPU: %[[F:.*]] = arith.extf %[[X]]
// CPU: math.exp
// CPU-NOT: arith.truncf
// CPU: arith.addf
// CPU: %[[R:.*]] = arith.truncf
// CPU: vector.store %[[R]], %arg1
// CPU: func.func @rounded_once(

// GPU: "tt.func"
// GPU: %[[X:.*]] = "tt.load"
// GPU: arith.extf %[[X]]
// GPU-NOT: arith.truncf
// GPU: math.exp
// GPU: arith.addf
// GPU: %[[R:.*]] = arith.truncf
// GPU: "tt.store"(%{{.*}}, %[[R]])
// GPU: func.func @rounded_once(
func.func @rounded_once(%arg0: !torch.vtensor<[4096],bf16>) -> (!torch.vtensor<[4096],bf16>) {
  %int2 = torch.constant.int 2
  %0 = torch.aten.mul.Scalar %arg0, %int2 : !torch.vtensor<[4096],bf16>, !torch.int -> !torch.vtensor<[4096],bf16>
  %1 = torch.aten.sigmoid %0 : !torch.vtensor<[4096],bf16> -> !torch.vtensor<[4096],bf16>
  %int1 = torch.constant.int 1
  %2 = torch.aten.add.Tensor %1, %arg0, %int1 : !torch.vtensor<[4096],bf16>, !torch.vtensor<[4096],bf16>, !torch.int -> !torch.vtensor<[4096],bf16>
  return %2 : !torch.vtensor<[4096],bf16>
}

// -----

// Unsigned bytes wrap.

// CPU: func.func @
// CPU: %[[X:.*]] = vector.load %arg0[%{{.*}}] : memref<?xi8>
// CPU: %[[M:.*]] = arith.muli %[[X]]
// CPU: %[[A:.*]] = arith.addi %[[M]]
// CPU: vector.store %[[A]], %arg1
// CPU: func.func @bytes(

// GPU: "tt.func"
// GPU: %[[X:.*]] = "tt.load"{{.*}} -> tensor<128xi8>
// GPU: %[[M:.*]] = arith.muli %[[X]]
// GPU: %[[A:.*]] = arith.addi %[[M]]
// GPU: "tt.store"(%{{.*}}, %[[A]])
// GPU: func.func @bytes(
func.func @bytes(%arg0: !torch.vtensor<[4096],ui8>) -> (!torch.vtensor<[4096],ui8>) {
  %int3 = torch.constant.int 3
  %0 = torch.aten.mul.Scalar %arg0, %int3 : !torch.vtensor<[4096],ui8>, !torch.int -> !torch.vtensor<[4096],ui8>
  %int7 = torch.constant.int 7
  %int1 = torch.constant.int 1
  %1 = torch.aten.add.Scalar %0, %int7, %int1 : !torch.vtensor<[4096],ui8>, !torch.int, !torch.int -> !torch.vtensor<[4096],ui8>
  return %1 : !torch.vtensor<[4096],ui8>
}

// -----

// Whether any element of a row is true: booleans are bytes in memory.

// CPU: func.func @{{.*}}%arg1: memref<?xi8>
// CPU: vector.load %arg0
// CPU: arith.cmpf ogt
// CPU: %[[ANY:.*]] = vector.reduction <or>
// CPU: %[[BYTE:.*]] = arith.extui %[[ANY]] : i1 to i8
// CPU: memref.store %[[BYTE]], %arg1
// CPU: func.func @truth(

// GPU: "tt.func"
// GPU: %[[C:.*]] = arith.cmpf ogt
// GPU: %[[E:.*]] = arith.extui %[[C]]
// GPU: "tt.reduce"(%[[E]])
// GPU: arith.ori
// GPU: "tt.store"
// GPU: func.func @truth(
func.func @truth(%arg0: !torch.vtensor<[64,256],f32>) -> (!torch.vtensor<[64],i1>) {
  %int0 = torch.constant.int 0
  %0 = torch.aten.gt.Scalar %arg0, %int0 : !torch.vtensor<[64,256],f32>, !torch.int -> !torch.vtensor<[64,256],i1>
  %int1 = torch.constant.int 1
  %false = torch.constant.bool false
  %1 = torch.aten.any.dim %0, %int1, %false : !torch.vtensor<[64,256],i1>, !torch.int, !torch.bool -> !torch.vtensor<[64],i1>
  return %1 : !torch.vtensor<[64],i1>
}

// -----

// The position of a maximum: the maximum first, then the least position that has it, or a NaN.

// CPU: func.func @{{.*}}%arg1: memref<?xi64>
// CPU: vector.load %arg0
// CPU: arith.maximumf
// CPU: vector.reduction <maximumf>
// CPU: arith.cmpf oeq
// CPU: vector.reduction <minsi>
// CPU: memref.store %{{.*}}, %arg1
// CPU: func.func @greatest(

// GPU: "tt.func"
// GPU: %[[X:.*]] = "tt.load"
// GPU: "tt.reduce"(%[[X]])
// GPU: arith.maximumf
// GPU: %[[IS:.*]] = arith.cmpf oeq, %[[X]]
// GPU: arith.cmpf uno, %[[X]], %[[X]]
// GPU: "tt.reduce"
// GPU: arith.minsi
// GPU: "tt.store"
// GPU: func.func @greatest(
func.func @greatest(%arg0: !torch.vtensor<[64,256],f32>) -> (!torch.vtensor<[64],si64>) {
  %int1 = torch.constant.int 1
  %false = torch.constant.bool false
  %0 = torch.aten.argmax %arg0, %int1, %false : !torch.vtensor<[64,256],f32>, !torch.int, !torch.bool -> !torch.vtensor<[64],si64>
  return %0 : !torch.vtensor<[64],si64>
}

// -----

// A gather reads its indices as they lie, and the table where they say.

// CPU: func.func @
// CPU: vector.load %arg0[%{{.*}}] : memref<?xi64>
// CPU: vector.reduction <or>
// CPU: scf.if
// CPU: %[[V:.*]] = vector.gather %arg1
// CPU: vector.store %[[V]], %arg2
// CPU: func.func @gathered(

// GPU: "tt.func"
// GPU: "tt.load"{{.*}} -> tensor<128xi64>
// GPU: "tt.assert"{{.*}} {message = "index out of range in aten.gather"}
// GPU: %[[V:.*]] = "tt.load"{{.*}} -> tensor<128xf32>
// GPU: "tt.store"(%{{.*}}, %[[V]])
// GPU: func.func @gathered(
func.func @gathered(%arg0: !torch.vtensor<[32,100],f32>, %arg1: !torch.vtensor<[32,16],si64>) -> (!torch.vtensor<[32,16],f32>) {
  %int1 = torch.constant.int 1
  %false = torch.constant.bool false
  %0 = torch.aten.gather %arg0, %int1, %arg1, %false : !torch.vtensor<[32,100],f32>, !torch.int, !torch.vtensor<[32,16],si64>, !torch.bool -> !torch.vtensor<[32,16],f32>
  return %0 : !torch.vtensor<[32,16],f32>
}

// -----

// A sum into rows that indices name: of a thread's rows on the CPU, atomics on a GPU.

// CPU: vector.load
// CPU: arith.addf
// CPU: vector.store
// CPU: func.func @added_where_indices_say(

// GPU: "tt.assert"{{.*}} {message = "index out of range in aten.index_add"}
// GPU: "tt.atomic_rmw"{{.*}} {atomic_rmw_op = 5 : i32
// GPU: func.func @added_where_indices_say(
func.func @added_where_indices_say(%arg0: !torch.vtensor<[50,64],f32>, %arg1: !torch.vtensor<[16],si64>, %arg2: !torch.vtensor<[16,64],f32>) -> (!torch.vtensor<[50,64],f32>) {
  %int0 = torch.constant.int 0
  %int1 = torch.constant.int 1
  %0 = torch.operator "torch.aten.index_add"(%arg0, %int0, %arg1, %arg2, %int1) : (!torch.vtensor<[50,64],f32>, !torch.int, !torch.vtensor<[16],si64>, !torch.vtensor<[16,64],f32>, !torch.int) -> !torch.vtensor<[50,64],f32> 
  return %0 : !torch.vtensor<[50,64],f32>
}

// -----

// Attention is one kernel of both targets: scores stay in registers.

// CPU: func.func @attention
// CPU: vector.fma
// CPU: math.exp2
// CPU: vector.fma
// CPU: arith.divf
// CPU: vector.store %{{.*}}, %arg3
// CPU: func.func @attended(

// GPU: "tt.func"
// GPU: scf.for
// GPU: "tt.dot"
// GPU: ex2.approx
// GPU: "tt.dot"
// GPU: arith.divf
// GPU: "tt.store"
// GPU: kiln.grid
// GPU: func.func @attended(
func.func @attended(%arg0: !torch.vtensor<[2,4,64,32],f32>, %arg1: !torch.vtensor<[2,4,64,32],f32>, %arg2: !torch.vtensor<[2,4,64,32],f32>) -> (!torch.vtensor<[2,4,64,32],f32>) {
  %float0.000000e00 = torch.constant.float 0.000000e+00
  %false = torch.constant.bool false
  %none = torch.constant.none
  %none_0 = torch.constant.none
  %0:2 = torch.operator "torch.aten._scaled_dot_product_flash_attention_for_cpu"(%arg0, %arg1, %arg2, %float0.000000e00, %false, %none, %none_0) : (!torch.vtensor<[2,4,64,32],f32>, !torch.vtensor<[2,4,64,32],f32>, !torch.vtensor<[2,4,64,32],f32>, !torch.float, !torch.bool, !torch.none, !torch.none) -> (!torch.vtensor<[2,4,64,32],f32>, !torch.vtensor<[2,4,64],f32>) 
  return %0#0 : !torch.vtensor<[2,4,64,32],f32>
}

// -----

// A product of a few rows in bf16, with GELU: Kiln has a kernel on both targets.

// CPU: func.func @matmul
// CPU: scf.for
// CPU: vector.store %{{.*}}, %arg2
// CPU: func.func @rows_times_columns(

// GPU: "tt.func"
// GPU: scf.for
// GPU: %[[A:.*]] = "tt.load"
// GPU: %[[B:.*]] = "tt.load"
// GPU: "tt.dot"(%[[A]], %[[B]],
// GPU: ex2.approx
// GPU: arith.truncf
// GPU: "tt.store"
// GPU: func.func @rows_times_columns(
func.func @rows_times_columns(%arg0: !torch.vtensor<[16,256],bf16>, %arg1: !torch.vtensor<[256,512],bf16>) -> (!torch.vtensor<[16,512],bf16>) {
  %0 = torch.aten.mm %arg0, %arg1 : !torch.vtensor<[16,256],bf16>, !torch.vtensor<[256,512],bf16> -> !torch.vtensor<[16,512],bf16>
  %str = torch.constant.str "none"
  %1 = torch.aten.gelu %0, %str : !torch.vtensor<[16,512],bf16>, !torch.str -> !torch.vtensor<[16,512],bf16>
  return %1 : !torch.vtensor<[16,512],bf16>
}

// -----

// What padding gives is not loaded.

// CPU: func.func @pad
// CPU: %[[X:.*]] = vector.maskedload %arg0[%{{.*}}], %[[M:.*]], %{{.*}} :
// CPU: %[[P:.*]] = arith.select %[[M]], %[[X]],
// CPU: math.exp %[[P]]
// CPU: vector.store %{{.*}}, %arg1
// CPU: func.func @padded(

// GPU: "tt.func"
// GPU: %[[X:.*]] = "tt.load"(%{{.*}}, %[[M:.*]], %{{.*}})
// GPU: %[[P:.*]] = arith.select %[[M]], %[[X]],
// GPU: math.exp %[[P]]
// GPU: "tt.store"
// GPU: func.func @padded(
func.func @padded(%arg0: !torch.vtensor<[16,62],f32>) -> (!torch.vtensor<[16,64],f32>) {
  %int1 = torch.constant.int 1
  %int1_0 = torch.constant.int 1
  %0 = torch.prim.ListConstruct %int1, %int1_0 : (!torch.int, !torch.int) -> !torch.list<int>
  %float5.000000e-01 = torch.constant.float 5.000000e-01
  %1 = torch.aten.constant_pad_nd %arg0, %0, %float5.000000e-01 : !torch.vtensor<[16,62],f32>, !torch.list<int>, !torch.float -> !torch.vtensor<[16,64],f32>
  %2 = torch.aten.exp %1 : !torch.vtensor<[16,64],f32> -> !torch.vtensor<[16,64],f32>
  return %2 : !torch.vtensor<[16,64],f32>
}
