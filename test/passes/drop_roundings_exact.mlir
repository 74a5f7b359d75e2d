// Ops with several forms are marked where something decides; all but reductions' where eager's roundings are wanted.

// RUN: kiln-opt --pass-pipeline=drop-roundings --split-input-file %s | filecheck %s
// RUN: kiln-opt --pass-pipeline="drop-roundings{sums-only=true}" --split-input-file %s | filecheck %s --check-prefix=ALL

// The first kernel stores what the second one takes the maximum of; the third one, which computes it again, has the same
// number. What is computed from it there without deciding anything may have any form.

// CHECK-LABEL: func.func @stored_and_computed_again
// CHECK: math.erf %{{.*}} {kiln.exact} : f32
// CHECK: arith.addf %{{.*}}, %{{.*}} {kiln.exact} : f32
// CHECK: arith.maximumf
// CHECK: math.erf %{{.*}} {kiln.exact} : f32
// CHECK: arith.addf %{{.*}}, %{{.*}} {kiln.exact} : f32
// CHECK: arith.addf %{{[a-z0-9_]+}}, %{{[a-z0-9_]+}} : f32
#id = affine_map<(d0, d1) -> (d0, d1)>
#row = affine_map<(d0, d1) -> (d0)>
#one = affine_map<(d0) -> (d0)>
func.func @stored_and_computed_again(%x: tensor<4x8xbf16>) -> (tensor<4x8xbf16>, tensor<4xbf16>, tensor<4x8xbf16>) {
  %stored = "kiln.fusion"(%x) ({
  ^bb0(%a: tensor<4x8xbf16>):
    %e = "kiln.empty"() {shape = affine_map<() -> (4, 8)>} : () -> tensor<4x8xbf16>
    %one = arith.constant 1.0 : f32
    %1 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%a : tensor<4x8xbf16>) outs(%e : tensor<4x8xbf16>) {
    ^bb0(%in: bf16, %out: bf16):
      %3 = arith.extf %in : bf16 to f32
      %4 = math.erf %3 : f32
      %5 = arith.addf %4, %one : f32
      %6 = arith.truncf %5 fastmath<contract> : f32 to bf16
      linalg.yield %6 : bf16
    } -> tensor<4x8xbf16>
    "kiln.yield"(%1) : (tensor<4x8xbf16>) -> ()
  }) {kind = "pointwise", name = "stored"} : (tensor<4x8xbf16>) -> tensor<4x8xbf16>
  %largest = "kiln.fusion"(%stored) ({
  ^bb0(%a: tensor<4x8xbf16>):
    %e = "kiln.empty"() {shape = affine_map<() -> (4)>} : () -> tensor<4xbf16>
    %low = arith.constant 0xFF80 : bf16
    %f = linalg.generic {indexing_maps = [#one], iterator_types = ["parallel"]} outs(%e : tensor<4xbf16>) {
    ^bb0(%out: bf16):
      linalg.yield %low : bf16
    } -> tensor<4xbf16>
    %1 = linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "reduction"]} ins(%a : tensor<4x8xbf16>) outs(%f : tensor<4xbf16>) {
    ^bb0(%in: bf16, %out: bf16):
      %3 = arith.maximumf %in, %out : bf16
      linalg.yield %3 : bf16
    } -> tensor<4xbf16>
    "kiln.yield"(%1) : (tensor<4xbf16>) -> ()
  }) {kind = "reduction", name = "largest"} : (tensor<4x8xbf16>) -> tensor<4xbf16>
  %again = "kiln.fusion"(%x) ({
  ^bb0(%a: tensor<4x8xbf16>):
    %e = "kiln.empty"() {shape = affine_map<() -> (4, 8)>} : () -> tensor<4x8xbf16>
    %one = arith.constant 1.0 : f32
    %1 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%a : tensor<4x8xbf16>) outs(%e : tensor<4x8xbf16>) {
    ^bb0(%in: bf16, %out: bf16):
      %3 = arith.extf %in : bf16 to f32
      %4 = math.erf %3 : f32
      %5 = arith.addf %4, %one : f32
      %6 = arith.truncf %5 fastmath<contract> : f32 to bf16
      linalg.yield %6 : bf16
    } -> tensor<4x8xbf16>
    %2 = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]} ins(%1, %a : tensor<4x8xbf16>, tensor<4x8xbf16>) outs(%e : tensor<4x8xbf16>) {
    ^bb0(%in: bf16, %in_0: bf16, %out: bf16):
      %3 = arith.extf %in : bf16 to f32
      %4 = arith.extf %in_0 : bf16 to f32
      %5 = arith.addf %3, %4 : f32
      %6 = arith.truncf %5 fastmath<contract> : f32 to bf16
      linalg.yield %6 : bf16
    } -> tensor<4x8xbf16>
    "kiln.yield"(%2) : (tensor<4x8xbf16>) -> ()
  }) {kind = "pointwise", name = "again"} : (tensor<4x8xbf16>) -> tensor<4x8xbf16>
  return %stored, %largest, %again : tensor<4x8xbf16>, tensor<4xbf16>, tensor<4x8xbf16>
}

// -----

// How a reduction adds is its kernel's.

