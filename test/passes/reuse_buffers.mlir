// Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// RUN: kiln-opt %s --split-input-file --mlir-print-local-scope --pass-pipeline="assign-layouts,reuse-buffers" | filecheck %s

#id = affine_map<(d0, d1) -> (d0, d1)>
#row = affine_map<(d0, d1) -> (d0)>

// Elements are read where they are written. The argument is not ours; %0 dies at its second reader only.

// CHECK-LABEL: func.func @pointwise
// CHECK-NOT: in_place
// CHECK: name = "first"
// CHECK-NOT: in_place
// CHECK: name = "second"
// CHECK: in_place = array<i64: 0, 0>
// CHECK-SAME: name = "third"
func.func @pointwise(%x: tensor<4x8xf32>) -> (tensor<4x8xf32>, tensor<4x8xf32>) {
  %0 = "kiln.fusion"(%x) ({
  ^bb0(%a: tensor<4x8xf32>):
    %e = "kiln.empty"() {shape = affine_map<() -> (4, 8)>} : () -> tensor<4x8xf32>
    %r = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%a : tensor<4x8xf32>) outs(%e : tensor<4x8xf32>) {
    ^bb0(%i: f32, %o: f32):
      %s = arith.addf %i, %i : f32
      linalg.yield %s : f32
    } -> tensor<4x8xf32>
    "kiln.yield"(%r) : (tensor<4x8xf32>) -> ()
  }) {kind = "pointwise", name = "first"} : (tensor<4x8xf32>) -> tensor<4x8xf32>
  %1 = "kiln.fusion"(%0) ({
  ^bb0(%a: tensor<4x8xf32>):
    %e = "kiln.empty"() {shape = affine_map<() -> (4, 8)>} : () -> tensor<4x8xf32>
    %r = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%a : tensor<4x8xf32>) outs(%e : tensor<4x8xf32>) {
    ^bb0(%i: f32, %o: f32):
      %s = arith.mulf %i, %i : f32
      linalg.yield %s : f32
    } -> tensor<4x8xf32>
    "kiln.yield"(%r) : (tensor<4x8xf32>) -> ()
  }) {kind = "pointwise", name = "second"} : (tensor<4x8xf32>) -> tensor<4x8xf32>
  %2 = "kiln.fusion"(%0) ({
  ^bb0(%a: tensor<4x8xf32>):
    %e = "kiln.empty"() {shape = affine_map<() -> (4, 8)>} : () -> tensor<4x8xf32>
    %r = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%a : tensor<4x8xf32>) outs(%e : tensor<4x8xf32>) {
    ^bb0(%i: f32, %o: f32):
      %s = arith.mulf %i, %i : f32
      linalg.yield %s : f32
    } -> tensor<4x8xf32>
    "kiln.yield"(%r) : (tensor<4x8xf32>) -> ()
  }) {kind = "pointwise", name = "third"} : (tensor<4x8xf32>) -> tensor<4x8xf32>
  return %1, %2 : tensor<4x8xf32>, tensor<4x8xf32>
}

// -----

#id = affine_map<(d0, d1) -> (d0, d1)>
#row = affine_map<(d0, d1) -> (d0)>

// A row is summed before it is written; columns that are read transposed are written by somebody else.

