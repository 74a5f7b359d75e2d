# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Which kernel multiplies 8-bit integers, with which tiles; contraction/integers.py has the instructions."""

from dataclasses import replace

from kiln.dialects.schedules.cpu import AmxInt8Schedule, ByRowsSchedule, GemmSchedule, Int8DotSchedule, Int8Schedule
from kiln.lowering.cpu.contraction import amx
from kiln.lowering.cpu.contraction.integers import integer_unit
from kiln.lowering.cpu.contraction.sizes import LINE, round_up
from kiln.lowering.cpu.matmul.panels_schedule import COLUMN_TIMES, panel_vectors
from kiln.lowering.cpu.matmul.problem import Isa, MatmulProblem

__all__ = ["choose_integers", "choose_packed_integers"]

_DOT_ROWS = 8  # up to which a rhs [n, k] is read in place: packing takes longer than so few rows
_PACKED_ROWS = 4  # fewer are limited by the memory that the rhs comes from, in whatever order
_KC, _MC, _NC = 512, 256, 192  # 128 KiB of the lhs, 96 of the rhs
_KC_IN_PLACE, _MC_IN_PLACE, _NC_IN_PLACE = 4096, 512, 96
"""Of a lhs that is read in place: k in one piece, so that sums stay in registers, and two panels at a time, which the
tiles of the two before prefetch. Measured: "8-bit integer products, lhs in place" in epyc-kernel-rules.json."""
_SHAPES = {3: 1.0, 4: 1.03, 2: 1.04, 1: 1.3}
"""Vectors of a tile, and the time of tiles of 24 sums with as many: 8 x 3 against 6 x 4 and 12 x 2, 128 and 1024 rows
of [768, 768] on a Zen 5."""
_AMX_KC, _AMX_NC, _AMX_ROWS = 1024, 256, 9  # fewer rows are dot products, be the rhs constant or not


def choose_integers(problem: MatmulProblem, isa: Isa) -> GemmSchedule:
    """The schedule of a product of 8-bit integers; sizes and strides that are no ints count as unknown."""
    m = problem.m
    in_place = problem.lhs_strides[-1] == 1 and problem.rhs_strides[-2] == 1
    large = _tiles(problem, isa, m if isinstance(m, int) else 256)
    if not in_place:
        return large
    if isinstance(m, int):
        return _dot(m, isa) if m <= _DOT_ROWS else large
    return ByRowsSchedule(limit=_DOT_ROWS, small=_dot(_DOT_ROWS, isa), large=large)


def choose_packed_integers(problem: MatmulProblem, isa: Isa) -> Int8Schedule | None:
    """The schedule for a constant rhs, packed in panels before the first call; None where that is no faster."""
    m, n, k = problem.m, problem.n, problem.k
    if problem.batch or not (isinstance(m, int) and isinstance(n, int) and isinstance(k, int)):
        return None
    fewest = _AMX_ROWS if amx.has_amx("i8", isa) else _PACKED_ROWS
    if m < fewest or n < isa.vector_bytes // 4 or k < 16:
        return None
    return replace(_tiles(problem, isa, m), packed=True)


def _dot(m: int, isa: Isa) -> Int8DotSchedule:
    """Rows and columns, a power of two, of a tile of sums; a sum of the row itself is kept as well."""
    wide = isa.vector_registers >= 32
    width = isa.vector_bytes // 4
    mr, nr = (1, min(8 if wide else 4, width)) if m <= 1 else (4 if wide and m > 2 else 2, 4)
    return Int8DotSchedule(mr=mr, nr=nr, width=width, mc=64, nc=64)


def _amx_tiles(problem: MatmulProblem, m: int) -> AmxInt8Schedule:
    """Two by two tiles of 16 x 16 sums, for few rows one by four."""
    mr, nv = (amx.ROWS, 4) if m <= amx.ROWS else (2 * amx.ROWS, 2)
    if isinstance(problem.n, int):
        nv = min(nv, max(1, -(-problem.n // 16)))
    k, kc = problem.k, _AMX_KC
    if isinstance(k, int) and k > 0:
        kc = -(-k // max(1, -(-k // _AMX_KC)))
    mc = min(_MC, max(m, 1)) if isinstance(problem.m, int) else _MC
    nc = nv * 16 * max(1, _AMX_NC // (nv * 16))
    return AmxInt8Schedule(mr=mr, nv=nv, width=16, mc=mc, nc=nc, kc=round_up(kc, LINE))


def _tile_cycles(m: int, mr: int, nv: int) -> float:
    """The cycles of a step of k for all rows: two products each, at least as many as one takes, and loads."""
    return -(-max(m, 1) // mr) * (max(mr * nv / 2, 4.0) + nv / 4)


def _tiles(problem: MatmulProblem, isa: Isa, m: int) -> Int8Schedule:
    if amx.has_amx("i8", isa) and isa.vector_bytes == amx.BYTES and m >= _AMX_ROWS:
        return _amx_tiles(problem, m)
    width = isa.vector_bytes // 4
    wide = isa.vector_registers >= 32
    n, k = problem.n, problem.k
    few: dict[int, float] = {v: 1.0 for v in ((4, 3, 2, 1) if wide else (2, 1))}
    shapes = _SHAPES if wide and m >= 8 else few
    nv = min(shapes, key=lambda v: shapes[v])
    if isinstance(n, int):
        nv = panel_vectors(n, width, {v: shapes[v] * COLUMN_TIMES[v] for v in shapes})
    highest = (24 if wide else 8) // nv
    mr = min((r for r in (12, 8, 6, 4, 3, 2, 1) if r <= highest), key=lambda r: (_tile_cycles(m, r, nv), -r))
    # Where groups of the lhs are multiplied as they are, and lie side by side, copying its rows is of no use.
    in_place = integer_unit(width, isa).shifted and problem.lhs_strides[-1] == 1 and isinstance(k, int) and k >= 4
    longest, mc, columns = (_KC_IN_PLACE, _MC_IN_PLACE, _NC_IN_PLACE) if in_place else (_KC, _MC, _NC)
    kc = longest
    if isinstance(k, int) and k > 0:
        kc = -(-k // max(1, -(-k // longest)))
    return Int8Schedule(
        mr=mr,
        nv=nv,
        width=width,
        mc=min(mc, max(m, 1)) if isinstance(problem.m, int) else mc,
        nc=nv * width * max(1, columns // (nv * width)),
        kc=round_up(kc, LINE),
        in_place=in_place,
        fetch=in_place,
    )
