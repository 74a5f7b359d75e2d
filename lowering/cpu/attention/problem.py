# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""What an attention kernel is asked to do, and the tiles it uses."""

from dataclasses import dataclass

from torch_mlir import ir

from kiln.dialects.schedules.cpu import AmxFlashSchedule, AttentionSchedule, FlashSchedule
from kiln.lowering.cpu.builder import Index
from kiln.lowering.cpu.contraction import amx
from kiln.lowering.cpu.isa import Isa
from kiln.lowering.cpu.problem import Size
from kiln.lowering.cpu.sizes import LINE, areas, even_part, round_up

TILE_KEYS = amx.AMX_BF16.depth
"""Keys in a row of a tile of AMX."""


@dataclass(frozen=True)
class AttentionProblem:
    """result[*b, h, s, :] = softmax over t of (q[*b, h, s] . k[*b, g, t] * scale + mask[*b, h, s, t]) @ v[*b, g, t]
    with g = h // (heads / kv_heads).

    Sizes are ints or `index` Values (None at schedule time); the head sizes `qk_size` (E) and `v_size` are ints.
    Strides, in elements, are those of the logical shapes q [*b, H, S, E], k [*b, G, T, E], v [*b, G, T, V] and
    mask [*b, H, S, T] (0 broadcasts); unit stride along the last dimension of q, k and v is fast. `causal` removes
    keys t > s (PyTorch's `is_causal`, aligned to the top left). `mask_dtype`: None, "i8" (a key is removed where
    the mask is 0) or a float type (added to the scores). A row without any key left gives zeros, as PyTorch's
    `scaled_dot_product_attention` does; with `fill`, keys that the mask removes have this score, and a row of -inf
    alone gives NaN. f32 sums throughout; bf16 and f16 operands are widened.
    """

    batch: tuple[Size, ...]
    heads: Size
    kv_heads: Size
    queries: Size
    keys: Size
    qk_size: int
    v_size: int
    q_strides: tuple[Size, ...]
    k_strides: tuple[Size, ...]
    v_strides: tuple[Size, ...]
    scale: float
    causal: bool = False
    mask_strides: tuple[Size, ...] = ()
    mask_dtype: str | None = None
    dtype: str = "f32"
    fill: float | None = None


@dataclass(frozen=True)
class AttentionBuffers:
    """The operands' 1-D memrefs, and the offset of element [0, ..., 0] in each."""

    q: ir.Value
    k: ir.Value
    v: ir.Value
    mask: ir.Value | None = None
    q_offset: Index = 0
    k_offset: Index = 0
    v_offset: Index = 0
    mask_offset: Index = 0


def choose_attention_schedule(problem: AttentionProblem, isa: Isa) -> AttentionSchedule:
    """Tiles: mr query rows by nv vectors in registers, `keys` keys at a time, `queries` query rows a task; scores by
    dot products for queries too few to repay transposing keys.
    """
    width, rules = max(isa.vector_bytes // 4, 4), isa.rules.attention
    mr, nv = (12, 2) if isa.vector_registers >= 32 else (6, 2)
    few = isinstance(problem.queries, int) and problem.queries <= rules.dot_queries and problem.k_strides[-1] == 1
    tiles = not few and problem.dtype == "bf16" and width == amx.ROWS and amx.has_amx("bf16", isa)
    if tiles:
        mr, nv = amx.ROWS, 4
    elif few and isinstance(problem.queries, int):
        mr, nv = max(problem.queries, 1), 4 if problem.queries <= 2 or isa.vector_registers >= 32 else 2
    mr = min(mr, width)
    queries = round_up(rules.queries, mr)
    if isinstance(problem.queries, int) and problem.queries:
        queries = round_up(even_part(problem.queries, rules.queries), mr)
    keys = rules.tile_keys if tiles else rules.causal_keys if problem.causal else rules.keys
    if isinstance(problem.keys, int):
        keys = min(keys, round_up(max(problem.keys, 1), TILE_KEYS if tiles else width))
    if tiles:
        return AmxFlashSchedule(mr=mr, nv=nv, width=width, queries=queries, keys=keys)
    return FlashSchedule(mr=mr, nv=nv, width=width, queries=queries, keys=keys, dot_scores=few)


def attention_layout(problem: AttentionProblem, s: AttentionSchedule) -> dict[str, int]:
    """f32 element offsets of a thread's scratch areas, their strides, and the total `bytes`."""
    width, mr, rows = s.width, s.mr, round_up(s.queries, s.mr)
    keys = round_up(s.keys, TILE_KEYS if isinstance(s, AmxFlashSchedule) else width)
    line = LINE // 4
    v_padded, q_size, strips = round_up(problem.v_size, width), round_up(problem.qk_size, width), rows // mr
    sizes = {
        "q": round_up(rows, width) * (q_size + line),  # whole vectors of rows are written
        "out": rows * v_padded,
        "p": mr * (keys + line),
        "k": q_size * keys,
        "v": keys * v_padded,
        "top": strips * width,  # running maximum of each row's scores, in units of log2
        "sum": strips * width,  # running sum of its exponentials
        "drop": width,  # of one strip: old maximum less new, then the factor 2^drop
        "part": width,  # of one strip: this key block's sums
    }
    layout = areas(sizes, line) | {"rows": rows, "keys": keys, "v_padded": v_padded, "p_stride": keys + line}
    return layout | {"bytes": 4 * layout["end"]}


def attention_scratch_bytes(problem: AttentionProblem, schedule: AttentionSchedule) -> int:
    """Bytes of scratch that one thread needs; the same for all sizes."""
    return attention_layout(problem, schedule)["bytes"]