// CHECK-LABEL: func.func @rows
// CHECK: in_place = array<i64: 0, 0>
// CHECK-SAME: name = "normalize"
// CHECK-NOT: in_place
// CHECK: name = "transpose"
func.func @rows(%x: tensor<8x8xf32>) -> tensor<8x8xf32> {
  %0 = "kiln.aten"(%x, %x) {op = "aten.mm.default", args = "[{\22operand\22: 0}, {\22operand\22: 1}]", kwargs = "{}", shapes = [affine_map<() -> (8, 8)>], strides = [affine_map<() -> (8, 1)>], pure = true} : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
  %1 = "kiln.fusion"(%0) ({
  ^bb0(%a: tensor<8x8xf32>):
    %z = arith.constant dense<0.0> : tensor<8xf32>
    %sum = linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "reduction"]} ins(%a : tensor<8x8xf32>) outs(%z : tensor<8xf32>) {
    ^bb0(%i: f32, %o: f32):
      %s = arith.addf %i, %o : f32
      linalg.yield %s : f32
    } -> tensor<8xf32>
    %e = "kiln.empty"() {shape = affine_map<() -> (8, 8)>} : () -> tensor<8x8xf32>
    %r = linalg.generic {indexing_maps = [#id, #row, #id], iterator_types = ["parallel", "parallel"]} ins(%a, %sum : tensor<8x8xf32>, tensor<8xf32>) outs(%e : tensor<8x8xf32>) {
    ^bb0(%i: f32, %t: f32, %o: f32):
      %s = arith.divf %i, %t : f32
      linalg.yield %s : f32
    } -> tensor<8x8xf32>
    "kiln.yield"(%r) : (tensor<8x8xf32>) -> ()
  }) {kind = "reduction", name = "normalize"} : (tensor<8x8xf32>) -> tensor<8x8xf32>
  %2 = "kiln.fusion"(%1) ({
  ^bb0(%a: tensor<8x8xf32>):
    %t = "kiln.view"(%a) {map = affine_map<(d0, d1) -> (d1, d0)>, shape = affine_map<() -> (8, 8)>} : (tensor<8x8xf32>) -> tensor<8x8xf32>
    "kiln.yield"(%t) : (tensor<8x8xf32>) -> ()
  }) {kind = "pointwise", name = "transpose"} : (tensor<8x8xf32>) -> tensor<8x8xf32>
  return %2 : tensor<8x8xf32>
}

// -----

// What eager copies to an argument in the end is written there at once, unless somebody still reads the argument or
// the result is an output, too.

// CHECK-LABEL: func.func @mutation
// CHECK: in_place = array<i64: 0, 0>
// CHECK-SAME: name = "written"
// CHECK-SAME: writes = array<i64: 0, 0>
// CHECK-NOT: writes
// CHECK: name = "early"
// CHECK-NOT: writes
// CHECK: name = "kept"
func.func @mutation(%x: tensor<8xf32>, %y: tensor<8xf32>, %z: tensor<8xf32>) -> (
    tensor<8xf32> {kiln.mutates = 0 : i64, kiln.strides = affine_map<() -> (1)>},
    tensor<8xf32> {kiln.mutates = 1 : i64, kiln.strides = affine_map<() -> (1)>},
    tensor<8xf32> {kiln.kept, kiln.mutates = 2 : i64, kiln.strides = affine_map<() -> (1)>}) {
  %0 = "kiln.fusion"(%x) ({
  ^bb0(%a: tensor<8xf32>):
    "kiln.yield"(%a) : (tensor<8xf32>) -> ()
  }) {kind = "pointwise", name = "written"} : (tensor<8xf32>) -> tensor<8xf32>
  %1 = "kiln.fusion"(%0) ({
  ^bb0(%a: tensor<8xf32>):
    "kiln.yield"(%a) : (tensor<8xf32>) -> ()
  }) {kind = "pointwise", name = "early"} : (tensor<8xf32>) -> tensor<8xf32>
  %2 = "kiln.fusion"(%y) ({
  ^bb0(%a: tensor<8xf32>):
    "kiln.yield"(%a) : (tensor<8xf32>) -> ()
  }) {kind = "pointwise", name = "kept"} : (tensor<8xf32>) -> tensor<8xf32>
  return %0, %1, %2 : tensor<8xf32>, tensor<8xf32>, tensor<8xf32>
}

// -----

// Donated arguments are written over like intermediates, but for results of the function.

