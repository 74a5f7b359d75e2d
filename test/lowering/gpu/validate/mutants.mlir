// Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// RUN: kiln-opt %s --split-input-file --verify-diagnostics --pass-pipeline="validate-gpu-kernels{strict}"

// A kernel that is right, then the same with one mistake each.

"tt.func"() ({
^bb0(%x: !tt.ptr<f32>, %y: !tt.ptr<f32>):
  %c128 = arith.constant 128 : i32
  %size = arith.constant dense<500> : tensor<128xi32>
  %zero = arith.constant dense<0.0> : tensor<128xf32>
  %lanes = "tt.make_range"() {end = 128 : i32, start = 0 : i32} : () -> tensor<128xi32>
  %pid = "tt.get_program_id"() {axis = 0 : i32} : () -> i32
  %start = arith.muli %pid, %c128 : i32
  %starts = "tt.splat"(%start) : (i32) -> tensor<128xi32>
  %at = arith.addi %starts, %lanes : tensor<128xi32>
  %mask = arith.cmpi slt, %at, %size : tensor<128xi32>
  %xs = "tt.splat"(%x) : (!tt.ptr<f32>) -> tensor<128x!tt.ptr<f32>>
  %from = "tt.addptr"(%xs, %at) : (tensor<128x!tt.ptr<f32>>, tensor<128xi32>) -> tensor<128x!tt.ptr<f32>>
  %v = "tt.load"(%from, %mask, %zero) {operandSegmentSizes = array<i32: 1, 1, 1>} : (tensor<128x!tt.ptr<f32>>, tensor<128xi1>, tensor<128xf32>) -> tensor<128xf32>
  %ys = "tt.splat"(%y) : (!tt.ptr<f32>) -> tensor<128x!tt.ptr<f32>>
  %to = "tt.addptr"(%ys, %at) : (tensor<128x!tt.ptr<f32>>, tensor<128xi32>) -> tensor<128x!tt.ptr<f32>>
  "tt.store"(%to, %v, %mask) : (tensor<128x!tt.ptr<f32>>, tensor<128xf32>, tensor<128xi1>) -> ()
  "tt.return"() : () -> ()
}) {function_type = (!tt.ptr<f32>, !tt.ptr<f32>) -> (), kiln.grid = affine_map<() -> (4, 1, 1)>, sym_name = "right", sym_visibility = "public",
    kiln.buffers = [{is_result = false, layout = affine_map<(d0) -> (d0)>, sizes = affine_map<() -> (500)>}, {is_result = true, layout = affine_map<(d0) -> (d0)>, sizes = affine_map<() -> (500)>}]} : () -> ()

// -----

// A store without its mask.

"tt.func"() ({
^bb0(%x: !tt.ptr<f32>, %y: !tt.ptr<f32>):
  %c128 = arith.constant 128 : i32
  %size = arith.constant dense<500> : tensor<128xi32>
  %zero = arith.constant dense<0.0> : tensor<128xf32>
  %lanes = "tt.make_range"() {end = 128 : i32, start = 0 : i32} : () -> tensor<128xi32>
  %pid = "tt.get_program_id"() {axis = 0 : i32} : () -> i32
  %start = arith.muli %pid, %c128 : i32
  %starts = "tt.splat"(%start) : (i32) -> tensor<128xi32>
  %at = arith.addi %starts, %lanes : tensor<128xi32>
  %mask = arith.cmpi slt, %at, %size : tensor<128xi32>
  %xs = "tt.splat"(%x) : (!tt.ptr<f32>) -> tensor<128x!tt.ptr<f32>>
  %from = "tt.addptr"(%xs, %at) : (tensor<128x!tt.ptr<f32>>, tensor<128xi32>) -> tensor<128x!tt.ptr<f32>>
  %v = "tt.load"(%from, %mask, %zero) {operandSegmentSizes = array<i32: 1, 1, 1>} : (tensor<128x!tt.ptr<f32>>, tensor<128xi1>, tensor<128xf32>) -> tensor<128xf32>
  %ys = "tt.splat"(%y) : (!tt.ptr<f32>) -> tensor<128x!tt.ptr<f32>>
  %to = "tt.addptr"(%ys, %at) : (tensor<128x!tt.ptr<f32>>, tensor<128xi32>) -> tensor<128x!tt.ptr<f32>>
  // expected-error @below {{offset 500 of argument 1, whose elements are 0 to 499}}
  "tt.store"(%to, %v) : (tensor<128x!tt.ptr<f32>>, tensor<128xf32>) -> ()
  "tt.return"() : () -> ()
}) {function_type = (!tt.ptr<f32>, !tt.ptr<f32>) -> (), kiln.grid = affine_map<() -> (4, 1, 1)>, sym_name = "no_mask", sym_visibility = "public",
    kiln.buffers = [{is_result = false, layout = affine_map<(d0) -> (d0)>, sizes = affine_map<() -> (500)>}, {is_result = true, layout = affine_map<(d0) -> (d0)>, sizes = affine_map<() -> (500)>}]} : () -> ()

