# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""When products of bf16 are made by AMX (tiles.py), with which blocks, and which operand is packed: by measurement."""

from dataclasses import replace

from kiln.dialects.schedules.cpu import AmxBf16Schedule, AmxBf16x3Schedule, GemmSchedule
from kiln.lowering.cpu.contraction import amx
from kiln.lowering.cpu.contraction.bf16 import LANES
from kiln.lowering.cpu.contraction.sizes import round_up
from kiln.lowering.cpu.matmul.problem import Isa, MatmulProblem

__all__ = ["DEPTH", "ROWS", "choose_tiles", "is_better_in_place", "packed_tile_strides", "share_lhs"]

ROWS, DEPTH = amx.ROWS, amx.BYTES // 2
"""Rows, and steps of k, of one tile of bf16."""

_FEWEST_ROWS = 3  # fewer are limited by the memory that the weight comes from: dot products
_KC = 4096  # steps of k that are packed at once, and
_KS, _FAR_KS = 512, 1024  # those that a register tile sums in one go, with a lhs in the near caches and without
_COLUMNS, _FAR_COLUMNS, _ROWS = 64, 512, 256  # of a block at most
_NEAR_BYTES = 1 << 20  # of a lhs that stays in the second-level cache, which has 2 MiB
_BLOCK_BYTES = 768 << 10  # of a packed block of the rhs
_FETCHED_BYTES = 256 << 10  # from which size on a weight is fetched ahead
_FAR_K = 2048  # of long rows
_TRANSPOSED = 4
"""A weight [n, k] is the lhs where k is this many times the number of rows, or more. As the lhs, and packed in
scratch, us, [768, 768] on another day: 64 rows 136 and 161, 128 rows 234 and 225, 196 rows 349 and 306 (oneDNN's 184,
241 and 320)."""


def choose_tiles(problem: MatmulProblem, m: int, isa: Isa, packed: bool = False) -> AmxBf16Schedule | None:
    """The schedule of a product of bf16 for about m rows; None where the CPU has no AMX, or the product is too small
    for it. `packed`: the rhs is a constant, packed by the compiler.

    One core of an Emerald Rapids server (AMX: 2.9 TFLOP/s from registers, 2.1 with operands from the second-level
    cache), weights [n, k] and a bias, each call with another weight; speed against ATen's (oneDNN's):

    | m, n, k         | ATen, GFLOP/s | weight as lhs | packed in scratch | packed before | VDPBF16PS  |
    |-----------------|---------------|---------------|-------------------|---------------|------------|
    | 2, 3072, 768    | 16            | 1.63          |                   | 1.83          | 1.06 (dot) |
    | 8, 3072, 768    | 58            | 1.77          |                   | 2.05          | 0.68 (dot) |
    | 8, 4096, 4096   | 95            | 1.46          |                   | 1.22          | 0.65 (dot) |
    | 32, 768, 768    | 230           | 2.07          | 0.88              | 2.46          | 0.58       |
    | 128, 3072, 768  | 467           | 1.37          | 1.19              | 1.56          | 0.28       |
    | 128, 768, 3072  | 469           | 1.48          | 1.29              | 1.70          | 0.16       |
    | 196, 768, 768   | 558           | 1.03          | 1.12              | 1.46          | 0.15       |
    | 512, 768, 768   | 331           | 1.17          | 1.29              | 1.58          |            |
    | 512, 768, 3072  | 600           | 1.40          | 1.07              | 1.32          | 0.14       |
    | 2048, 768, 768  | 624           | 1.32          | 1.36              | 1.55          | 0.24       |
    | 3136, 64, 64    | 155           | 0.38          | 1.71              | 1.67          |            |

    Blocks of 64 columns keep their sums in the first-level cache (196 rows of [768, 768], packed before: 1.18 with 512
    columns, 1.50), if the lhs, which is read again for each, is near: 2048 rows 1.55 with 512 columns, 1.15.
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
    mr, nv = (ROWS, 4) if few else (2 * ROWS, 2)
    if isinstance(n, int):
        nv = min(nv, -(-n // LANES))
    kc = round_up(-(-k // max(1, -(-k // _KC))), DEPTH) if isinstance(k, int) else _FAR_KS
    block = max(_BLOCK_BYTES // (2 * kc) // (2 * ROWS), 2) * 2 * ROWS
    rows = max(m, 1) if isinstance(problem.m, int) else _ROWS
    near = 2 * m * kc <= _NEAR_BYTES
    nc = _COLUMNS if near else min(_FAR_COLUMNS, block)
    fetched = _is_large(problem) and (packed or (not few if transposed else problem.rhs_strides[-1] == 1))
    return AmxBf16Schedule(
        mr=mr,
        nv=nv,
        width=LANES,
        mc=min(rows, block if transposed else _ROWS),
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
    are far away, and long (512 rows of [4096, 4096]: 1.17 to 1.46 times ATen's speed, packed 0.93 to 1.02)."""
    schedule = choose_tiles(problem, m, isa)
    return schedule is not None and schedule.transposed and isinstance(problem.k, int) and _is_far(m, problem.k)


def _is_far(m: int, k: int) -> bool:
    return k >= _FAR_K and 2 * m * k > 2 * _NEAR_BYTES


def _is_large(problem: MatmulProblem) -> bool:
    """Whether the rhs is one matrix, of a size that is not known to be small."""
    n, k = problem.n, problem.k
    return not problem.batch and not (isinstance(n, int) and isinstance(k, int) and 2 * n * k <= _FETCHED_BYTES)


def packed_tile_strides(schedule: AmxBf16Schedule, k: int) -> tuple[int, int]:
    """Strides along (even) k and n of a packed rhs, as `packed_pair_strides`; zeros fill k up to whole tiles."""
    return schedule.nv * LANES, round_up(k, DEPTH)


def share_lhs(schedules: list[GemmSchedule]) -> list[GemmSchedule]:
    """The schedules of products with one lhs, computed block by block in turn, so that it is packed for the first block
    of all only; `begin_sharing` is to be called before the blocks. The same where they do not pack it."""
    first = schedules[0]
    if not isinstance(first, (AmxBf16Schedule, AmxBf16x3Schedule)) or any(s != first for s in schedules):
        return schedules
    if isinstance(first, AmxBf16Schedule) and not first.transposed:
        return schedules
    return [replace(first, shared=True)] * len(schedules)
