# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""When f32 is multiplied in high register tiles over panels of the rhs that are fetched ahead, and in which blocks."""

from kiln.dialects.schedules.cpu import BlockedSchedule
from kiln.lowering.cpu.matmul.problem import Isa, MatmulProblem

__all__ = ["choose_panels"]

_HEIGHTS = {4: 6, 3: 8, 2: 12}
"""Rows of a register tile, by the vectors of a panel: 24 sums in 32 registers."""

_LEAST_BYTES = 256 << 10  # of a rhs that the second-level cache does not keep from call to call
_FEW_ROWS = 32
"""Up to here dot products, which do not pack, are as fast with a rhs that the second-level cache keeps (of a cell of a
recurrent layer, from step to step)."""
_PACKED_ROWS, _ROWS = range(4, 513), range(8, 257)
_PACKED_STEPS, _STEPS_OF_FEW, _STEPS = 192, 256, 512  # of k at once: a constant, few rows of another rhs, more
_WHOLE = 64  # up to as many rows one panel is packed at a time, else two


def choose_panels(problem: MatmulProblem, isa: Isa, packed: bool = False) -> BlockedSchedule | None:
    """The schedule of products of known size with vectors of 64 bytes; `packed`: the rhs is a constant. None elsewhere.

    A tile reads its panel from the second-level cache, or from the first where it stays there: a high tile less often.
    What else costs time is a rhs that comes from memory; so tiles fetch what comes next (fetch.py), and a rhs [n, k] is
    packed one panel after the other. One core, weights from memory and a bias; speed against ATen's (MKL), GFLOP/s of
    which stand beside it. "Before" on the Emerald Rapids: dot products up to 32 rows, then the library's blocks, and
    4x4 tiles for a constant; on the Zen 5: dot products, 6x4 tiles packed in blocks of 256 columns, 4x4 tiles.

    | Emerald Rapids: m, n, k | ATen          | before | fetching | constant, before | fetching |
    |-------------------------|---------------|--------|----------|------------------|----------|
    | 8, 768, 768             | 30            | 1.42   | 1.64     | 1.46             | 1.76     |
    | 16, 3072, 768           | 45            | 1.25   | 1.81     | 1.57             | 1.85     |
    | 32, 768, 768            | 68            | 1.15   | 1.53     | 1.34             | 1.76     |
    | 49, 3072, 768           | 81            | 1.05   | 1.44     | 1.31             | 1.76     |
    | 64, 2048, 512           | 85            | 1.10   | 1.46     | 1.36             | 1.70     |
    | 128, 768, 768           | 111           | 1.08   | 1.26     | 1.18             | 1.36     |
    | 128, 3072, 768          | 109           | 1.08   | 1.24     | 1.17             | 1.34     |
    | 128, 768, 3072          | 117           | 1.01   | 1.13     | 1.10             | 1.25     |
    | 196, 2048, 512          | 111           | 1.08   | 1.21     | 1.20             | 1.30     |
    | 500, 1536, 384          | 116           | 1.11   | 1.16     | 1.15             | 1.19     |
    | 500, 384, 1536          | 126           | 1.05   | 1.04     | 1.08             | 1.13     |
    | 64, 768, 768 [k, n]     | 144           | 1.03   | 0.87     | 0.84             | 1.08     |
    | 128, 3072, 768 [k, n]   | 120           | 1.10   | 1.05     | 1.06             | 1.22     |
    | 128, 768, 3072 [k, n]   | 106           | 0.99   | 1.01     | 0.92             | 1.10     |
    | Zen 5: 16, 3072, 768    | 43            | 1.78   | 2.86     | 2.75             | 3.77     |
    | 64, 2048, 512           | 70            | 2.22   | 2.72     | 2.63             | 3.01     |
    | 128, 768, 768           | 81            | 2.19   | 2.47     | 2.33             | 2.58     |
    | 128, 3072, 768          | 75            | 2.40   | 2.68     | 2.56             | 2.78     |
    | 128, 768, 3072 [k, n]   | 85            | 2.18   | 2.33     | 2.27             | 2.47     |

    Pieces of k of 192 to 384 are level there, and so are one, two and four panels a block, but for few rows of a rhs
    [n, k]. In models on that server, against the library's blocks in the same rounds (BERT, DistilBERT, OPT, T5, Gemma,
    Llama, MLP-Mixer, CLIP; one thread, two threads): pieces of 256 and one panel 1.11 and 1.00, of 384 1.14 and 1.04,
    of 512 and two panels 1.15 and 1.05; of 256 without fetching 1.00 and 0.95. Constants against 4x4 tiles: 1.12, 1.11

    More rows, and a rhs [k, n], on another day (24 shapes, 21 variants; speed against ATen's, the library's blocks
    first): from 500 rows on the two are level (512, 768, 768 1.07 and 1.08; 512, 768, 3072 1.01 and 1.08; 1024, 768,
    768 1.02 and 0.99; 500, 1536, 384 1.12 and 1.14; 500, 384, 1536 1.03 and 0.95); of [k, n] the library is ahead in
    four of six (128, 768, 3072 0.98 and 0.89; 128, 768, 768 1.14 and 0.99). Tiles of 6x4 take up to a tenth longer
    than 8x3, 12x2 and 14x2 up to 15 %; four panels a block are no better than two, nor are blocks of 128 or 512 rows.
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
    # The panel with the least padding; among equals, three vectors.
    nv = min(_HEIGHTS, key=lambda v: (-(-n // (v * width)) * v * width * (1.03 if v != 3 else 1.0), -v))
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
