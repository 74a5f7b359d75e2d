# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Schedules worth a try for a fusion on a GPU: around the one that the rules chose."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from torch_mlir import ir

from kiln.dialects.kiln import name_of
from kiln.dialects.schedules import PartsSchedule, Schedule
from kiln.dialects.schedules.gpu import (
    AttentionSchedule,
    ConvSchedule,
    DepthwiseConvSchedule,
    GemvSchedule,
    LoopsSchedule,
    NestSchedule,
    ScanSchedule,
    TileSchedule,
    TmaConvSchedule,
    WarpSpecializedSchedule,
)
from kiln.lowering.gpu.dot.attention_schedule import AttentionShape
from kiln.lowering.gpu.dot.fusions import DotOptions, product_shape
from kiln.lowering.gpu.dot.machine import machine
from kiln.lowering.gpu.dot.schedule import pow2
from kiln.lowering.gpu.dot.windows import find_attention
from kiln.lowering.gpu.smaller import smaller_schedule, through_pointers
from kiln.lowering.gpu.tune.products import in_turn, product_schedules
from kiln.lowering.tile.body import FusionBody

__all__ = ["candidates"]

_MOST_WARPS = 32
_LARGEST_TILE = 1 << 15
"""Elements of a tile in registers."""
_ATTENTION = (
    (64, 64, 4, 2),
    (64, 64, 4, 3),
    (128, 64, 4, 2),
    (128, 64, 8, 3),
    (64, 128, 4, 2),
    (128, 128, 8, 2),
    (64, 32, 4, 3),
)
"""Queries, keys, warps and stages that were the fastest for some size on some GPU."""


def candidates(
    body: FusionBody, layouts: Sequence[ir.AffineMap], schedule: Schedule, options: DotOptions
) -> list[Schedule]:
    """Other valid schedules for a fusion of known sizes, the most promising first.

    Of a fusion of several parts, or of several nests of loops, one has another schedule than in `schedule`; products of
    one schedule change together, since one piece of code serves those that are alike.
    """
    parts = body.parts()
    if len(parts) > 1 and isinstance(schedule, PartsSchedule):
        own = schedule.parts
        choices: list[list[Schedule]] = []
        for group in _together(parts, own):
            mine = own[group[0]]
            found = candidates(parts[group[0]], layouts, mine, options) if mine is not None else []
            choices.append([_changed(schedule, group, x) for x in found])
        return list(in_turn(choices))
    others: Iterator[Schedule] = iter(())
    if isinstance(schedule, (GemvSchedule, TileSchedule)) and not isinstance(schedule, ConvSchedule):
        shape, descriptors = product_shape(body, list(layouts), options)
        others = iter(product_schedules(shape, machine(options.arch), schedule, descriptors))
    elif isinstance(schedule, AttentionSchedule):
        others = _attention(find_attention(body, layouts).shape(options.tf32), schedule)
    elif isinstance(schedule, ConvSchedule):
        others = _conv(schedule)
    elif isinstance(schedule, LoopsSchedule):
        nests = schedule.nests
        others = in_turn(
            [
                [replace(schedule, nests=(*nests[:i], x, *nests[i + 1 :])) for x in _nest(nest)]
                for i, nest in enumerate(nests)
            ]
        )
    elif isinstance(schedule, ScanSchedule):
        nest = NestSchedule(tile=(schedule.rows,), row=schedule.row, num_warps=schedule.num_warps)
        others = (
            replace(schedule, rows=x.tile[0], row=x.row, num_warps=x.num_warps) for x in _rows(nest, nest.row or 1)
        )
    found: list[Schedule] = []
    for other in others:
        if other != schedule and other not in found:
            found.append(other)
    return found


def _changed(schedule: PartsSchedule, group: Sequence[int], other: Schedule) -> PartsSchedule:
    """The schedule with another one for a group of its parts."""
    return PartsSchedule(parts=tuple(other if i in group else mine for i, mine in enumerate(schedule.parts)))


def _names(body: FusionBody) -> set[str]:
    return {name_of(op.operation) for op in body.operations}


def _together(parts: Sequence[FusionBody], schedules: Sequence[Schedule | None]) -> list[list[int]]:
    """Numbers of parts that get another schedule together; none of those without one."""
    groups: list[list[int]] = []
    for number, (part, mine) in enumerate(zip(parts, schedules, strict=True)):
        is_product = "kiln.matmul" in _names(part)
        known = [g for g in groups if is_product and schedules[g[0]] == mine and "kiln.matmul" in _names(parts[g[0]])]
        if known:
            known[0].append(number)
        elif mine is not None:
            groups.append([number])
    return groups


