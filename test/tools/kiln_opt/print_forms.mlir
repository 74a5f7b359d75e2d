// RUN: kiln-opt --mlir-print-debuginfo %s | filecheck %s --check-prefix=LOC
// RUN: kiln-opt --mlir-print-op-generic %s | filecheck %s --check-prefix=GENERIC
// RUN: cat %s | kiln-opt | filecheck %s --check-prefix=STDIN

// LOC: return loc(#loc{{[0-9]*}})
// LOC: loc("-":
// GENERIC: "func.func"() <{
// GENERIC: "func.return"() : () -> ()
// STDIN: func.func @f()
func.func @f() {
  return
}
