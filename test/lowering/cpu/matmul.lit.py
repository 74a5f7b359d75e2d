# RUN: %python %s | filecheck %s
# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""The shape of each matmul leaf at the vector stage."""

from dataclasses import replace

from matmul_support import StoreEpilogue, show

from kiln.dialects.schedules.cpu import (
    AmxBf16Schedule,
    BlockedSchedule,
    ByRowsSchedule,
    DotSchedule,
    VendorSchedule,
    VnniBf16Schedule,
)
from kiln.lowering.cpu.matmul import Buffers, MatmulProblem, emit_matmul


def matmul(schedule, lhs_strides, rhs_strides, m=4, n=32, k=64, dtype="f32"):
    def emit(b, buffers, symbols, ctx):
        size = {"m": symbols[0] if m is None else m}
        problem = MatmulProblem((), size["m"], n, k, lhs_strides, rhs_strides, dtype)
        emit_matmul(b, problem, schedule, Buffers(*buffers[:2]), StoreEpilogue(buffers[2], (n,)), ctx)

    show([dtype] * 3, 1, emit)


OUTER = BlockedSchedule(mr=2, nv=2, width=8, mc=4, nc=32, kc=64, pack_lhs=False, pack_rhs=False)

# An outer-product tile: two row vectors of the rhs, two broadcast elements of the lhs, four sums in registers.
# A static problem with whole tiles has no masks, no minimum and no branch inside.
# CHECK-LABEL: func.func @kernel
# CHECK:       memref.view
# CHECK:       scf.for {{.*}} iter_args({{.*}}) -> (vector<8xf32>, vector<8xf32>, vector<8xf32>, vector<8xf32>)
# CHECK:       vector.load %arg1
# CHECK:       vector.load %arg1
# CHECK:       memref.load %arg0
# CHECK:       vector.broadcast
# CHECK:       vector.fma
# CHECK:       vector.fma
# CHECK:       memref.load %arg0
# CHECK:       vector.fma
# CHECK:       vector.fma
# CHECK:       scf.yield
# CHECK:       vector.store {{.*}} %view
# CHECK:       vector.store {{.*}} %arg2
# CHECK:       return
matmul(OUTER, (64, 1), (32, 1))

# Packed rhs stored as [n, k]: transposes by shuffles before the tile reads scratch.
# CHECK-LABEL: func.func @kernel
# CHECK-COUNT-24: vector.shuffle
# CHECK:       scf.for {{.*}} iter_args
# CHECK:       vector.load %view
# CHECK:       vector.fma
matmul(replace(OUTER, pack_rhs=True), (64, 1), (1, 64))

# The same, fetching: a tile's 32 columns are fetched by two tiles, half of them each, for 16 steps of k at a time.
# CHECK-LABEL: func.func @kernel
# CHECK-COUNT-24: vector.shuffle
# CHECK:       scf.for {{.*}} iter_args
# CHECK-COUNT-8: memref.prefetch %arg1{{.*}}, read, locality<2>, data : memref<?xf32>
# CHECK-NOT:   memref.prefetch
# CHECK:       scf.for {{.*}} iter_args
# CHECK:       vector.load %view
# CHECK:       vector.fma
matmul(replace(OUTER, pack_rhs=True, fetch=True), (64, 1), (1, 64))

# Dynamic rows: the rows of a partial tile are clamped to the last one instead of branched around.
# CHECK-LABEL: func.func @kernel
# CHECK:       arith.minsi
# CHECK:       scf.for {{.*}} iter_args
# CHECK:       vector.fma
matmul(OUTER, (64, 1), (32, 1), m=None)

# Dot products: lanes of k, summed across by folding neighbours at the end.
# CHECK-LABEL: func.func @kernel
# CHECK:       scf.for {{.*}} iter_args
# CHECK:       vector.load %arg1
# CHECK:       vector.load %arg0
# CHECK:       vector.fma
# CHECK:       scf.yield
# CHECK:       vector.shuffle {{.*}} [0, 2, 4, 6, 8, 10, 12, 14]
# CHECK:       vector.shuffle {{.*}} [1, 3, 5, 7, 9, 11, 13, 15]
# CHECK:       arith.addf
matmul(DotSchedule(mr=2, nr=2, width=8, mc=4, nc=32, kc=64), (64, 1), (1, 64))

# One row by two rows of the matrix at a time, whose products start from zero.
# CHECK-LABEL: func.func @kernel
# CHECK:       scf.for
# CHECK:       scf.for
# CHECK:       memref.load %arg0
# CHECK:       vector.fma
# CHECK:       memref.load %arg0
# CHECK:       vector.fma
# CHECK:       arith.addf
# CHECK:       vector.store {{.*}} %view
STREAM = BlockedSchedule(mr=1, nv=1, width=8, mc=1, nc=32, kc=2, pack_lhs=False, pack_rhs=False)
matmul(STREAM, (64, 1), (32, 1), m=1)