// CHECK-LABEL: func.func @sums
// CHECK: arith.addf %{{[a-z0-9_]+}}, %{{[a-z0-9_]+}} : f32
// CHECK: arith.addf %{{.*}}, %{{.*}} {kiln.exact} : f32
// CHECK: arith.fptosi
// ALL-LABEL: func.func @sums
// ALL: arith.addf %{{[a-z0-9_]+}}, %{{[a-z0-9_]+}} : f32
// ALL: arith.addf %{{.*}}, %{{.*}} {kiln.exact} : f32
#id = affine_map<(d0, d1) -> (d0, d1)>
#row = affine_map<(d0, d1) -> (d0)>
#one = affine_map<(d0) -> (d0)>
func.func @sums(%x: tensor<4x8xf32>) -> tensor<4xi64> {
  %0 = "kiln.fusion"(%x) ({
  ^bb0(%a: tensor<4x8xf32>):
    %e = "kiln.empty"() {shape = affine_map<() -> (4)>} : () -> tensor<4xf32>
    %g = "kiln.empty"() {shape = affine_map<() -> (4)>} : () -> tensor<4xi64>
    %zero = arith.constant 0.0 : f32
    %half = arith.constant 0.5 : f32
    %f = linalg.generic {indexing_maps = [#one], iterator_types = ["parallel"]} outs(%e : tensor<4xf32>) {
    ^bb0(%out: f32):
      linalg.yield %zero : f32
    } -> tensor<4xf32>
    %1 = linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "reduction"]} ins(%a : tensor<4x8xf32>) outs(%f : tensor<4xf32>) {
    ^bb0(%in: f32, %out: f32):
      %3 = arith.addf %in, %out : f32
      linalg.yield %3 : f32
    } -> tensor<4xf32>
    %2 = linalg.generic {indexing_maps = [#one, #one], iterator_types = ["parallel"]} ins(%1 : tensor<4xf32>) outs(%g : tensor<4xi64>) {
    ^bb0(%in: f32, %out: i64):
      %3 = arith.addf %in, %half : f32
      %4 = arith.fptosi %3 : f32 to i64
      linalg.yield %4 : i64
    } -> tensor<4xi64>
    "kiln.yield"(%2) : (tensor<4xi64>) -> ()
  }) {kind = "reduction", name = "sums"} : (tensor<4x8xf32>) -> tensor<4xi64>
  return %0 : tensor<4xi64>
}

// -----

// Equal numbers have the distance 0 from their mean, whoever computes them: the first kernel's sum is one of them.

// CHECK-LABEL: func.func @distances
// CHECK: math.tanh %{{.*}} {kiln.exact} : f32
// CHECK: arith.addf %{{.*}}, %{{.*}} {kiln.exact} : f32
// CHECK: arith.addf %{{[a-z0-9_]+}}, %{{[a-z0-9_]+}} : f32
// CHECK: arith.subf %{{.*}}, %{{.*}} {kiln.exact} : f32
// CHECK: arith.addf %{{[a-z0-9_]+}}, %{{[a-z0-9_]+}} : f32
// ALL-LABEL: func.func @distances
// ALL-NOT: arith.addf %{{[a-z0-9_]+}}, %{{[a-z0-9_]+}} : f32
// ALL: return
#id = affine_map<(d0, d1) -> (d0, d1)>
#row = affine_map<(d0, d1) -> (d0)>
func.func @distances(%x: tensor<4x8xf16>, %mean: tensor<4xf32>) -> (tensor<4x8xf16>, tensor<4x8xf16>) {
  %stored:2 = "kiln.fusion"(%x) ({
  ^bb0(%a: tensor<4x8xf16>):
    %e = "kiln.empty"() {shape = affine_map<() -> (4, 8)>} : () -> tensor<4x8xf16>
    %one = arith.constant 1.0 : f32
    %1:2 = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]} ins(%a : tensor<4x8xf16>) outs(%e, %e : tensor<4x8xf16>, tensor<4x8xf16>) {
    ^bb0(%in: f16, %out: f16, %out_0: f16):
      %3 = arith.extf %in : f16 to f32
      %4 = math.tanh %3 : f32
      %5 = arith.addf %4, %one : f32
      %6 = arith.truncf %5 : f32 to f16
      %7 = arith.addf %3, %one : f32
      %8 = arith.truncf %7 : f32 to f16
      linalg.yield %6, %8 : f16, f16
    } -> (tensor<4x8xf16>, tensor<4x8xf16>)
    "kiln.yield"(%1#0, %1#1) : (tensor<4x8xf16>, tensor<4x8xf16>) -> ()
  }) {kind = "pointwise", name = "stored"} : (tensor<4x8xf16>) -> (tensor<4x8xf16>, tensor<4x8xf16>)
  %normed = "kiln.fusion"(%stored#0, %mean) ({
  ^bb0(%a: tensor<4x8xf16>, %m: tensor<4xf32>):
    %e = "kiln.empty"() {shape = affine_map<() -> (4, 8)>} : () -> tensor<4x8xf16>
    %one = arith.constant 1.0 : f32
    %1 = linalg.generic {indexing_maps = [#id, #row, #id], iterator_types = ["parallel", "parallel"]} ins(%a, %m : tensor<4x8xf16>, tensor<4xf32>) outs(%e : tensor<4x8xf16>) {
    ^bb0(%in: f16, %in_0: f32, %out: f16):
      %3 = arith.extf %in : f16 to f32
      %4 = arith.subf %3, %in_0 {kiln.exact} : f32
      %5 = arith.addf %4, %one : f32
      %6 = arith.truncf %5 : f32 to f16
      linalg.yield %6 : f16
    } -> tensor<4x8xf16>
    "kiln.yield"(%1) : (tensor<4x8xf16>) -> ()
  }) {kind = "pointwise", name = "normed"} : (tensor<4x8xf16>, tensor<4xf32>) -> tensor<4x8xf16>
  return %normed, %stored#1 : tensor<4x8xf16>, tensor<4x8xf16>
}
