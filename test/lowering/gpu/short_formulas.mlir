// Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// RUN: kiln-opt %s --split-input-file --mlir-print-local-scope --pass-pipeline="assign-layouts,schedule-gpu,emit-gpu-kernels" | filecheck %s

// 1 + erf(x) in bf16: an error relative to 1 is lost when the sum is rounded, so erf takes the short formula.
// CHECK-NOT: math.erf
// CHECK: asm_string = "ex2.approx.ftz.f32
// CHECK-NOT: math.erf
// CHECK: sym_name = "erf_of_16_bits"
func.func @erf_of_16_bits(%x: tensor<4096xbf16>) -> tensor<4096xbf16> {
  %0 = "kiln.fusion"(%x) ({
  ^bb0(%x_: tensor<4096xbf16>):
    %e = "kiln.empty"() {shape = affine_map<() -> (4096)>} : () -> tensor<4096xbf16>
    %1 = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>],
        iterator_types = ["parallel"]} ins(%x_ : tensor<4096xbf16>) outs(%e : tensor<4096xbf16>) {
    ^bb0(%in: bf16, %out: bf16):
      %one = arith.constant 1.0 : f32
      %a = arith.extf %in : bf16 to f32
      %b = math.erf %a : f32
      %c = arith.addf %b, %one : f32
      %d = arith.truncf %c : f32 to bf16
      linalg.yield %d : bf16
    } -> tensor<4096xbf16>
    "kiln.yield"(%1) : (tensor<4096xbf16>) -> ()
  }) {kind = "pointwise", name = "erf_of_16_bits"} : (tensor<4096xbf16>) -> tensor<4096xbf16>
  return %0 : tensor<4096xbf16>
}

// -----

// In f32 the error would be seen.
// CHECK: math.erf
// CHECK: sym_name = "erf_of_f32"
func.func @erf_of_f32(%x: tensor<4096xf32>) -> tensor<4096xf32> {
  %0 = "kiln.fusion"(%x) ({
  ^bb0(%x_: tensor<4096xf32>):
    %e = "kiln.empty"() {shape = affine_map<() -> (4096)>} : () -> tensor<4096xf32>
    %1 = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>],
        iterator_types = ["parallel"]} ins(%x_ : tensor<4096xf32>) outs(%e : tensor<4096xf32>) {
    ^bb0(%in: f32, %out: f32):
      %one = arith.constant 1.0 : f32
      %a = arith.mulf %in, %one : f32
      %b = math.erf %a : f32
      %c = arith.addf %b, %one : f32
      %d = arith.mulf %c, %one : f32
      linalg.yield %d : f32
    } -> tensor<4096xf32>
    "kiln.yield"(%1) : (tensor<4096xf32>) -> ()
  }) {kind = "pointwise", name = "erf_of_f32"} : (tensor<4096xf32>) -> tensor<4096xf32>
  return %0 : tensor<4096xf32>
}

// -----

// The sum may be small: the error is not relative to 1.
// CHECK: math.erf
// CHECK: sym_name = "erf_beside_a_half"
func.func @erf_beside_a_half(%x: tensor<4096xbf16>) -> tensor<4096xbf16> {
  %0 = "kiln.fusion"(%x) ({
  ^bb0(%x_: tensor<4096xbf16>):
    %e = "kiln.empty"() {shape = affine_map<() -> (4096)>} : () -> tensor<4096xbf16>
    %1 = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>],
        iterator_types = ["parallel"]} ins(%x_ : tensor<4096xbf16>) outs(%e : tensor<4096xbf16>) {
    ^bb0(%in: bf16, %out: bf16):
      %one = arith.constant 0.5 : f32
      %a = arith.extf %in : bf16 to f32
      %b = math.erf %a : f32
      %c = arith.addf %b, %one : f32
      %d = arith.truncf %c : f32 to bf16
      linalg.yield %d : bf16
    } -> tensor<4096xbf16>
    "kiln.yield"(%1) : (tensor<4096xbf16>) -> ()
  }) {kind = "pointwise", name = "erf_beside_a_half"} : (tensor<4096xbf16>) -> tensor<4096xbf16>
  return %0 : tensor<4096xbf16>
}

