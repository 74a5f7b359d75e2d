# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Schedules worth a try for a product on a GPU: the next tiles by the model, and changes of the rule's choice."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import zip_longest
from typing import TypeVar

from kiln.dialects.schedules.gpu import GemmSchedule, GemvSchedule, TileSchedule, TmaSchedule
from kiln.lowering.gpu.dot.machine import Machine
from kiln.lowering.gpu.dot.schedule import ProductShape, schedule_of_tile, takes_descriptors, tiles_by_time

__all__ = ["in_turn", "product_schedules"]

T = TypeVar("T")

_TILES = 6
"""Tiles of the model's order that are tried."""
_MOST_STAGES = 8
_LARGE = 128 * 256


def in_turn(lists: Sequence[Iterable[T]]) -> Iterator[T]:
    """The first of each list, then the second of each: the first few are of all kinds."""
    nothing = object()
    for found in zip_longest(*lists, fillvalue=nothing):
        yield from (x for x in found if x is not nothing)  # pyright: ignore[reportReturnType] - without the filler


def product_schedules(
    shape: ProductShape, machine: Machine, default: GemmSchedule, descriptors: bool
) -> list[GemmSchedule]:
    """Candidates for a product, the most promising first.

    Args:
        default: the rule's choice; it is not among the result.
        descriptors: whether operands may be loaded through tensor maps.
    """

    def of_tile(tile: tuple[int, int], through_maps: bool) -> GemmSchedule:
        return replace(schedule_of_tile(shape, machine, tile, through_maps), precision=default.precision)

    families: list[list[GemmSchedule]]
    if isinstance(default, GemvSchedule):
        families = [list(_gemv(default))]
    else:
        through = [False, True] if descriptors and machine.tensor_maps and takes_descriptors(shape) else [False]
        mapped = isinstance(default, TmaSchedule)
        tiles = tiles_by_time(shape, machine)[:_TILES]
        own = (default.block_m, default.block_n)
        families = [
            list(_changes(default, machine)),
            [of_tile(tile, mapped and True in through) for tile in tiles],
            [of_tile(tile, not mapped) for tile in [own, *tiles]] if (not mapped) in through else [],
        ]
    found: list[GemmSchedule] = []
    for schedule in in_turn(families):
        if schedule != default and schedule not in found:
            found.append(schedule)
    return found


def _changes(default: TileSchedule, machine: Machine) -> Iterator[GemmSchedule]:
    rows, columns, stages = default.block_m, default.block_n, default.num_stages
    yield replace(default, num_stages=stages - 1 if stages > 2 else stages + 1)
    if isinstance(default, TmaSchedule):
        yield replace(default, persistent=not default.persistent, programs=machine.sms)
    if rows * columns <= _LARGE:
        yield replace(default, num_warps=4 if default.num_warps == 8 else 8)
    if default.block_k > 32:
        yield replace(default, block_k=default.block_k // 2, num_stages=min(2 * stages, _MOST_STAGES))
    if default.epilogue_pieces < 4 and columns >= 64:
        yield replace(default, epilogue_pieces=2 * default.epilogue_pieces)
    if stages + 1 <= _MOST_STAGES:
        yield replace(default, num_stages=stages + 1)


def _gemv(default: GemvSchedule) -> Iterator[GemmSchedule]:
    columns, step, warps = default.block_n, default.block_k, default.num_warps
    sizes = (
        (2 * columns, step, warps),
        (columns, step, 2 * warps),
        (columns, step // 2, warps),
        (4 * columns, step // 2, warps),
        (columns, step // 2, max(1, warps // 2)),
        (2 * columns, step // 2, warps),
        (columns, step, max(1, warps // 2)),
    )
    for n, k, count in sizes:
        if k >= 16 and 32 * count <= n * k <= 1 << 14:
            yield replace(default, block_n=n, block_k=k, num_warps=count)
