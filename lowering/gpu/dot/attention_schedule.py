# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Tiles of attention on a GPU: the rule, with the limits of `choices/attention_tiles.toml`.

Two or three small programs with four warps on each multiprocessor beat one large one. One loop in which a branch
decides about the mask (`masks` "branch") beats a loop of its own for the diagonal, whose first loads nothing hides, and
a mask on every block.

Heads of 65 to 128 elements on Hopper are for warps with different jobs (`specialized.py`), unless there is a
multiprocessor for each 64 queries: there small programs are faster.
"""

from dataclasses import dataclass

from kiln.dialects.schedules.gpu import FlashSchedule, WarpSpecializedSchedule
from kiln.lowering.gpu.dot.machine import Machine
from kiln.lowering.gpu.dot.schedule import Known, pow2
from kiln.lowering.gpu.rules import AttentionRules, rules_for

_BYTES = {"f32": 4, "bf16": 2, "f16": 2}


@dataclass(frozen=True)
class AttentionShape:
    """softmax(query [queries, qk_size] @ key [keys, qk_size]^T) @ value [keys, v_size] for each of `heads` (those of
    all batches); dtype is f32, bf16 or f16. masked: a mask is loaded.
    """

    heads: Known
    queries: Known
    keys: Known
    qk_size: int
    v_size: int
    dtype: str
    tf32: bool = False
    causal: bool = False
    masked: bool = False


def choose_attention(shape: AttentionShape, machine: Machine, tma: bool = False) -> FlashSchedule:
    """The schedule of the kernel for all GPUs. tma: whether keys and values come through tensor maps."""
    rules = rules_for(AttentionRules)
    size, wide = _BYTES[shape.dtype], max(pow2(shape.qk_size), pow2(shape.v_size), 16)
    if shape.dtype == "f32" and not shape.tf32:
        # Sums on the plain cores: scores, probabilities and operands share the registers.
        block_m = block_n = rules.plain_blocks[0 if wide <= 128 else 1]
        stages = 1
    else:
        tile = rules.small_heads if wide <= 64 else rules.large_heads if wide <= 128 else rules.larger_heads
        block_m, block_n, stages = tile
    narrow = size == 2
    if narrow and wide <= 64 and shape.causal and shape.keys is not None and shape.keys <= rules.few_keys:
        block_n, stages = rules.few_keys_tile
    if narrow and wide <= 64 and shape.masked and _fills(shape, block_m, machine):
        block_n = rules.masked_keys
    ragged = shape.keys is None or shape.keys % _at_most(block_n, shape.keys) != 0
    masks = "branch" if narrow and (shape.causal or ragged) else "behind"
    few = shape.keys is not None and shape.keys <= rules.one_block
    if tma and narrow and wide <= 64 and not shape.causal and ragged and few:
        block_n, stages, masks = rules.one_block, 1, "all"
    block_m = _at_most(block_m, shape.queries)
    block_n = _at_most(block_n, shape.keys)
    if stages == 2 and wide <= 64 and not shape.causal and shape.heads is not None and shape.queries is not None:
        programs = shape.heads * -(-shape.queries // block_m)
        if rules.programs * machine.sms < programs <= (rules.programs + 1) * machine.sms:
            stages = 1
    # Half of shared memory: there are to be two programs.
    room = machine.shared_bytes // 2 - block_m * wide * size
    while stages > 1 and stages * 2 * block_n * wide * size > room:
        stages -= 1
    return FlashSchedule(block_m=block_m, block_n=block_n, num_warps=4, num_stages=stages, masks=masks, tma=tma)


def _fills(shape: AttentionShape, block_m: int, machine: Machine) -> bool:
    """Whether there are more programs than the GPU runs at once."""
    if shape.heads is None or shape.queries is None:
        return True
    return shape.heads * -(-shape.queries // block_m) > rules_for(AttentionRules).programs * machine.sms


def choose_specialized(shape: AttentionShape, machine: Machine) -> WarpSpecializedSchedule | None:
    """The schedule of `dot/specialized.py`, or None where it is not the faster one."""
    heads, queries, keys = shape.heads, shape.queries, shape.keys
    if not machine.warpgroups or shape.qk_size != shape.v_size or not 64 < shape.v_size <= 128:
        return None
    if not heads or not queries or not keys or queries < 128 or heads * -(-queries // 64) <= machine.sms:
        return None
    rules = rules_for(AttentionRules)
    most = max(1, int(rules.cached_share * machine.l2_bytes) // (2 * keys * shape.v_size * _BYTES[shape.dtype]))
    together = max(n for n in range(1, min(heads, most) + 1) if heads % n == 0) if shape.causal else 1
    return WarpSpecializedSchedule(
        block_m=128,
        block_n=128,
        num_warps=4,
        num_stages=2,
        programs=machine.sms,
        heads_together=together,
        pingpong=shape.causal and keys <= rules.turns_keys,
    )


def _at_most(block: int, size: Known) -> int:
    return block if size is None else max(16, min(block, pow2(size)))
