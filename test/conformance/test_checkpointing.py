# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Checkpointed regions with random ops: the backward graph draws the numbers of the forward graph again."""

import pytest
import torch
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint

BODIES = {
    "dropout": lambda x, w: F.dropout((x @ w).relu(), 0.3),
    "rand_like": lambda x, w: (x @ w).sigmoid() * torch.rand_like(x),
    "bernoulli": lambda x, w: torch.bernoulli((x @ w).sigmoid().detach()) * x,
}


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("name", BODIES)
def test_random_ops_are_repeated(name, dynamic):
    def loss(x, w):
        return checkpoint(BODIES[name], x, w, use_reentrant=False).pow(2).sum()

    x, w = torch.randn(8, 7, requires_grad=True), torch.randn(7, 7, requires_grad=True)
    compiled = torch.compile(loss, backend="kiln", dynamic=dynamic, options={"fallback": False})
    for seed in range(2):
        torch.manual_seed(seed)
        found = torch.autograd.grad(compiled(x, w), (x, w), allow_unused=True, materialize_grads=True)
        torch.manual_seed(seed)
        expected = torch.autograd.grad(loss(x, w), (x, w), allow_unused=True, materialize_grads=True)
        for ours, theirs in zip(found, expected, strict=True):
            torch.testing.assert_close(ours, theirs)