// -----

// The element behind the last one.

"tt.func"() ({
^bb0(%x: !tt.ptr<f32>, %y: !tt.ptr<f32>):
  %c128 = arith.constant 128 : i32
  %size = arith.constant dense<500> : tensor<128xi32>
  %zero = arith.constant dense<0.0> : tensor<128xf32>
  %lanes = "tt.make_range"() {end = 128 : i32, start = 0 : i32} : () -> tensor<128xi32>
  %pid = "tt.get_program_id"() {axis = 0 : i32} : () -> i32
  %start = arith.muli %pid, %c128 : i32
  %starts = "tt.splat"(%start) : (i32) -> tensor<128xi32>
  %at = arith.addi %starts, %lanes : tensor<128xi32>
  %mask = arith.cmpi sle, %at, %size : tensor<128xi32>
  %xs = "tt.splat"(%x) : (!tt.ptr<f32>) -> tensor<128x!tt.ptr<f32>>
  %from = "tt.addptr"(%xs, %at) : (tensor<128x!tt.ptr<f32>>, tensor<128xi32>) -> tensor<128x!tt.ptr<f32>>
  // expected-error @below {{offset 500 of argument 0, whose elements are 0 to 499}}
  %v = "tt.load"(%from, %mask, %zero) {operandSegmentSizes = array<i32: 1, 1, 1>} : (tensor<128x!tt.ptr<f32>>, tensor<128xi1>, tensor<128xf32>) -> tensor<128xf32>
  %ys = "tt.splat"(%y) : (!tt.ptr<f32>) -> tensor<128x!tt.ptr<f32>>
  %to = "tt.addptr"(%ys, %at) : (tensor<128x!tt.ptr<f32>>, tensor<128xi32>) -> tensor<128x!tt.ptr<f32>>
  "tt.store"(%to, %v, %mask) : (tensor<128x!tt.ptr<f32>>, tensor<128xf32>, tensor<128xi1>) -> ()
  "tt.return"() : () -> ()
}) {function_type = (!tt.ptr<f32>, !tt.ptr<f32>) -> (), kiln.grid = affine_map<() -> (4, 1, 1)>, sym_name = "one_more", sym_visibility = "public",
    kiln.buffers = [{is_result = false, layout = affine_map<(d0) -> (d0)>, sizes = affine_map<() -> (500)>}, {is_result = true, layout = affine_map<(d0) -> (d0)>, sizes = affine_map<() -> (500)>}]} : () -> ()

// -----

// Blocks of 128 elements, 64 apart: programs write half of their neighbours' elements.