# The vendor's gemm on a block of the output itself, since the epilogue only stores: nothing is left to do after it.
# CHECK-LABEL: func.func private @sgemm_
# CHECK-LABEL: func.func @kernel
# CHECK:       memref.extract_aligned_pointer_as_index %arg2
# CHECK:       call @sgemm_
# CHECK-NOT:   vector.store
# CHECK:       return
matmul(VendorSchedule(mc=64, nc=64, width=8), (64, 1), (32, 1))

# Rows decided at run time between two schedules.
# CHECK-LABEL: func.func @kernel
# CHECK:       %[[FEW:.*]] = arith.cmpi sle, %arg3, %{{.*}} : index
# CHECK:       scf.if %[[FEW]] {
# CHECK:       vector.fma
# CHECK:       } else {
# CHECK:       call @sgemm_
VENDOR = VendorSchedule(mc=64, nc=64, width=8)
matmul(ByRowsSchedule(limit=8, small=OUTER, large=VENDOR), (64, 1), (32, 1), m=None)

PAIRS = VnniBf16Schedule(mr=2, nv=1, width=16, mc=4, nc=16, kc=64, pack_lhs=False, pack_rhs=True)

# Pairs of bf16: 32 steps of k at a time a tile multiplies, it fetches its share of the columns that come next.
# CHECK-LABEL: func.func @kernel
# CHECK-COUNT-16: vector.store {{.*}} : memref<?xi32>, vector<16xi32>
# CHECK:       scf.for {{.*}} iter_args
# CHECK-COUNT-8: memref.prefetch %arg1{{.*}}, read, locality<2>, data : memref<?xbf16>
# CHECK-NOT:   memref.prefetch
# CHECK:       scf.for {{.*}} iter_args
# CHECK-COUNT-2: dpbf16ps
# CHECK-NOT:   dpbf16ps
matmul(replace(PAIRS, fetch=True), (64, 1), (1, 64), dtype="bf16")

# Without: one loop over k.
# CHECK-LABEL: func.func @kernel
# CHECK-NOT:   memref.prefetch
# CHECK-COUNT-2: dpbf16ps
# CHECK-NOT:   memref.prefetch
matmul(PAIRS, (64, 1), (1, 64), dtype="bf16")

TILES = AmxBf16Schedule(mr=32, nv=2, width=16, mc=32, nc=32, kc=64, ks=64, pack_lhs=False)

# Tiles of AMX, a weight [n, k] as the lhs: the rows of the input are packed, unless they are there already; four sums
# over k, whose operands take turns; the sums are turned in registers.
# CHECK-LABEL: func.func @kernel
# CHECK:       llvm.call_intrinsic "llvm.x86.ldtilecfg"
# CHECK:       scf.if
# CHECK-COUNT-16: vector.store {{.*}} : memref<?xi32>, vector<16xi32>
# CHECK-COUNT-4: llvm.call_intrinsic "llvm.x86.tilezero"
# CHECK:       scf.for
# CHECK-COUNT-2: llvm.call_intrinsic "llvm.x86.tileloadd64"
# CHECK:       llvm.call_intrinsic "llvm.x86.tdpbf16ps"
# CHECK:       llvm.call_intrinsic "llvm.x86.tileloadd64"
# CHECK:       llvm.call_intrinsic "llvm.x86.tdpbf16ps"
# CHECK:       llvm.call_intrinsic "llvm.x86.tileloadd64"
# CHECK-COUNT-2: llvm.call_intrinsic "llvm.x86.tdpbf16ps"
# CHECK-NOT:   tdpbf16ps
# CHECK-COUNT-4: llvm.call_intrinsic "llvm.x86.tilestored64"
# CHECK-COUNT-16: vector.store {{.*}} : memref<?xf32>, vector<16xf32>
# CHECK:       llvm.call_intrinsic "llvm.x86.tilerelease"
matmul(replace(TILES, transposed=True), (64, 1), (1, 64), m=32, dtype="bf16")

# The last rows of the lhs are a copy, as one tile of rows.
# CHECK-LABEL: func.func @kernel
# CHECK:       memref<?xbf16>, vector<32xbf16>
# CHECK:       scf.for
# CHECK-COUNT-4: llvm.call_intrinsic "llvm.x86.tdpbf16ps"
# CHECK-COUNT-2: llvm.call_intrinsic "llvm.x86.tdpbf16ps"
# CHECK-NOT:   tdpbf16ps
# CHECK:       return
matmul(replace(TILES, mc=48), (64, 1), (32, 1), m=36, dtype="bf16")
