# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Depthwise convolutions whose windows move by one position: which ones have a kernel that shares what windows read.

In numbers alone, as the frontend asks in processes that load their code and never import MLIR.
"""

from collections.abc import Iterable, Sequence
from math import prod

from kiln.lowering.gpu.rules import ConvolutionRules, rules_for

__all__ = ["MOST_TAPS", "WRITTEN_OUT", "is_sliding"]

WRITTEN_OUT = 9
"""Taps of windows of single channels that are no loop."""
MOST_TAPS = 49


def is_sliding(
    weight: Sequence[int], result: Sequence[int], *, steps: Iterable[int], padding: Sequence[int], groups: int
) -> bool:
    """Whether a convolution, not a transposed one, is a large one of windows that slide over single channels.

    weight: sizes [C, 1, *window]. result: sizes [N, C, H, W]. steps: its strides and dilations.
    """
    window = weight[2:]
    is_depthwise = len(result) == 4 and weight[1] == 1 and groups == weight[0] > 1
    if not is_depthwise or any(n != 1 for n in steps):
        return False
    fits = 1 < prod(window) <= MOST_TAPS and all(0 <= p < k for p, k in zip(padding, window, strict=True))
    return fits and prod(result) * prod(window) >= rules_for(ConvolutionRules).sliding_work