"tt.func"() ({
^bb0(%x: !tt.ptr<f32>, %y: !tt.ptr<f32>):
  %c128 = arith.constant 64 : i32
  %size = arith.constant dense<500> : tensor<128xi32>
  %zero = arith.constant dense<0.0> : tensor<128xf32>
  %lanes = "tt.make_range"() {end = 128 : i32, start = 0 : i32} : () -> tensor<128xi32>
  %pid = "tt.get_program_id"() {axis = 0 : i32} : () -> i32
  %start = arith.muli %pid, %c128 : i32
  %starts = "tt.splat"(%start) : (i32) -> tensor<128xi32>
  %at = arith.addi %starts, %lanes : tensor<128xi32>
  %mask = arith.cmpi slt, %at, %size : tensor<128xi32>
  %xs = "tt.splat"(%x) : (!tt.ptr<f32>) -> tensor<128x!tt.ptr<f32>>
  %from = "tt.addptr"(%xs, %at) : (tensor<128x!tt.ptr<f32>>, tensor<128xi32>) -> tensor<128x!tt.ptr<f32>>
  %v = "tt.load"(%from, %mask, %zero) {operandSegmentSizes = array<i32: 1, 1, 1>} : (tensor<128x!tt.ptr<f32>>, tensor<128xi1>, tensor<128xf32>) -> tensor<128xf32>
  %ys = "tt.splat"(%y) : (!tt.ptr<f32>) -> tensor<128x!tt.ptr<f32>>
  %to = "tt.addptr"(%ys, %at) : (tensor<128x!tt.ptr<f32>>, tensor<128xi32>) -> tensor<128x!tt.ptr<f32>>
  // expected-error @below {{program 0, lane [axis 0: 64] and program 1, lane [axis 0: 0] both touch offset 64}}
  "tt.store"(%to, %v, %mask) : (tensor<128x!tt.ptr<f32>>, tensor<128xf32>, tensor<128xi1>) -> ()
  "tt.return"() : () -> ()
}) {function_type = (!tt.ptr<f32>, !tt.ptr<f32>) -> (), kiln.grid = affine_map<() -> (8, 1, 1)>, sym_name = "overlapping", sym_visibility = "public",
    kiln.buffers = [{is_result = false, layout = affine_map<(d0) -> (d0)>, sizes = affine_map<() -> (500)>}, {is_result = true, layout = affine_map<(d0) -> (d0)>, sizes = affine_map<() -> (500)>}]} : () -> ()

// -----

// A program less than there are blocks.

// expected-error @below {{384 of 500 elements are written at most}}
"tt.func"() ({
^bb0(%x: !tt.ptr<f32>, %y: !tt.ptr<f32>):
  %c128 = arith.constant 128 : i32
  %size = arith.constant dense<500> : tensor<128xi32>
  %zero = arith.constant dense<0.0> : tensor<128xf32>
  %lanes = "tt.make_range"() {end = 128 : i32, start = 0 : i32} : () -> tensor<128xi32>
  %pid = "tt.get_program_id"() {axis = 0 : i32} : () -> i32
  %start = arith.muli %pid, %c128 : i32
  %starts = "tt.splat"(%start) : (i32) -> tensor<128xi32>
  %at = arith.addi %starts, %lanes : tensor<128xi32>
  %mask = arith.cmpi slt, %at, %size : tensor<128xi32>
  %xs = "tt.splat"(%x) : (!tt.ptr<f32>) -> tensor<128x!tt.ptr<f32>>
  %from = "tt.addptr"(%xs, %at) : (tensor<128x!tt.ptr<f32>>, tensor<128xi32>) -> tensor<128x!tt.ptr<f32>>
  %v = "tt.load"(%from, %mask, %zero) {operandSegmentSizes = array<i32: 1, 1, 1>} : (tensor<128x!tt.ptr<f32>>, tensor<128xi1>, tensor<128xf32>) -> tensor<128xf32>
  %ys = "tt.splat"(%y) : (!tt.ptr<f32>) -> tensor<128x!tt.ptr<f32>>
  %to = "tt.addptr"(%ys, %at) : (tensor<128x!tt.ptr<f32>>, tensor<128xi32>) -> tensor<128x!tt.ptr<f32>>
  "tt.store"(%to, %v, %mask) : (tensor<128x!tt.ptr<f32>>, tensor<128xf32>, tensor<128xi1>) -> ()
  "tt.return"() : () -> ()
}) {function_type = (!tt.ptr<f32>, !tt.ptr<f32>) -> (), kiln.grid = affine_map<() -> (3, 1, 1)>, sym_name = "too_few", sym_visibility = "public",
    kiln.buffers = [{is_result = false, layout = affine_map<(d0) -> (d0)>, sizes = affine_map<() -> (500)>}, {is_result = true, layout = affine_map<(d0) -> (d0)>, sizes = affine_map<() -> (500)>}]} : () -> ()

