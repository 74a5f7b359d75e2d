// RUN: kiln-opt --split-input-file --verify-diagnostics --check-stage=sched %s

func.func @unscheduled(%x: tensor<4x4xf32>) -> tensor<4x4xf32> {
  // expected-error @below {{stage 'sched': kiln.fusion holds kiln.matmul and lacks attribute 'schedule'}}
  %0 = "kiln.fusion"(%x) ({
  ^bb0(%a: tensor<4x4xf32>):
    %b = "kiln.matmul"(%a, %a) {transpose_lhs = false, transpose_rhs = false} : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
    "kiln.yield"(%b) : (tensor<4x4xf32>) -> ()
  }) {kind = "matmul", name = "square"} : (tensor<4x4xf32>) -> tensor<4x4xf32>
  return %0 : tensor<4x4xf32>
}

// -----

func.func @no_choice(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = "kiln.fusion"(%x) ({
  ^bb0(%a: tensor<4xf32>):
    "kiln.yield"(%a) : (tensor<4xf32>) -> ()
  }) {kind = "pointwise", name = "copy"} : (tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}
