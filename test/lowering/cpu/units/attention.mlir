// Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// RUN: kiln-opt %s --cpu=x86-64-v4+library=32 --split-input-file --pass-pipeline="fuse,assign-layouts,schedule-cpu,emit-cpu-kernels" | filecheck %s --check-prefix=VECTORS
// RUN: kiln-opt %s --cpu=x86-64-v4+avx512bf16+avx512vnni+library=32 --split-input-file --pass-pipeline="fuse,assign-layouts,schedule-cpu,emit-cpu-kernels" | filecheck %s --check-prefix=DOT
// RUN: kiln-opt %s --cpu=x86-64-v4+amx-bf16+amx-int8+amx-tile+avx512bf16+avx512vnni+l2=2097152+library=32+float-parts --split-input-file --pass-pipeline="fuse,assign-layouts,schedule-cpu,emit-cpu-kernels" | filecheck %s --check-prefix=AMX

// The two loops of attention, along the head for scores and along the keys for sums of values, in each type, by each
// unit: vectors (AVX-512), dot products of pairs (AVX512-BF16), tiles (AMX).

// f32: vectors, whatever else there is.
// VECTORS-LABEL: func.func @attention(
// VECTORS-NOT: llvm.x86
// VECTORS: scf.for {{.*}} to %c64 step %c1 iter_args
// VECTORS-COUNT-24: vector.fma
// VECTORS-NOT: vector.fma
// VECTORS: scf.yield
// VECTORS: math.exp2
// VECTORS: scf.for {{.*}} to %c128 step %c1 iter_args
// VECTORS-COUNT-24: vector.fma
// VECTORS-NOT: vector.fma
// VECTORS: scf.yield
// DOT-LABEL: func.func @attention(
// DOT-NOT: llvm.x86
// DOT: scf.for {{.*}} to %c64 step %c1 iter_args
// DOT-COUNT-24: vector.fma
// DOT-NOT: vector.fma
// DOT: scf.yield
// DOT: math.exp2
// DOT: scf.for {{.*}} to %c128 step %c1 iter_args
// DOT-COUNT-24: vector.fma
// DOT-NOT: vector.fma
// DOT: scf.yield
// AMX-LABEL: func.func @attention(
// AMX-NOT: llvm.x86
// AMX: scf.for {{.*}} to %c64 step %c1 iter_args
// AMX-COUNT-24: vector.fma
// AMX-NOT: vector.fma
// AMX: scf.yield
// AMX: math.exp2
// AMX: scf.for {{.*}} to %c128 step %c1 iter_args
// AMX-COUNT-24: vector.fma
// AMX-NOT: vector.fma
// AMX: scf.yield
func.func @main(%q: tensor<4x64x64xf32>, %k: tensor<4x128x64xf32>, %v: tensor<4x128x64xf32>) -> tensor<4x64x64xf32> {
  %0 = "kiln.attention"(%q, %k, %v) {scale = 0.125 : f64, causal = false}
    : (tensor<4x64x64xf32>, tensor<4x128x64xf32>, tensor<4x128x64xf32>) -> tensor<4x64x64xf32>
  return %0 : tensor<4x64x64xf32>
}

// -----

// bf16: vectors widen to f32; pairs lie along the head, then along the keys; so do the rows of tiles.
// VECTORS-LABEL: func.func @attention(
// VECTORS-NOT: dpbf16ps
// VECTORS: scf.for {{.*}} to %c64 step %c1 iter_args
// VECTORS-COUNT-24: vector.fma
// VECTORS-NOT: vector.fma
// VECTORS: scf.yield
// VECTORS: math.exp2
// VECTORS: scf.for {{.*}} to %c128 step %c1 iter_args
// VECTORS-COUNT-24: vector.fma
// VECTORS-NOT: vector.fma
// VECTORS: scf.yield
// DOT-LABEL: func.func @attention(
// DOT: scf.for {{.*}} to %c64 step %c2 iter_args
// DOT-COUNT-24: "llvm.x86.avx512bf16.dpbf16ps.512"
// DOT-NOT: "llvm.x86.avx512bf16.dpbf16ps.512"
// DOT: scf.yield
// DOT: math.exp2
// DOT: scf.for {{.*}} to %c128 step %c2 iter_args
// DOT-COUNT-24: "llvm.x86.avx512bf16.dpbf16ps.512"
// DOT-NOT: "llvm.x86.avx512bf16.dpbf16ps.512"
// DOT: scf.yield
// AMX-LABEL: func.func @attention(
// AMX: "llvm.x86.ldtilecfg"
// AMX-COUNT-4: "llvm.x86.tilezero"
// AMX-COUNT-8: "llvm.x86.tdpbf16ps"
// AMX-NOT: "llvm.x86.tdpbf16ps"
// AMX-COUNT-4: "llvm.x86.tilestored64"
// AMX: math.exp2
// AMX-COUNT-4: "llvm.x86.tileloadd64"
// AMX: scf.for {{.*}} to %c128 step %c32 {
// AMX-COUNT-4: "llvm.x86.tdpbf16ps"
// AMX-NOT: "llvm.x86.tdpbf16ps"
// AMX-COUNT-4: "llvm.x86.tilestored64"
// AMX: "llvm.x86.tilerelease"
func.func @main(%q: tensor<4x64x64xbf16>, %k: tensor<4x128x64xbf16>, %v: tensor<4x128x64xbf16>) -> tensor<4x64x64xbf16> {
  %0 = "kiln.attention"(%q, %k, %v) {scale = 0.125 : f64, causal = false}
    : (tensor<4x64x64xbf16>, tensor<4x128x64xbf16>, tensor<4x128x64xbf16>) -> tensor<4x64x64xbf16>
  return %0 : tensor<4x64x64xbf16>
}
