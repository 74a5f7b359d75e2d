// RUN: kiln-opt --pass-pipeline="builtin.module(func.func(canonicalize), cse)" %s | filecheck %s
// RUN: kiln-opt --pass-pipeline=canonicalize --pass-pipeline=cse %s | filecheck %s

// CHECK-LABEL: func.func @twice
// CHECK-SAME: %[[A:.+]]: i32
// CHECK-NEXT: %[[SUM:.+]] = arith.addi %[[A]], %[[A]]
// CHECK-NEXT: return %[[SUM]], %[[SUM]]
func.func @twice(%a: i32) -> (i32, i32) {
  %zero = arith.constant 0 : i32
  %b = arith.addi %a, %zero : i32
  %0 = arith.addi %a, %b : i32
  %1 = arith.addi %b, %a : i32
  return %0, %1 : i32, i32
}