// -----

// Blocks further apart than they are wide.

// expected-error @below {{404 of 500 elements are written at most}}
"tt.func"() ({
^bb0(%x: !tt.ptr<f32>, %y: !tt.ptr<f32>):
  %c128 = arith.constant 160 : i32
  %size = arith.constant dense<500> : tensor<128xi32>
  %zero = arith.constant dense<0.0> : tensor<128xf32>
  %lanes = "tt.make_range"() {end = 128 : i32, start = 0 : i32} : () -> tensor<128xi32>
  %pid = "tt.get_program_id"() {axis = 0 : i32} : () -> i32
  %start = arith.muli %pid, %c128 : i32
  %starts = "tt.splat"(%start) : (i32) -> tensor<128xi32>
  %at = arith.addi %starts, %lanes : tensor<128xi32>
  %mask = arith.cmpi slt, %at, %size : tensor<128xi32>
  %xs = "tt.splat"(%x) : (!tt.ptr<f32>) -> tensor<128x!tt.ptr<f32>>
  %from = "tt.addptr"(%xs, %at) : (tensor<128x!tt.ptr<f32>>, tensor<128xi32>) -> tensor<128x!tt.ptr<f32>>
  %v = "tt.load"(%from, %mask, %zero) {operandSegmentSizes = array<i32: 1, 1, 1>} : (tensor<128x!tt.ptr<f32>>, tensor<128xi1>, tensor<128xf32>) -> tensor<128xf32>
  %ys = "tt.splat"(%y) : (!tt.ptr<f32>) -> tensor<128x!tt.ptr<f32>>
  %to = "tt.addptr"(%ys, %at) : (tensor<128x!tt.ptr<f32>>, tensor<128xi32>) -> tensor<128x!tt.ptr<f32>>
  "tt.store"(%to, %v, %mask) : (tensor<128x!tt.ptr<f32>>, tensor<128xf32>, tensor<128xi1>) -> ()
  "tt.return"() : () -> ()
}) {function_type = (!tt.ptr<f32>, !tt.ptr<f32>) -> (), kiln.grid = affine_map<() -> (4, 1, 1)>, sym_name = "gaps", sym_visibility = "public",
    kiln.buffers = [{is_result = false, layout = affine_map<(d0) -> (d0)>, sizes = affine_map<() -> (500)>}, {is_result = true, layout = affine_map<(d0) -> (d0)>, sizes = affine_map<() -> (500)>}]} : () -> ()

// -----

// A start that is one element too early.

"tt.func"() ({
^bb0(%x: !tt.ptr<f32>, %y: !tt.ptr<f32>):
  %c128 = arith.constant 128 : i32
  %size = arith.constant dense<500> : tensor<128xi32>
  %zero = arith.constant dense<0.0> : tensor<128xf32>
  %lanes = "tt.make_range"() {end = 128 : i32, start = 0 : i32} : () -> tensor<128xi32>
  %pid = "tt.get_program_id"() {axis = 0 : i32} : () -> i32
  %start = arith.muli %pid, %c128 : i32
  %one = arith.constant 1 : i32
  %before = arith.subi %start, %one : i32
  %starts = "tt.splat"(%before) : (i32) -> tensor<128xi32>
  %at = arith.addi %starts, %lanes : tensor<128xi32>
  %mask = arith.cmpi slt, %at, %size : tensor<128xi32>
  %xs = "tt.splat"(%x) : (!tt.ptr<f32>) -> tensor<128x!tt.ptr<f32>>
  %from = "tt.addptr"(%xs, %at) : (tensor<128x!tt.ptr<f32>>, tensor<128xi32>) -> tensor<128x!tt.ptr<f32>>
  // expected-error @below {{program 0, lane [axis 0: 0]: offset -1 of argument 0, whose elements are 0 to 499}}
  %v = "tt.load"(%from, %mask, %zero) {operandSegmentSizes = array<i32: 1, 1, 1>} : (tensor<128x!tt.ptr<f32>>, tensor<128xi1>, tensor<128xf32>) -> tensor<128xf32>
  %ys = "tt.splat"(%y) : (!tt.ptr<f32>) -> tensor<128x!tt.ptr<f32>>
  %to = "tt.addptr"(%ys, %at) : (tensor<128x!tt.ptr<f32>>, tensor<128xi32>) -> tensor<128x!tt.ptr<f32>>
  "tt.store"(%to, %v, %mask) : (tensor<128x!tt.ptr<f32>>, tensor<128xf32>, tensor<128xi1>) -> ()
  "tt.return"() : () -> ()
}) {function_type = (!tt.ptr<f32>, !tt.ptr<f32>) -> (), kiln.grid = affine_map<() -> (4, 1, 1)>, sym_name = "early", sym_visibility = "public",
    kiln.buffers = [{is_result = false, layout = affine_map<(d0) -> (d0)>, sizes = affine_map<() -> (500)>}, {is_result = true, layout = affine_map<(d0) -> (d0)>, sizes = affine_map<() -> (500)>}]} : () -> ()

