// Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// RUN: kiln-opt %s --split-input-file --mlir-print-local-scope --pass-pipeline="expand-named-ops{keep=matmul,attention,scan},cse,fuse" | filecheck %s
// RUN: kiln-opt %s --split-input-file --mlir-print-local-scope --pass-pipeline="expand-named-ops{keep=matmul,attention,scan},cse,fuse{strategy=search}" | filecheck %s

// Pointwise ops in a row are one kernel; constants and empty tensors are copied into it.

// CHECK-LABEL: func.func @vertical
// CHECK-NEXT: %[[F:.*]] = "kiln.fusion"(%arg0)
// CHECK: kiln.empty
// CHECK: math.exp
// CHECK: arith.negf
// CHECK: kind = "pointwise", name = "generic"
// CHECK-NEXT: return %[[F]]
func.func @vertical(%x: tensor<8xf32>) -> tensor<8xf32> {
  %e = "kiln.empty"() {shape = affine_map<() -> (8)>} : () -> tensor<8xf32>
  %a = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>], iterator_types = ["parallel"]} ins(%x : tensor<8xf32>) outs(%e : tensor<8xf32>) {
  ^bb0(%p: f32, %o: f32):
    %0 = math.exp %p : f32
    linalg.yield %0 : f32
  } -> tensor<8xf32>
  %b = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>], iterator_types = ["parallel"]} ins(%a : tensor<8xf32>) outs(%e : tensor<8xf32>) {
  ^bb0(%p: f32, %o: f32):
    %0 = arith.negf %p : f32
    linalg.yield %0 : f32
  } -> tensor<8xf32>
  return %b : tensor<8xf32>
}

// -----

// Softmax: two reductions and what is between them, along the same rows.

// CHECK-LABEL: func.func @softmax
// CHECK: "kiln.fusion"(%arg0)
// CHECK: arith.maximumf
// CHECK: math.exp
// CHECK: arith.addf
// CHECK: arith.divf
// CHECK: kind = "reduction"
// CHECK-NOT: kiln.fusion
// CHECK: return
func.func @softmax(%x: tensor<8x16xf32>) -> tensor<8x16xf32> {
  %y = "kiln.softmax"(%x) {dim = 1 : i64, log = false} : (tensor<8x16xf32>) -> tensor<8x16xf32>
  return %y : tensor<8x16xf32>
}

// -----

// A value that the caller and another op need is a second result.

// CHECK-LABEL: func.func @results
// CHECK-NEXT: %[[F:.*]]:2 = "kiln.fusion"(%arg0)
// CHECK: "kiln.yield"(%{{.*}}, %{{.*}}) :
// CHECK: return %[[F]]#0, %[[F]]#1
func.func @results(%x: tensor<8xf32>) -> (tensor<8xf32>, tensor<8xf32>) {
  %e = "kiln.empty"() {shape = affine_map<() -> (8)>} : () -> tensor<8xf32>
  %a = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>], iterator_types = ["parallel"]} ins(%x : tensor<8xf32>) outs(%e : tensor<8xf32>) {
  ^bb0(%p: f32, %o: f32):
    %0 = math.exp %p : f32
    linalg.yield %0 : f32
  } -> tensor<8xf32>
  %b = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>], iterator_types = ["parallel"]} ins(%a : tensor<8xf32>) outs(%e : tensor<8xf32>) {
  ^bb0(%p: f32, %o: f32):
    %0 = arith.negf %p : f32
    linalg.yield %0 : f32
  } -> tensor<8xf32>
  return %a, %b : tensor<8xf32>, tensor<8xf32>
}

// -----

// An expensive value that each row reads is not computed again for each row.

// CHECK-LABEL: func.func @broadcast
// CHECK-NEXT: %[[A:.*]] = "kiln.fusion"(%arg0)
// CHECK: math.sin
// CHECK: %{{.*}} = "kiln.fusion"(%arg1, %[[A]])
// CHECK-NOT: math
// CHECK: return
func.func @broadcast(%x: tensor<64xf32>, %y: tensor<128x64xf32>) -> tensor<128x64xf32> {
  %e = "kiln.empty"() {shape = affine_map<() -> (64)>} : () -> tensor<64xf32>
  %f = "kiln.empty"() {shape = affine_map<() -> (128, 64)>} : () -> tensor<128x64xf32>
  %a = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>], iterator_types = ["parallel"]} ins(%x : tensor<64xf32>) outs(%e : tensor<64xf32>) {
  ^bb0(%p: f32, %o: f32):
    %0 = math.exp %p : f32
    %1 = math.sin %0 : f32
    linalg.yield %1 : f32
  } -> tensor<64xf32>
  %b = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d1)>, affine_map<(d0, d1) -> (d0, d1)>], iterator_types = ["parallel", "parallel"]} ins(%y, %a : tensor<128x64xf32>, tensor<64xf32>) outs(%f : tensor<128x64xf32>) {
  ^bb0(%p: f32, %q: f32, %o: f32):
    %0 = arith.mulf %p, %q : f32
    linalg.yield %0 : f32
  } -> tensor<128x64xf32>
  return %b : tensor<128x64xf32>
}

