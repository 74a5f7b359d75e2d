// What the verifiers of the ops in dialects/kiln/recurrence.py reject.
// RUN: kiln-opt --split-input-file --verify-diagnostics %s

func.func @invalid(%x: tensor<4x8xf32>) {
  // expected-error @+1 {{op attribute dim: expected a dim in [0, 2), found 2}}
  %0 = "kiln.recurrence"(%x) ({
  ^bb0(%a: f32, %b: f32):
    "kiln.yield"(%b) : (f32) -> ()
  }) {dim = 2 : i64} : (tensor<4x8xf32>) -> tensor<4x8xf32>
  return
}

// -----

func.func @invalid(%x: tensor<4x8xbf16>) {
  // expected-error @+1 {{op block arguments: expected ['f32', 'f32'], found ['bf16', 'bf16']}}
  %0 = "kiln.recurrence"(%x) ({
  ^bb0(%a: bf16, %b: bf16):
    "kiln.yield"(%b) : (bf16) -> ()
  }) {dim = 1 : i64} : (tensor<4x8xbf16>) -> tensor<4x8xbf16>
  return
}

// -----

func.func @invalid(%x: tensor<4xf32>, %y: tensor<4xi32>) {
  // expected-error @+1 {{op kiln.yield operands: expected ['f32', 'i32'], found ['f32', 'f32']}}
  %0:2 = "kiln.recurrence"(%x, %y) ({
  ^bb0(%a: f32, %b: i32, %c: f32, %d: i32):
    "kiln.yield"(%a, %c) : (f32, f32) -> ()
  }) {dim = 0 : i64} : (tensor<4xf32>, tensor<4xi32>) -> (tensor<4xf32>, tensor<4xi32>)
  return
}
