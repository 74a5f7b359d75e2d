// Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// RUN: kiln-opt %s --mlir-print-local-scope --pass-pipeline="emit-kernels" | filecheck %s --check-prefixes=CHECK,CPU
// RUN: kiln-opt %s --mlir-print-local-scope --pass-pipeline="emit-kernels{target=gpu}" | filecheck %s --check-prefixes=CHECK,GPU,CUDA
// RUN: kiln-opt %s --mlir-print-local-scope --pass-pipeline="emit-kernels{target=gpu backend=hip}" | filecheck %s --check-prefixes=CHECK,GPU,HIP

// What a kernel computes stays in the first region, its code is put into the second. A kernel that cannot be emitted,
// here for a CPU by the schedule of a GPU, has the reason in place of code.

// CHECK: "kiln.kernel"() ({
// CHECK: "kiln.fusion"
// CHECK: math.tanh
// CHECK: }, {

// CPU-NEXT: }) {sym_name = "tanh", unsupported = "no kernel for a schedule gpu.loops", unsupported_op = "kiln.fusion"}

// GPU-NEXT: builtin.module {
// GPU-NEXT: "tt.func"() ({
// GPU: "tt.load"
// CUDA: symbol = "__nv_tanhf"
// HIP: symbol = "__ocml_tanh_f32"
// GPU: "tt.store"
// GPU: kiln.grid = affine_map<() -> (4, 1, 1)>
// GPU-SAME: num_warps = 1 : i32, sym_name = "tanh"
// GPU: }) {sym_name = "tanh"}

// CHECK: "kiln.kernel"() ({
// CHECK: "kiln.fusion"
// CHECK: arith.negf
// CHECK: }, {
// CHECK-NEXT: builtin.module {
// CPU-NEXT: func.func @neg(%arg0: memref<?xf32>, %arg1: memref<?xf32>, %arg2: memref<?xi8>, %arg3: index, %arg4: index) attributes {kiln.scratch_bytes = affine_map<() -> (0)>
// CPU: scf.for
// CPU: arith.negf %{{.*}} : vector<
// GPU-NEXT: "tt.func"() ({
// GPU: arith.negf %{{.*}} : tensor<
// CHECK: }) {sym_name = "neg"}
module attributes {kiln.outlined} {
  "kiln.kernel"() ({
  ^bb0(%x: tensor<512xf32>):
    %0 = "kiln.fusion"(%x) ({
    ^bb0(%a: tensor<512xf32>):
      %e = "kiln.empty"() {shape = affine_map<() -> (512)>} : () -> tensor<512xf32>
      %r = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>], iterator_types = ["parallel"]} ins(%a : tensor<512xf32>) outs(%e : tensor<512xf32>) {
      ^bb0(%p: f32, %o: f32):
        %s = math.tanh %p : f32
        linalg.yield %s : f32
      } -> tensor<512xf32>
      "kiln.yield"(%r) : (tensor<512xf32>) -> ()
    }) {kind = "pointwise", name = "tanh", schedule = {kernel = "gpu.loops", nests = [{num_warps = 1 : i64, tile = [128]}]}} : (tensor<512xf32>) -> tensor<512xf32>
    "kiln.yield"(%0) : (tensor<512xf32>) -> ()
  }, {
  }) {sym_name = "tanh"} : () -> ()
  "kiln.kernel"() ({
  ^bb0(%x: tensor<512xf32>):
    %0 = "kiln.fusion"(%x) ({
    ^bb0(%a: tensor<512xf32>):
      %e = "kiln.empty"() {shape = affine_map<() -> (512)>} : () -> tensor<512xf32>
      %r = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>], iterator_types = ["parallel"]} ins(%a : tensor<512xf32>) outs(%e : tensor<512xf32>) {
      ^bb0(%p: f32, %o: f32):
        %s = arith.negf %p : f32
        linalg.yield %s : f32
      } -> tensor<512xf32>
      "kiln.yield"(%r) : (tensor<512xf32>) -> ()
    }) {kind = "pointwise", name = "neg"} : (tensor<512xf32>) -> tensor<512xf32>
    "kiln.yield"(%0) : (tensor<512xf32>) -> ()
  }, {
  }) {sym_name = "neg"} : () -> ()
}