// -----

// The epilogue of a product, behind a reshape of its rows.

// CHECK-LABEL: func.func @epilogue
// CHECK-NEXT: %[[F:.*]] = "kiln.fusion"(%arg0, %arg1, %arg2)
// CHECK: kiln.matmul
// CHECK: kiln.view
// CHECK: arith.addf
// CHECK: kind = "matmul", name = "matmul_generic"
// CHECK-NEXT: return %[[F]]
func.func @epilogue(%x: tensor<64x32xf32>, %w: tensor<32x16xf32>, %y: tensor<8x8x16xf32>) -> tensor<8x8x16xf32> {
  %p = "kiln.matmul"(%x, %w) {transpose_lhs = false, transpose_rhs = false} : (tensor<64x32xf32>, tensor<32x16xf32>) -> tensor<64x16xf32>
  %v = "kiln.view"(%p) {map = affine_map<(d0, d1, d2) -> (d0 * 8 + d1, d2)>, shape = affine_map<() -> (8, 8, 16)>} : (tensor<64x16xf32>) -> tensor<8x8x16xf32>
  %e = "kiln.empty"() {shape = affine_map<() -> (8, 8, 16)>} : () -> tensor<8x8x16xf32>
  %r = linalg.generic {indexing_maps = [affine_map<(d0, d1, d2) -> (d0, d1, d2)>, affine_map<(d0, d1, d2) -> (d0, d1, d2)>, affine_map<(d0, d1, d2) -> (d0, d1, d2)>], iterator_types = ["parallel", "parallel", "parallel"]} ins(%v, %y : tensor<8x8x16xf32>, tensor<8x8x16xf32>) outs(%e : tensor<8x8x16xf32>) {
  ^bb0(%a: f32, %c: f32, %o: f32):
    %0 = arith.addf %a, %c : f32
    linalg.yield %0 : f32
  } -> tensor<8x8x16xf32>
  return %r : tensor<8x8x16xf32>
}

// -----

// A call between producer and consumer: fusing these would lead a path from the kernel through the call back into it.

// CHECK-LABEL: func.func @cycle
// CHECK-NEXT: %[[A:.*]] = "kiln.fusion"(%arg0)
// CHECK: arith.negf
// CHECK: %[[C:.*]] = "kiln.aten"(%[[A]])
// CHECK: "kiln.fusion"(%[[A]], %[[C]])
// CHECK-NOT: arith.negf
// CHECK: return
func.func @cycle(%x: tensor<8xf32>) -> tensor<8xf32> {
  %e = "kiln.empty"() {shape = affine_map<() -> (8)>} : () -> tensor<8xf32>
  %a = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>], iterator_types = ["parallel"]} ins(%x : tensor<8xf32>) outs(%e : tensor<8xf32>) {
  ^bb0(%p: f32, %o: f32):
    %0 = arith.negf %p : f32
    linalg.yield %0 : f32
  } -> tensor<8xf32>
  %c = "kiln.aten"(%a) {op = "aten.flip.default", args = "[{\22operand\22: 0}, [0]]", kwargs = "{}", shapes = [affine_map<() -> (8)>], strides = [affine_map<() -> (1)>], pure = true} : (tensor<8xf32>) -> tensor<8xf32>
  %b = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>], iterator_types = ["parallel"]} ins(%a, %c : tensor<8xf32>, tensor<8xf32>) outs(%e : tensor<8xf32>) {
  ^bb0(%p: f32, %q: f32, %o: f32):
    %0 = arith.addf %p, %q : f32
    linalg.yield %0 : f32
  } -> tensor<8xf32>
  return %b : tensor<8xf32>
}

// -----

// A gathered table stays in memory, whatever it costs to compute.

// CHECK-LABEL: func.func @table
// CHECK-NEXT: %[[A:.*]] = "kiln.fusion"(%arg0)
// CHECK: %{{.*}} = "kiln.fusion"(%arg1, %[[A]])
// CHECK: ^bb0(%{{.*}}: tensor<4xi64>, %[[T:.*]]: tensor<8xf32>):
// CHECK: tensor.extract %[[T]]
func.func @table(%x: tensor<8xf32>, %i: tensor<4xi64>) -> tensor<4xf32> {
  %e = "kiln.empty"() {shape = affine_map<() -> (8)>} : () -> tensor<8xf32>
  %f = "kiln.empty"() {shape = affine_map<() -> (4)>} : () -> tensor<4xf32>
  %a = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>], iterator_types = ["parallel"]} ins(%x : tensor<8xf32>) outs(%e : tensor<8xf32>) {
  ^bb0(%p: f32, %o: f32):
    %0 = arith.negf %p : f32
    linalg.yield %0 : f32
  } -> tensor<8xf32>
  %g = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>], iterator_types = ["parallel"]} ins(%i : tensor<4xi64>) outs(%f : tensor<4xf32>) {
  ^bb0(%p: i64, %o: f32):
    %n = arith.index_cast %p : i64 to index
    %0 = tensor.extract %a[%n] : tensor<8xf32>
    linalg.yield %0 : f32
  } -> tensor<4xf32>
  return %g : tensor<4xf32>
}

