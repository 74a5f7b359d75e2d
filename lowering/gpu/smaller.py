# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""The next schedule where a kernel does not compile, or wants more than a multiprocessor has."""

from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any

from kiln.dialects.schedules import PartsSchedule, Schedule
from kiln.dialects.schedules.gpu import (
    DepthwiseConvSchedule,
    FlashSchedule,
    GemvSchedule,
    ImplicitConvSchedule,
    LoopsSchedule,
    NestSchedule,
    ScanSchedule,
    ScatterSchedule,
    TileSchedule,
    TmaConvSchedule,
    TmaSchedule,
    WarpSpecializedSchedule,
)

__all__ = ["more_warps", "smaller_schedule", "through_pointers"]

_LEAST_TILE = 16
"""Sides of a tile for tensor cores."""
_LEAST_BLOCK = 32
"""Elements of a program, of a row: one a thread of a warp."""
_FEW_STAGES = 2
_MOST_WARPS = 16
"""Fuzzed graph 111003552 fails with 1 to 8 and compiles with 16 (Triton 3.6, sm_90; benchmarks/results/fuzz.json)."""


def more_warps(schedule: Schedule) -> Schedule | None:
    """The same tiles with twice the warps, of at most 16, or None: for a kernel that Triton's passes fail on.

    They do not take every kernel with one warp, and those of Triton 3.6 (tritongpu-remove-layout-conversions) move
    conversions of layouts above what they read; where each thread has one element there are none. Tiles for tensor
    cores stay: warps decide about their layouts.
    """
    if isinstance(schedule, (PartsSchedule, LoopsSchedule)):
        return _each(schedule, more_warps, _doubled)
    return _doubled(schedule) if isinstance(schedule, (GemvSchedule, ScanSchedule, ScatterSchedule)) else None


def smaller_schedule(schedule: Schedule) -> Schedule | None:
    """A schedule of the same kernel that keeps less in registers and shared memory, or None if there is none.

    Operands are loaded through pointers, in two stages, before tiles get smaller.
    """
    if isinstance(schedule, (PartsSchedule, LoopsSchedule)):
        return _each(schedule, smaller_schedule, _nest)
    if isinstance(schedule, WarpSpecializedSchedule):
        return FlashSchedule(
            block_m=64, block_n=64, num_warps=4, num_stages=3, masks="branch", tma=True, precision=schedule.precision
        )
    if not isinstance(schedule, (GemvSchedule, TileSchedule, DepthwiseConvSchedule, FlashSchedule)):
        return None
    plain = through_pointers(schedule)
    plain = replace(plain, num_stages=min(_FEW_STAGES, plain.num_stages))
    return plain if plain != schedule else _smaller_tile(plain)


def through_pointers(schedule: Any) -> Any:
    """The same tile with operands that are loaded through pointers."""
    if isinstance(schedule, FlashSchedule):
        return replace(schedule, tma=False)
    if not isinstance(schedule, TmaSchedule):
        return schedule
    kernel = ImplicitConvSchedule if isinstance(schedule, TmaConvSchedule) else TileSchedule
    return kernel(**{field.name: getattr(schedule, field.name) for field in fields(kernel)})


def _each(
    schedule: PartsSchedule | LoopsSchedule,
    of_part: Callable[[Schedule], Schedule | None],
    of_nest: Callable[[NestSchedule], NestSchedule | None],
) -> Schedule | None:
    """The schedule with each part or nest that has another one changed, or None if none has."""
    if isinstance(schedule, PartsSchedule):
        parts = [part and of_part(part) for part in schedule.parts]
        return replace(schedule, parts=_replaced(schedule.parts, parts)) if any(parts) else None
    nests = [of_nest(nest) for nest in schedule.nests]
    return replace(schedule, nests=_replaced(schedule.nests, nests)) if any(nests) else None


def _doubled(schedule: Any) -> Any:
    return None if schedule.num_warps >= _MOST_WARPS else replace(schedule, num_warps=2 * schedule.num_warps)


def _smaller_tile(schedule: Any) -> Any:
    """Half of the terms at a time, then half of the longer side of the tile."""
    if isinstance(schedule, GemvSchedule):
        least = {"block_n": 1, "block_k": _LEAST_BLOCK}
    else:
        if isinstance(schedule, TileSchedule) and schedule.block_k > 2 * _LEAST_BLOCK:
            return replace(schedule, block_k=schedule.block_k // 2)
        least = {"block_m": _LEAST_TILE, "block_n": _LEAST_TILE}
    sides = {side: getattr(schedule, side) for side in least if getattr(schedule, side) > least[side]}
    if not sides:
        return None
    largest = max(sides, key=lambda side: sides[side])
    return replace(schedule, **{largest: sides[largest] // 2}, num_warps=max(1, min(4, schedule.num_warps)))


def _nest(nest: NestSchedule) -> NestSchedule | None:
    """Fewer rows a program, then a row in blocks, then shorter blocks; of a pointwise kernel, fewer elements."""
    tile, row = nest.tile, nest.row
    if max(tile) > (1 if row is not None else _LEAST_BLOCK):
        at = tile.index(max(tile))
        return replace(nest, tile=tuple(n // 2 if i == at else n for i, n in enumerate(tile)))
    if row is not None and nest.persistent and row > 1024:
        return replace(nest, persistent=False, row=1024, num_warps=min(4, nest.num_warps))
    if row is not None and not nest.persistent and row > _LEAST_BLOCK:
        return replace(nest, row=row // 2)
    return None


def _replaced(given: tuple[Any, ...], smaller: list[Any]) -> tuple[Any, ...]:
    return tuple(new or old for new, old in zip(smaller, given, strict=True))