// -----

// Two programs work on each block, and write the same.

"tt.func"() ({
^bb0(%x: !tt.ptr<f32>, %y: !tt.ptr<f32>):
  %c128 = arith.constant 128 : i32
  %size = arith.constant dense<500> : tensor<128xi32>
  %zero = arith.constant dense<0.0> : tensor<128xf32>
  %lanes = "tt.make_range"() {end = 128 : i32, start = 0 : i32} : () -> tensor<128xi32>
  %pid = "tt.get_program_id"() {axis = 0 : i32} : () -> i32
  %two = arith.constant 2 : i32
  %half = arith.divui %pid, %two : i32
  %start = arith.muli %half, %c128 : i32
  %starts = "tt.splat"(%start) : (i32) -> tensor<128xi32>
  %at = arith.addi %starts, %lanes : tensor<128xi32>
  %mask = arith.cmpi slt, %at, %size : tensor<128xi32>
  %xs = "tt.splat"(%x) : (!tt.ptr<f32>) -> tensor<128x!tt.ptr<f32>>
  %from = "tt.addptr"(%xs, %at) : (tensor<128x!tt.ptr<f32>>, tensor<128xi32>) -> tensor<128x!tt.ptr<f32>>
  %v = "tt.load"(%from, %mask, %zero) {operandSegmentSizes = array<i32: 1, 1, 1>} : (tensor<128x!tt.ptr<f32>>, tensor<128xi1>, tensor<128xf32>) -> tensor<128xf32>
  %ys = "tt.splat"(%y) : (!tt.ptr<f32>) -> tensor<128x!tt.ptr<f32>>
  %to = "tt.addptr"(%ys, %at) : (tensor<128x!tt.ptr<f32>>, tensor<128xi32>) -> tensor<128x!tt.ptr<f32>>
  // expected-error @below {{program 0, lane [axis 0: 0] and program 1, lane [axis 0: 0] both touch offset 0 of argument 1}}
  "tt.store"(%to, %v, %mask) : (tensor<128x!tt.ptr<f32>>, tensor<128xf32>, tensor<128xi1>) -> ()
  "tt.return"() : () -> ()
}) {function_type = (!tt.ptr<f32>, !tt.ptr<f32>) -> (), kiln.grid = affine_map<() -> (8, 1, 1)>, sym_name = "twice", sym_visibility = "public",
    kiln.buffers = [{is_result = false, layout = affine_map<(d0) -> (d0)>, sizes = affine_map<() -> (500)>}, {is_result = true, layout = affine_map<(d0) -> (d0)>, sizes = affine_map<() -> (500)>}]} : () -> ()

// -----

// The same with atomics on a result that starts as zeros is right.

