# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""The limits that the CPU's schedules compare sizes with, as data: `lowering/cpu/choices/*.toml`.

There is a file for each class below (`kiln/limits.py` reads it). Schedules read them through the CPU that code is
made for: `isa.rules.products.dot_rows`. What follows from the processor itself (registers, lanes, tiles, its caches) is
computed from `Isa`.
"""

from dataclasses import dataclass, fields
from functools import cache
from pathlib import Path
from typing import Any

from kiln.limits import Choices, read_rules

__all__ = [
    "FOLDER",
    "OF_ALL",
    "AttentionRules",
    "ConvolutionRules",
    "GradientRules",
    "IntegerRules",
    "LoopRules",
    "ProductRules",
    "Rules",
    "TileRules",
    "rules_for",
    "rules_of",
]

FOLDER = Path(__file__).resolve().parent / "choices"


@dataclass(frozen=True)
class ProductRules:
    """Products by vectors: which kernel, register tiles, blocks. A block: steps of k, rows, columns."""

    vendor_rows: int
    dot_rows: int
    dot_rows_bf16: int
    dot_rows_int8: int
    dot_steps: int
    dot_row_steps: int
    dot_block: int
    stream_columns: int
    vendor_block: tuple[int, ...]
    small_columns: int
    small_size: int
    packed_rows: int
    packed_rows_most: int
    block_rows: int
    near_rhs_bytes: int
    panel_times: tuple[float, ...]
    pairs_panel_times: tuple[float, ...]
    panel_rows: tuple[int, ...]
    few_rows: int
    few_rows_steps: int
    panel_steps: int
    one_panel_rows: int
    many_rows: int
    packed_steps: int
    many_rows_block: tuple[int, ...]
    in_place_rows: int
    in_place_short_rows: int
    half_rows: int
    blocked_steps: int
    panel_bytes: int
    blocked_columns: int
    pairs_in_place_rows: int
    pairs_block: tuple[int, ...]
    int8_block: tuple[int, ...]
    int8_in_place_block: tuple[int, ...]


@dataclass(frozen=True)
class TileRules:
    """Products by AMX. Shares are of the second-level cache."""

    rows: int
    int8_rows: int
    int8_block: tuple[int, ...]
    packed_steps: int
    sum_steps: int
    far_sum_steps: int
    columns: int
    far_columns: int
    near_share: float
    block_share: float
    far_steps: int
    transposed_ratio: int
    float_rows: int
    float_transposed_rows: int
    float_columns: int
    float_steps: int
    parts_share: float
    parts_columns: int
    far_parts_columns: int
    split_steps: int


@dataclass(frozen=True)
class ConvolutionRules:
    """Convolutions: register tiles, parts of rows, and units of tiles of AMX."""

    few_channels: int
    product_pixels: int
    tile_pixels: int
    panel_times: tuple[float, ...]
    row_bytes: int
    tasks: int
    tiles_group: int
    chunk_pixels: int
    unit_pixels: int
    halo_rows: int
    odd_tile_time: float
    copy_share: float
    copy_bytes: int


@dataclass(frozen=True)
class AttentionRules:
    """Attention: keys and queries at a time."""

    dot_queries: int
    queries: int
    keys: int
    causal_keys: int
    tile_keys: int


@dataclass(frozen=True)
class LoopRules:
    """Loops over elements. A cost is that of `OP_COST` (lowering/tile/body.py), of one element."""

    parallel_units: int
    piece_units: int
    unrolled_cost: int
    streamed_bytes: int
    reduction_cost: int
    function_cost: int
    scatter_cost: int
    scatter_shared: int
    stage_bytes: int
    tile_lines: int
    least_columns: int
    least_rows: int
    whole_rows: int
    group_channels: int


@dataclass(frozen=True)
class GradientRules:
    """Gradients that the frontend writes as pointwise ops or leaves to ATen, on every CPU."""

    average_step: int
    average_row: int
    reflected_border: int


@dataclass(frozen=True)
class IntegerRules:
    """Quantised convolutions that the frontend turns into products of integers, on every CPU."""

    window_channels: int
    pixel_channels: int


OF_ALL: dict[str, type[Any]] = {"gradients": GradientRules, "integers": IntegerRules}
"""The classes of files that hold for all CPUs."""


@dataclass(frozen=True)
class Rules:
    """All that schedules read, for vectors of one width."""

    products: ProductRules
    tiles: TileRules
    convolutions: ConvolutionRules
    attention: AttentionRules
    loops: LoopRules


@cache
def rules_of(vector_bytes: int) -> Rules:
    """What holds for vectors of so many bytes."""
    classes: dict[str, Any] = {field.name: field.type for field in fields(Rules)}
    found: dict[str, Any] = {
        name: read_rules(FOLDER / f"{name}.toml", class_, vector_bytes) for name, class_ in classes.items()
    }
    return Rules(**found)


rules_for = Choices(FOLDER, OF_ALL).rules_for
"""The limits that a class of `OF_ALL` has, from its file."""
