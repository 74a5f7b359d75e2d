# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Schedules of GPU kernels: tiles, warps, stages, and how operands are loaded."""

from dataclasses import dataclass
from typing import Literal

from typing_extensions import override

from kiln.dialects.schedules.base import InvalidSchedule, Positive, PowerOfTwo, Schedule

__all__ = [
    "AttentionSchedule",
    "ConvSchedule",
    "DepthwiseConvSchedule",
    "DotSchedule",
    "FlashSchedule",
    "GemmSchedule",
    "GemvSchedule",
    "ImplicitConvSchedule",
    "LoopsSchedule",
    "NestSchedule",
    "Precision",
    "ScanSchedule",
    "SlidingConvSchedule",
    "ScatterSchedule",
    "TileSchedule",
    "TmaConvSchedule",
    "TmaSchedule",
    "WarpSpecializedSchedule",
]

Precision = Literal["ieee", "tf32", "fast"]
"""How tensor cores take operands: f32 as they are, rounded to 10 bits of mantissa, 8-bit floats with fast sums."""


@dataclass(frozen=True, kw_only=True)
class NestSchedule(Schedule):
    """One nest of loops.

    tile: elements of a program along the results' loops. row: elements of a row at a time, of a nest with reductions.
    persistent: these are the whole row, which stays in registers.
    """

    tile: tuple[PowerOfTwo, ...]
    num_warps: PowerOfTwo
    row: PowerOfTwo | None = None
    persistent: bool = False

    @override
    def check(self) -> None:
        if not self.tile:
            raise InvalidSchedule("tile", "at least one size", "none")
        if self.persistent and self.row is None:
            raise InvalidSchedule("persistent", "false in a nest without field 'row'", "true")


@dataclass(frozen=True, kw_only=True)
class LoopsSchedule(Schedule, kernel="gpu.loops"):
    """Pointwise ops and reductions: one nest after the other."""

    nests: tuple[NestSchedule, ...]


@dataclass(frozen=True, kw_only=True)
class ScanSchedule(Schedule, kernel="gpu.scan"):
    """A running sum, product or extremum: `rows` rows a program, `row` elements of these at a time."""

    rows: PowerOfTwo
    row: PowerOfTwo
    num_warps: PowerOfTwo


@dataclass(frozen=True, kw_only=True)
class ScatterSchedule(Schedule, kernel="gpu.scatter"):
    """Elements that are written where indices say: `block` of them a program."""

    block: PowerOfTwo
    num_warps: PowerOfTwo


@dataclass(frozen=True, kw_only=True)
class DotSchedule(Schedule):
    """A tile of `block_m` x `block_n` sums a program; num_stages: blocks of operands in flight."""

    block_m: PowerOfTwo
    block_n: PowerOfTwo
    num_warps: PowerOfTwo
    num_stages: Positive
    precision: Precision = "ieee"


@dataclass(frozen=True, kw_only=True)
class GemvSchedule(Schedule, kernel="gpu.gemm.gemv"):
    """One row against all columns: `block_n` of them a program, `block_k` terms at a time.

    transposed: one column against all rows; `block_n` are rows.
    """

    transposed: bool
    block_n: PowerOfTwo
    block_k: PowerOfTwo
    num_warps: PowerOfTwo
    num_stages: Positive
    precision: Precision = "ieee"


@dataclass(frozen=True, kw_only=True)
class TileSchedule(DotSchedule, kernel="gpu.gemm.tile"):
    """A product whose operands are loaded through pointers, `block_k` terms at a time.

    group_m: rows of tiles that are walked together. epilogue_pieces: parts of the columns that the epilogue takes in
    turn.
    """

    block_k: PowerOfTwo
    group_m: Positive
    epilogue_pieces: PowerOfTwo = 1


@dataclass(frozen=True, kw_only=True)
class TmaSchedule(TileSchedule, kernel="gpu.gemm.tma"):
    """A product whose operands come through tensor maps.

    persistent: `programs` programs in all take tiles in turn, so that the loads of the next run under an epilogue.
    """

    persistent: bool
    programs: Positive


@dataclass(frozen=True, kw_only=True)
class ImplicitConvSchedule(TileSchedule, kernel="gpu.conv.implicit"):
    """A convolution as a product: `block_m` positions by `block_n` channels, `block_k` channels of taps at a time."""


@dataclass(frozen=True, kw_only=True)
class TmaConvSchedule(TmaSchedule, kernel="gpu.conv.tma"):
    """A convolution that is a product of two matrices, both through tensor maps."""


@dataclass(frozen=True, kw_only=True)
class DepthwiseConvSchedule(DotSchedule, kernel="gpu.conv.depthwise"):
    """A convolution with one input channel a group: `block_m` positions by `block_n` channels."""

    group_m: Positive


@dataclass(frozen=True, kw_only=True)
class SlidingConvSchedule(DepthwiseConvSchedule, kernel="gpu.conv.sliding"):
    """The same where windows move by one position: `block_m` tiles of `rows` x `columns` positions."""

    rows: Positive
    columns: Positive


@dataclass(frozen=True, kw_only=True)
class FlashSchedule(DotSchedule, kernel="gpu.attention.flash"):
    """Attention in one pass over the keys: `block_m` queries by `block_n` keys.

    masks: how blocks of keys are masked; see `emit_attention`. tma: keys and values come through tensor maps.
    across_heads: programs of one block of all heads follow each other; else those of one head.
    """

    masks: Literal["behind", "ahead", "branch", "all"] = "behind"
    tma: bool = False
    across_heads: bool = False


@dataclass(frozen=True, kw_only=True)
class WarpSpecializedSchedule(DotSchedule, kernel="gpu.attention.warp_specialized"):
    """Attention by warps with different jobs (`dot/specialized.py`).

    programs: as many take tiles in turn. heads_together: heads whose keys and values the second-level cache holds.
    pingpong: the two groups of warps take turns in starting their products.
    """

    programs: Positive
    heads_together: Positive
    pingpong: bool


GemmSchedule = GemvSchedule | TileSchedule
ConvSchedule = ImplicitConvSchedule | TmaConvSchedule | DepthwiseConvSchedule
AttentionSchedule = FlashSchedule | WarpSpecializedSchedule
