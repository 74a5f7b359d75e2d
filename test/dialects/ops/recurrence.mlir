// The ops of dialects/kiln/recurrence.py: printing gives back what was parsed, and each has a reference lowering.
// RUN: kiln-opt %s | filecheck %s
// RUN: kiln-opt %s | kiln-opt | filecheck %s
// RUN: kiln-opt --pass-pipeline=expand-named-ops %s | filecheck %s --check-prefix=REF

// CHECK-LABEL: func.func @decay(
// CHECK: "kiln.recurrence"(%arg0, %arg1) ({
// CHECK: "kiln.yield"
// REF-LABEL: func.func @decay(
// REF-NOT: "kiln.recurrence"
// REF: iterator_types = ["parallel", "parallel", "reduction"]
// REF: arith.cmpi eq
// REF: arith.cmpi sle
// REF: arith.mulf
func.func @decay(%a: tensor<8x?xbf16>, %b: tensor<8x?xf32>) -> tensor<8x?xf32> {
  %0:2 = "kiln.recurrence"(%a, %b) ({
  ^bb0(%a0: f32, %b0: f32, %a1: f32, %b1: f32):
    %p = arith.mulf %a0, %a1 : f32
    %q = arith.mulf %a1, %b0 : f32
    %r = arith.addf %q, %b1 : f32
    "kiln.yield"(%p, %r) : (f32, f32) -> ()
  }) {dim = 1 : i64} : (tensor<8x?xbf16>, tensor<8x?xf32>) -> (tensor<8x?xbf16>, tensor<8x?xf32>)
  return %0#1 : tensor<8x?xf32>
}
