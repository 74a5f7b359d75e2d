# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Scaled dot-product attention on the CPU: `choose_attention_schedule`, then `emit_attention`."""

from kiln.lowering.cpu.attention.flash import emit_attention
from kiln.lowering.cpu.attention.problem import (
    AttentionBuffers,
    AttentionProblem,
    attention_scratch_bytes,
    choose_attention_schedule,
)

__all__ = [
    "AttentionBuffers",
    "AttentionProblem",
    "attention_scratch_bytes",
    "choose_attention_schedule",
    "emit_attention",
]
