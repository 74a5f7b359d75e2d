# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""A kernel without code, computed op by op with ATen's ops: what `call-unsupported-kernels` puts in its place."""

import functools
import threading
from collections.abc import Sequence
from typing import Any

import torch

__all__ = ["EVALUATE"]

EVALUATE = "kiln.evaluate.default"
"""``evaluate(Tensor[] operands, SymInt[] symbols, str text, SymInt[] strides, Device device) -> Tensor[]``

text: a module whose function @main takes the operands, then the symbols, in Kiln's IR. strides: in elements, those of
all results in a row. Results are memory of their own."""

_library = torch.library.Library("kiln", "FRAGMENT")
_library.define("evaluate(Tensor[] operands, SymInt[] symbols, str text, SymInt[] strides, Device device) -> Tensor[]")
_one_at_a_time = threading.Lock()  # an MLIR context is for one thread


@functools.lru_cache(maxsize=256)
def _parsed(text: str) -> Any:
    from kiln.dialects import create_context, parse

    return parse(text, create_context())


def _evaluate(
    operands: list[torch.Tensor], symbols: Sequence[int], text: str, strides: Sequence[int], device: torch.device
) -> list[torch.Tensor]:
    from kiln.dialects.interpret import evaluate

    with _one_at_a_time:
        found = evaluate(_parsed(text), [*operands, *symbols], device=device)
    results: list[torch.Tensor] = []
    left = list(strides)
    for value in found:
        own, left = left[: value.dim()], left[value.dim() :]
        made = torch.empty_strided(value.shape, own, dtype=value.dtype, device=device)
        results.append(made.copy_(value))
    return results


_library.impl("evaluate", _evaluate, "CompositeExplicitAutograd")
