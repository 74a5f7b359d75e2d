// Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// RUN: kiln-opt %s --cpu=x86-64-v4+library=32 --split-input-file --pass-pipeline="fuse,assign-layouts,schedule-cpu,emit-cpu-kernels" | filecheck %s --check-prefix=VECTORS
// RUN: kiln-opt %s --cpu=x86-64-v4+avx512bf16+avx512vnni+library=32 --split-input-file --pass-pipeline="fuse,assign-layouts,schedule-cpu,emit-cpu-kernels" | filecheck %s --check-prefix=DOT
// RUN: kiln-opt %s --cpu=x86-64-v4+amx-bf16+amx-int8+amx-tile+avx512bf16+avx512vnni+l2=2097152+library=32 --split-input-file --pass-pipeline="fuse,assign-layouts,schedule-cpu,emit-cpu-kernels" | filecheck %s --check-prefix=AMX

// The loop of sums of a product, 64 x 64 x 256, in each type, by each unit: vectors (AVX-512), dot products of pairs and
// fours (AVX512-BF16, VNNI), tiles (AMX).

// f32: no unit but vectors, on a CPU that has tiles, too.
// VECTORS-LABEL: func.func @matmul(
// VECTORS-NOT: llvm.x86
// VECTORS: scf.for {{.*}} to %c256 step %c1 iter_args
// VECTORS-COUNT-24: vector.fma {{.*}} : vector<16xf32>
// VECTORS-NOT: vector.fma
// VECTORS: scf.yield
// DOT-LABEL: func.func @matmul(
// DOT-NOT: llvm.x86
// DOT: scf.for {{.*}} to %c256 step %c1 iter_args
// DOT-COUNT-24: vector.fma {{.*}} : vector<16xf32>
// DOT-NOT: vector.fma
// DOT: scf.yield
// AMX-LABEL: func.func @matmul(
// AMX-NOT: llvm.x86
// AMX: scf.for {{.*}} to %c256 step %c1 iter_args
// AMX-COUNT-24: vector.fma {{.*}} : vector<16xf32>
// AMX-NOT: vector.fma
// AMX: scf.yield
func.func @main(%x: tensor<64x256xf32>, %w: tensor<64x256xf32>) -> tensor<64x64xf32> {
  %0 = "kiln.matmul"(%x, %w) {transpose_lhs = false, transpose_rhs = true} : (tensor<64x256xf32>, tensor<64x256xf32>) -> tensor<64x64xf32>
  return %0 : tensor<64x64xf32>
}

// -----

// bf16: vectors widen to f32. Pairs along k are one instruction of 32 products a vector, 16 x 16 x 32 a tile.
// VECTORS-LABEL: func.func @matmul(
// VECTORS-NOT: llvm.x86
// VECTORS: scf.for {{.*}} to %c256 step %c1 iter_args
// VECTORS-COUNT-24: vector.fma {{.*}} : vector<16xf32>
// VECTORS-NOT: vector.fma
// VECTORS: scf.yield
// DOT-LABEL: func.func @matmul(
// DOT: scf.for {{.*}} to %c256 step %c2 iter_args
// DOT-COUNT-16: "llvm.x86.avx512bf16.dpbf16ps.512"
// DOT-NOT: "llvm.x86.avx512bf16.dpbf16ps.512"
// DOT: scf.yield
// AMX-LABEL: func.func @matmul(
// AMX: "llvm.x86.ldtilecfg"
// AMX-COUNT-4: "llvm.x86.tilezero"
// AMX: scf.for {{.*}} = %c0 to %c256 step %c32 {
// AMX-COUNT-2: "llvm.x86.tileloadd64"
// AMX-COUNT-4: "llvm.x86.tdpbf16ps"
// AMX-NOT: "llvm.x86.tdp
// AMX-COUNT-4: "llvm.x86.tilestored64"
// AMX: "llvm.x86.tilerelease"
func.func @main(%x: tensor<64x256xbf16>, %w: tensor<64x256xbf16>) -> tensor<64x64xbf16> {
  %0 = "kiln.matmul"(%x, %w) {transpose_lhs = false, transpose_rhs = true} : (tensor<64x256xbf16>, tensor<64x256xbf16>) -> tensor<64x64xbf16>
  return %0 : tensor<64x64xbf16>
}

// -----

// i8, summed as i32: vectors widen pairs to 16 bits, VNNI multiplies fours, a tile 16 x 16 x 64.
// VECTORS-LABEL: func.func @matmul(
// VECTORS: scf.for {{.*}} to %c256 step %c2 iter_args
// VECTORS-COUNT-24: "llvm.x86.avx512.pmaddw.d.512"
// VECTORS-NOT: "llvm.x86.avx512.pmaddw.d.512"
// VECTORS: scf.yield
// DOT-LABEL: func.func @matmul(
// DOT: scf.for {{.*}} step %c64 iter_args
// DOT: scf.for {{.*}} step %c4 iter_args
// DOT-COUNT-24: "llvm.x86.avx512.vpdpbusd.512"
// DOT-NOT: "llvm.x86.avx512.vpdpbusd.512"
// DOT: scf.yield
// AMX-LABEL: func.func @matmul(
// AMX: "llvm.x86.ldtilecfg"
// AMX-COUNT-4: "llvm.x86.tilezero"
// AMX: scf.for {{.*}} = %c0 to %c256 step %c64 {
// AMX-COUNT-2: "llvm.x86.tileloadd64"
// AMX-COUNT-4: "llvm.x86.tdpbssd"
// AMX-NOT: "llvm.x86.tdp
// AMX-COUNT-4: "llvm.x86.tilestored64"
// AMX: "llvm.x86.tilerelease"
func.func @main(%x: tensor<64x256xi8>, %w: tensor<64x256xi8>) -> tensor<64x64xi32> {
  %0 = "kiln.matmul"(%x, %w) {transpose_lhs = false, transpose_rhs = true} : (tensor<64x256xi8>, tensor<64x256xi8>) -> tensor<64x64xi32>
  return %0 : tensor<64x64xi32>
}
