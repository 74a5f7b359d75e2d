// Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// RUN: kiln-opt %s --cpu=x86-64-v4+library=32 --split-input-file --pass-pipeline="expand-named-ops{keep=conv},fuse,assign-layouts,schedule-cpu,emit-cpu-kernels" | filecheck %s --check-prefix=VECTORS
// RUN: kiln-opt %s --cpu=x86-64-v4+avx512bf16+avx512vnni+library=32 --split-input-file --pass-pipeline="expand-named-ops{keep=conv},fuse,assign-layouts,schedule-cpu,emit-cpu-kernels" | filecheck %s --check-prefix=DOT
// RUN: kiln-opt %s --cpu=x86-64-v4+amx-bf16+amx-int8+amx-tile+avx512bf16+avx512vnni+l2=2097152+library=32+float-parts --split-input-file --pass-pipeline="expand-named-ops{keep=conv},fuse,assign-layouts,schedule-cpu,emit-cpu-kernels" | filecheck %s --check-prefix=AMX

// The loop over channels of a convolution, 3 x 3, channels last, in each type, by each unit: vectors (AVX-512), dot
// products of pairs (AVX512-BF16), tiles (AMX).

// f32: vectors, whatever else there is; products alone are made of parts of bf16.
// VECTORS-LABEL: func.func @conv(
// VECTORS-NOT: llvm.x86
// VECTORS: scf.for {{.*}} to %c64 step %c1 iter_args
// VECTORS-COUNT-46: vector.fma {{.*}} : vector<16xf32>
// VECTORS-NOT: vector.fma
// VECTORS: scf.yield
// DOT-LABEL: func.func @conv(
// DOT-NOT: llvm.x86
// DOT: scf.for {{.*}} to %c64 step %c1 iter_args
// DOT-COUNT-46: vector.fma {{.*}} : vector<16xf32>
// DOT-NOT: vector.fma
// DOT: scf.yield
// AMX-LABEL: func.func @conv(
// AMX-NOT: llvm.x86
// AMX: scf.for {{.*}} to %c64 step %c1 iter_args
// AMX-COUNT-46: vector.fma {{.*}} : vector<16xf32>
// AMX-NOT: vector.fma
// AMX: scf.yield
func.func @main(%x: tensor<1x64x16x16xf32> {kiln.strides = affine_map<() -> (16384, 1, 1024, 64)>}, %w: tensor<32x64x3x3xf32>)
    -> (tensor<1x32x16x16xf32> {kiln.strides = affine_map<() -> (8192, 1, 512, 32)>}) {
  %0 = "kiln.conv"(%x, %w) {stride = array<i64: 1, 1>, padding = array<i64: 1, 1>, dilation = array<i64: 1, 1>, groups = 1,
    transposed = false, output_padding = array<i64: 0, 0>} : (tensor<1x64x16x16xf32>, tensor<32x64x3x3xf32>) -> tensor<1x32x16x16xf32>
  return %0 : tensor<1x32x16x16xf32>
}

// -----

// bf16: vectors widen to f32, pairs are neighbouring channels, a tile takes 32 of them for each of nine elements of the window.
// VECTORS-LABEL: func.func @conv(
// VECTORS-NOT: llvm.x86
// VECTORS: scf.for {{.*}} to %c64 step %c1 iter_args
// VECTORS: arith.extf {{.*}} : bf16 to f32
// VECTORS-COUNT-46: vector.fma {{.*}} : vector<16xf32>
// VECTORS-NOT: vector.fma
// VECTORS: scf.yield
// DOT-LABEL: func.func @conv(
// DOT: scf.for {{.*}} to %c32 step %c1 iter_args
// DOT-COUNT-46: "llvm.x86.avx512bf16.dpbf16ps.512"
// DOT-NOT: "llvm.x86.avx512bf16.dpbf16ps.512"
// DOT: scf.yield
// AMX-LABEL: func.func @conv(
// AMX: "llvm.x86.ldtilecfg"
// AMX-COUNT-4: "llvm.x86.tilezero"
// AMX: scf.for {{.*}} = %c0 to %c64 step %c32 {
// AMX-COUNT-2: "llvm.x86.tileloadd64"
// AMX-COUNT-36: "llvm.x86.tdpbf16ps"
// AMX-NOT: "llvm.x86.tdp
// AMX-COUNT-4: "llvm.x86.tilestored64"
func.func @main(%x: tensor<1x64x16x16xbf16> {kiln.strides = affine_map<() -> (16384, 1, 1024, 64)>}, %w: tensor<32x64x3x3xbf16>)
    -> (tensor<1x32x16x16xbf16> {kiln.strides = affine_map<() -> (8192, 1, 512, 32)>}) {
  %0 = "kiln.conv"(%x, %w) {stride = array<i64: 1, 1>, padding = array<i64: 1, 1>, dilation = array<i64: 1, 1>, groups = 1,
    transposed = false, output_padding = array<i64: 0, 0>} : (tensor<1x64x16x16xbf16>, tensor<32x64x3x3xbf16>) -> tensor<1x32x16x16xbf16>
  return %0 : tensor<1x32x16x16xbf16>
}

// -----

// i8: no kernel of its own, whichever unit there is. The op is taken apart; its loops multiply and add in 8 bits, as ATen
// does.
// VECTORS-LABEL: func.func @generic(
// VECTORS-NOT: llvm.x86
// VECTORS: arith.muli {{.*}}i8
// VECTORS: arith.addi {{.*}}i8
// VECTORS-NOT: llvm.x86
// VECTORS: return
// DOT-LABEL: func.func @generic(
// DOT-NOT: llvm.x86
// DOT: arith.muli {{.*}}i8
// DOT: arith.addi {{.*}}i8
// DOT-NOT: llvm.x86
// DOT: return
// AMX-LABEL: func.func @generic(
// AMX-NOT: llvm.x86
// AMX: arith.muli {{.*}}i8
// AMX: arith.addi {{.*}}i8
// AMX-NOT: llvm.x86
// AMX: return
func.func @main(%x: tensor<1x64x16x16xi8> {kiln.strides = affine_map<() -> (16384, 1, 1024, 64)>}, %w: tensor<32x64x3x3xi8>)
    -> (tensor<1x32x16x16xi8> {kiln.strides = affine_map<() -> (8192, 1, 512, 32)>}) {
  %0 = "kiln.conv"(%x, %w) {stride = array<i64: 1, 1>, padding = array<i64: 1, 1>, dilation = array<i64: 1, 1>, groups = 1,
    transposed = false, output_padding = array<i64: 0, 0>} : (tensor<1x64x16x16xi8>, tensor<32x64x3x3xi8>) -> tensor<1x32x16x16xi8>
  return %0 : tensor<1x32x16x16xi8>
}
