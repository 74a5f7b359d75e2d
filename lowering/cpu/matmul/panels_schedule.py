# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""When f32 is multiplied in high register tiles over panels of the rhs that are fetched ahead, and in which blocks."""

from collections.abc import Mapping

from kiln.dialects.schedules.cpu import BlockedSchedule
from kiln.lowering.cpu.contraction.sizes import round_up
from kiln.lowering.cpu.matmul.problem import Isa, MatmulProblem

__all__ = ["COLUMN_TIMES", "choose_panels", "panel_vectors"]

COLUMN_TIMES = {v: 1 + 0.02 / v for v in (4, 3, 2, 1)}
"""Of a column in a panel of so many vectors: a step of a wide panel has fewer loads of the lhs."""

_HEIGHTS = {4: 6, 3: 8, 2: 12}
"""Rows of a register tile, by the vectors of a panel: 24 sums in 32 registers."""

_LEAST_BYTES = 256 << 10  # of a rhs that the second-level cache does not keep from call to call
_FEW_ROWS = 32
"""Up to here dot products, which do not pack, are as fast with a rhs that the second-level cache keeps (of a cell of a
recurrent layer, from step to step)."""
_PACKED_ROWS, _ROWS = range(4, 513), range(8, 257)
_PACKED_STEPS, _STEPS_OF_FEW, _STEPS = 192, 256, 512  # of k at once: a constant, few rows of another rhs, more
_WHOLE = 64  # up to as many rows one panel is packed at a time, else two


def panel_vectors(n: int, width: int, times: Mapping[int, float] = COLUMN_TIMES) -> int:
    """Vectors of `width` columns in a panel of a rhs of n columns, from those that `times` has: the least time for all
    columns, padding included; among equals the widest panel.
    """
    return min(times, key=lambda v: (round_up(max(n, 1), v * width) * times[v], -v))


def choose_panels(problem: MatmulProblem, isa: Isa, packed: bool = False) -> BlockedSchedule | None:
    """The schedule of products of known size with vectors of 64 bytes; `packed`: the rhs is a constant. None elsewhere.

    A tile reads its panel from the second-level cache, or from the first where it stays there: a high tile less often.
    What else costs time is a rhs that comes from memory, so tiles prefetch what comes next (fetch.py), and a rhs [n, k]
    is packed one panel after the other. Measured: "f32 products in panels" in epyc-kernel-rules.json.
    """
    m, n, k = problem.m, problem.n, problem.k
    if problem.batch or problem.dtype != "f32" or problem.rhs_dtype is not None or isa.vector_bytes < 64:
        return None
    if not (isinstance(m, int) and isinstance(n, int) and isinstance(k, int)) or problem.lhs_strides[-1] != 1:
        return None
    if m not in (_PACKED_ROWS if packed else _ROWS) or n < 32 or k < 16:
        return None
    least = isa.l2_bytes + 1 if m <= _FEW_ROWS else _LEAST_BYTES
    if not packed and (problem.rhs_strides[-2] != 1 or 4 * n * k < least):
        return None
    width = isa.vector_bytes // 4
    nv = panel_vectors(n, width, {v: 1.0 if v == 3 else 1.03 for v in _HEIGHTS})
    mr = -(-m // -(-m // _HEIGHTS[nv]))
    pieces = max(1, round(k / (_PACKED_STEPS if packed else _STEPS_OF_FEW if m <= _FEW_ROWS else _STEPS)))
    return BlockedSchedule(
        mr=mr,
        nv=nv,
        width=width,
        mc=min(256, m),
        nc=nv * width * (2 if packed or m > _WHOLE else 1),
        kc=-(-k // pieces),
        pack_lhs=False,
        pack_rhs=not packed,
        packed=packed,
        prefetch=8 if packed else 0,
        fetch=True,
    )
