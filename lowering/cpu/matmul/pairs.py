# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""With which tiles bf16 is multiplied in pairs (VDPBF16PS)."""

from kiln.dialects.schedules.cpu import VnniBf16Schedule
from kiln.lowering.cpu.contraction.bf16 import LANES
from kiln.lowering.cpu.contraction.sizes import round_up
from kiln.lowering.cpu.matmul.panels_schedule import panel_vectors
from kiln.lowering.cpu.matmul.problem import MatmulProblem, Size

__all__ = ["choose_pairs"]

_ROWS_IN_PLACE = 12
_KC = 192
_MC, _NC = 256, 128
_LARGE_BYTES = 256 << 10  # of a rhs that the second-level cache does not keep from call to call


def choose_pairs(problem: MatmulProblem, m: int, packed: bool = False) -> VnniBf16Schedule:
    """The schedule for about m rows; `packed`: the rhs is a constant, packed by the compiler.

    The caller has asked `has_pairs`. A rhs that is in no near cache costs most, so tiles prefetch what comes next, and
    pieces of k and blocks of columns are small enough for two of them in the second-level cache.
    Measured: "bf16 products in pairs" in epyc-kernel-rules.json.
    """
    nr = LANES
    n: Size = problem.n
    nv = panel_vectors(n, nr) if isinstance(n, int) else 4
    highest = 24 // nv
    heights = [r for r in (12, 8, 6, 4, 3, 2, 1) if r <= highest]
    mr = min(heights, key=lambda r: (-(-max(m, 1) // r) * max(r, 3), -r))
    in_place = not packed and problem.rhs_strides[-1] == 1 and m <= _ROWS_IN_PLACE
    kc = _KC
    if isinstance(problem.k, int) and problem.k > 0:
        pieces = max(1, round(problem.k / _KC))
        kc = round_up(-(-problem.k // pieces), 2)
    return VnniBf16Schedule(
        mr=mr,
        nv=nv,
        width=nr,
        mc=min(_MC, max(m, 1)) if isinstance(problem.m, int) else _MC,
        nc=nv * nr * max(1, _NC // (nv * nr)),
        kc=kc,
        pack_lhs=problem.lhs_strides[-1] != 1,
        pack_rhs=not (packed or in_place),
        packed=packed,
        fetch=not in_place and _is_large(problem),
    )


def _is_large(problem: MatmulProblem) -> bool:
    """Whether the rhs is one matrix, of a size that is not known to be small."""
    n, k = problem.n, problem.k
    return not problem.batch and not (isinstance(n, int) and isinstance(k, int) and 2 * n * k <= _LARGE_BYTES)