// CHECK-LABEL: func.func @donated
// CHECK-NOT: in_place
// CHECK: name = "kept"
// CHECK: in_place = array<i64: 0, 0>
// CHECK-SAME: name = "written"
// CHECK: in_place = array<i64: 2, 0>
// CHECK-SAME: name = "returned"
func.func @donated(%x: tensor<8xf32>, %y: tensor<8xf32> {kiln.donated}, %z: tensor<8xf32> {kiln.donated})
    -> tensor<8xf32> {
  %0 = "kiln.fusion"(%x) ({
  ^bb0(%a: tensor<8xf32>):
    "kiln.yield"(%a) : (tensor<8xf32>) -> ()
  }) {kind = "pointwise", name = "kept"} : (tensor<8xf32>) -> tensor<8xf32>
  %1 = "kiln.fusion"(%y, %x, %0) ({
  ^bb0(%a: tensor<8xf32>, %b: tensor<8xf32>, %c: tensor<8xf32>):
    "kiln.yield"(%a) : (tensor<8xf32>) -> ()
  }) {kind = "pointwise", name = "written"} : (tensor<8xf32>, tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
  %2 = "kiln.fusion"(%z, %1, %0) ({
  ^bb0(%a: tensor<8xf32>, %b: tensor<8xf32>, %c: tensor<8xf32>):
    "kiln.yield"(%a) : (tensor<8xf32>) -> ()
  }) {kind = "pointwise", name = "returned"} : (tensor<8xf32>, tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
  return %2 : tensor<8xf32>
}

// -----

// An operand in other dims is written over where each element keeps its address: reshaped, and not transposed.

// CHECK-LABEL: func.func @other_dims
// CHECK: in_place = array<i64: 0, 0>
// CHECK-SAME: name = "reshaped"
// CHECK-NOT: in_place
// CHECK: name = "transposed"
func.func @other_dims(%x: tensor<8x4xf32> {kiln.donated}, %y: tensor<8x4xf32> {kiln.donated}) -> tensor<4x8xf32> {
  %0 = "kiln.fusion"(%x) ({
  ^bb0(%a: tensor<8x4xf32>):
    %v = "kiln.view"(%a) {map = affine_map<(d0, d1, d2) -> (d0 * 4 + d1, d2)>, shape = affine_map<() -> (2, 4, 4)>} : (tensor<8x4xf32>) -> tensor<2x4x4xf32>
    "kiln.yield"(%v) : (tensor<2x4x4xf32>) -> ()
  }) {kind = "pointwise", name = "reshaped"} : (tensor<8x4xf32>) -> tensor<2x4x4xf32>
  %1 = "kiln.fusion"(%y) ({
  ^bb0(%a: tensor<8x4xf32>):
    %v = "kiln.view"(%a) {map = affine_map<(d0, d1) -> (d1, d0)>, shape = affine_map<() -> (4, 8)>} : (tensor<8x4xf32>) -> tensor<4x8xf32>
    "kiln.yield"(%v) : (tensor<4x8xf32>) -> ()
  }) {kind = "pointwise", name = "transposed"} : (tensor<8x4xf32>) -> tensor<4x8xf32>
  %2 = "kiln.fusion"(%0, %1) ({
  ^bb0(%a: tensor<2x4x4xf32>, %b: tensor<4x8xf32>):
    "kiln.yield"(%b) : (tensor<4x8xf32>) -> ()
  }) {kind = "pointwise", name = "last"} : (tensor<2x4x4xf32>, tensor<4x8xf32>) -> tensor<4x8xf32>
  return %2 : tensor<4x8xf32>
}

// -----

// A batch norm's statistics: what eager copies to an argument is written there beside a result of the same elements in
// other dims, and not where that result reads the argument, or has more loops.

// CHECK-LABEL: func.func @statistics
// CHECK: in_place = array<i64: 1, 1>
// CHECK-SAME: name = "statistics"
// CHECK-SAME: writes = array<i64: 1, 1>
// CHECK-NOT: writes
// CHECK: name = "read_by_both"
// CHECK-NOT: writes
// CHECK: name = "more_loops"
func.func @statistics(%x: tensor<8xf32>, %y: tensor<8xf32>, %z: tensor<8xf32>, %m: tensor<2x8xf32>, %u: tensor<8xf32>)
    -> (tensor<1x8xf32>, tensor<8xf32> {kiln.mutates = 1 : i64}, tensor<1x8xf32>, tensor<8xf32> {kiln.mutates = 2 : i64},
        tensor<2x8xf32>, tensor<8xf32> {kiln.mutates = 4 : i64}) {
  %0:2 = "kiln.fusion"(%x, %y) ({
  ^bb0(%a: tensor<8xf32>, %b: tensor<8xf32>):
    %v = "kiln.view"(%a) {map = affine_map<(d0, d1) -> (d1)>, shape = affine_map<() -> (1, 8)>} : (tensor<8xf32>) -> tensor<1x8xf32>
    %e = "kiln.empty"() {shape = affine_map<() -> (8)>} : () -> tensor<8xf32>
    %r = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>],
        iterator_types = ["parallel"]} ins(%a, %b : tensor<8xf32>, tensor<8xf32>) outs(%e : tensor<8xf32>) {
    ^bb0(%i: f32, %j: f32, %o: f32):
      %s = arith.addf %i, %j : f32
      linalg.yield %s : f32
    } -> tensor<8xf32>
    "kiln.yield"(%v, %r) : (tensor<1x8xf32>, tensor<8xf32>) -> ()
  }) {kind = "pointwise", name = "statistics"} : (tensor<8xf32>, tensor<8xf32>) -> (tensor<1x8xf32>, tensor<8xf32>)
  %1:2 = "kiln.fusion"(%x, %z) ({
  ^bb0(%a: tensor<8xf32>, %b: tensor<8xf32>):
    %v = "kiln.view"(%b) {map = affine_map<(d0, d1) -> (d1)>, shape = affine_map<() -> (1, 8)>} : (tensor<8xf32>) -> tensor<1x8xf32>
    %e = "kiln.empty"() {shape = affine_map<() -> (8)>} : () -> tensor<8xf32>
    %r = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>],
        iterator_types = ["parallel"]} ins(%a, %b : tensor<8xf32>, tensor<8xf32>) outs(%e : tensor<8xf32>) {
    ^bb0(%i: f32, %j: f32, %o: f32):
      %s = arith.addf %i, %j : f32
      linalg.yield %s : f32
    } -> tensor<8xf32>
    "kiln.yield"(%v, %r) : (tensor<1x8xf32>, tensor<8xf32>) -> ()
  }) {kind = "pointwise", name = "read_by_both"} : (tensor<8xf32>, tensor<8xf32>) -> (tensor<1x8xf32>, tensor<8xf32>)
  %2:2 = "kiln.fusion"(%m, %x, %u) ({
  ^bb0(%a: tensor<2x8xf32>, %b: tensor<8xf32>, %c: tensor<8xf32>):
    %e = "kiln.empty"() {shape = affine_map<() -> (8)>} : () -> tensor<8xf32>
    %r = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>],
        iterator_types = ["parallel"]} ins(%b, %c : tensor<8xf32>, tensor<8xf32>) outs(%e : tensor<8xf32>) {
    ^bb0(%i: f32, %j: f32, %o: f32):
      %s = arith.addf %i, %j : f32
      linalg.yield %s : f32
    } -> tensor<8xf32>
    "kiln.yield"(%a, %r) : (tensor<2x8xf32>, tensor<8xf32>) -> ()
  }) {kind = "pointwise", name = "more_loops"} : (tensor<2x8xf32>, tensor<8xf32>, tensor<8xf32>) -> (tensor<2x8xf32>, tensor<8xf32>)
  return %0#0, %0#1, %1#0, %1#1, %2#0, %2#1 : tensor<1x8xf32>, tensor<8xf32>, tensor<1x8xf32>, tensor<8xf32>, tensor<2x8xf32>, tensor<8xf32>
}
