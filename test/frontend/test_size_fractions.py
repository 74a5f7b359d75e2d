# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Floats that a graph computes from sizes are part of the kernels that read them, with eager's numbers."""

from collections.abc import Callable

import pytest
import torch
from torch import nn

import kiln
from kiln.lowering import paths

Function = Callable[[torch.Tensor], torch.Tensor]
FUNCTIONS: list[Function] = [
    lambda x: x * (1 - 1 / x.shape[0]) + 1 / x.shape[0],
    lambda x: x / (x.shape[0] / (x.shape[0] + 0.5)) - 3 / x.shape[0],
    lambda x: x.sum() * (2.0 / x.shape[0]),
    lambda x: x.std(0) + x.var(),
]


def test_norms_of_any_number_of_images() -> None:
    torch.manual_seed(0)
    found, expected = nn.BatchNorm2d(5), nn.BatchNorm2d(5).double()
    compiled = torch.compile(found, backend="kiln", fullgraph=True, options={"fallback": False})
    before = paths.taken().get("any size-fractions: in a tensor", 0)
    for i, count in enumerate((6, 2, 9)):
        x = torch.randn(count, 5, 4, 3)
        if i == 0:
            torch._dynamo.mark_dynamic(x, 0)
        x, y = x.requires_grad_(), x.detach().double().requires_grad_()
        weights = torch.randn_like(x)
        (compiled(x) * weights).sum().backward()
        (expected(y) * weights).sum().backward()
        torch.testing.assert_close(x.grad, y.grad.float(), rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(found.running_var, expected.running_var.float())
    assert paths.taken()["any size-fractions: in a tensor"] > before


@pytest.mark.parametrize("target", ["cpu", "tt-cpu"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("function", FUNCTIONS)
def test_numbers(function: Function, dtype: torch.dtype, target: str) -> None:
    torch.manual_seed(0)
    compiled = torch.compile(function, backend="kiln", fullgraph=True, options={"target": target, "fallback": False})
    tolerance = 0.02 if dtype.itemsize == 2 else 1e-5
    for i, count in enumerate((6, 2, 17)):
        x = torch.randn(count, 9, dtype=dtype)
        if i == 0:
            torch._dynamo.mark_dynamic(x, 0)
        x, y = x.requires_grad_(), x.detach().double().requires_grad_()
        result, wanted = compiled(x), function(y)
        assert result.dtype == dtype
        torch.testing.assert_close(result.double(), wanted, rtol=tolerance, atol=tolerance)
        result.sum().backward()
        wanted.sum().backward()
        torch.testing.assert_close(x.grad.double(), y.grad, rtol=4 * tolerance, atol=4 * tolerance)


def test_no_call_is_left() -> None:
    x = torch.randn(6, 9, requires_grad=True)
    torch._dynamo.mark_dynamic(x, 0)
    assert "kiln_fx" not in kiln.explain(lambda x: x.std(0).sum(), x).to_text()
