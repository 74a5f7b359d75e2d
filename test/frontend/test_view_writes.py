# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Writes into views, and gradients of views: no ATen call, and gradients of disjoint slices in one kernel."""

from collections.abc import Callable

import pytest
import torch

import kiln
from kiln.frontend.report import collect

Tensor = torch.Tensor


def rotated(x: Tensor, c: Tensor, s: Tensor) -> Tensor:
    a, b = x[..., ::2], x[..., 1::2]
    return torch.stack([a * c - b * s, a * s + b * c], -1).flatten(-2)


def halves(x: Tensor, c: Tensor, s: Tensor) -> Tensor:
    a, b = x[..., :4], x[..., 4:]
    return torch.cat([a * c - b * s, a * s + b * c], -1)


def thirds(x: Tensor, c: Tensor, s: Tensor) -> Tensor:
    return x[:, ::3] * c + x[:, 2::3] * s.exp()


def diagonal(x: Tensor, c: Tensor, s: Tensor) -> Tensor:
    return x.diagonal(1, 1, 2) * c[0, 0, :1] + s[0, 0, 0]


GRADIENTS = {"rotated": rotated, "halves": halves, "thirds": thirds, "diagonal": diagonal}


@pytest.mark.parametrize("target", ["cpu", "tt-cpu"])
@pytest.mark.parametrize("name", GRADIENTS)
def test_gradients_of_views(name: str, target: str) -> None:
    function, last = GRADIENTS[name], 8 if name == "thirds" else 4
    x = torch.randn(2, 6, 8, requires_grad=True)
    c, s = torch.randn(2, 1, last), torch.randn(2, 1, last)
    torch._dynamo.reset()
    compiled = torch.compile(function, backend=kiln.backend, options={"fallback": False, "target": target})
    with collect() as reports:
        result = compiled(x, c, s)
        weight = torch.randn_like(result)
        (found,) = torch.autograd.grad(result, x, weight)
    (expected,) = torch.autograd.grad(function(x, c, s), x, weight)
    torch.testing.assert_close(found, expected)
    assert not [call.op for report in reports for call in report.aten_calls]
    assert [len(report.kernels) for report in reports] == [1, 1]


def every_other(x: Tensor, y: Tensor) -> Tensor:
    x = x * 2
    x[..., ::2] = y
    return x


def from_the_middle(x: Tensor, y: Tensor) -> Tensor:
    x = x * 2
    x[:, 3::2, :4] += y[:, :2]
    return x


def main_diagonal(x: Tensor, y: Tensor) -> Tensor:
    x = x * 2
    x[0].diagonal().mul_(y[0, 0, 0])
    return x


@pytest.mark.parametrize("target", ["cpu", "tt-cpu"])
@pytest.mark.parametrize("write", [every_other, from_the_middle, main_diagonal])
def test_writes_into_views(write: Callable[..., Tensor], target: str) -> None:
    x, y = torch.randn(2, 6, 8), torch.randn(2, 6, 4)
    torch._dynamo.reset()
    compiled = torch.compile(write, backend=kiln.backend, options={"fallback": False, "target": target})
    with collect() as reports:
        found = compiled(x, y)
    torch.testing.assert_close(found, write(x, y))
    assert not reports[0].aten_calls and len(reports[0].kernels) == 1
