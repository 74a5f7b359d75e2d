// Each part is parsed and run by itself, and an error in one leaves the others.
// RUN: not kiln-opt --split-input-file --pass-pipeline=canonicalize %s 2>&1 | filecheck %s

// CHECK: split_input.mlir:22:10: error: use of undeclared SSA value name
// CHECK-LABEL: func.func @first
// CHECK-NEXT: return %{{.+}} : i32
// CHECK: {{^}}// -----
// CHECK-LABEL: func.func @third
func.func @first(%a: i32) -> i32 {
  %0 = arith.constant 0 : i32
  %1 = arith.addi %a, %0 : i32
  return %1 : i32
}

// -----





func.func @second(%a: i32) -> i32 {
  return %b : i32
}

// -----

func.func @third() {
  return
}
