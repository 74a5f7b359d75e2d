# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""With which register tiles and blocks matrices are multiplied; schedule.py: by what.

Tiles fetch what comes next of a constant only where there are several below each other: one alone would wait for its
own fetches. Measured: "few rows of a constant: no fetching" in epyc-kernel-rules.json.
"""

from collections.abc import Sequence
from typing import TypeVar

from kiln.dialects.schedules.cpu import (
    AmxBf16Schedule,
    AmxBf16x3Schedule,
    AmxInt8Schedule,
    BlockedSchedule,
    Int8Schedule,
    PanelSchedule,
    VnniBf16Schedule,
)
from kiln.lowering.considered import cheapest
from kiln.lowering.cpu.bf16 import LANES
from kiln.lowering.cpu.contraction import amx
from kiln.lowering.cpu.contraction.amx import AMX_BF16, has_amx
from kiln.lowering.cpu.contraction.integers import integer_unit
from kiln.lowering.cpu.contraction.parts import PARTS
from kiln.lowering.cpu.isa import Isa
from kiln.lowering.cpu.matmul.problem import MatmulProblem
from kiln.lowering.cpu.matmul.vendor import vendor_fits, vendor_gemm_available
from kiln.lowering.cpu.problem import Size
from kiln.lowering.cpu.sizes import LINE, even_part, round_up

__all__ = [
    "blocked_schedule",
    "choose_integers",
    "choose_pairs",
    "choose_panels",
    "choose_tiles",
    "float_tiles_schedule",
    "is_better_in_place",
    "panel_vectors",
    "stream_schedule",
]

_Panels = TypeVar("_Panels", bound=PanelSchedule)

# ------------------------------------------------------------------------------------------------ what units have alike


def block_rows(problem: MatmulProblem, m: int, most: int) -> int:
    """Rows of a block: all where they are known, and no more than `most`."""
    return min(most, max(m, 1)) if isinstance(problem.m, int) else most


def piece_steps(k: Size, most: int, unit: int = 1, near: bool = False) -> int:
    """Steps of k of a piece (or rows of one), a multiple of `unit`: equal pieces of at most (near: of about) `most`."""
    if not isinstance(k, int) or k <= 0:
        return round_up(most, unit)
    return round_up(-(-k // max(1, round(k / most) if near else -(-k // most))), unit)


def in_panels(
    kind: type[_Panels], problem: MatmulProblem, m: int, tile: tuple[int, int, int], most: Sequence[int], *,
    unit: int = 1, near: bool = False, **more: bool,
) -> _Panels:  # fmt: skip
    """A schedule of panels for about m rows. tile: rows, vectors and their lanes. most: steps of k, rows and columns of
    a block, whose columns are whole panels. unit, near: see `piece_steps`. more: the other fields.
    """
    (mr, nv, width), (steps, rows, columns) = tile, most
    nc = nv * width * max(1, columns // (nv * width))
    mc, kc = block_rows(problem, m, rows), piece_steps(problem.k, steps, unit, near)
    return kind(mr=mr, nv=nv, width=width, mc=mc, nc=nc, kc=kc, **more)


def is_large(problem: MatmulProblem, isa: Isa) -> bool:
    """Whether the rhs is one matrix, of a size that is not known to be small: the second-level cache does not keep it
    from call to call.
    """
    n, k = problem.n, problem.k
    near = isa.rules.products.near_rhs_bytes
    return not problem.batch and not (isinstance(n, int) and isinstance(k, int) and 2 * n * k <= near)


def _register_tile(m: int, n: Size, width: int, tiles: tuple[int, int], times: Sequence[float]) -> tuple[int, int]:
    """Rows and vectors of a register tile, for m rows of the lhs, which equal tiles share, and n columns of the rhs.
    tiles: its sums and vectors at most. times: see `panel_vectors`.
    """
    sums, widest = tiles
    nv = panel_vectors(n, width, times[:widest])
    return even_part(m, min(sums // nv, 12)), nv


def amx_tile(m: int, n: Size) -> tuple[int, int]:
    """Rows and vectors of sums in tile registers: two by two tiles, of few rows one by four; no more than the
    columns.
    """
    mr, nv = (amx.ROWS, 4) if m <= amx.ROWS else (2 * amx.ROWS, 2)
    return mr, min(nv, max(1, -(-n // LANES))) if isinstance(n, int) else nv


def panel_vectors(n: Size, width: int, times: Sequence[float]) -> int:
    """Vectors of `width` columns in a panel of a rhs of n columns: the least time for all columns, padding included.
    times: of a column in panels of 1, 2 and more vectors.
    """

    def cost(v: int) -> float:
        return times[v - 1] * (round_up(max(n, 1), v * width) if isinstance(n, int) else 1)

    return cheapest("vectors of a panel", "time of a row's columns", range(len(times), 0, -1), cost)


# ------------------------------------------------------------------------------------------------- fused multiply-adds

_PAGE = 4096


def _tiles_of(isa: Isa) -> tuple[int, int]:
    """Sums and vectors of a register tile at most."""
    return (24, 4) if isa.vector_registers >= 32 else (12, 3)


def choose_panels(problem: MatmulProblem, isa: Isa, packed: bool = False) -> BlockedSchedule | None:
    """The schedule of products of known size in panels of the rhs: of a constant (`packed`), and of f32 with vectors of
    64 bytes by a large rhs [n, k]; None elsewhere.

    A tile reads its panel from the second-level cache, or from the first where it stays there: a high tile less often.
    What else costs time is a rhs that comes from memory, so tiles prefetch what comes next, and a rhs [n, k] is packed
    one panel after the other.
    """
    m, n, k = problem.m, problem.n, problem.k
    width, alike, rules = isa.vector_bytes // problem.sum_bytes, problem.rhs_dtype is None, isa.rules.products
    fewest, most = rules.panel_rows
    if not (isinstance(m, int) and isinstance(n, int) and isinstance(k, int)) or problem.batch:
        return None
    if n < 2 * width or k < 16 or problem.lhs_strides[-1] != 1:
        return None
    if not packed:
        least = isa.l2_bytes + 1 if m <= rules.few_rows else rules.near_rhs_bytes
        if problem.dtype != "f32" or not alike or isa.vector_bytes < 64 or not fewest <= m <= most:
            return None
        if problem.rhs_strides[-2] != 1 or 4 * n * k < least:
            return None
    mr, nv = _register_tile(m, n, width, _tiles_of(isa), rules.panel_times)
    steps = rules.few_rows_steps if m <= rules.few_rows else rules.panel_steps
    columns = nv * width * (2 if packed or m > rules.one_panel_rows else 1)
    if packed and m > rules.many_rows:
        steps, columns = rules.many_rows_block
    elif packed:
        steps = rules.packed_steps
    fetch = not packed or alike and m > mr
    return in_panels(
        BlockedSchedule, problem, m, (mr, nv, width), (steps, rules.block_rows, columns), near=True,
        pack_lhs=False, pack_rhs=not packed, packed=packed, fetch=fetch,
    )  # fmt: skip


def blocked_schedule(problem: MatmulProblem, isa: Isa, m: int) -> BlockedSchedule:
    """The kernel of register tiles for about m rows, whatever the rule says of other kernels."""
    width, rules = isa.vector_bytes // problem.sum_bytes, isa.rules.products
    half = problem.dtype in ("bf16", "f16")
    lhs_k, rhs_n = problem.lhs_strides[-1], problem.rhs_strides[-1]
    small_n = isinstance(problem.n, int) and problem.n * problem.sum_bytes <= _PAGE
    if rhs_n != 1:
        pack_rhs = True
    elif isinstance(problem.n, int) and problem.n <= rules.small_columns:
        pack_rhs = half and m >= rules.half_rows
    else:
        longest = rules.in_place_short_rows if small_n else rules.in_place_rows
        pack_rhs = m >= longest or half and m > 4
    rows = m if isinstance(problem.m, int) else max(m, 64)
    mr, nv = _register_tile(rows, problem.n, width, _tiles_of(isa), rules.panel_times)
    kc = max(rules.blocked_steps, min(rules.panel_steps, rules.panel_bytes // (nv * width * problem.sum_bytes)))
    if isinstance(problem.k, int) and problem.k > 0:
        kc = piece_steps(problem.k, kc + kc // 4, width)
    return BlockedSchedule(
        mr=mr,
        nv=nv,
        width=width,
        mc=block_rows(problem, m, rules.block_rows),
        nc=min(rules.blocked_columns, max(problem.n, 1)) if isinstance(problem.n, int) else rules.blocked_columns,
        kc=kc,
        pack_lhs=half or lhs_k != 1,
        pack_rhs=pack_rhs,
    )


def stream_schedule(problem: MatmulProblem, isa: Isa, nc: int | None = None, depth: int = 8) -> BlockedSchedule:
    """One row by a rhs [k, n] that is read in place, `depth` rows of it at a time, in runs of `nc` columns.

    Tiles that run down all of k touch another page at every step, and for strides that are a multiple of 4 KiB another
    line of one and the same cache set. Hardware prefetchers follow a few long runs side by side. By default sums of a
    block stay in the first-level cache.
    """
    nc = isa.rules.products.stream_columns if nc is None else nc
    width = isa.vector_bytes // problem.sum_bytes
    half = problem.dtype in ("bf16", "f16")  # widened once
    return BlockedSchedule(mr=1, nv=2, width=width, mc=1, nc=nc, kc=depth, pack_lhs=half, pack_rhs=False)


# ------------------------------------------------------------------------------------------------------- pairs of bf16


def choose_pairs(problem: MatmulProblem, m: int, isa: Isa, packed: bool = False) -> VnniBf16Schedule:
    """The schedule of VDPBF16PS for about m rows; `packed`: the rhs is a constant, packed by the compiler.

    The caller has asked `has_pairs`. A rhs that is in no near cache costs most, so tiles prefetch what comes next, and
    pieces of k and blocks of columns are small enough for two of them in the second-level cache.
    """
    rules = isa.rules.products
    nv = panel_vectors(problem.n, LANES, rules.pairs_panel_times)
    in_place = not packed and problem.rhs_strides[-1] == 1 and m <= rules.pairs_in_place_rows

    def cost(r: int) -> tuple[int, int, int]:
        """Products of a step of k, of which a tile takes the time of a dozen at least: their latency."""
        tiles = -(-max(m, 1) // r)
        return tiles * max(r * nv, 12), tiles * r, -r

    heights = [r for r in (12, 8, 6, 4, 3, 2, 1) if r * nv <= 24]
    mr = cheapest("rows of a register tile", "products a step", heights, cost)
    fetch = not in_place and is_large(problem, isa) and (not packed or m > mr)
    return in_panels(
        VnniBf16Schedule, problem, m, (mr, nv, LANES), rules.pairs_block, unit=2, near=True,
        pack_lhs=problem.lhs_strides[-1] != 1, pack_rhs=not (packed or in_place), packed=packed, fetch=fetch,
    )  # fmt: skip


# ------------------------------------------------------------------------------------------------- bf16 and f32, by AMX


def choose_tiles(problem: MatmulProblem, m: int, isa: Isa, packed: bool = False) -> AmxBf16Schedule | None:
    """The schedule of a product of bf16 for about m rows; None where the CPU has no AMX, or the product is too small
    for it. `packed`: the rhs is a constant, packed by the compiler.
    """
    n, k, rules = problem.n, problem.k, isa.rules.tiles
    if problem.dtype != "bf16" or not has_amx("bf16", isa) or m < rules.rows:
        return None
    if isinstance(n, int) and n < amx.ROWS or isinstance(k, int) and k < AMX_BF16.depth:
        return None
    few = m <= amx.ROWS
    aligned = isinstance(k, int) and k % AMX_BF16.depth == 0
    transposed = not packed and problem.rhs_strides[-2] == 1 and problem.rhs_dtype is None
    long = isinstance(k, int) and (few or rules.transposed_ratio * m <= k or _is_far(m, k, isa))
    transposed = transposed and aligned and long
    mr, nv = amx_tile(m, n)
    kc = piece_steps(k, rules.packed_steps if isinstance(k, int) else rules.far_sum_steps, AMX_BF16.depth)
    block = max(int(rules.block_share * isa.l2_bytes) // (2 * kc) // (2 * amx.ROWS), 2) * 2 * amx.ROWS
    near = 2 * m * kc <= rules.near_share * isa.l2_bytes
    nc, rows = rules.columns if near else min(rules.far_columns, block), isa.rules.products.block_rows
    fetched = is_large(problem, isa) and (packed or (not few if transposed else problem.rhs_strides[-1] == 1))
    return AmxBf16Schedule(
        mr=mr,
        nv=nv,
        width=LANES,
        mc=min(block_rows(problem, m, m if isinstance(problem.m, int) else rows), block if transposed else rows),
        nc=round_up(min(rules.columns if transposed else nc, n) if isinstance(n, int) else nc, nv * LANES),
        kc=kc,
        ks=kc if transposed or few else rules.sum_steps if near else rules.far_sum_steps,
        pack_lhs=not (aligned and (transposed or problem.lhs_strides[-1] == 1)),
        packed=packed,
        transposed=transposed,
        fetch=fetched,
    )


def is_better_in_place(problem: MatmulProblem, m: int, isa: Isa) -> bool:
    """Whether a constant weight is multiplied faster as the lhs, as it is, than packed: where the rows of the input
    are far away, and long.
    """
    schedule = choose_tiles(problem, m, isa)
    return schedule is not None and schedule.transposed and isinstance(problem.k, int) and _is_far(m, problem.k, isa)


def _is_far(m: int, k: int, isa: Isa) -> bool:
    return k >= isa.rules.tiles.far_steps and m * k > isa.rules.tiles.near_share * isa.l2_bytes


def float_tiles_schedule(problem: MatmulProblem, m: int, isa: Isa) -> AmxBf16x3Schedule | None:
    """The schedule of a product of f32 for about m rows; None where the CPU has no AMX, where the product is too small,
    or where there is no library for what parts of bf16 cannot hold.

    AMX has a slow state on the machine where this was measured, so that rules take this kernel only where the user
    allows it (`Isa.float_parts`).
    """
    n, k, rules = problem.n, problem.k, isa.rules.tiles
    if problem.dtype != "f32" or problem.rhs_dtype is not None or not has_amx("bf16", isa):
        return None
    if problem.lhs_strides[-1] != 1 or 1 not in problem.rhs_strides[-2:]:
        return None
    transposed = problem.rhs_strides[-1] != 1
    if not (isinstance(n, int) and isinstance(k, int)) or n < rules.float_columns or k < rules.float_steps:
        return None
    if m < (rules.float_transposed_rows if transposed else rules.float_rows):
        return None
    if not (vendor_gemm_available() and vendor_fits(problem)):
        return None
    most_rows = isa.rules.products.block_rows
    rows = piece_steps(m, most_rows, 2 * amx.ROWS)
    most = max(1, int(rules.parts_share * isa.l2_bytes) // (2 * PARTS * rows * rules.split_steps)) * rules.split_steps
    columns = rules.parts_columns if m <= most_rows and k <= most else rules.far_parts_columns
    return AmxBf16x3Schedule(
        mr=2 * amx.ROWS,
        nv=2,
        width=LANES,
        mc=rows,
        nc=min(columns, round_up(n, 2 * LANES)),
        kc=piece_steps(k, most, AMX_BF16.depth),
        ks=rules.split_steps,
        transposed=transposed,
    )


# ----------------------------------------------------------------------------------------------------- 8-bit integers


def choose_integers(problem: MatmulProblem, isa: Isa, m: int, packed: bool = False) -> Int8Schedule:
    """The schedule of products of 8-bit integers for about m rows, by AMX or by vectors; `packed`: the rhs is a
    constant.
    """
    width, wide, k, rules = isa.vector_bytes // 4, isa.vector_registers >= 32, problem.k, isa.rules.products
    if has_amx("i8", isa) and width == LANES and m >= isa.rules.tiles.int8_rows:
        tile = *amx_tile(m, problem.n), LANES
        return in_panels(AmxInt8Schedule, problem, m, tile, isa.rules.tiles.int8_block, unit=LINE, packed=packed)
    mr, nv = _register_tile(m, problem.n, width, (24, 4) if wide else (8, 2), rules.panel_times)
    # Where groups of the lhs are multiplied as they are, and lie side by side, copying its rows is of no use.
    in_place = integer_unit(width, isa).shifted and problem.lhs_strides[-1] == 1 and isinstance(k, int) and k >= 4
    most, fetch = rules.int8_in_place_block if in_place else rules.int8_block, in_place and (not packed or m > mr)
    return in_panels(
        Int8Schedule, problem, m, (mr, nv, width), most, unit=LINE, packed=packed, in_place=in_place, fetch=fetch
    )