// -----

// 1 + tanh(x) in bf16: an error relative to 1 is lost when the sum is rounded, so tanh takes the short formula.
// CHECK-NOT: symbol = "__nv_tanhf"
// CHECK: asm_string = "ex2.approx.ftz.f32
// CHECK-NOT: symbol = "__nv_tanhf"
// CHECK: sym_name = "tanh_of_16_bits"
func.func @tanh_of_16_bits(%x: tensor<4096xbf16>) -> tensor<4096xbf16> {
  %0 = "kiln.fusion"(%x) ({
  ^bb0(%x_: tensor<4096xbf16>):
    %e = "kiln.empty"() {shape = affine_map<() -> (4096)>} : () -> tensor<4096xbf16>
    %1 = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>],
        iterator_types = ["parallel"]} ins(%x_ : tensor<4096xbf16>) outs(%e : tensor<4096xbf16>) {
    ^bb0(%in: bf16, %out: bf16):
      %one = arith.constant 1.0 : f32
      %a = arith.extf %in : bf16 to f32
      %b = math.tanh %a : f32
      %c = arith.addf %b, %one : f32
      %d = arith.truncf %c : f32 to bf16
      linalg.yield %d : bf16
    } -> tensor<4096xbf16>
    "kiln.yield"(%1) : (tensor<4096xbf16>) -> ()
  }) {kind = "pointwise", name = "tanh_of_16_bits"} : (tensor<4096xbf16>) -> tensor<4096xbf16>
  return %0 : tensor<4096xbf16>
}

// -----

// In f32 the error would be seen.
// CHECK: symbol = "__nv_tanhf"
// CHECK: sym_name = "tanh_of_f32"
func.func @tanh_of_f32(%x: tensor<4096xf32>) -> tensor<4096xf32> {
  %0 = "kiln.fusion"(%x) ({
  ^bb0(%x_: tensor<4096xf32>):
    %e = "kiln.empty"() {shape = affine_map<() -> (4096)>} : () -> tensor<4096xf32>
    %1 = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>],
        iterator_types = ["parallel"]} ins(%x_ : tensor<4096xf32>) outs(%e : tensor<4096xf32>) {
    ^bb0(%in: f32, %out: f32):
      %one = arith.constant 1.0 : f32
      %a = arith.mulf %in, %one : f32
      %b = math.tanh %a : f32
      %c = arith.addf %b, %one : f32
      %d = arith.mulf %c, %one : f32
      linalg.yield %d : f32
    } -> tensor<4096xf32>
    "kiln.yield"(%1) : (tensor<4096xf32>) -> ()
  }) {kind = "pointwise", name = "tanh_of_f32"} : (tensor<4096xf32>) -> tensor<4096xf32>
  return %0 : tensor<4096xf32>
}

// -----

// The sum may be small: the error is not relative to 1.
// CHECK: symbol = "__nv_tanhf"
// CHECK: sym_name = "tanh_beside_a_half"
func.func @tanh_beside_a_half(%x: tensor<4096xbf16>) -> tensor<4096xbf16> {
  %0 = "kiln.fusion"(%x) ({
  ^bb0(%x_: tensor<4096xbf16>):
    %e = "kiln.empty"() {shape = affine_map<() -> (4096)>} : () -> tensor<4096xbf16>
    %1 = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>],
        iterator_types = ["parallel"]} ins(%x_ : tensor<4096xbf16>) outs(%e : tensor<4096xbf16>) {
    ^bb0(%in: bf16, %out: bf16):
      %one = arith.constant 0.5 : f32
      %a = arith.extf %in : bf16 to f32
      %b = math.tanh %a : f32
      %c = arith.addf %b, %one : f32
      %d = arith.truncf %c : f32 to bf16
      linalg.yield %d : bf16
    } -> tensor<4096xbf16>
    "kiln.yield"(%1) : (tensor<4096xbf16>) -> ()
  }) {kind = "pointwise", name = "tanh_beside_a_half"} : (tensor<4096xbf16>) -> tensor<4096xbf16>
  return %0 : tensor<4096xbf16>
}
