# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""When products of f32 are made by AMX (float_tiles.py), and with which blocks."""

from kiln.dialects.schedules.cpu import AmxBf16x3Schedule
from kiln.lowering.cpu.contraction import amx
from kiln.lowering.cpu.contraction.sizes import round_up
from kiln.lowering.cpu.matmul.float_parts import LANES, PARTS
from kiln.lowering.cpu.matmul.problem import Isa, MatmulProblem
from kiln.lowering.cpu.matmul.vendor import vendor_fits, vendor_gemm_available

__all__ = ["DEPTH", "ROWS", "choose_float_tiles", "float_tiles_schedule"]

ROWS, DEPTH = amx.ROWS, amx.BYTES // 2
"""Rows, and steps of k, of one tile of bf16."""

_FEWEST_ROWS, _FEWEST_TRANSPOSED_ROWS = 96, 48  # of a rhs [k, n], and [n, k], which the library multiplies slower
_FEWEST_COLUMNS, _FEWEST_STEPS = 96, 192
_NEAR_BYTES = 896 << 10  # of the lhs in parts, which has to stay in the second-level cache
_ROWS, _COLUMNS, _FAR_COLUMNS = 256, 256, 512  # of a block at most, the last where it splits the lhs anew
_STEPS = 128  # of k: what is split of the weight at once stays in the first-level cache


def choose_float_tiles(problem: MatmulProblem, m: int, isa: Isa) -> AmxBf16x3Schedule | None:
    """The schedule of a product of f32 for about m rows, where the user allows it (`Isa.float_parts`); see
    `float_tiles_schedule`."""
    return float_tiles_schedule(problem, m, isa) if isa.float_parts else None


def float_tiles_schedule(problem: MatmulProblem, m: int, isa: Isa) -> AmxBf16x3Schedule | None:
    """The schedule of this kernel for about m rows; None where the CPU has no AMX, where there is no library for what
    parts of bf16 cannot hold, or where the product is too small.

    One core of an Emerald Rapids server, weights [n, k] but where [k, n] is said, each call with another weight, and a
    bias; speed against ATen's (MKL, f32 by AVX-512):

    | m, n, k              | ATen, GFLOP/s | library's blocks | packed before | tiles |
    |----------------------|---------------|------------------|---------------|-------|
    | 49, 3072, 768        | 84            | 1.11             | 1.35          | 1.40  |
    | 64, 1408, 512        | 109           | 1.07             | 1.14          | 1.35  |
    | 96, 768, 768         | 123           | 1.07             | 1.10          | 1.39  |
    | 128, 768, 768        | 120           | 1.08             | 1.14          | 1.46  |
    | 128, 8000, 768       | 118           | 1.05             | 1.20          | 1.71  |
    | 197, 3072, 768       | 130           | 1.03             | 1.15          | 1.44  |
    | 500, 384, 1536       | 143           | 1.04             |               | 1.42  |
    | 512, 4096, 4096      | 142           | 1.05             |               | 1.64  |
    | 784, 768, 192        | 135           | 1.07             |               | 1.12  |
    | 3136, 384, 96        | 108           | 1.35             |               | 1.33  |
    | 64, 768, 768 [k, n]  | 152           | 1.05             | 0.80          | 0.90  |
    | 128, 3072, 768 [k, n]| 132           | 1.07             | 1.05          | 1.23  |
    | 128, 768, 3072 [k, n]| 155           | 1.02             | 0.90          | 1.01  |
    | 1024 cubed [k, n]    | 146           | 1.04             |               | 1.39  |

    (Without the fetching of what is split next 0.78 to 0.95 of that.) That server slowed AMX down at times, for minutes
    and whoever else was there, to 0.4 of its speed, and the library's kernels to 0.85: [128, 3072, 768] then takes 7.2
    ms, ATen's 6.2 (bf16: 2.5); else 3.0 and 5.3 (1.3). So this is no rule's choice by default, in spite of its error.
    """
    n, k = problem.n, problem.k
    if problem.dtype != "f32" or problem.rhs_dtype is not None or not amx.has_amx("bf16", isa):
        return None
    if problem.lhs_strides[-1] != 1 or 1 not in problem.rhs_strides[-2:]:
        return None
    transposed = problem.rhs_strides[-1] != 1
    if not (isinstance(n, int) and isinstance(k, int)) or n < _FEWEST_COLUMNS or k < _FEWEST_STEPS:
        return None
    if m < (_FEWEST_TRANSPOSED_ROWS if transposed else _FEWEST_ROWS):
        return None
    if not (vendor_gemm_available() and vendor_fits(problem)):
        return None
    strides = (*problem.lhs_strides[-2:], *problem.rhs_strides[-2:])
    if not all(isinstance(x, int) for x in strides):  # a leading dimension that the library may not take
        return None
    blocks = -(-m // _ROWS)
    rows = round_up(-(-m // blocks), 2 * ROWS)
    most = _NEAR_BYTES // (2 * PARTS * rows) // _STEPS * _STEPS
    pieces = -(-k // most)
    columns = _COLUMNS if blocks == pieces == 1 else _FAR_COLUMNS
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
