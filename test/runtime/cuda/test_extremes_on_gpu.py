# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Gradients of extremes of sums of products on a GPU, which contracts some of these sums; skipped where there is no GPU.

`test/frontend/test_recomputed.py` has the same programs on `cpu` and `tt-cpu`.
"""

import pytest
import torch
from on_gpu_support import compiled, randn

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")


def extremes(x: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    y = x * a + b * x
    return torch.cat([y.amax(-1), y[:, ::2].amin(-1)])


def rotated(x: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    y = x * a + x.roll(1, -1) * b
    return torch.cat([y.amax(-1), y[:, ::2].amin(-1)])


def of_all(x: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    y = x * a + b * x
    return y.amax() + y.amin() + y.sum(-1)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("function", [extremes, rotated, of_all])
def test_extremes_are_found_again(function, dtype):
    given = [randn(*shape).to(dtype) for shape in ((2048, 63), (63,), (2048, 63))]
    gradients = []
    for call in (function, compiled(function)):
        leaves = [x.clone().requires_grad_() for x in given]
        call(*leaves).sum().backward()
        gradients.append([leaf.grad for leaf in leaves])
    for theirs, ours in zip(*gradients, strict=True):
        assert ours.isfinite().all()
        assert (ours.double() - theirs.double()).norm() <= 0.02 * theirs.double().norm()
