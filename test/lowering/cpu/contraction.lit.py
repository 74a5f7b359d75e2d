# RUN: %python %s | filecheck %s
# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""The loop of sums of each matrix unit, in products, convolutions and attention.

A loop over k loads tiles of both operands, each once, and multiplies them into tiles of sums that stay in registers.
"""

from amx_emulation import cpu_with_amx
from conv_support import ReluEpilogue, image_problem
from matmul_support import StoreEpilogue, show

from kiln.dialects.schedules.cpu import (
    AmxBf16Schedule,
    AmxBf16x3Schedule,
    AmxConvSchedule,
    AmxFlashSchedule,
    AmxInt8Schedule,
)
from kiln.lowering.cpu import isa
from kiln.lowering.cpu.attention import AttentionBuffers, AttentionProblem, emit_attention
from kiln.lowering.cpu.conv import ConvBuffers, emit_conv
from kiln.lowering.cpu.matmul import Buffers, MatmulProblem, emit_matmul

TILES = {"mr": 32, "nv": 2, "width": 16, "mc": 32, "nc": 32}


def matmul(schedule, dtype, sums, k=256, rhs_strides=(32, 1)):
    def emit(b, buffers, symbols, ctx):
        problem = MatmulProblem((), 32, 32, k, (k, 1), rhs_strides, dtype)
        emit_matmul(b, problem, schedule, Buffers(*buffers[:2]), StoreEpilogue(buffers[2], (32,)), ctx)

    with isa.compiling_for(cpu_with_amx()):
        show([dtype, dtype, sums], 0, emit)


# CHECK-LABEL: func.func @kernel
# CHECK:       "llvm.x86.ldtilecfg"
# CHECK-COUNT-4: "llvm.x86.tilezero"
# CHECK:       scf.for {{.*}} step %c32
# CHECK-COUNT-2: "llvm.x86.tileloadd64"
# CHECK-NEXT:  llvm.mlir.constant
# CHECK:       "llvm.x86.tdpbf16ps"
# CHECK:       "llvm.x86.tileloadd64"
# CHECK:       "llvm.x86.tdpbf16ps"
# CHECK:       "llvm.x86.tileloadd64"
# CHECK-COUNT-2: "llvm.x86.tdpbf16ps"
# CHECK-NOT:   "llvm.x86.t
# CHECK:       }
# CHECK-COUNT-4: "llvm.x86.tilestored64"
# CHECK:       vector.store {{.*}} %arg2
# CHECK:       "llvm.x86.tilerelease"
matmul(AmxBf16Schedule(**TILES, kc=256, ks=256, pack_lhs=False), "bf16", "f32")

# Integers: 64 steps of k an instruction.
# CHECK-LABEL: func.func @kernel
# CHECK-COUNT-4: "llvm.x86.tilezero"
# CHECK:       scf.for {{.*}} step %c64
# CHECK-COUNT-2: "llvm.x86.tileloadd64"
# CHECK:       "llvm.x86.tdpbssd"
# CHECK:       "llvm.x86.tileloadd64"
# CHECK:       "llvm.x86.tdpbssd"
# CHECK:       "llvm.x86.tileloadd64"
# CHECK-COUNT-2: "llvm.x86.tdpbssd"
# CHECK-NOT:   "llvm.x86.t
# CHECK:       }
# CHECK-COUNT-4: "llvm.x86.tilestored64"
matmul(AmxInt8Schedule(**TILES, kc=256), "i8", "i32")

# f32 in three parts: six products of parts a step, for each of which one operand stays where it is.
# CHECK-LABEL: func.func @kernel
# CHECK:       scf.for {{.*}} step %c32
# CHECK:       "llvm.x86.tileloadd64"
# CHECK-COUNT-24: "llvm.x86.tdpbf16ps"
# CHECK-NOT:   "llvm.x86.t
# CHECK:       }
# CHECK-COUNT-4: "llvm.x86.tilestored64"
matmul(AmxBf16x3Schedule(**TILES, kc=256, ks=256, transposed=False), "f32", "f32")


def conv(problem, schedule):
    def emit(b, buffers, symbols, ctx):
        strides = (problem.row.results * problem.column.results * 32, 1, problem.column.results * 32, 32)
        emit_conv(b, problem, schedule, ConvBuffers(*buffers[:2]), ReluEpilogue(buffers[3], strides, buffers[2]), ctx)

    with isa.compiling_for(cpu_with_amx()):
        show(["bf16", "bf16", "f32", "bf16"], 0, emit)


# A convolution: the loop is one over blocks of 32 channels, in which the elements of the window (here two) are written
# out; 32 pixels and 32 outputs.
# CHECK-LABEL: func.func @kernel
# CHECK:       "llvm.x86.ldtilecfg"
# CHECK-COUNT-4: "llvm.x86.tilezero"
# CHECK:       scf.for
# CHECK-COUNT-8: "llvm.x86.tdpbf16ps"
# CHECK-NOT:   "llvm.x86.t
# CHECK:       }
# CHECK-COUNT-4: "llvm.x86.tilestored64"
IMAGE = image_problem(
    1, 1, 64, 32, 9, 16, 8, 16, (2, 1), (1, 1), (0, 0), (1, 1), (9216, 1, 1024, 64), (128, 2, 1, 1), "bf16", False
)
conv(IMAGE, AmxConvSchedule(width=16, nv=2, order="channels", rows=8, chunk=8, units=1, share="units"))


def attention(size, keys):
    strides = (keys * size, size, 1)
    problem = AttentionProblem((), 1, 1, 16, keys, size, size, strides, strides, strides, 0.125, dtype="bf16")
    schedule = AmxFlashSchedule(mr=16, nv=4, width=16, queries=16, keys=keys)

    def emit(b, buffers, symbols, ctx):
        emit_attention(
            b, problem, schedule, AttentionBuffers(*buffers[:3]), StoreEpilogue(buffers[3], (keys * size, size)), ctx
        )

    with isa.compiling_for(cpu_with_amx()):
        show(["bf16"] * 4, 0, emit)


# Attention: scores of 16 queries and 64 keys, the steps along the head written out; then sums of values, which begin
# with what was there, rescaled.
# CHECK-LABEL: func.func @kernel
# CHECK:       "llvm.x86.ldtilecfg"
# CHECK-COUNT-4: "llvm.x86.tilezero"
# CHECK-COUNT-8: "llvm.x86.tdpbf16ps"
# CHECK-COUNT-4: "llvm.x86.tilestored64"
# CHECK:       math.exp2
# CHECK-COUNT-4: "llvm.x86.tileloadd64"
# CHECK:       scf.for {{.*}} step %c32
# CHECK-COUNT-4: "llvm.x86.tdpbf16ps"
# CHECK-NOT:   "llvm.x86.t
# CHECK:       }
# CHECK-COUNT-4: "llvm.x86.tilestored64"
# CHECK:       "llvm.x86.tilerelease"
attention(64, 64)
