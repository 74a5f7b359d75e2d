# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Sizes that the graph itself finds (`nonzero`, `item()`), on the emulated GPU: kernels and a library's calls behind."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from test_networks import error
from torch import nn

import kiln
from kiln.frontend.report import collect

BF16 = torch.bfloat16


@pytest.fixture
def captured(gpu) -> Iterator[Any]:
    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True, capture_scalar_outputs=True):
        yield gpu


def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    options: dict[str, Any] = {"fallback": False, "cache": False}
    return torch.compile(function, backend=kiln.backend, fullgraph=True, options=options)


@pytest.mark.parametrize("activation", [nn.ReLU, nn.Identity])
@pytest.mark.parametrize("dtype", [torch.float32, BF16])
def test_as_many_rows_as_there_are(captured, dtype: torch.dtype, activation: type[nn.Module]) -> None:
    """Rows that are chosen at run time, through a product with large weights and a small one. Without a function behind
    it, the first is a library's: a call of ATen's, since a library that refuses a size would have the graph run again."""
    layers = nn.Sequential(nn.Linear(1024, 1024), activation(), nn.Linear(1024, 16)).to(dtype).requires_grad_(False)

    def model(x: torch.Tensor) -> torch.Tensor:
        chosen = (x[:, 0] > 0).nonzero().squeeze(1)
        return F.layer_norm(layers(x[chosen]), (16,))

    run, wide = compiled(model), [(p, p.double()) for p in layers.parameters()]
    for rows in (40, 7, 1, 0):
        x = torch.randn(rows, 1024).to(dtype)
        torch._dynamo.maybe_mark_dynamic(x, 0)
        found = run(x)
        (w, b), (u, c) = [(wide[i][1], wide[i + 1][1]) for i in (0, 2)]
        exact = F.layer_norm(layers[1](x[x[:, 0] > 0].double() @ w.T + b) @ u.T + c, (16,))
        assert found.shape == exact.shape
        if found.numel():
            assert error(found, exact) < (1e-5 if dtype == torch.float32 else 2e-2)


def test_a_size_out_of_a_tensor(captured) -> None:
    """`item()` is the number of rows of a product's operand and of its result."""
    w = (torch.randn(128, 64) / 8).to(BF16)

    def model(x: torch.Tensor, n: torch.Tensor) -> torch.Tensor:
        rows = n.item()
        torch._check(rows >= 0)
        torch._check(rows <= x.shape[0])
        return torch.tanh(F.linear(x[:rows] * 2, w.to(x.dtype)))

    run = compiled(model)
    x = torch.randn(90, 64).to(BF16)
    for n in (90, 33, 1):
        assert error(run(x, torch.tensor(n)), model(x.double(), torch.tensor(n))) < 1e-2


def test_what_is_told_about_a_call_whose_size_it_finds(captured) -> None:
    """bincount has no kernel, since its result's size is known when it has run only; what follows has one."""

    def model(x: torch.Tensor) -> torch.Tensor:
        return torch.bincount(x).float() * 2

    x = torch.randint(0, 9, (100,))
    with collect() as reports:
        found = compiled(model)(x)
    assert torch.equal(found, torch.bincount(x).float() * 2)
    calls = [call for report in reports for call in report.aten_calls]
    assert [call.op for call in calls] == ["aten.bincount.default"]
    assert calls[0].reason and captured.launched
