# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""`emit_attention`: from a scheduled attention problem to loops."""

from kiln.dialects.schedules.cpu import AmxFlashSchedule, AttentionSchedule
from kiln.lowering import paths
from kiln.lowering.cpu.attention.flash import Attention
from kiln.lowering.cpu.attention.problem import AttentionBuffers, AttentionProblem
from kiln.lowering.cpu.builder import Builder
from kiln.lowering.cpu.contraction.amx import AMX_BF16
from kiln.lowering.cpu.contraction.bf16 import has_pairs
from kiln.lowering.cpu.contraction.vectors import float_unit
from kiln.lowering.cpu.isa import target
from kiln.lowering.cpu.matmul.problem import Epilogue, KernelContext

__all__ = ["emit_attention"]

_TAKEN = paths.group(
    "cpu attention",
    *("vectors", "pairs", "tiles", "mask", "causal"),
    needs={"pairs": "avx512bf16", "tiles": "amx-bf16"},
)


def emit_attention(
    b: Builder,
    problem: AttentionProblem,
    schedule: AttentionSchedule,
    operands: AttentionBuffers,
    epilogue: Epilogue,
    ctx: KernelContext,
) -> None:
    """Emits one thread's share of attention at the current insertion point.

    `epilogue` gets rows of the result: index [*batch, head, query], columns of the value size, f32. The thread's
    scratch must hold `attention_scratch_bytes(problem, schedule)` bytes, 64-byte aligned.
    """
    pairs = has_pairs(problem.dtype, schedule.width, target())
    tiles = isinstance(schedule, AmxFlashSchedule)
    _TAKEN("tiles" if tiles else "pairs" if pairs else "vectors")
    if operands.mask is not None:
        _TAKEN("mask")
    if problem.causal:
        _TAKEN("causal")
    unit = AMX_BF16 if tiles else float_unit("f32", schedule.width, pairs=pairs)
    Attention(b, problem, schedule, operands, epilogue, ctx, unit).emit()
