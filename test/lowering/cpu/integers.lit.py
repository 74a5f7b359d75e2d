# RUN: %python %s | filecheck %s
# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""The leaves for 8-bit integers at the vector stage, with each of the instructions that a CPU may have."""

from dataclasses import replace

from matmul_support import StoreEpilogue, show

from kiln.dialects.schedules.cpu import Int8DotSchedule, Int8Schedule
from kiln.lowering.cpu import isa
from kiln.lowering.cpu.matmul import Buffers, MatmulProblem, emit_matmul


def matmul(features, schedule, rhs_strides, m=4, n=16, k=128):
    def emit(b, buffers, symbols, ctx):
        problem = MatmulProblem((), m, n, k, (k, 1), rhs_strides, "i8")
        emit_matmul(b, problem, schedule, Buffers(*buffers[:2]), StoreEpilogue(buffers[2], (n,)), ctx)

    with isa.compiling_for(replace(isa.host(), features=features)):
        show(["i8", "i8", "i32"], 0, emit)


TILES = Int8Schedule(mr=2, nv=1, width=16, mc=4, nc=16, kc=128)

# With VNNI, rows of the lhs are copied, with 128 times their sums, which are taken off the sums of a tile; a weight
# [n, k] is transposed to groups of four; they are shifted to unsigned numbers on the way to the instruction. Whole tiles
# of sums that are the result are stored there.
# CHECK-LABEL: func.func @kernel
# CHECK:       llvm.call_intrinsic "llvm.x86.avx512.vpdpbusd.512"
# CHECK:       memref.store %{{.*}}, %[[ROWS:.*]][
# CHECK:       vector.load %arg1
# CHECK:       vector.shuffle
# CHECK:       vector.store {{.*}} : memref<?xi32>, vector<16xi32>
# CHECK:       scf.for {{.*}} iter_args({{.*}}) -> (vector<16xi32>, vector<16xi32>)
# CHECK:       %[[SHIFTED:.*]] = arith.xori {{.*}} : vector<64xi8>
# CHECK:       %[[GROUP:.*]] = vector.bitcast {{.*}} : vector<16xi32> to vector<64xi8>
# CHECK:       llvm.call_intrinsic "llvm.x86.avx512.vpdpbusd.512"({{.*}}, %[[SHIFTED]], %[[GROUP]])
# CHECK:       llvm.call_intrinsic "llvm.x86.avx512.vpdpbusd.512"({{.*}}, %[[SHIFTED]], {{.*}})
# CHECK:       scf.yield
# CHECK:       memref.load %[[ROWS]]
# CHECK:       vector.store {{.*}} %arg2
matmul(("avx512vnni",), TILES, (1, 128))

# A constant that is packed already: the tiles read it, and nothing but the lhs is copied.
# CHECK-LABEL: func.func @kernel
# CHECK:       vector.store {{.*}} : memref<?xi32>, vector<16xi32>
# CHECK-NOT:   vector.store {{.*}} : memref<?xi32>, vector<16xi32>
# CHECK:       scf.for {{.*}} iter_args({{.*}}) -> (vector<16xi32>, vector<16xi32>)
# CHECK:       vector.load %arg1{{.*}} : memref<?xi8>, vector<64xi8>
# CHECK:       arith.xori
# CHECK-COUNT-2: vpdpbusd
matmul(("avx512vnni",), replace(TILES, packed=True), (16, 128))

# A lhs that is read where it lies: the sums of its rows are taken once (a cell says of which), groups come from it, and
# tiles fetch what comes next of the rhs.
# CHECK-LABEL: func.func @kernel
# CHECK:       %[[CELLS:.*]] = memref.view {{.*}} : memref<?xi8> to memref<?xi64>
# CHECK:       %[[SAME:.*]] = memref.load %[[CELLS]]
# CHECK:       arith.cmpi ne, %[[SAME]]
# CHECK:       scf.if
# CHECK:       vector.load %arg0{{.*}} : memref<?xi8>, vector<64xi8>
# CHECK:       vpdpbusd
# CHECK:       memref.store {{.*}} : memref<?xi32>
# CHECK:       memref.store {{.*}}, %[[CELLS]]
# CHECK:       scf.for {{.*}} iter_args({{.*}}) -> (vector<16xi32>, vector<16xi32>)
# CHECK:       memref.prefetch %arg1
# CHECK:       scf.for {{.*}} iter_args({{.*}}) -> (vector<16xi32>, vector<16xi32>)
# CHECK:       vector.load %arg0{{.*}} : memref<?xi8>, vector<4xi8>
# CHECK:       vector.bitcast {{.*}} : vector<4xi8> to vector<1xi32>
# CHECK:       vpdpbusd
matmul(("avx512vnni",), replace(TILES, packed=True, in_place=True, fetch=True), (16, 128))

# Without VNNI: pairs widened to 16 bits; nothing is shifted.
# CHECK-LABEL: func.func @kernel
# CHECK-NOT:   vpdpbusd
# CHECK-NOT:   arith.xori
# CHECK:       arith.extsi {{.*}} : vector<32xi8> to vector<32xi16>
# CHECK:       scf.for {{.*}} iter_args({{.*}}) -> (vector<16xi32>, vector<16xi32>)
# CHECK:       %[[WIDE:.*]] = arith.extsi {{.*}} : vector<32xi8> to vector<32xi16>
# CHECK:       %[[PRODUCTS:.*]] = llvm.call_intrinsic "llvm.x86.avx512.pmaddw.d.512"(%[[WIDE]]
# CHECK:       arith.addi {{.*}}, %[[PRODUCTS]]
matmul(("avx512bw",), TILES, (16, 1))

# On a CPU without any of them, as on AArch64: products of 32 bits.
# CHECK-LABEL: func.func @kernel
# CHECK-NOT:   llvm.call_intrinsic
# CHECK:       arith.muli {{.*}} : vector<4xi32>
# CHECK-NOT:   llvm.call_intrinsic
# CHECK:       return
matmul((), replace(TILES, width=4, nc=4), (16, 1))

# Few rows: sums of the rows, then dot products of what lies in place, of which 128 times these are taken off.
# CHECK-LABEL: func.func @kernel
# CHECK:       vpdpbusd
# CHECK:       vector.reduction <add>
# CHECK:       scf.for {{.*}} iter_args
# CHECK:       vector.load %arg1
# CHECK:       arith.xori
# CHECK:       vector.load %arg0
# CHECK:       vpdpbusd
# CHECK:       scf.yield
# CHECK:       arith.addi {{.*}} : vector<4xi32>
# CHECK:       vector.store {{.*}} %view
DOT = Int8DotSchedule(mr=1, nr=4, width=16, mc=64, nc=64)
matmul(("avx512vnni",), DOT, (1, 128), m=1)
