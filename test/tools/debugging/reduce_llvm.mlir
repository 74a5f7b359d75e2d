// Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// Of LLVM's dialect: the other function goes, the loop around it, and what it reads is a constant.
// RUN: kiln-reduce --test="%python %S/Inputs/holds_division.py" %s | filecheck %s

// CHECK-NOT: llvm.func @other
// CHECK: llvm.func @main
// CHECK-NOT: llvm.cond_br
// CHECK-NOT: llvm.fmul
// CHECK: %[[ONE:.*]] = llvm.mlir.constant(dense<1.000000e+00> : vector<1xf32>)
// CHECK: llvm.fdiv %[[ONE]], %[[ONE]] : vector<1xf32>
// CHECK-NOT: llvm.return

llvm.func @other(%x: i64) -> i64 {
  %y = llvm.add %x, %x : i64
  llvm.return %y : i64
}

llvm.func @main(%from: !llvm.ptr, %to: !llvm.ptr, %n: i64) {
  %zero = llvm.mlir.constant(0 : i64) : i64
  %four = llvm.mlir.constant(4 : i64) : i64
  llvm.br ^loop(%zero : i64)
^loop(%i: i64):
  %more = llvm.icmp "slt" %i, %n : i64
  llvm.cond_br %more, ^body, ^done
^body:
  %p = llvm.getelementptr %from[%i] : (!llvm.ptr, i64) -> !llvm.ptr, f32
  %x = llvm.load %p : !llvm.ptr -> vector<4xf32>
  %square = llvm.fmul %x, %x : vector<4xf32>
  %y = llvm.fdiv %square, %x : vector<4xf32>
  %q = llvm.getelementptr %to[%i] : (!llvm.ptr, i64) -> !llvm.ptr, f32
  llvm.store %y, %q : vector<4xf32>, !llvm.ptr
  llvm.store %x, %p : vector<4xf32>, !llvm.ptr
  %next = llvm.add %i, %four : i64
  llvm.br ^loop(%next : i64)
^done:
  llvm.return
}
