# RUN: %python %s | filecheck %s
# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""The shape of an attention kernel at the vector stage."""

from matmul_support import StoreEpilogue, show

from kiln.dialects.schedules.cpu import FlashSchedule
from kiln.lowering.cpu.attention import AttentionBuffers, AttentionProblem, emit_attention

TILES = FlashSchedule(mr=2, nv=1, width=8, queries=4, keys=16)


def attention(causal, mask=None, keys=32):
    strides = (2 * 32 * 16, 32 * 16, 16, 1)
    mask_strides = (0, 0, keys, 1) if mask else ()
    problem = AttentionProblem(
        (1,), 2, 2, 32, keys, 16, 16, strides, strides, strides, 0.25, causal, mask_strides, mask
    )

    def emit(b, buffers, symbols, ctx):
        operands = AttentionBuffers(*buffers[:3], mask=buffers[3] if mask else None)
        emit_attention(b, problem, TILES, operands, StoreEpilogue(buffers[-1], strides[:-1]), ctx)

    show(["f32"] * 3 + ([mask] if mask else []) + ["f32"], 0, emit)


# Keys transposed into scratch, scores, online softmax in base 2, output tile rescaled and extended.
# CHECK-LABEL: func.func @kernel
# CHECK-NOT:   vector.create_mask
# CHECK:       vector.load %arg1
# CHECK:       vector.shuffle
# CHECK:       vector.fma
# CHECK:       vector.shuffle {{.*}} [1, 0, 1, 0, 1, 0, 1, 0]
# CHECK:       vector.extract
# CHECK:       math.exp2 {{.*}} fastmath<afn>
# CHECK:       vector.reduction <add>
# CHECK:       math.exp2 {{.*}} fastmath<afn>
# CHECK:       vector.load %arg2
# CHECK:       vector.fma
# CHECK:       arith.divf
# CHECK:       vector.store {{.*}} %arg3
attention(causal=False)

# Causal: blocks of queries are dealt out in turn (step %arg6, the thread count), keys past the row become -inf.
# CHECK-LABEL: func.func @kernel
# CHECK:       %[[LOW:.*]] = arith.constant 0xFF800000 : f32
# CHECK:       scf.for %{{.*}} = %arg5 to %{{.*}} step %arg6
# CHECK:       arith.cmpi slt, {{.*}} : vector<8xi32>
# CHECK:       arith.select
# CHECK:       math.exp2
attention(causal=True)

# A boolean mask selects, a float mask is added in the units of the base-2 exponentials.
# CHECK-LABEL: func.func @kernel
# CHECK:       arith.cmpi ne, {{.*}} : vector<8xi8>
# CHECK:       arith.select
# CHECK-LABEL: func.func @kernel
# CHECK:       arith.constant dense<1.442{{.*}}> : vector<8xf32>
# CHECK:       vector.load %arg3
# CHECK:       vector.fma
attention(causal=False, mask="i8")
attention(causal=False, mask="f32")
