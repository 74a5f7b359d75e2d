// Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// RUN: kiln-opt %s --mlir-print-local-scope --pass-pipeline="fuse{row-blocks=false},assign-layouts,schedule-gpu{descriptors=true},emit-gpu-kernels" | filecheck %s
// RUN: kiln-opt %s --mlir-print-local-scope --pass-pipeline="fuse{row-blocks=false},assign-layouts,schedule-gpu,emit-gpu-kernels" | filecheck %s --check-prefix=POINTERS

// One tap, channels next to each other: all positions of all images are the rows of one matrix, moved by descriptors.

// CHECK: "tt.func"
// CHECK: scf.for
// CHECK: "tt.descriptor_load"
// CHECK: "tt.descriptor_load"
// CHECK: "tt.dot"
// CHECK: "tt.store"
// CHECK: kiln.descriptors = [{arg = 0 : i64, shape = affine_map<() -> (25088, 256)>, strides = affine_map<() -> (256, 1)>}, {arg = 1 : i64, shape = affine_map<() -> (128, 256)>, strides = affine_map<() -> (256, 1)>}]

// POINTERS: "tt.func"
// POINTERS-NOT: descriptor_load
// POINTERS: "tt.dot"
func.func @tap(%x: tensor<32x256x28x28xbf16> {kiln.strides = affine_map<() -> (200704, 1, 7168, 256)>},
    %w: tensor<128x256x1x1xbf16>) -> (tensor<32x128x28x28xbf16> {kiln.strides = affine_map<() -> (100352, 1, 3584, 128)>}) {
  %0 = "kiln.conv"(%x, %w) {stride = array<i64: 1, 1>, padding = array<i64: 0, 0>, dilation = array<i64: 1, 1>, groups = 1,
    transposed = false, output_padding = array<i64: 0, 0>}
    : (tensor<32x256x28x28xbf16>, tensor<128x256x1x1xbf16>) -> tensor<32x128x28x28xbf16>
  return %0 : tensor<32x128x28x28xbf16>
}
