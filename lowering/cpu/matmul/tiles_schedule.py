# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""When products of bf16 and f32 are made by AMX, with which blocks, and which operand is packed."""

from dataclasses import replace

from kiln.dialects.schedules.cpu import AmxBf16Schedule, AmxBf16x3Schedule, GemmSchedule
from kiln.lowering.cpu.bf16 import LANES
from kiln.lowering.cpu.contraction import amx
from kiln.lowering.cpu.contraction.parts import PARTS
from kiln.lowering.cpu.isa import Isa
from kiln.lowering.cpu.matmul.blocks import amx_tile, block_rows, is_large, piece_steps
from kiln.lowering.cpu.matmul.problem import MatmulProblem
from kiln.lowering.cpu.matmul.vendor import vendor_fits, vendor_gemm_available
from kiln.lowering.cpu.sizes import round_up

__all__ = [
    "choose_tiles",
    "float_tiles_schedule",
    "is_better_in_place",
    "share_lhs",
]

ROWS, DEPTH = amx.ROWS, amx.BYTES // 2
"""Rows, and steps of k, of one tile of bf16."""


def choose_tiles(problem: MatmulProblem, m: int, isa: Isa, packed: bool = False) -> AmxBf16Schedule | None:
    """The schedule of a product of bf16 for about m rows; None where the CPU has no AMX, or the product is too small
    for it. `packed`: the rhs is a constant, packed by the compiler.
    """
    n, k, rules = problem.n, problem.k, isa.rules.tiles
    if problem.dtype != "bf16" or not amx.has_amx("bf16", isa) or m < rules.rows:
        return None
    if isinstance(n, int) and n < ROWS or isinstance(k, int) and k < DEPTH:
        return None
    few = m <= ROWS
    aligned = isinstance(k, int) and k % DEPTH == 0
    transposed = not packed and problem.rhs_strides[-2] == 1 and problem.rhs_dtype is None
    long = isinstance(k, int) and (few or rules.transposed_ratio * m <= k or _is_far(m, k, isa))
    transposed = transposed and aligned and long
    mr, nv = amx_tile(m, n)
    kc = piece_steps(k, rules.packed_steps if isinstance(k, int) else rules.far_sum_steps, DEPTH)
    block = max(int(rules.block_share * isa.l2_bytes) // (2 * kc) // (2 * ROWS), 2) * 2 * ROWS
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

    AMX has a slow state on the machine where this was measured, so that rules take this kernel only where the user
    allows it (`Isa.float_parts`).
    """
    n, k, rules = problem.n, problem.k, isa.rules.tiles
    if problem.dtype != "f32" or problem.rhs_dtype is not None or not amx.has_amx("bf16", isa):
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
    blocks = -(-m // isa.rules.products.block_rows)
    rows = round_up(-(-m // blocks), 2 * ROWS)
    most = max(1, int(rules.parts_share * isa.l2_bytes) // (2 * PARTS * rows * rules.split_steps)) * rules.split_steps
    pieces = -(-k // most)
    columns = rules.parts_columns if blocks == pieces == 1 else rules.far_parts_columns
    return AmxBf16x3Schedule(
        mr=2 * ROWS,
        nv=2,
        width=LANES,
        mc=rows,
        nc=min(columns, round_up(n, 2 * LANES)),
        kc=round_up(-(-k // pieces), DEPTH),
        ks=rules.split_steps,
        transposed=transposed,
    )
