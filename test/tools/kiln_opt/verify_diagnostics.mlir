// Every way to say where a diagnostic is expected.
// RUN: kiln-opt --split-input-file --verify-diagnostics %s

func.func @same_line() -> i32 {
  return // expected-error {{has 0 operands, but enclosing function (@same_line) returns 1}}
}

// -----

func.func @next_line() -> i32 {
  // expected-error @+1 {{has 0 operands}}
  return
}

// -----

func.func @line_before() -> i32 {
  return
  // expected-error @-1 {{has 0 operands}}
}

// -----

func.func @above() -> i32 {
  return
  // expected-error @above {{has 0 operands}}
}

// -----

func.func @below_with_regex(%a: i32) {
  // expected-error-re @below {{op has {{[0-9]+}} operands, but enclosing function}}
  return %a : i32
}

// -----

// expected-note @+1 {{prior use here}}
func.func @note(%a: i32) -> i64 {
  // expected-error @below {{expects different type than prior uses: 'i64' vs 'i32'}}
  return %a : i64
}

// -----

func.func @valid() {
  return
}
