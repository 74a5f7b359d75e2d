# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""`emit_attention`: from a scheduled attention problem to loops."""

from kiln.dialects.schedules.cpu import AmxFlashSchedule, AttentionSchedule
from kiln.lowering import paths
from kiln.lowering.cpu.attention.flash import Attention
from kiln.lowering.cpu.attention.pairs import PairedAttention
from kiln.lowering.cpu.attention.problem import AttentionBuffers, AttentionProblem
from kiln.lowering.cpu.attention.tiles import TiledAttention
from kiln.lowering.cpu.builder import Builder
from kiln.lowering.cpu.contraction.bf16 import has_pairs
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
    kind = PairedAttention if has_pairs(problem.dtype, schedule.width, target()) else Attention
    if isinstance(schedule, AmxFlashSchedule):
        kind = TiledAttention
    names: dict[type, str] = {PairedAttention: "pairs", TiledAttention: "tiles"}
    _TAKEN(names.get(kind, "vectors"))
    if operands.mask is not None:
        _TAKEN("mask")
    if problem.causal:
        _TAKEN("causal")
    kind(b, problem, schedule, operands, epilogue, ctx).emit()
