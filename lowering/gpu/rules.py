# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""The limits that the GPU's schedules compare sizes with, as data: files of `lowering/gpu/choices`, one for each class
below (`kiln/limits.py` reads them). They hold for every GPU; what one GPU has and how fast it is are files of
`lowering/gpu/machines`. The tables of choices between a kernel and a library lie beside them (`dot/measured.py`).

Without MLIR: the frontend asks in processes that load their code.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kiln.limits import Choices

__all__ = [
    "RULES",
    "AttentionRules",
    "ConvolutionRules",
    "LoopRules",
    "ProductRules",
    "TuningRules",
    "rules_for",
]

_FOLDER = Path(__file__).resolve().parent / "choices"


@dataclass(frozen=True)
class LoopRules:
    """Pointwise kernels, reductions and scans: elements of a program and of a step, parts of reductions."""

    block: int
    gather_block: int
    vector_block: int
    busy_programs: int
    pointwise_warps: int
    window_span: int
    gather_span: int
    window_loads: int
    many_loads: int
    window_elements: tuple[int, ...]
    gather_elements: tuple[int, ...]
    spread_warps: int
    warp_elements: int
    transposed_side: int
    tile_warps: int
    longest_rows: tuple[int, ...]
    unread_row: int
    loop_block: int
    unknown_block: tuple[int, ...]
    chain: int
    scan_block: int
    across_scan: tuple[int, ...]
    least_strip: int
    strip: int
    strip_elements: int
    few_steps: int
    part_programs: int
    piece_run: int
    group_channels: int


@dataclass(frozen=True)
class ProductRules:
    """Products: the tiles and their speed, steps, stages, and parts of long sums."""

    tiles: tuple[tuple[float, ...], ...]
    narrow_stores: float
    plain_side: int
    integer_side: int
    other_registers: int
    fewest_registers: int
    dynamic_size: int
    dynamic_batch: int
    group_rows: int
    large_sides: int
    steps: tuple[int, ...]
    plain_step: int
    stages: tuple[int, ...]
    map_stages: int
    persistent_stages: int
    persistent_sums: tuple[int, ...]
    many_sums: int
    long_pieces: int
    row_step: int
    row_elements: int
    across: tuple[int, ...]
    few_rows: int
    scaled_rows: int
    scaled_rows_fast: int
    least_part: int
    most_parts: int
    part_gain: float


@dataclass(frozen=True)
class AttentionRules:
    """Attention. A tile: queries, keys, stages."""

    small_heads: tuple[int, ...]
    large_heads: tuple[int, ...]
    larger_heads: tuple[int, ...]
    plain_blocks: tuple[int, ...]
    few_keys: int
    few_keys_tile: tuple[int, ...]
    masked_keys: int
    one_block: int
    programs: int
    cached_share: float
    turns_keys: int
    many_keys: int


@dataclass(frozen=True)
class ConvolutionRules:
    """Convolutions: what their tiles have besides those of products, windows over single channels, pixels as
    channels.
    """

    least_step: int
    most_sums: int
    narrow_tile: tuple[int, ...]
    waves: int
    strips: tuple[int, ...]
    unknown_strip: int
    strip_columns: int
    columns: tuple[int, ...]
    sliding_lanes: int
    sliding_columns: tuple[int, ...]
    sliding_work: int
    few_channels: int
    many_terms: int
    copy_work: int


@dataclass(frozen=True)
class TuningRules:
    """`max-autotune`: which ops are timed against a library, and which way replaces another."""

    margin: float
    hopeless: float
    least_product: int
    least_convolution: int
    least_attention: int


RULES: dict[str, type[Any]] = {
    "attention_tiles": AttentionRules,
    "convolution_tiles": ConvolutionRules,
    "loops": LoopRules,
    "product_tiles": ProductRules,
    "tuning": TuningRules,
}
"""The class of each file of rules."""

rules_for = Choices(_FOLDER, RULES).rules_for
"""The limits that a class of `RULES` has, from its file."""
