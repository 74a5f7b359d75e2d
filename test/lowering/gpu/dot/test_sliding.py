# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Depthwise windows that move by one position: numbers of the kernel, and of gradients that it makes."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import kiln
from benchmarks.gpu.measure import relative_error
from kiln.frontend.report import CompileReport, collect
from kiln.lowering.gpu.dot import conv_window

OPTIONS: Any = {"target": "tt-cpu", "fallback": False, "cache": False}
TOLERANCE = {torch.bfloat16: 5e-3, torch.float16: 6e-4}
CASES = {
    "3x3": ((2, 40, 9, 14), (3, 3), (1, 1)),
    "more rows than a tile": ((1, 16, 11, 8), (3, 3), (1, 1)),
    "5x5, channels behind the block": ((1, 70, 11, 10), (5, 5), (2, 2)),
    "7x7, a tile of a row": ((2, 24, 7, 7), (7, 7), (3, 3)),
    "no padding": ((2, 32, 8, 12), (5, 3), (0, 0)),
    "fewer columns than a tile": ((2, 32, 8, 5), (3, 5), (0, 1)),
    "one row, all padding": ((1, 16, 1, 3), (3, 3), (2, 2)),
}


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[CompileReport]]:
    """Small convolutions take the kernel; the reports of what is compiled."""
    rules = replace(conv_window.rules_for(conv_window.ConvolutionRules), sliding_work=1)
    monkeypatch.setattr(conv_window, "rules_for", lambda _: rules)
    torch._dynamo.reset()
    torch.manual_seed(0)
    with collect() as reports:
        yield reports


def compiled(function: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    return torch.compile(function, backend=kiln.backend, fullgraph=True, options=OPTIONS)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("case", CASES)
def test_numbers(small: list[CompileReport], case: str, dtype: torch.dtype) -> None:
    shape, window, padding = CASES[case]
    x = torch.randn(shape).to(memory_format=torch.channels_last).to(dtype)
    w, b = (torch.randn(shape[1], 1, *window) / window[0]).to(dtype), torch.randn(shape[1]).to(dtype)

    def run(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return F.relu(F.conv2d(x, w, b, padding=padding, groups=shape[1])) + 1

    found = compiled(run)(x, w, b)
    assert relative_error(found, run(x.double(), w.double(), b.double())) < TOLERANCE[dtype]
    (report,) = small
    assert [k.name.startswith("copy") for k in report.kernels] == [True, False]  # the weight, turned


@pytest.mark.parametrize("window", [3, 7])
def test_gradients(small: list[CompileReport], window: int) -> None:
    """The image's gradient is the kernel's as well, of a window that is turned around."""
    channels = 24
    x = torch.randn(2, channels, 10, 14).to(memory_format=torch.channels_last).bfloat16()
    w = (torch.randn(channels, 1, window, window) / window).bfloat16()

    def run(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return F.silu(F.conv2d(torch.tanh(x), w, None, padding=window // 2 - 1, groups=channels))

    def gradients(f: Callable[..., torch.Tensor], *given: torch.Tensor) -> list[torch.Tensor]:
        leaves = [t.detach().clone().requires_grad_() for t in given]
        return list(torch.autograd.grad(f(*leaves).square().sum(), leaves))

    found, exact = gradients(compiled(run), x, w), gradients(run, x.double(), w.double())
    eager = gradients(run, x, w)
    for mine, theirs, right in zip(found, eager, exact, strict=True):
        assert relative_error(mine, right) < max(5e-3, 1.5 * relative_error(theirs, right))
    assert sum(k.kind == "conv" for report in small for k in report.kernels) == 2


def test_one_number_for_both_dimensions(small: list[CompileReport]) -> None:
    """`torch.convolution` takes settings of one number, which PyTorch's own functions never pass on."""
    x = torch.randn(2, 8, 9, 9).bfloat16().requires_grad_()
    w = torch.randn(8, 1, 3, 3).bfloat16()

    def run(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return torch.convolution(x, w, None, [1], [1], [1], False, [0], 8)

    (found,) = torch.autograd.grad(compiled(run)(x, w).square().sum(), x)
    exact = x.detach().double().requires_grad_()
    (right,) = torch.autograd.grad(run(exact, w.double()).square().sum(), exact)
    assert relative_error(found, right) < 1e-2
