# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""When products of bf16 and f32 are made by AMX, with which blocks, and which operand is packed."""

from dataclasses import replace

from kiln.dialects.schedules.cpu import AmxBf16Schedule, AmxBf16x3Schedule, GemmSchedule
from kiln.lowering.cpu.contraction import amx
from kiln.lowering.cpu.contraction.bf16 import LANES
from kiln.lowering.cpu.contraction.parts import PARTS
from kiln.lowering.cpu.contraction.sizes import round_up
from kiln.lowering.cpu.isa import Isa
from kiln.lowering.cpu.matmul.blocks import amx_tile, block_rows, is_large, piece_steps
from kiln.lowering.cpu.matmul.problem import MatmulProblem
from kiln.lowering.cpu.matmul.vendor import vendor_fits, vendor_gemm_available

__all__ = [
    "choose_tiles",
    "float_tiles_schedule",
    "is_better_in_place",
    "share_lhs",
]

ROWS, DEPTH = amx.ROWS, amx.BYTES // 2
"""Rows, and steps of k, of one tile of bf16."""

_FEWEST_ROWS = 3  # fewer are limited by the memory that the weight comes from: dot products
_KC = 4096  # steps of k that are packed at once, and
_KS, _FAR_KS = 512, 1024  # those that a register tile sums in one go, with a lhs in the near caches and without
_COLUMNS, _FAR_COLUMNS, _ROWS = 64, 512, 256  # of a block at most
_NEAR_BYTES = 1 << 20  # of a lhs that stays in the second-level cache, which has 2 MiB
_BLOCK_BYTES = 768 << 10  # of a packed block of the rhs
_FAR_K = 2048  # of long rows
_FLOAT_ROWS, _FLOAT_TRANSPOSED_ROWS = 96, 48  # of a rhs [k, n], and [n, k], which the library multiplies slower
_FEWEST_COLUMNS, _FEWEST_STEPS = 96, 192
_PARTS_BYTES = 896 << 10  # of the lhs in parts, which has to stay in the second-level cache
_PARTS_COLUMNS, _FAR_PARTS_COLUMNS = 256, 512  # of a block at most, the last where it splits the lhs anew
_STEPS = 128  # of k: what is split of the weight at once stays in the first-level cache
_TRANSPOSED = 4
"""A weight [n, k] is the left operand where k is this many times the number of rows, or more."""


def choose_tiles(problem: MatmulProblem, m: int, isa: Isa, packed: bool = False) -> AmxBf16Schedule | None:
    """The schedule of a product of bf16 for about m rows; None where the CPU has no AMX, or the product is too small
    for it. `packed`: the rhs is a constant, packed by the compiler.

    Measured: "bf16 products by AMX" in xeon-kernel-rules.json.
    """
    n, k = problem.n, problem.k
    if problem.dtype != "bf16" or not amx.has_amx("bf16", isa) or m < _FEWEST_ROWS:
        return None
    if isinstance(n, int) and n < ROWS or isinstance(k, int) and k < DEPTH:
        return None
    few = m <= ROWS
    aligned = isinstance(k, int) and k % DEPTH == 0
    transposed = not packed and problem.rhs_strides[-2] == 1 and problem.rhs_dtype is None
    transposed = transposed and isinstance(k, int) and aligned and (few or _TRANSPOSED * m <= k or _is_far(m, k))
    mr, nv = amx_tile(m, n)
    kc = piece_steps(k, _KC if isinstance(k, int) else _FAR_KS, DEPTH)
    block = max(_BLOCK_BYTES // (2 * kc) // (2 * ROWS), 2) * 2 * ROWS
    near = 2 * m * kc <= _NEAR_BYTES
    nc = _COLUMNS if near else min(_FAR_COLUMNS, block)
    fetched = is_large(problem) and (packed or (not few if transposed else problem.rhs_strides[-1] == 1))
    return AmxBf16Schedule(
        mr=mr,
        nv=nv,
        width=LANES,
        mc=min(block_rows(problem, m, m if isinstance(problem.m, int) else _ROWS), block if transposed else _ROWS),
        nc=round_up(min(_COLUMNS if transposed else nc, n) if isinstance(n, int) else nc, nv * LANES),
        kc=kc,
        ks=kc if transposed or few else _KS if near else _FAR_KS,
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
    return schedule is not None and schedule.transposed and isinstance(problem.k, int) and _is_far(m, problem.k)


def _is_far(m: int, k: int) -> bool:
    return k >= _FAR_K and 2 * m * k > 2 * _NEAR_BYTES


def share_lhs(schedules: list[GemmSchedule]) -> list[GemmSchedule]:
    """The schedules of products with one lhs, computed block by block in turn, so that it is packed for the first block
    of all only; `begin_sharing` is to be called before the blocks. The same where they do not pack it.
    """
    first = schedules[0]
    if not isinstance(first, (AmxBf16Schedule, AmxBf16x3Schedule)) or any(s != first for s in schedules):
        return schedules
    if isinstance(first, AmxBf16Schedule) and not first.transposed:
        return schedules
    return [replace(first, shared=True)] * len(schedules)


def float_tiles_schedule(problem: MatmulProblem, m: int, isa: Isa) -> AmxBf16x3Schedule | None:
    """The schedule of a product of f32 for about m rows; None where the CPU has no AMX, where the product is too small,
    or where there is no library for what parts of bf16 cannot hold.

    Measured: "f32 products by AMX" in xeon-kernel-rules.json. AMX has a slow state on that machine, so that rules
    take this kernel only where the user allows it (`Isa.float_parts`).
    """
    n, k = problem.n, problem.k
    if problem.dtype != "f32" or problem.rhs_dtype is not None or not amx.has_amx("bf16", isa):
        return None
    if problem.lhs_strides[-1] != 1 or 1 not in problem.rhs_strides[-2:]:
        return None
    transposed = problem.rhs_strides[-1] != 1
    if not (isinstance(n, int) and isinstance(k, int)) or n < _FEWEST_COLUMNS or k < _FEWEST_STEPS:
        return None
    if m < (_FLOAT_TRANSPOSED_ROWS if transposed else _FLOAT_ROWS):
        return None
    if not (vendor_gemm_available() and vendor_fits(problem)):
        return None
    blocks = -(-m // _ROWS)
    rows = round_up(-(-m // blocks), 2 * ROWS)
    most = _PARTS_BYTES // (2 * PARTS * rows) // _STEPS * _STEPS
    pieces = -(-k // most)
    columns = _PARTS_COLUMNS if blocks == pieces == 1 else _FAR_PARTS_COLUMNS
    return AmxBf16x3Schedule(
        mr=2 * ROWS,
        nv=2,
        width=LANES,
        mc=rows,
        nc=min(columns, round_up(n, 2 * LANES)),
        kc=round_up(-(-k // pieces), DEPTH),
        ks=_STEPS,
        transposed=transposed,
    )
