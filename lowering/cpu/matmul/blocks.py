# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""With which register tiles and blocks matrices are multiplied; tiles_schedule.py: floats by AMX, schedule.py: by what.

Tiles fetch what comes next of a constant only where there are several below each other: one alone would wait for its
own fetches. Measured: "few rows of a constant: no fetching" in epyc-kernel-rules.json.
"""

from collections.abc import Mapping, Sequence
from typing import TypeVar

from kiln.dialects.schedules.cpu import (
    AmxInt8Schedule,
    BlockedSchedule,
    Int8Schedule,
    PanelSchedule,
    VnniBf16Schedule,
)
from kiln.lowering.considered import cheapest
from kiln.lowering.cpu.contraction import amx
from kiln.lowering.cpu.contraction.amx import has_amx
from kiln.lowering.cpu.contraction.bf16 import LANES
from kiln.lowering.cpu.contraction.integers import integer_unit
from kiln.lowering.cpu.contraction.sizes import LINE, even_part, round_up
from kiln.lowering.cpu.isa import Isa
from kiln.lowering.cpu.matmul.problem import MatmulProblem, Size

__all__ = [
    "amx_tile",
    "block_rows",
    "blocked_schedule",
    "choose_integers",
    "choose_pairs",
    "choose_panels",
    "is_large",
    "panel_vectors",
    "piece_steps",
    "stream_schedule",
    "vector_class",
]

_Panels = TypeVar("_Panels", bound=PanelSchedule)

_ROWS = 256
"""Rows of a block at most."""

# ------------------------------------------------------------------------------------------------ what units have alike


def vector_class(isa: Isa) -> int:
    """The vector bytes that thresholds are known for: 64, or 32 of fewer."""
    return 64 if isa.vector_bytes >= 64 else 32


def block_rows(problem: MatmulProblem, m: int, most: int = _ROWS) -> int:
    """Rows of a block: all where they are known, and no more than `most`."""
    return min(most, max(m, 1)) if isinstance(problem.m, int) else most


def block_columns(panel: int, most: int) -> int:
    """Columns of a block: whole panels, `most` or one of them."""
    return panel * max(1, most // panel)


def piece_steps(k: Size, most: int, unit: int = 1, near: bool = False) -> int:
    """Steps of k of a piece, a multiple of `unit`: equal pieces of at most (near: of about) `most`."""
    if not isinstance(k, int) or k <= 0:
        return round_up(most, unit)
    return round_up(-(-k // max(1, round(k / most) if near else -(-k // most))), unit)


def in_panels(
    kind: type[_Panels], problem: MatmulProblem, m: int, tile: tuple[int, int, int], most: tuple[int, int, int], *,
    unit: int = 1, near: bool = False, **more: bool,
) -> _Panels:  # fmt: skip
    """A schedule of panels for about m rows. tile: rows, vectors and their lanes. most: steps of k, rows and columns of
    a block. unit, near: see `piece_steps`. more: the other fields.
    """
    (mr, nv, width), (steps, rows, columns) = tile, most
    mc, nc = block_rows(problem, m, rows), block_columns(nv * width, columns)
    return kind(mr=mr, nv=nv, width=width, mc=mc, nc=nc, kc=piece_steps(problem.k, steps, unit, near), **more)


def is_large(problem: MatmulProblem) -> bool:
    """Whether the rhs is one matrix, of a size that is not known to be small: the second-level cache does not keep it
    from call to call.
    """
    n, k = problem.n, problem.k
    return not problem.batch and not (isinstance(n, int) and isinstance(k, int) and 2 * n * k <= _LARGE_BYTES)


_LARGE_BYTES = 256 << 10
_TIMES = {3: 1.0, 4: 1.03, 2: 1.03, 1: 1.3}
_PAIRS_TIMES = {4: 1.0, 3: 1.01, 2: 1.03, 1: 1.3}
"""Of a column in a panel of so many vectors: the widest that leave room for several rows are the fastest."""


def _register_tile(m: int, n: Size, width: int, sums: int, vectors: Sequence[int] = (4, 3, 2, 1)) -> tuple[int, int]:
    """Rows and vectors of a register tile of at most `sums` sums, for m rows of the lhs, which equal tiles share, and n
    columns of the rhs. Measured: "register tiles by one rule" in epyc-kernel-rules.json.
    """
    nv = panel_vectors(n, width, {v: _TIMES[v] for v in vectors})
    return even_part(m, min(sums // nv, 12)), nv


def amx_tile(m: int, n: Size) -> tuple[int, int]:
    """Rows and vectors of sums in tile registers: two by two tiles, of few rows one by four; no more than the
    columns.
    """
    mr, nv = (amx.ROWS, 4) if m <= amx.ROWS else (2 * amx.ROWS, 2)
    return mr, min(nv, max(1, -(-n // LANES))) if isinstance(n, int) else nv


def panel_vectors(n: Size, width: int, times: Mapping[int, float]) -> int:
    """Vectors of `width` columns in a panel of a rhs of n columns, from those that `times` has: the least time for all
    columns, padding included.
    """

    def cost(v: int) -> float:
        return times[v] * (round_up(max(n, 1), v * width) if isinstance(n, int) else 1)

    return cheapest("vectors of a panel", "time of a row's columns", times, cost)


# ------------------------------------------------------------------------------------------------- fused multiply-adds

_FEW_ROWS = 32
"""Up to here dot products, which do not pack, are as fast with a rhs that the second-level cache keeps (of a cell of a
recurrent layer, from step to step)."""
_PANEL_ROWS = range(8, 257)  # of the product, if the rhs is no constant
_MANY_ROWS = 512  # of a product with a constant
_PACKED_STEPS, _MANY_STEPS, _MANY_COLUMNS = 192, 384, 256  # of a block: a constant, many rows of it
_STEPS_OF_FEW, _PANEL_STEPS = 256, 512  # few rows of another rhs, more
_WHOLE = 64  # up to as many rows one panel is packed at a time, else two
_IN_PLACE_ROWS = {32: 32, 64: 129}  # by vector bytes: from how many rows of the lhs a rhs [k, n] is packed;
_SHORT_ROWS = {32: 96, 64: 257}  # where it has short rows:
_IN_PLACE_BYTES = 4096  # the next row is on the next page
_HALF_ROWS = 32
_SMALL_N = 128
_BLOCK_STEPS = {32: 0, 64: 384}  # of k that are summed at once, whatever the first-level cache holds
_PANEL_BYTES = 24 << 10  # of one rhs panel: three quarters of a 32 KiB first-level cache


def _tiles_of(isa: Isa) -> tuple[int, Sequence[int]]:
    """Sums of a register tile, and the vectors that one may have."""
    return (24, (4, 3, 2, 1)) if isa.vector_registers >= 32 else (12, (3, 2, 1))


def choose_panels(problem: MatmulProblem, isa: Isa, packed: bool = False) -> BlockedSchedule | None:
    """The schedule of products of known size in panels of the rhs: of a constant (`packed`), and of f32 with vectors of
    64 bytes by a large rhs [n, k]; None elsewhere.

    A tile reads its panel from the second-level cache, or from the first where it stays there: a high tile less often.
    What else costs time is a rhs that comes from memory, so tiles prefetch what comes next, and a rhs [n, k] is packed
    one panel after the other. Measured: "f32 products in panels" and "constants in panels" in epyc-kernel-rules.json.
    """
    m, n, k = problem.m, problem.n, problem.k
    width, alike = isa.vector_bytes // problem.sum_bytes, problem.rhs_dtype is None
    if not (isinstance(m, int) and isinstance(n, int) and isinstance(k, int)) or problem.batch:
        return None
    if n < 2 * width or k < 16 or problem.lhs_strides[-1] != 1:
        return None
    if not packed:
        least = isa.l2_bytes + 1 if m <= _FEW_ROWS else _LARGE_BYTES
        if problem.dtype != "f32" or not alike or isa.vector_bytes < 64 or m not in _PANEL_ROWS:
            return None
        if problem.rhs_strides[-2] != 1 or 4 * n * k < least:
            return None
    mr, nv = _register_tile(m, n, width, *_tiles_of(isa))
    steps, panels = _STEPS_OF_FEW if m <= _FEW_ROWS else _PANEL_STEPS, 2 if packed or m > _WHOLE else 1
    if packed:
        steps = _PACKED_STEPS
        if m > _MANY_ROWS:  # which are read again for each block of columns, from a far cache
            steps, panels = _MANY_STEPS, max(1, _MANY_COLUMNS // (nv * width))
    most = steps, _ROWS, panels * nv * width
    fetch = not packed or alike and m > mr
    return in_panels(
        BlockedSchedule, problem, m, (mr, nv, width), most, near=True, pack_lhs=False, pack_rhs=not packed,
        packed=packed, fetch=fetch,
    )  # fmt: skip


def blocked_schedule(problem: MatmulProblem, isa: Isa, m: int) -> BlockedSchedule:
    """The kernel of register tiles for about m rows, whatever the rule says of other kernels."""
    width, bytes_ = isa.vector_bytes // problem.sum_bytes, vector_class(isa)
    half = problem.dtype in ("bf16", "f16")
    lhs_k, rhs_n = problem.lhs_strides[-1], problem.rhs_strides[-1]
    small_n = isinstance(problem.n, int) and problem.n * problem.sum_bytes <= _IN_PLACE_BYTES
    if rhs_n != 1:
        pack_rhs = True
    elif isinstance(problem.n, int) and problem.n <= _SMALL_N:
        pack_rhs = half and m >= _HALF_ROWS
    else:
        longest = _SHORT_ROWS[bytes_] if small_n else _IN_PLACE_ROWS[bytes_]
        pack_rhs = m >= longest or half and m > 4
    rows = m if isinstance(problem.m, int) else max(m, 64)
    mr, nv = _register_tile(rows, problem.n, width, *_tiles_of(isa))
    kc = max(256, _BLOCK_STEPS[bytes_], min(512, _PANEL_BYTES // (nv * width * problem.sum_bytes)))
    if isinstance(problem.k, int) and problem.k > 0:
        kc = piece_steps(problem.k, kc + kc // 4, width)
    return BlockedSchedule(
        mr=mr,
        nv=nv,
        width=width,
        mc=block_rows(problem, m),
        nc=256 if not (isinstance(problem.n, int) and problem.n < 256) else max(problem.n, 1),
        kc=kc,
        pack_lhs=half or lhs_k != 1,
        pack_rhs=pack_rhs,
    )


def stream_schedule(problem: MatmulProblem, isa: Isa, nc: int | None = None, depth: int = 8) -> BlockedSchedule:
    """One row by a rhs [k, n] that is read in place, `depth` rows of it at a time, in runs of `nc` columns.

    Tiles that run down all of k touch another page at every step, and for strides that are a multiple of 4 KiB another
    line of one and the same cache set. Hardware prefetchers follow a few long runs side by side. By default sums of a
    block stay in the first-level cache; a long row has few and longer runs.
    """
    if nc is None:
        nc = 65536 if isinstance(problem.n, int) and problem.n > 16384 else 4096
    width = isa.vector_bytes // problem.sum_bytes
    half = problem.dtype in ("bf16", "f16")  # widened once
    return BlockedSchedule(mr=1, nv=2, width=width, mc=1, nc=nc, kc=depth, pack_lhs=half, pack_rhs=False)


# ------------------------------------------------------------------------------------------------------- pairs of bf16

_PAIRS_IN_PLACE = 12
_PAIRS_BLOCK = 192, _ROWS, 128  # steps of k, rows, columns


def choose_pairs(problem: MatmulProblem, m: int, packed: bool = False) -> VnniBf16Schedule:
    """The schedule of VDPBF16PS for about m rows; `packed`: the rhs is a constant, packed by the compiler.

    The caller has asked `has_pairs`. A rhs that is in no near cache costs most, so tiles prefetch what comes next, and
    pieces of k and blocks of columns are small enough for two of them in the second-level cache.
    Measured: "bf16 products in pairs" in epyc-kernel-rules.json.
    """
    nv = panel_vectors(problem.n, LANES, _PAIRS_TIMES)
    in_place = not packed and problem.rhs_strides[-1] == 1 and m <= _PAIRS_IN_PLACE

    def cost(r: int) -> tuple[int, int, int]:
        """Products of a step of k, of which a tile takes the time of a dozen at least: their latency."""
        tiles = -(-max(m, 1) // r)
        return tiles * max(r * nv, 12), tiles * r, -r

    heights = [r for r in (12, 8, 6, 4, 3, 2, 1) if r * nv <= 24]
    mr = cheapest("rows of a register tile", "products a step", heights, cost)
    fetch = not in_place and is_large(problem) and (not packed or m > mr)
    return in_panels(
        VnniBf16Schedule, problem, m, (mr, nv, LANES), _PAIRS_BLOCK, unit=2, near=True,
        pack_lhs=problem.lhs_strides[-1] != 1, pack_rhs=not (packed or in_place), packed=packed, fetch=fetch,
    )  # fmt: skip


# ----------------------------------------------------------------------------------------------------- 8-bit integers

_BLOCK = 512, _ROWS, 192  # steps of k, rows, columns: 128 KiB of the lhs, 96 of the rhs
_BLOCK_AMX = 1024, _ROWS, 256
_BLOCK_IN_PLACE = 4096, 512, 96
"""Of a lhs that is read in place: k in one piece, so that sums stay in registers, and two panels at a time, which the
tiles of the two before prefetch. Measured: "8-bit integer products, lhs in place" in epyc-kernel-rules.json."""
_AMX_ROWS = 9  # fewer are dot products, be the rhs constant or not


def choose_integers(problem: MatmulProblem, isa: Isa, m: int, packed: bool = False) -> Int8Schedule:
    """The schedule of products of 8-bit integers for about m rows, by AMX from `_AMX_ROWS` on, else by vectors;
    `packed`: the rhs is a constant.
    """
    width, wide, k = isa.vector_bytes // 4, isa.vector_registers >= 32, problem.k
    if has_amx("i8", isa) and width == LANES and m >= _AMX_ROWS:
        tile = *amx_tile(m, problem.n), LANES
        return in_panels(AmxInt8Schedule, problem, m, tile, _BLOCK_AMX, unit=LINE, packed=packed)
    mr, nv = _register_tile(m, problem.n, width, 24) if wide else _register_tile(m, problem.n, width, 8, (2, 1))
    # Where groups of the lhs are multiplied as they are, and lie side by side, copying its rows is of no use.
    in_place = integer_unit(width, isa).shifted and problem.lhs_strides[-1] == 1 and isinstance(k, int) and k >= 4
    most, fetch = _BLOCK_IN_PLACE if in_place else _BLOCK, in_place and (not packed or m > mr)
    return in_panels(
        Int8Schedule, problem, m, (mr, nv, width), most, unit=LINE, packed=packed, in_place=in_place, fetch=fetch
    )
