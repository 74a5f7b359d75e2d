// What --verify-diagnostics says when expectations and diagnostics differ.
// RUN: not kiln-opt --split-input-file --verify-diagnostics %s 2>&1 | filecheck %s
// RUN: not kiln-opt --split-input-file --verify-diagnostics=only-expected %s 2>&1 | filecheck %s --check-prefix=ONLY

// CHECK: verify_diagnostics_fail.mlir:16:1: error: unexpected error: 'func.return' op has 0 operands
// CHECK: verify_diagnostics_fail.mlir:22: error: expected error "no such text" at line 23 was not produced
// CHECK: verify_diagnostics_fail.mlir:23:1: error: unexpected error: 'func.return' op has 0 operands
// CHECK: verify_diagnostics_fail.mlir:30: error: expected warning "never" at line 31 was not produced
// CHECK: verify_diagnostics_fail.mlir:37: error: malformed expectation

// ONLY-NOT: unexpected error
// ONLY: 22: error: expected error "no such text" at line 23 was not produced
// ONLY-NOT: unexpected error

func.func @unexpected() -> i32 {
return
}

// -----

func.func @wrong_text() -> i32 {
// expected-error @+1 {{no such text}}
return
}

// -----

func.func @not_produced() {

// expected-warning @below {{never}}
  return
}

// -----

func.func @malformed() {
// expected-error @+1 {no double braces}
  return
}
