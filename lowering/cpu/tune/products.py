# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Schedules worth a try for matrix products: around the rule's choice, and the other kernels that fit."""

from collections.abc import Iterator
from dataclasses import replace

from kiln.dialects.schedules.cpu import (
    AmxBf16Schedule,
    AmxBf16x3Schedule,
    AmxInt8Schedule,
    BlockedSchedule,
    DotSchedule,
    GemmSchedule,
    Int8Schedule,
    VendorSchedule,
)
from kiln.lowering.cpu.isa import Isa
from kiln.lowering.cpu.matmul.blocks import blocked_schedule, float_tiles_schedule, stream_schedule
from kiln.lowering.cpu.matmul.emit import normalise
from kiln.lowering.cpu.matmul.problem import MatmulProblem
from kiln.lowering.cpu.matmul.schedule import choose_packed_schedule
from kiln.lowering.cpu.matmul.vendor import vendor_fits, vendor_gemm_available
from kiln.lowering.cpu.sizes import round_up

__all__ = ["product_schedules"]

_WIDE_TILES = ((12, 2), (8, 3), (6, 4), (4, 4))  # rows by vectors, for 32 registers
_TILES = ((6, 2), (4, 3), (4, 2))  # for 16
_DOT_ROWS = 64
_VENDOR_ROWS = 8


def product_schedules(
    problem: MatmulProblem, isa: Isa, default: GemmSchedule, rows: int, packed: bool
) -> list[GemmSchedule]:
    """Candidates for a product of about `rows` rows, the most promising first; all are valid.

    Args:
        default: the rule's choice; it is not among the result.
        packed: whether the rhs may be packed when the code is loaded.
    """
    problem = normalise(problem)
    found: list[GemmSchedule] = []
    for schedule in _in_turn(problem, isa, default, rows, packed):
        if schedule != default and schedule not in found:
            found.append(schedule)
    return found


def _in_turn(
    problem: MatmulProblem, isa: Isa, default: GemmSchedule, rows: int, packed: bool
) -> Iterator[GemmSchedule]:
    """One of each family, then the next of each: the first few are of all kinds."""
    if problem.dtype == "i8":
        yield from _integers(problem, isa, default)
        return
    families = [
        list(_packed(problem, isa, rows) if packed else ()),
        list(_amx(problem, isa, default, rows)),
        list(_vendor(problem, isa, rows)),
        list(_blocked(problem, isa, default, rows)),
        list(_dot(problem, isa, rows)),
        list(_stream(problem, isa)),
    ]
    for place in range(max(map(len, families), default=0)):
        for family in families:
            if place < len(family):
                yield family[place]


def _amx(problem: MatmulProblem, isa: Isa, default: GemmSchedule, rows: int) -> Iterator[GemmSchedule]:
    """Other blocks of the kernel of tiles, where the rule takes that; f32 in parts, where it does not."""
    if isinstance(default, AmxBf16Schedule) and not default.packed:
        unit = default.nv * default.width
        for nc in (128, 512):
            yield replace(default, nc=round_up(nc, unit))
        yield replace(default, mc=max(default.mr, default.mc // 2))
    elif isinstance(default, AmxBf16x3Schedule):
        for ks in (64, 256):
            yield replace(default, ks=ks)
        yield replace(default, nc=2 * default.nc)
    elif not isinstance(default, AmxBf16Schedule):
        parts = float_tiles_schedule(problem, rows, isa)
        if parts is not None:
            yield parts


def _integers(problem: MatmulProblem, isa: Isa, default: GemmSchedule) -> Iterator[GemmSchedule]:
    """Other register tiles of the kernel for integers, where the rule takes that."""
    if isinstance(default, AmxInt8Schedule):
        nr = default.nv * default.width
        yield from (replace(default, nc=round_up(nc, nr)) for nc in (128, 512))
        yield replace(default, kc=2 * default.kc)
    elif isinstance(default, Int8Schedule):
        for mr, nv in _tiles(isa, problem.m if isinstance(problem.m, int) else 64):
            nr = nv * default.width
            yield replace(default, mr=mr, nv=nv, nc=nr * max(1, default.nc // nr))
        yield replace(default, kc=2 * default.kc)


def _tiles(isa: Isa, rows: int) -> list[tuple[int, int]]:
    tiles = _WIDE_TILES if isa.vector_registers >= 32 else _TILES
    return [(mr, nv) for mr, nv in tiles if mr <= max(rows, 4)]


def _blocked(problem: MatmulProblem, isa: Isa, default: GemmSchedule, rows: int) -> Iterator[GemmSchedule]:
    base = default if isinstance(default, BlockedSchedule) and not default.packed else None
    base = base or blocked_schedule(problem, isa, rows)
    yield base
    if problem.rhs_strides[-1] == 1:  # otherwise it has to be packed
        yield replace(base, pack_rhs=not base.pack_rhs)
    for mr, nv in _tiles(isa, rows):
        yield replace(base, mr=mr, nv=nv)
    yield replace(base, kc=-(-base.kc // 2 // base.width) * base.width)
    yield replace(base, mc=max(base.mr, base.mc // 2), nc=2 * base.nc)
    yield replace(base, nc=max(base.nv * base.width, base.nc // 2))


def _packed(problem: MatmulProblem, isa: Isa, rows: int) -> Iterator[GemmSchedule]:
    base = choose_packed_schedule(problem, isa)
    if base is None:
        return
    yield base
    if isinstance(base, AmxBf16Schedule):  # its register tiles are what the processor has
        yield replace(base, nc=round_up(512, base.nv * base.width), ks=1024)
        yield replace(base, nc=base.nv * base.width, ks=512)
        return
    for mr, nv in _tiles(isa, rows):
        lanes = nv * base.width
        yield replace(base, mr=mr, nv=nv, nc=lanes * max(1, 256 // lanes))
    yield replace(base, mc=max(base.mr, base.mc // 2))


def _vendor(problem: MatmulProblem, isa: Isa, rows: int) -> Iterator[GemmSchedule]:
    if rows < _VENDOR_ROWS or not (vendor_gemm_available() and vendor_fits(problem)):
        return
    width = isa.vector_bytes // problem.sum_bytes
    for mc, nc in ((1024, 512), (1024, 4096), (256, 512), (128, 256)):
        yield VendorSchedule(mc=mc, nc=nc, width=width)


def _dot(problem: MatmulProblem, isa: Isa, rows: int) -> Iterator[GemmSchedule]:
    if problem.lhs_strides[-1] != 1 or problem.rhs_strides[-2] != 1 or not 0 < rows <= _DOT_ROWS:
        return
    width = isa.vector_bytes // problem.sum_bytes
    if isa.vector_registers >= 32:
        tiles = ((1, 8), (1, 4)) if rows == 1 else ((6, 4), (4, 4), (2, 8))
    else:
        tiles = ((1, 8), (1, 4)) if rows == 1 else ((3, 4), (4, 2), (2, 4))
    for mr, nr in tiles:
        mr, nr = min(mr, rows), min(nr, width)
        yield DotSchedule(mr=mr, nr=nr, width=width, mc=min(rows, 64), nc=64, kc=8192 if rows == 1 else 1024)


def _stream(problem: MatmulProblem, isa: Isa) -> Iterator[GemmSchedule]:
    if problem.m != 1 or problem.rhs_strides[-1] != 1:
        return
    for nc, depth in ((4096, 8), (65536, 8), (1024, 8), (4096, 4), (4096, 16)):
        yield stream_schedule(problem, isa, nc, depth)
