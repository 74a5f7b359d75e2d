# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Schedules worth a try for a fusion: around the one that the rules chose."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from torch_mlir import ir

from kiln.dialects.schedules import PartsSchedule, Schedule
from kiln.dialects.schedules.cpu import (
    AmxBf16x3Schedule,
    AmxConvSchedule,
    AttentionSchedule,
    ConvSchedule,
    DepthwiseConvSchedule,
    DirectConvSchedule,
    FlashSchedule,
    GemmConvSchedule,
    GemmSchedule,
    PhasesSchedule,
    PlanarConvSchedule,
    VendorSchedule,
)
from kiln.lowering.cpu import isa
from kiln.lowering.cpu.attention import AttentionProblem
from kiln.lowering.cpu.conv.problem import ConvProblem
from kiln.lowering.cpu.conv.product import as_matmul
from kiln.lowering.cpu.conv.schedule import tile_fits
from kiln.lowering.cpu.conv.tiles_plan import ROWS, is_flat
from kiln.lowering.cpu.sizes import round_up
from kiln.lowering.cpu.tile.attention import find_attention
from kiln.lowering.cpu.tile.conv import find_conv
from kiln.lowering.cpu.tile.phases import find_phases
from kiln.lowering.cpu.tile.product import is_frozen, static_size
from kiln.lowering.cpu.tile.rows_schedule import ROW_UNIT, find_products
from kiln.lowering.cpu.tune.products import product_schedules
from kiln.lowering.tile.body import FusionBody

__all__ = ["candidates"]


def candidates(body: FusionBody, layouts: Sequence[ir.AffineMap], schedule: Schedule) -> list[Schedule]:
    """Other valid schedules for a fusion of known sizes, the most promising first.

    Of a fusion of several parts, one part's schedule is another than in `schedule`.
    """
    parts = body.parts()
    if len(parts) > 1 and isinstance(schedule, PartsSchedule):
        own = schedule.parts
        return [
            PartsSchedule(parts=(*own[:i], other, *own[i + 1 :]))
            for i, (part, mine) in enumerate(zip(parts, own, strict=True))
            for other in (candidates(part, layouts, mine) if mine is not None else ())
        ]
    others: Iterator[Schedule] = iter(())
    if isinstance(schedule, ConvSchedule):
        others = _conv(find_conv(body, layouts).problem(static_size), schedule)
    elif isinstance(schedule, AttentionSchedule):
        others = _attention(find_attention(body, layouts).problem(static_size), schedule)
    elif isinstance(schedule, (GemmSchedule, PhasesSchedule)):
        others = _products(body, layouts, schedule)
    found: list[Schedule] = []
    for other in others:
        if other != schedule and other not in found:
            found.append(other)
    return found


def _products(
    body: FusionBody, layouts: Sequence[ir.AffineMap], schedule: GemmSchedule | PhasesSchedule
) -> Iterator[Schedule]:
    products = find_products(find_phases(body), layouts)
    cpu = isa.target()
    own = schedule.products if isinstance(schedule, PhasesSchedule) else [schedule]
    height = schedule.height if isinstance(schedule, PhasesSchedule) else None
    lists: list[list[GemmSchedule]] = []
    for product, mine in zip(products, own, strict=True):
        problem = product.problem(static_size)
        rows = problem.m if isinstance(problem.m, int) else 64
        if height is not None:
            # Blocks of rows: their number is known when the kernel runs.
            rows = height
            problem = replace(problem, m=None)
        lists.append(product_schedules(problem, cpu, mine, rows, is_frozen(body, product)))
    if isinstance(schedule, PhasesSchedule):
        yield from _phases(schedule, lists)
    else:
        yield from lists[0]