// -----

// What comes before a scan is computed on the way; what comes behind it is another kernel.

// CHECK-LABEL: func.func @scan
// CHECK-NEXT: %[[S:.*]] = "kiln.fusion"(%arg0)
// CHECK: %[[N:.*]] = linalg.generic
// CHECK: arith.negf
// CHECK: "kiln.scan"(%[[N]])
// CHECK: kind = "scan"
// CHECK: "kiln.fusion"(%[[S]])
// CHECK: arith.mulf
func.func @scan(%x: tensor<8xf32>) -> tensor<8xf32> {
  %e = "kiln.empty"() {shape = affine_map<() -> (8)>} : () -> tensor<8xf32>
  %a = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>], iterator_types = ["parallel"]} ins(%x : tensor<8xf32>) outs(%e : tensor<8xf32>) {
  ^bb0(%p: f32, %o: f32):
    %0 = arith.negf %p : f32
    linalg.yield %0 : f32
  } -> tensor<8xf32>
  %s = "kiln.scan"(%a) {dim = 0 : i64, kind = "sum"} : (tensor<8xf32>) -> tensor<8xf32>
  %b = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>], iterator_types = ["parallel"]} ins(%s : tensor<8xf32>) outs(%e : tensor<8xf32>) {
  ^bb0(%p: f32, %o: f32):
    %0 = arith.mulf %p, %p : f32
    linalg.yield %0 : f32
  } -> tensor<8xf32>
  return %b : tensor<8xf32>
}

// -----

// Views are copied into each kernel that reads through them; calls keep their order.

// CHECK-LABEL: func.func @views_and_calls
// CHECK-NEXT: %[[V:.*]] = "kiln.view"(%arg0)
// CHECK-NEXT: %[[C:.*]] = "kiln.aten"(%[[V]]) {{.*}}aten.first.default
// CHECK-NEXT: %[[A:.*]] = "kiln.fusion"(%arg0)
// CHECK: kiln.view
// CHECK: %[[D:.*]] = "kiln.aten"(%[[V]]) {{.*}}aten.second.default
// CHECK-NEXT: return %[[C]], %[[A]], %[[D]]
func.func @views_and_calls(%x: tensor<4x8xf32>) -> (tensor<8x4xf32>, tensor<8x4xf32>, tensor<8x4xf32>) {
  %t = "kiln.view"(%x) {map = affine_map<(d0, d1) -> (d1, d0)>, shape = affine_map<() -> (8, 4)>} : (tensor<4x8xf32>) -> tensor<8x4xf32>
  %e = "kiln.empty"() {shape = affine_map<() -> (8, 4)>} : () -> tensor<8x4xf32>
  %c = "kiln.aten"(%t) {op = "aten.first.default", args = "[{\22operand\22: 0}]", kwargs = "{}", shapes = [affine_map<() -> (8, 4)>], strides = [affine_map<() -> (4, 1)>], pure = false} : (tensor<8x4xf32>) -> tensor<8x4xf32>
  %a = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0, d1)>], iterator_types = ["parallel", "parallel"]} ins(%t : tensor<8x4xf32>) outs(%e : tensor<8x4xf32>) {
  ^bb0(%p: f32, %o: f32):
    %0 = arith.negf %p : f32
    linalg.yield %0 : f32
  } -> tensor<8x4xf32>
  %d = "kiln.aten"(%t) {op = "aten.second.default", args = "[{\22operand\22: 0}]", kwargs = "{}", shapes = [affine_map<() -> (8, 4)>], strides = [affine_map<() -> (4, 1)>], pure = false} : (tensor<8x4xf32>) -> tensor<8x4xf32>
  return %c, %a, %d : tensor<8x4xf32>, tensor<8x4xf32>, tensor<8x4xf32>
}

// -----

// Arithmetic on symbols goes into the kernel that wants its value.

// CHECK-LABEL: func.func @scalar
// CHECK-NOT: arith.muli
// CHECK: "kiln.fusion"(%arg0, %arg1)
// CHECK: arith.muli
// CHECK: arith.index_cast
// CHECK: %[[F:.*]] = arith.sitofp
// CHECK: linalg.generic
// CHECK: arith.divf %{{.*}}, %[[F]]
func.func @scalar(%x: tensor<?xf32> {kiln.shape = affine_map<()[s0] -> (s0)>}, %n: index {kiln.symbol = "s0"}) -> tensor<?xf32> attributes {kiln.symbols = ["s0"]} {
  %two = arith.constant 2 : index
  %m = arith.muli %n, %two : index
  %i = arith.index_cast %m : index to i64
  %f = arith.sitofp %i : i64 to f32
  %e = "kiln.empty"(%n) {shape = affine_map<()[s0] -> (s0)>} : (index) -> tensor<?xf32>
  %r = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>], iterator_types = ["parallel"]} ins(%x : tensor<?xf32>) outs(%e : tensor<?xf32>) {
  ^bb0(%p: f32, %o: f32):
    %0 = arith.divf %p, %f : f32
    linalg.yield %0 : f32
  } -> tensor<?xf32>
  return %r : tensor<?xf32>
}
