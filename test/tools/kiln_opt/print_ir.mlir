// RUN: kiln-opt --print-ir-after-all --pass-pipeline=canonicalize,cse %s -o %t 2>&1 | filecheck %s --check-prefix=ALL
// RUN: kiln-opt --print-ir-before=cse --pass-pipeline=canonicalize,cse %s -o %t 2>&1 | filecheck %s --check-prefix=BEFORE
// RUN: kiln-opt --print-ir-after-change --pass-pipeline=canonicalize,cse %s -o %t 2>&1 | filecheck %s --check-prefix=CHANGE

// ALL: IR Dump After canonicalize
// ALL-LABEL: func.func @f
// ALL-NEXT: return
// ALL: IR Dump After cse
// ALL-LABEL: func.func @f

// BEFORE-NOT: canonicalize
// BEFORE: IR Dump Before cse
// BEFORE-NOT: IR Dump

// CHANGE: IR Dump After canonicalize
// CHANGE-NOT: IR Dump After cse
func.func @f() {
  %0 = arith.constant 0 : i32
  return
}