def _phases(schedule: PhasesSchedule, lists: Sequence[Sequence[GemmSchedule]]) -> Iterator[Schedule]:
    """Other blocks, then other schedules of the products. lists: those of each product."""
    mc, nc, nr = schedule.mc, schedule.nc, schedule.nr
    if schedule.height is not None:
        for height in (schedule.height * 2, schedule.height // 2):
            yield replace(schedule, height=max(ROW_UNIT, min(height // ROW_UNIT * ROW_UNIT, 512)))
    elif mc is not None and nc is not None and nr is not None:
        yield replace(schedule, mc=max(ROW_UNIT, mc // 2))
        yield replace(schedule, nc=max(nr, nc // 2 // nr * nr))
        yield replace(schedule, mc=mc * 2)
    # All products alike: what suits one suits the others, which have its rows and columns.
    for choice in zip(*lists, strict=False):
        changed = replace(schedule, products=choice)
        if nc is not None:
            unit = max(_lanes(s) for s in choice)
            changed = replace(changed, nr=unit, nc=round_up(nc, unit))
        yield changed


def _lanes(schedule: GemmSchedule) -> int:
    """Columns of a register tile, of kernels whose vectors lie along columns."""
    return getattr(schedule, "width", 1) * getattr(schedule, "nv", 1)


def _conv(p: ConvProblem, schedule: ConvSchedule) -> Iterator[Schedule]:
    if isinstance(schedule, GemmConvSchedule):
        problem = as_matmul(p)
        rows = problem.m if isinstance(problem.m, int) else 1
        for other in product_schedules(problem, isa.target(), schedule.product, rows, packed=False):
            # The library's letters say nothing of a convolution's leading dimensions.
            if not isinstance(other, (VendorSchedule, AmxBf16x3Schedule)):
                yield GemmConvSchedule(product=other)
    elif isinstance(schedule, DirectConvSchedule):
        wide = isa.target().vector_registers >= 32
        for mr, nv in ((6, 2), (7, 2), (8, 2), (4, 4), (8, 3), (12, 1), (4, 2)) if wide else ((6, 2), (4, 3), (4, 2)):
            if tile_fits(p, mr, nv):
                yield replace(schedule, mr=mr, nv=nv)
        yield replace(schedule, tiles=max(1, schedule.tiles // 2))
        yield replace(schedule, tiles=schedule.tiles * 2)
        yield replace(schedule, piece=schedule.piece * 2)
    elif isinstance(schedule, DepthwiseConvSchedule):
        for mr in (8, 6, 4, 12):
            yield replace(schedule, mr=mr)
        yield replace(schedule, span=max(schedule.width, schedule.span // 2 // schedule.width * schedule.width))
        yield replace(schedule, span=schedule.span * 2)
    elif isinstance(schedule, AmxConvSchedule):
        if is_flat(p):
            rows = round_up(max(1, schedule.rows // 2), ROWS)
            yield replace(schedule, rows=rows, chunk=rows)
        else:
            yield replace(schedule, chunk=max(1, schedule.chunk // 2))
        yield replace(schedule, units=max(1, schedule.units // 2))
        yield replace(schedule, share="blocks" if schedule.share == "units" else "units")
    elif isinstance(schedule, PlanarConvSchedule):
        for nv in (1, 2, 4):
            yield replace(schedule, nv=nv)
        yield replace(schedule, span=max(1, schedule.span // 2))
        yield replace(schedule, span=schedule.span * 2)


def _attention(p: AttentionProblem, schedule: AttentionSchedule) -> Iterator[Schedule]:
    width, mr = schedule.width, schedule.mr
    longest = round_up(max(p.keys, 1), width) if isinstance(p.keys, int) else 256
    for keys in (schedule.keys * 2, schedule.keys // 2):
        if width <= keys <= longest:
            yield replace(schedule, keys=round_up(keys, width))
    for queries in (schedule.queries // 2, schedule.queries * 2):
        if queries >= mr:
            yield replace(schedule, queries=round_up(queries, mr))
    if not isinstance(schedule, FlashSchedule):  # tiles of one size
        return
    if schedule.dot_scores:
        yield replace(schedule, dot_scores=False)
        return
    wide = isa.target().vector_registers >= 32
    for tile in ((8, 3), (8, 2), (6, 4)) if wide else ((4, 3), (4, 2)):
        if tile[0] <= min(width, max(p.queries, 1) if isinstance(p.queries, int) else width):
            yield replace(schedule, mr=tile[0], nv=tile[1], queries=round_up(schedule.queries, tile[0]))
    if isinstance(p.queries, int) and p.queries <= 8 and p.k_strides[-1] == 1:
        yield replace(schedule, dot_scores=True)
