# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Random numbers fall on the elements on which eager's fall, in whatever order Kiln would like to keep a tensor."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn


class Head(nn.Module):
    """Convolution, batch norm, relu, dropout, convolution: eager keeps the images channels-last where they came so."""

    def __init__(self) -> None:
        super().__init__()
        self.fuse = nn.Conv2d(16, 32, 1, bias=False)
        self.norm = nn.BatchNorm2d(32)
        self.classify = nn.Conv2d(32, 5, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.classify(F.dropout(torch.relu(self.norm(self.fuse(x))), 0.3, self.training))


def drawn(call, *inputs):
    torch.manual_seed(7)
    return call(*inputs).detach()


@pytest.mark.parametrize("last", [False, True])
def test_dropout_of_images(last):
    """Both are batch norms between convolutions; ATen draws in the order of memory."""
    torch.manual_seed(0)
    model = Head().train()
    x = torch.randn(4, 16, 9, 9)
    x = x.contiguous(memory_format=torch.channels_last) if last else x
    expected = drawn(model, x)
    torch.testing.assert_close(drawn(torch.compile(model, backend="kiln", fullgraph=True), x), expected)


@pytest.mark.parametrize("draw", [torch.bernoulli, torch.rand_like, lambda x: F.dropout(x, 0.5)])
@pytest.mark.parametrize("order", [(0, 1, 2, 3), (0, 2, 3, 1), (3, 1, 0, 2)])
def test_order_of_memory(draw, order):
    """The operand is computed by a kernel, from an input whose dims lie in this order."""

    def run(x):
        return draw(torch.sigmoid(x) * 0.9) + 1

    x = torch.randn([(2, 3, 4, 5)[d] for d in order]).permute([order.index(d) for d in range(4)])
    torch.testing.assert_close(drawn(torch.compile(run, backend="kiln", fullgraph=True), x), drawn(run, x))


def test_a_reader_that_would_like_another_order():
    """For a call, a reshape of the permuted tensor is an alias if the heads are written between the tokens; the order
    of the draws wins, and the reshape is a copy."""

    def run(x):
        y = torch.sigmoid(x)
        return F.dropout(y, 0.5) + 1, F.dropout(y.permute(0, 2, 1, 3).reshape(2, 5, 12), 0.5) + 1

    x = torch.randn(2, 3, 5, 4)
    found = torch.compile(run, backend="kiln", fullgraph=True)
    torch.manual_seed(7)
    ours = found(x)
    torch.manual_seed(7)
    torch.testing.assert_close(ours, run(x))
