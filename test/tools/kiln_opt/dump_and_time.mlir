// RUN: rm -rf %t
// RUN: kiln-opt --pass-pipeline='canonicalize,func.func(cse)' --dump-stages=%t --timing %s 2>&1 | filecheck %s --check-prefix=TIME
// RUN: cat %t/00-input.mlir | filecheck %s --check-prefix=INPUT
// RUN: cat %t/01-canonicalize.mlir %t/02-func.func-cse.mlir | filecheck %s --check-prefix=AFTER

// TIME: Pass timing
// TIME: % canonicalize
// TIME: % func.func(cse)
// TIME: 100.0% total

// INPUT: arith.constant
// AFTER-NOT: arith.constant
func.func @f() {
  %0 = arith.constant 0 : i32
  return
}