"tt.func"() ({
^bb0(%x: !tt.ptr<f32>, %y: !tt.ptr<f32>):
  %c128 = arith.constant 128 : i32
  %size = arith.constant dense<500> : tensor<128xi32>
  %zero = arith.constant dense<0.0> : tensor<128xf32>
  %lanes = "tt.make_range"() {end = 128 : i32, start = 0 : i32} : () -> tensor<128xi32>
  %pid = "tt.get_program_id"() {axis = 0 : i32} : () -> i32
  %two = arith.constant 2 : i32
  %half = arith.divui %pid, %two : i32
  %start = arith.muli %half, %c128 : i32
  %starts = "tt.splat"(%start) : (i32) -> tensor<128xi32>
  %at = arith.addi %starts, %lanes : tensor<128xi32>
  %mask = arith.cmpi slt, %at, %size : tensor<128xi32>
  %xs = "tt.splat"(%x) : (!tt.ptr<f32>) -> tensor<128x!tt.ptr<f32>>
  %from = "tt.addptr"(%xs, %at) : (tensor<128x!tt.ptr<f32>>, tensor<128xi32>) -> tensor<128x!tt.ptr<f32>>
  %v = "tt.load"(%from, %mask, %zero) {operandSegmentSizes = array<i32: 1, 1, 1>} : (tensor<128x!tt.ptr<f32>>, tensor<128xi1>, tensor<128xf32>) -> tensor<128xf32>
  %ys = "tt.splat"(%y) : (!tt.ptr<f32>) -> tensor<128x!tt.ptr<f32>>
  %to = "tt.addptr"(%ys, %at) : (tensor<128x!tt.ptr<f32>>, tensor<128xi32>) -> tensor<128x!tt.ptr<f32>>
  %old = "tt.atomic_rmw"(%to, %v, %mask) {atomic_rmw_op = 5 : i32, sem = 1 : i32, scope = 1 : i32} : (tensor<128x!tt.ptr<f32>>, tensor<128xf32>, tensor<128xi1>) -> tensor<128xf32>
  "tt.return"() : () -> ()
}) {function_type = (!tt.ptr<f32>, !tt.ptr<f32>) -> (), kiln.grid = affine_map<() -> (8, 1, 1)>, kiln.zero = array<i64: 0>, sym_name = "atomic", sym_visibility = "public",
    kiln.buffers = [{is_result = false, layout = affine_map<(d0) -> (d0)>, sizes = affine_map<() -> (500)>}, {is_result = true, layout = affine_map<(d0) -> (d0)>, sizes = affine_map<() -> (500)>}]} : () -> ()

// -----

// A loaded index that isn't clamped.

"tt.func"() ({
^bb0(%x: !tt.ptr<i32>, %y: !tt.ptr<f32>):
  %c128 = arith.constant 128 : i32
  %size = arith.constant dense<500> : tensor<128xi32>
  %zero = arith.constant dense<0> : tensor<128xi32>
  %v = arith.constant dense<0.0> : tensor<128xf32>
  %lanes = "tt.make_range"() {end = 128 : i32, start = 0 : i32} : () -> tensor<128xi32>
  %pid = "tt.get_program_id"() {axis = 0 : i32} : () -> i32
  %start = arith.muli %pid, %c128 : i32
  %starts = "tt.splat"(%start) : (i32) -> tensor<128xi32>
  %at = arith.addi %starts, %lanes : tensor<128xi32>
  %mask = arith.cmpi slt, %at, %size : tensor<128xi32>
  %xs = "tt.splat"(%x) : (!tt.ptr<i32>) -> tensor<128x!tt.ptr<i32>>
  %from = "tt.addptr"(%xs, %at) : (tensor<128x!tt.ptr<i32>>, tensor<128xi32>) -> tensor<128x!tt.ptr<i32>>
  %i = "tt.load"(%from, %mask, %zero) {operandSegmentSizes = array<i32: 1, 1, 1>} : (tensor<128x!tt.ptr<i32>>, tensor<128xi1>, tensor<128xi32>) -> tensor<128xi32>
  %ys = "tt.splat"(%y) : (!tt.ptr<f32>) -> tensor<128x!tt.ptr<f32>>
  %to = "tt.addptr"(%ys, %i) : (tensor<128x!tt.ptr<f32>>, tensor<128xi32>) -> tensor<128x!tt.ptr<f32>>
  // expected-error @below {{loaded integer}}
  "tt.store"(%to, %v, %mask) : (tensor<128x!tt.ptr<f32>>, tensor<128xf32>, tensor<128xi1>) -> ()
  "tt.return"() : () -> ()
}) {function_type = (!tt.ptr<i32>, !tt.ptr<f32>) -> (), kiln.grid = affine_map<() -> (4, 1, 1)>, sym_name = "unclamped", sym_visibility = "public",
    kiln.buffers = [{is_result = false, layout = affine_map<(d0) -> (d0)>, sizes = affine_map<() -> (500)>}, {is_result = true, layout = affine_map<(d0) -> (d0)>, sizes = affine_map<() -> (500)>}]} : () -> ()

