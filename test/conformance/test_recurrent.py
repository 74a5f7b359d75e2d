# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""``nn.LSTM`` traced as a whole: a layer is one call of oneDNN's, which reads its memory and has a workspace."""

from collections.abc import Iterator
from copy import deepcopy

import pytest
import torch

OPTIONS = {"fallback": False}


@pytest.fixture(autouse=True)
def traced_layers(fresh_compiler: None) -> Iterator[None]:
    with torch._dynamo.config.patch(allow_rnn=True):
        yield


def leaves(module: torch.nn.LSTM, x: torch.Tensor, compiled: bool) -> list[torch.Tensor]:
    """Outputs, and the gradients of the parameters and of what else requires one."""
    module = deepcopy(module)
    call = torch.compile(module, backend="kiln", fullgraph=True, options=OPTIONS) if compiled else module
    y, (h, c) = call(x)
    weight = torch.linspace(-1, 1, y.numel(), dtype=y.dtype).reshape(y.shape)
    total = (y * weight).sum() + h.square().sum() + 2 * c.sum()
    return [y, h, c, *torch.autograd.grad(total, [*module.parameters(), *([x] if x.requires_grad else [])])]


@pytest.mark.parametrize("wants_gradient", [False, True])
@pytest.mark.parametrize(
    "arguments",
    [{}, {"batch_first": True}, {"bias": False}, {"num_layers": 2, "bidirectional": True}],
    ids=["plain", "batch_first", "no_bias", "two_layers_both_ways"],
)
def test_training(arguments, wants_gradient):
    """Without a gradient for the input, PyTorch traces oneDNN's layer, and its derivative reads the workspace."""
    lstm = torch.nn.LSTM(5, 7, **arguments)
    x = torch.randn(4, 3, 5)
    exact = leaves(deepcopy(lstm).double(), x.double().requires_grad_(wants_gradient), compiled=False)
    found = leaves(lstm, x.requires_grad_(wants_gradient), compiled=True)
    for mine, right in zip(found, exact, strict=True):
        # PyTorch before 2.13 traces the last states of layers that are taken apart with one dim of size 1 more.
        assert (mine.double().reshape(right.shape) - right).norm() <= 2e-6 * right.norm()


def test_two_calls_before_backward():
    """Each call's derivative has the workspace of that call."""
    lstm = torch.nn.LSTM(5, 7)
    compiled = torch.compile(lstm, backend="kiln", fullgraph=True, options=OPTIONS)
    inputs = [torch.randn(4, 3, 5), torch.randn(4, 3, 5)]
    expected = [torch.autograd.grad(lstm(x)[0].square().sum(), lstm.parameters()) for x in inputs]
    results = [compiled(x)[0] for x in inputs]
    for y, grads in zip(results, expected, strict=True):
        for mine, theirs in zip(torch.autograd.grad(y.square().sum(), lstm.parameters()), grads, strict=True):
            torch.testing.assert_close(mine, theirs)


@pytest.mark.parametrize("train", [False, True])
def test_empty_batch(train):
    """oneDNN divides by the batch's size."""
    lstm = torch.nn.LSTM(5, 7, bidirectional=True).requires_grad_(train)
    x = torch.randn(4, 0, 5)
    compiled = torch.compile(lstm, backend="kiln", fullgraph=True, options=OPTIONS)
    y, (h, c) = compiled(x)
    theirs = lstm(x)
    assert (y.shape, h.shape, c.shape) == (theirs[0].shape, theirs[1][0].shape, theirs[1][1].shape)
    if train:
        for grad in torch.autograd.grad(y.sum() + h.sum() + c.sum(), lstm.parameters()):
            assert not grad.any()
