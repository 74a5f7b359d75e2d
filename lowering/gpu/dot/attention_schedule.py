# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Tiles of attention on a GPU: the rule, and the measurements behind it.

Measured on an H200, bf16, batch 4, 32 heads, 4096 queries and keys, against cuDNN (PyTorch's choice there):

| head size | causal | tile                              | speed against cuDNN |
|-----------|--------|-----------------------------------|---------------------|
| 64        | no     | 64 queries x 128 keys, 2 stages   | 1.03                |
| 64        | yes    | 64 x 128, 2 stages, one loop      | 0.99                |
| 128       | no     | 64 x 64, 3 stages                 | 0.78                |
| 128       | yes    | 64 x 64, 3 stages, one loop       | 0.83                |

Two or three small programs with four warps on each multiprocessor beat one large one, and a stage more or less is 10 to
20 %: a fourth one leaves no room for the others.

Masks: one loop in which a branch decides (`masks` "branch") is 1.15 times as fast as the diagonal in a loop of its own,
whose first loads nothing hides, and as fast as a mask on every block is slow (0.86). Up to 1024 keys 64 x 64 with 3
stages is faster (8 x 16 heads: 61.0 us, 62.5 with 64 x 128, cuDNN 61.1; 1 x 16 heads: 15.4, 16.4, 17.8). 197 tokens in
12 heads of 64 fit a block of 256 keys, masked throughout: 3.8, 7.4 and 40.7 us for 1, 8 and 64 images (cuDNN 8.2, 13.3,
47.2; two blocks of 128 through pointers 4.2, 12.1, 63.7).

Where all programs would be on the GPU at once if there were four on each multiprocessor, and not if there are three,
one stage leaves room for them: 2 x 16 heads of 64 elements, 1024 queries and keys, 24.8 us in place of 30.1. Causal,
one stage is never faster.

Where a mask is loaded, 64 keys leave room for more programs, if there are more (bf16, heads of 64, a mask of keys):
64 x 12 heads, 512 tokens 200 us, 231 with 128 keys; 16 x 16 heads, 1024 tokens 255 and 282; 1 x 12 heads, 512 tokens
9.2 and 8.5.

Heads of 128 on Hopper, by warps with different jobs (`specialized.py`), against cuDNN and the kernel above, us:

| heads          | tokens | causal | specialized | cuDNN | 64 x 64 |
|----------------|--------|--------|-------------|-------|---------|
| 4 x 32         | 4096   | no     | 1740        | 1890  | 2379    |
| 4 x 32         | 4096   | yes    | 1018        | 1145  | 1329    |
| 1 x 8          | 16384  | no     | 1647        | 1789  | 2364    |
| 1 x 32 (8 kv)  | 8192   | yes    | 939         | 1018  | 1182    |
| 1 x 32 (8 kv)  | 4096   | yes    | 257         | 281   | 315     |
| 8 x 32 (8 kv)  | 1024   | yes    | 160         | 167   | 187     |
| 1 x 32 (8 kv)  | 1024   | yes    | 26.1        | 32.2  | 32.2    |
| 8 x 16         | 512    | yes    | 31.2        | 33.8  | 34.8    |
| 8 x 16         | 512    | no     | 38.4        | 37.8  | 48.2    |
| 1 x 16         | 1024   | no     | 17.6        | 19.9  | 21.6    |
| 1 x 16         | 512    | no     | 10.3        | 11.8  | 8.4     |
| 4 x 8          | 256    | no     | 7.5         | 9.4   | 5.8     |

Heads of 65 to 127 are padded to 128 in shared memory by their tensor maps:

| heads     | size | tokens | causal | specialized | cuDNN | 64 x 64 | FlashAttention-2 |
|-----------|------|--------|--------|-------------|-------|---------|------------------|
| 4 x 32    | 96   | 4096   | no     | 1484        | 1649  | 2167    | 2503             |
| 4 x 32    | 96   | 4096   | yes    | 842         | 985   | 1174    | 1392             |
| 4 x 32    | 112  | 4096   | no     | 1602        | 1732  | 2261    | 3587             |
| 4 x 32    | 112  | 4096   | yes    | 888         | 1020  | 1231    | 1905             |
| 4 x 32    | 72   | 2048   | no     | 409         | 419   | 666     | 689              |
| 4 x 32    | 120  | 2048   | yes    | 286.1       | 286.0 | 380     | 569              |
| 8 x 16    | 80   | 1024   | no     | 112         | 117   | 152     | 182              |
| 8 x 16    | 80   | 1024   | yes    | 78.8        | 84.7  | 95.8    | 131              |
| 1 x 16    | 80   | 1024   | no     | 17.5        | 21.0  | 21.7    | 34.4             |
| 2 x 16    | 96   | 512    | no     | 12.2        | 14.4  | 13.5    | 18.4             |
| 16 x 16   | 80   | 200    | no     | 22.2        | 25.6  | 30.1    | 30.7             |
| 1 x 16    | 80   | 577    | no     | 12.4        | 15.8  | 14.6    | 26.6             |
| 1 x 32    | 96   | 300    | yes    | 10.7        | 13.6  | 9.4     | 18.6             |

It is not for where there is a multiprocessor for each 64 queries: there small programs are faster (1 x 8 heads, 1024
tokens: 13.6 us, specialized 15.5, cuDNN 17.7; 1 x 4, 2048: 24.3, 26.1, 29.3; 1 x 16, 128 queries, 1024 keys: 13.7,
15.4, 17.9). Heads of 64 gain nothing from it (0.99 of cuDNN, the kernel above 1.02; causal 0.91 to 1.00, and 1.00).
"""

from dataclasses import dataclass

from kiln.dialects.schedules.gpu import FlashSchedule, WarpSpecializedSchedule
from kiln.lowering.gpu.dot.machine import Machine
from kiln.lowering.gpu.dot.schedule import Known, pow2

_BYTES = {"f32": 4, "bf16": 2, "f16": 2}
_PROGRAMS = 3
"""Of one multiprocessor, with two stages."""
_FEW_KEYS = 1024
_CACHED_SHARE = 0.64
"""Of the second-level cache, in which keys and values stay."""
_TURNS_KEYS = 2048
"""Up to which the groups of a causal kernel take turns: 3 % faster, and 2 % slower with more."""
_ONE_BLOCK = 256
"""Keys that one block holds."""


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
    size, wide = _BYTES[shape.dtype], max(pow2(shape.qk_size), pow2(shape.v_size), 16)
    if shape.dtype == "f32" and not shape.tf32:
        # Sums on the plain cores: scores, probabilities and operands share the registers.
        block_m, block_n, stages = (32, 32, 1) if wide <= 128 else (16, 16, 1)
    elif wide <= 64:
        block_m, block_n, stages = 64, 128, 2
    elif wide <= 128:
        block_m, block_n, stages = 64, 64, 3
    else:
        block_m, block_n, stages = 64, 32, 2
    narrow = size == 2
    if narrow and wide <= 64 and shape.causal and shape.keys is not None and shape.keys <= _FEW_KEYS:
        block_n, stages = 64, 3
    if narrow and wide <= 64 and shape.masked and _fills(shape, block_m, machine):
        block_n = 64
    ragged = shape.keys is None or shape.keys % _at_most(block_n, shape.keys) != 0
    masks = "branch" if narrow and (shape.causal or ragged) else "behind"
    few = shape.keys is not None and shape.keys <= _ONE_BLOCK
    if tma and narrow and wide <= 64 and not shape.causal and ragged and few:
        block_n, stages, masks = _ONE_BLOCK, 1, "all"
    block_m = _at_most(block_m, shape.queries)
    block_n = _at_most(block_n, shape.keys)
    if stages == 2 and wide <= 64 and not shape.causal and shape.heads is not None and shape.queries is not None:
        programs = shape.heads * -(-shape.queries // block_m)
        if _PROGRAMS * machine.sms < programs <= (_PROGRAMS + 1) * machine.sms:
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
    return shape.heads * -(-shape.queries // block_m) > _PROGRAMS * machine.sms


def choose_specialized(shape: AttentionShape, machine: Machine) -> WarpSpecializedSchedule | None:
    """The schedule of `dot/specialized.py`, or None where it is not the faster one."""
    heads, queries, keys = shape.heads, shape.queries, shape.keys
    if not machine.warpgroups or shape.qk_size != shape.v_size or not 64 < shape.v_size <= 128:
        return None
    if not heads or not queries or not keys or queries < 128 or heads * -(-queries // 64) <= machine.sms:
        return None
    most = max(1, int(_CACHED_SHARE * machine.l2_bytes) // (2 * keys * shape.v_size * _BYTES[shape.dtype]))
    together = max(n for n in range(1, min(heads, most) + 1) if heads % n == 0) if shape.causal else 1
    return WarpSpecializedSchedule(
        block_m=128,
        block_n=128,
        num_warps=4,
        num_stages=2,
        programs=machine.sms,
        heads_together=together,
        pingpong=shape.causal and keys <= _TURNS_KEYS,
    )


def _at_most(block: int, size: Known) -> int:
    return block if size is None else max(16, min(block, pow2(size)))
