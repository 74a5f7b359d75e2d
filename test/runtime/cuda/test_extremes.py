# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Gradients of extremes of sums of products: a GPU contracts some of these sums, and others of the same numbers not."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from on_gpu_support import compiled

DTYPES = [torch.float32, torch.bfloat16, torch.float16]
_NEEDS_GPU = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")


def extremes(x: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    y = x * a + b * x
    return torch.cat([y.amax(-1), y[:, ::2].amin(-1)])


def rotated(x: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    y = x * a + x.roll(1, -1) * b
    return torch.cat([y.amax(-1), y[:, ::2].amin(-1)])


def of_all(x: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    y = x * a + b * x
    return y.amax() + y.amin() + y.sum(-1)


CASES = [(function, dtype) for function in (extremes, rotated, of_all) for dtype in DTYPES]


@pytest.mark.parametrize(
    ("function", "dtype", "target"),
    [*((*case, "tt-cpu") for case in CASES), *(pytest.param(*case, "cuda", marks=_NEEDS_GPU) for case in CASES)],
)
def test_extremes_are_found_again(function: Callable[..., torch.Tensor], dtype: torch.dtype, target: str) -> None:
    torch.manual_seed(0)
    device, options = ("cuda", dict[str, Any]()) if target == "cuda" else ("cpu", {"target": target})
    given = [torch.randn(shape).to(device, dtype) for shape in ((2048, 63), (63,), (2048, 63))]
    gradients: list[list[torch.Tensor]] = []
    for call in (function, compiled(function, **options)):
        leaves = [x.clone().requires_grad_() for x in given]
        call(*leaves).sum().backward()
        gradients.append([leaf.grad.double() for leaf in leaves if leaf.grad is not None])
    for theirs, ours in zip(*gradients, strict=True):
        assert (ours - theirs).norm() <= 0.02 * theirs.norm()
