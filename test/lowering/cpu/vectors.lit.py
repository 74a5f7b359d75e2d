# RUN: %python %s | filecheck %s
# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""The loop of sums of each vector unit, in products, convolutions and attention.

A step of the loop over k loads the right vectors, then a left element (or a group of them) for each row, in all lanes,
and multiplies; the sums are carried.
"""

from dataclasses import replace

from conv_support import ReluEpilogue, image_problem
from matmul_support import StoreEpilogue, show

from kiln.dialects.schedules.cpu import (
    BlockedSchedule,
    DirectConvSchedule,
    DotSchedule,
    FlashSchedule,
    Int8DotSchedule,
    Int8Schedule,
    VnniBf16ColumnsConvSchedule,
    VnniBf16ConvSchedule,
    VnniBf16Schedule,
)
from kiln.lowering.cpu import isa
from kiln.lowering.cpu.attention import AttentionBuffers, AttentionProblem, emit_attention
from kiln.lowering.cpu.conv import ConvBuffers, emit_conv
from kiln.lowering.cpu.matmul import Buffers, MatmulProblem, emit_matmul

SUMS = {"i8": "i32"}


def matmul(schedule, dtype, rhs_strides=(32, 1), k=64, rhs_dtype=None):
    def emit(b, buffers, symbols, ctx):
        problem = MatmulProblem((), 2, 32, k, (k, 1), rhs_strides, dtype, rhs_dtype)
        emit_matmul(b, problem, schedule, Buffers(*buffers[:2]), StoreEpilogue(buffers[2], (32,)), ctx)

    with isa.compiling_for(replace(isa.host(), features=("avx512bf16", "avx512vnni"))):
        show([dtype, rhs_dtype or dtype, SUMS.get(dtype, dtype)], 0, emit)


TILE = {"mr": 2, "nv": 2, "width": 16, "mc": 2, "nc": 32, "kc": 64}
FMA = BlockedSchedule(**TILE, pack_lhs=False, pack_rhs=False)

# f32: two vectors, two broadcast elements, four sums.
# CHECK-LABEL: func.func @kernel
# CHECK:       scf.for {{.*}} to %c64 step %c1 iter_args({{.*}}) -> (vector<16xf32>, vector<16xf32>, vector<16xf32>, vector<16xf32>)
# CHECK-COUNT-2: vector.load %arg1{{.*}} vector<16xf32>
# CHECK:       memref.load %arg0
# CHECK:       vector.broadcast
# CHECK-COUNT-2: vector.fma
# CHECK:       memref.load %arg0
# CHECK-COUNT-2: vector.fma
# CHECK-NOT:   vector.fma
# CHECK:       scf.yield
matmul(FMA, "f32")

# f64.
# CHECK-LABEL: func.func @kernel
# CHECK:       scf.for {{.*}} to %c64 step %c1 iter_args
# CHECK-COUNT-4: vector.fma {{.*}} : vector<8xf64>
# CHECK:       scf.yield
matmul(replace(FMA, width=8, nv=2, nc=16), "f64")

# f16 and a rhs of 8-bit integers: both become f32 on the way.
# CHECK-LABEL: func.func @kernel
# CHECK:       scf.for {{.*}} to %c64 step %c1 iter_args
# CHECK:       arith.sitofp {{.*}} : vector<16xi8> to vector<16xf32>
# CHECK:       arith.extf {{.*}} : f16 to f32
# CHECK-COUNT-4: vector.fma {{.*}} : vector<16xf32>
# CHECK:       scf.yield
matmul(FMA, "f16", rhs_dtype="i8")

PAIRS = VnniBf16Schedule(**TILE, pack_lhs=False, pack_rhs=True)

# bf16 in pairs, packed in scratch: the rhs [n, k] is transposed as 32-bit words.
# CHECK-LABEL: func.func @kernel
# CHECK:       vector.shuffle {{.*}} : vector<16xi32>, vector<16xi32>
# CHECK:       scf.for {{.*}} to %c64 step %c2 iter_args({{.*}}) -> (vector<16xf32>, vector<16xf32>, vector<16xf32>, vector<16xf32>)
# CHECK-COUNT-2: vector.load {{.*}} vector<32xbf16>
# CHECK:       vector.load %arg0{{.*}} vector<2xbf16>
# CHECK-COUNT-2: "llvm.x86.avx512bf16.dpbf16ps.512"
# CHECK:       vector.load %arg0{{.*}} vector<2xbf16>
# CHECK-COUNT-2: "llvm.x86.avx512bf16.dpbf16ps.512"
# CHECK-NOT:   dpbf16ps
# CHECK:       scf.yield
matmul(PAIRS, "bf16", (1, 64))

# In place: two rows of the rhs are interleaved; an odd k ends in pairs with zeros.
# CHECK-LABEL: func.func @kernel
# CHECK:       scf.for {{.*}} to %c64 step %c2 iter_args
# CHECK-COUNT-2: vector.load %arg1{{.*}} vector<16xbf16>
# CHECK:       vector.shuffle {{.*}} : vector<16xbf16>, vector<16xbf16>
# CHECK-COUNT-4: dpbf16ps
# CHECK:       scf.yield
# CHECK:       vector.shuffle {{.*}}, %cst
# CHECK:       vector.from_elements
# CHECK-COUNT-4: dpbf16ps
matmul(replace(PAIRS, pack_rhs=False, kc=66), "bf16", k=65)

# 8-bit integers in fours: the lhs in place, its last steps of k shifted down to where zeros fill the group;
# what the shift of the rhs has added to sums is taken off at the end.
# CHECK-LABEL: func.func @kernel
# CHECK:       scf.for {{.*}} to %c64 step %c4 iter_args({{.*}}) -> (vector<16xi32>, vector<16xi32>, vector<16xi32>, vector<16xi32>)
# CHECK-COUNT-2: arith.xori {{.*}} : vector<64xi8>
# CHECK:       vector.load %arg0{{.*}} vector<4xi8>
# CHECK-COUNT-2: "llvm.x86.avx512.vpdpbusd.512"
# CHECK:       vector.load %arg0{{.*}} vector<4xi8>
# CHECK-COUNT-2: "llvm.x86.avx512.vpdpbusd.512"
# CHECK:       scf.yield
# CHECK:       arith.shrui
# CHECK-COUNT-4: vpdpbusd
# CHECK:       memref.load %{{.*}} : memref<{{.*}}xi32>
matmul(Int8Schedule(**TILE | {"kc": 128}, in_place=True), "i8", k=66)

DOT = DotSchedule(mr=2, nr=2, width=16, mc=2, nc=32, kc=64)

# Dot products: vectors along k of both, and their lanes summed at the end.
# CHECK-LABEL: func.func @kernel
# CHECK:       scf.for {{.*}} to %c64 step %c16 iter_args
# CHECK-COUNT-2: vector.load %arg1{{.*}} vector<16xf32>
# CHECK:       vector.load %arg0{{.*}} vector<16xf32>
# CHECK-COUNT-2: vector.fma
# CHECK:       vector.load %arg0
# CHECK-COUNT-2: vector.fma
# CHECK:       scf.yield
# CHECK:       vector.shuffle {{.*}} [0, 2, 4,
matmul(DOT, "f32", (1, 64))

# CHECK-LABEL: func.func @kernel
# CHECK:       scf.for {{.*}} to %c64 step %c32 iter_args
# CHECK-COUNT-4: dpbf16ps
# CHECK:       scf.yield
matmul(DOT, "bf16", (1, 64))

# Of integers: products with ones give the sums of the rows, once for a block.
# CHECK-LABEL: func.func @kernel
# CHECK:       scf.for {{.*}} to %c128 step %c64 iter_args
# CHECK-COUNT-2: vpdpbusd
# CHECK:       scf.yield
# CHECK:       vector.reduction <add>
# CHECK:       scf.for {{.*}} to %c128 step %c64 iter_args
# CHECK-COUNT-4: vpdpbusd
# CHECK-NOT:   vpdpbusd
# CHECK:       scf.yield
# CHECK:       arith.addi {{.*}} : vector<2xi32>
matmul(Int8DotSchedule(mr=2, nr=2, width=16, mc=2, nc=32), "i8", (1, 128), k=128)


def conv(schedule, dtype, x_strides, kernel=(1, 2), transposed=False):
    stride = (2, 2) if transposed else (1, 1)
    columns = 16 if transposed else 7
    weights = (32 * 32, 2, 2, 1)
    problem = image_problem(
        1, 1, 32, 16, 1, 8, 2 if transposed else 1, columns, kernel, stride, (0, 0), (1, 1), x_strides, weights,
        dtype, transposed=transposed,
    )  # fmt: skip

    def emit(b, buffers, symbols, ctx):
        epilogue = ReluEpilogue(buffers[3], (512, 1, 16 * columns, 16), buffers[2])
        emit_conv(b, problem, schedule, ConvBuffers(*buffers[:2]), epilogue, ctx)

    with isa.compiling_for(replace(isa.host(), features=("avx512bf16",))):
        show([dtype] * 4, 0, emit)


DIRECT = DirectConvSchedule(mr=7, nv=1, width=16, tiles=1, piece=256)

# A convolution: for each column of the window a vector of weights and the elements of seven pixels.
# CHECK-LABEL: func.func @kernel
# CHECK:       scf.for {{.*}} to %c32 step %c1 iter_args
# CHECK:       vector.load
# CHECK:       memref.load %arg0
# CHECK-COUNT-7: vector.fma
# CHECK:       vector.load
# CHECK-COUNT-7: vector.fma
# CHECK-NOT:   vector.fma
# CHECK:       scf.yield
conv(DIRECT, "f32", (256, 1, 256, 32))

# Pairs of channels.
# CHECK-LABEL: func.func @kernel
# CHECK:       scf.for {{.*}} to %c16 step %c1 iter_args
# CHECK-COUNT-14: dpbf16ps
# CHECK-NOT:   dpbf16ps
# CHECK:       scf.yield
conv(VnniBf16ConvSchedule(mr=7, nv=1, width=16, tiles=1, piece=256), "bf16", (256, 1, 256, 32))

# Pairs of columns of the window.
# CHECK-LABEL: func.func @kernel
# CHECK:       scf.for {{.*}} to %c32 step %c1 iter_args
# CHECK-COUNT-7: dpbf16ps
# CHECK-NOT:   dpbf16ps
# CHECK:       scf.yield
conv(VnniBf16ColumnsConvSchedule(mr=7, nv=1, width=16, tiles=1, piece=256), "bf16", (256, 8, 8, 1))

# Transposed: each column of the result meets one of the window's.
# CHECK-LABEL: func.func @kernel
# CHECK:       scf.for {{.*}} to %c32 step %c1 iter_args
# CHECK-COUNT-4: vector.fma
# CHECK-NOT:   vector.fma
# CHECK:       scf.yield
conv(replace(DIRECT, mr=4, tiles=2), "f32", (256, 1, 256, 32), transposed=True)


def attention(dtype, dot_scores=False):
    strides = (32 * 64, 64, 1)
    problem = AttentionProblem((), 1, 1, 2, 32, 64, 64, strides, strides, strides, 0.125, dtype=dtype)
    schedule = FlashSchedule(mr=2, nv=2, width=16, queries=2, keys=32, dot_scores=dot_scores)

    def emit(b, buffers, symbols, ctx):
        operands = AttentionBuffers(*buffers[:3])
        emit_attention(b, problem, schedule, operands, StoreEpilogue(buffers[3], strides[:-1]), ctx)

    with isa.compiling_for(replace(isa.host(), features=("avx512bf16",))):
        show([dtype] * 4, 0, emit)


# Attention: a loop along the head for scores, one over the keys for sums of values.
# CHECK-LABEL: func.func @kernel
# CHECK:       scf.for {{.*}} to %c64 step %c1 iter_args
# CHECK-COUNT-4: vector.fma
# CHECK:       scf.yield
# CHECK:       math.exp2
# CHECK:       scf.for {{.*}} to %c32 step %c1 iter_args
# CHECK-COUNT-2: vector.load %arg2
# CHECK-COUNT-4: vector.fma
# CHECK:       scf.yield
attention("f32")

# CHECK-LABEL: func.func @kernel
# CHECK:       scf.for {{.*}} to %c64 step %c2 iter_args
# CHECK-COUNT-4: dpbf16ps
# CHECK:       scf.yield
# CHECK:       math.exp2
# CHECK:       scf.for {{.*}} to %c32 step %c2 iter_args
# CHECK-COUNT-4: dpbf16ps
# CHECK:       scf.yield
attention("bf16")

# Few queries: scores by dot products with the keys in place, values interleaved in registers.
# CHECK-LABEL: func.func @kernel
# CHECK-COUNT-4: vector.load %arg1{{.*}} vector<32xbf16>
# CHECK:       dpbf16ps
# CHECK:       math.exp2
# CHECK:       scf.for {{.*}} to %c32 step %c2 iter_args
# CHECK-COUNT-2: vector.load %arg2{{.*}} vector<16xbf16>
# CHECK:       vector.shuffle {{.*}} : vector<16xbf16>, vector<16xbf16>
# CHECK-COUNT-4: dpbf16ps
# CHECK:       scf.yield
attention("bf16", dot_scores=True)