// -----

// Positions of 32 bits in a tensor that has more elements.

"tt.func"() ({
^bb0(%x: !tt.ptr<f32>, %y: !tt.ptr<f32>):
  %c128 = arith.constant 128 : i32
  %size = arith.constant dense<2147483647> : tensor<128xi32>
  %zero = arith.constant dense<0.0> : tensor<128xf32>
  %lanes = "tt.make_range"() {end = 128 : i32, start = 0 : i32} : () -> tensor<128xi32>
  %pid = "tt.get_program_id"() {axis = 0 : i32} : () -> i32
  %start = arith.muli %pid, %c128 : i32
  %starts = "tt.splat"(%start) : (i32) -> tensor<128xi32>
  %at = arith.addi %starts, %lanes : tensor<128xi32>
  // expected-error @below {{may not fit into [-2147483648, 2147483647]}}
  %mask = arith.cmpi slt, %at, %size : tensor<128xi32>
  %xs = "tt.splat"(%x) : (!tt.ptr<f32>) -> tensor<128x!tt.ptr<f32>>
  %from = "tt.addptr"(%xs, %at) : (tensor<128x!tt.ptr<f32>>, tensor<128xi32>) -> tensor<128x!tt.ptr<f32>>
  %v = "tt.load"(%from, %mask, %zero) {operandSegmentSizes = array<i32: 1, 1, 1>} : (tensor<128x!tt.ptr<f32>>, tensor<128xi1>, tensor<128xf32>) -> tensor<128xf32>
  %ys = "tt.splat"(%y) : (!tt.ptr<f32>) -> tensor<128x!tt.ptr<f32>>
  %to = "tt.addptr"(%ys, %at) : (tensor<128x!tt.ptr<f32>>, tensor<128xi32>) -> tensor<128x!tt.ptr<f32>>
  "tt.store"(%to, %v, %mask) : (tensor<128x!tt.ptr<f32>>, tensor<128xf32>, tensor<128xi1>) -> ()
  "tt.return"() : () -> ()
}) {function_type = (!tt.ptr<f32>, !tt.ptr<f32>) -> (), kiln.grid = affine_map<() -> (20000000, 1, 1)>, sym_name = "narrow", sym_visibility = "public",
    kiln.buffers = [{is_result = false, layout = affine_map<(d0) -> (d0)>, sizes = affine_map<() -> (2560000000)>}, {is_result = true, layout = affine_map<(d0) -> (d0)>, sizes = affine_map<() -> (2560000000)>}]} : () -> ()

// -----

// Of a result with rows of 100 elements, 128 apart in memory, all of the memory is written.

