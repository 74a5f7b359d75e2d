// RUN: kiln-opt --split-input-file --verify-diagnostics --check-stage=fused %s

func.func @valid(%x: tensor<4xf32>) -> tensor<4xf32> {
  return %x : tensor<4xf32>
}

// -----

func.func @arith_outside_of_a_fusion(%x: i32) -> i32 {
  // expected-error @below {{stage 'fused': arith.addi is not allowed in a function; allowed: kiln.fusion, kiln.aten}}
  %0 = arith.addi %x, %x : i32
  return %0 : i32
}

// -----

module {
  // expected-error @below {{stage 'fused': builtin.module stands at module level; expected func.func only}}
  module @inner {}
}

// -----

func.func @torch_type(%x: !torch.int) -> !torch.int {
  // expected-error @below {{has a value of type !torch.int; expected builtin tensors and scalars}}
  return %x : !torch.int
}

// -----

func.func @fusion_body(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = "kiln.fusion"(%x) ({
  ^bb0(%a: tensor<4xf32>):
    // expected-error @below {{stage 'fused': arith.addf computes tensors outside of linalg.generic}}
    %b = arith.addf %a, %a : tensor<4xf32>
    "kiln.yield"(%b) : (tensor<4xf32>) -> ()
  }) {kind = "pointwise", name = "twice"} : (tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}

// -----

func.func @math_in_fusion(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = "kiln.fusion"(%x) ({
  ^bb0(%a: tensor<4xf32>):
    // expected-error @below {{stage 'fused': math.exp is not allowed in the body of kiln.fusion; allowed: linalg.generic}}
    %b = math.exp %a : tensor<4xf32>
    "kiln.yield"(%b) : (tensor<4xf32>) -> ()
  }) {kind = "pointwise", name = "exp"} : (tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}