def _nest(nest: NestSchedule) -> Iterator[NestSchedule]:
    return _rows(nest, nest.row) if nest.row is not None else _pointwise(nest)


def _pointwise(nest: NestSchedule) -> Iterator[NestSchedule]:
    """More or fewer elements a program, more or fewer elements a thread."""
    tile, warps = nest.tile, nest.num_warps
    if len(tile) == 1:
        for block, count in ((tile[0], 2 * warps), (2 * tile[0], warps), (tile[0] // 2, warps), (tile[0] * 2, 8)):
            if 32 <= block <= 4096 and 32 * count <= block:
                yield replace(nest, tile=(block,), num_warps=min(count, _MOST_WARPS))
        return
    for sizes in ((32, 32), (32, 64), (64, 32), (32, 128), (128, 32)):
        if all(size <= max(mine, 32) for size, mine in zip(sizes, tile, strict=True)):
            yield replace(nest, tile=sizes, num_warps=max(1, min(8, sizes[0] * sizes[1] // 256)))
    yield replace(nest, num_warps=max(1, warps // 2))


def _rows(nest: NestSchedule, row: int) -> Iterator[NestSchedule]:
    """More or fewer threads a row, rows a program, and elements of a row at a time."""
    rows, warps = nest.tile[0], nest.num_warps
    for count in (2 * warps, warps // 2, 4 * warps):
        if 1 <= count <= _MOST_WARPS and 32 * count <= max(rows * row, 32):
            yield replace(nest, num_warps=count)
    for several in (2 * rows, rows // 2):
        if several >= 1 and several * row <= _LARGEST_TILE:
            share = max(1, min(_MOST_WARPS, warps * several // rows))
            yield replace(nest, tile=(several,), num_warps=share)
    if nest.persistent:
        if row > 1024:
            yield replace(nest, row=1024, persistent=False, num_warps=max(1, min(8, rows * 1024 // 256)))
        return
    for step in (2 * row, row // 2):
        if step >= 16 and rows * step <= _LARGEST_TILE:
            yield replace(nest, row=step)


def _attention(shape: AttentionShape, schedule: AttentionSchedule) -> Iterator[Schedule]:
    """Blocks of queries and keys, stages, warps; where keys are masked."""
    if isinstance(schedule, WarpSpecializedSchedule):
        yield replace(schedule, pingpong=not schedule.pingpong)
        yield smaller_schedule(schedule) or schedule
        return
    queries, keys, stages = schedule.block_m, schedule.block_n, schedule.num_stages
    yield replace(schedule, num_stages=stages + 1)
    ragged = not isinstance(shape.keys, int) or shape.keys % keys != 0
    if shape.causal or ragged:
        yield from (replace(schedule, masks=masks) for masks in ("branch", "all", "behind"))
    for rows, columns, warps, depth in _ATTENTION:
        height = min(rows, pow2(shape.queries)) if isinstance(shape.queries, int) else rows
        if shape.dtype != "f32" or shape.tf32:
            yield replace(schedule, block_m=max(height, 16), block_n=columns, num_warps=warps, num_stages=depth)
    if schedule.tma:
        yield replace(schedule, tma=False)
    if stages > 1:
        yield replace(schedule, num_stages=stages - 1)
    if keys > 16:
        yield replace(schedule, block_n=keys // 2)
    if queries > 16:
        yield replace(schedule, block_m=queries // 2)


def _conv(schedule: ConvSchedule) -> Iterator[Schedule]:
    """Other tiles of the product that a convolution is; strips of another width of a depthwise one."""
    rows, columns, warps = schedule.block_m, schedule.block_n, schedule.num_warps
    if isinstance(schedule, DepthwiseConvSchedule):
        for count in (2, 8):
            yield replace(schedule, num_warps=count)
        for height in (2 * rows, 4 * rows, rows // 2):
            yield replace(schedule, block_m=max(1, height))
        return
    if isinstance(schedule, TmaConvSchedule):
        yield through_pointers(schedule)
    for m, n in ((rows // 2, columns), (rows, columns // 2), (2 * rows, columns), (rows, 2 * columns)):
        if m >= 16 and n >= 16 and m * n <= 128 * 256:
            yield replace(schedule, block_m=m, block_n=n, num_warps=8 if m * n > 128 * 128 else 4)
    if warps < 8:
        yield replace(schedule, num_warps=8)
    for stages in (schedule.num_stages + 1, schedule.num_stages - 1):
        if stages >= 1:
            yield replace(schedule, num_stages=stages)