"tt.func"() ({
^bb0(%x: !tt.ptr<f32>, %y: !tt.ptr<f32>):
  %c128 = arith.constant 128 : i32
  %size = arith.constant dense<612> : tensor<128xi32>
  %zero = arith.constant dense<0.0> : tensor<128xf32>
  %lanes = "tt.make_range"() {end = 128 : i32, start = 0 : i32} : () -> tensor<128xi32>
  %pid = "tt.get_program_id"() {axis = 0 : i32} : () -> i32
  %start = arith.muli %pid, %c128 : i32
  %starts = "tt.splat"(%start) : (i32) -> tensor<128xi32>
  %at = arith.addi %starts, %lanes : tensor<128xi32>
  %mask = arith.cmpi slt, %at, %size : tensor<128xi32>
  %xs = "tt.splat"(%x) : (!tt.ptr<f32>) -> tensor<128x!tt.ptr<f32>>
  %from = "tt.addptr"(%xs, %at) : (tensor<128x!tt.ptr<f32>>, tensor<128xi32>) -> tensor<128x!tt.ptr<f32>>
  %v = "tt.load"(%from, %mask, %zero) {operandSegmentSizes = array<i32: 1, 1, 1>} : (tensor<128x!tt.ptr<f32>>, tensor<128xi1>, tensor<128xf32>) -> tensor<128xf32>
  %ys = "tt.splat"(%y) : (!tt.ptr<f32>) -> tensor<128x!tt.ptr<f32>>
  %to = "tt.addptr"(%ys, %at) : (tensor<128x!tt.ptr<f32>>, tensor<128xi32>) -> tensor<128x!tt.ptr<f32>>
  // expected-error @below {{whose elements are 0 to 611, with gaps}}
  "tt.store"(%to, %v, %mask) : (tensor<128x!tt.ptr<f32>>, tensor<128xf32>, tensor<128xi1>) -> ()
  "tt.return"() : () -> ()
}) {function_type = (!tt.ptr<f32>, !tt.ptr<f32>) -> (), kiln.grid = affine_map<() -> (5, 1, 1)>, sym_name = "gap", sym_visibility = "public",
    kiln.buffers = [{is_result = false, layout = affine_map<(d0) -> (d0)>, sizes = affine_map<() -> (612)>}, {is_result = true, layout = affine_map<(d0, d1) -> (d0 * 128 + d1)>, sizes = affine_map<() -> (5, 100)>}]} : () -> ()

// -----

// All programs write the same block.

"tt.func"() ({
^bb0(%x: !tt.ptr<f32>, %y: !tt.ptr<f32>):
  %c128 = arith.constant 128 : i32
  %size = arith.constant dense<500> : tensor<128xi32>
  %zero = arith.constant dense<0.0> : tensor<128xf32>
  %lanes = "tt.make_range"() {end = 128 : i32, start = 0 : i32} : () -> tensor<128xi32>
  %pid = "tt.get_program_id"() {axis = 0 : i32} : () -> i32
  %zeroth = arith.constant 0 : i32
  %start = arith.muli %zeroth, %c128 : i32
  %starts = "tt.splat"(%start) : (i32) -> tensor<128xi32>
  %at = arith.addi %starts, %lanes : tensor<128xi32>
  %mask = arith.cmpi slt, %at, %size : tensor<128xi32>
  %xs = "tt.splat"(%x) : (!tt.ptr<f32>) -> tensor<128x!tt.ptr<f32>>
  %from = "tt.addptr"(%xs, %at) : (tensor<128x!tt.ptr<f32>>, tensor<128xi32>) -> tensor<128x!tt.ptr<f32>>
  %v = "tt.load"(%from, %mask, %zero) {operandSegmentSizes = array<i32: 1, 1, 1>} : (tensor<128x!tt.ptr<f32>>, tensor<128xi1>, tensor<128xf32>) -> tensor<128xf32>
  %ys = "tt.splat"(%y) : (!tt.ptr<f32>) -> tensor<128x!tt.ptr<f32>>
  %to = "tt.addptr"(%ys, %at) : (tensor<128x!tt.ptr<f32>>, tensor<128xi32>) -> tensor<128x!tt.ptr<f32>>
  // expected-error @below {{program 0, lane [axis 0: 0] and program 1, lane [axis 0: 0] both touch offset 0}}
  "tt.store"(%to, %v, %mask) : (tensor<128x!tt.ptr<f32>>, tensor<128xf32>, tensor<128xi1>) -> ()
  "tt.return"() : () -> ()
}) {function_type = (!tt.ptr<f32>, !tt.ptr<f32>) -> (), kiln.grid = affine_map<() -> (4, 1, 1)>, sym_name = "everyone", sym_visibility = "public",
    kiln.buffers = [{is_result = false, layout = affine_map<(d0) -> (d0)>, sizes = affine_map<() -> (500)>}, {is_result = true, layout = affine_map<(d0) -> (d0)>, sizes = affine_map<() -> (500)>}]} : () -> ()
