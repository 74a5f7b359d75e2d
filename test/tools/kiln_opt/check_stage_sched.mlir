// RUN: kiln-opt --split-input-file --verify-diagnostics --check-stage=sched %s

func.func @unscheduled(%x: tensor<4xf32>) -> tensor<4xf32> {
  // expected-error @below {{stage 'sched': kiln.fusion lacks attribute 'schedule'}}
  %0 = "kiln.fusion"(%x) ({
  ^bb0(%a: tensor<4xf32>):
    "kiln.yield"(%a) : (tensor<4xf32>) -> ()
  }) {kind = "pointwise", name = "copy"} : (tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}

// -----

func.func @scheduled(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = "kiln.fusion"(%x) ({
  ^bb0(%a: tensor<4xf32>):
    "kiln.yield"(%a) : (tensor<4xf32>) -> ()
  }) {kind = "pointwise", name = "copy", schedule = {}} : (tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}
