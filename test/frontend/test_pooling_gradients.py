# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Gradients of max poolings in kernels: each element of an image looks up the windows that cover it."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import kiln
from kiln.frontend.report import collect
from kiln.lowering import paths

GATHERED = "any pooling-gradients: gathered"
LEFT = "any pooling-gradients: left to ATen"

WINDOWS = [
    (F.max_pool2d, (2, 3, 9, 11), {"kernel_size": 3, "stride": 2, "padding": 1}),
    (F.max_pool2d, (2, 3, 8, 8), {"kernel_size": 2}),
    (F.max_pool2d, (3, 9, 11), {"kernel_size": 3, "stride": 1, "padding": 1}),
    (F.max_pool2d, (2, 3, 10, 7), {"kernel_size": (3, 2), "stride": (1, 3), "padding": (1, 0)}),
    (F.max_pool2d, (1, 2, 11, 12), {"kernel_size": (5, 4), "stride": (3, 2), "padding": (2, 1), "ceil_mode": True}),
    (F.max_pool2d, (2, 2, 13, 13), {"kernel_size": 2, "stride": 4, "padding": 1}),
    (F.max_pool3d, (2, 2, 5, 6, 7), {"kernel_size": (2, 3, 2), "stride": (1, 2, 2), "padding": (1, 1, 0)}),
    (F.max_pool1d, (2, 3, 20), {"kernel_size": 4, "stride": 3, "padding": 2}),
]


def gradient(run: Callable[[torch.Tensor], torch.Tensor], x: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    x = x.detach().to(dtype).requires_grad_()
    y = run(x)
    (found,) = torch.autograd.grad(y, x, torch.linspace(1, -1, y.numel()).view(y.shape).bfloat16().to(dtype))
    return found


def compiled(function: Any, target: str = "tt-cpu", **options: Any) -> Any:
    torch._dynamo.reset()
    paths.reset()
    return torch.compile(function, backend=kiln.backend, options={"fallback": False, "target": target}, **options)


@pytest.mark.parametrize("target", ["cpu", "tt-cpu"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("pool", "shape", "window"), WINDOWS)
def test_windows(pool: Any, shape: tuple[int, ...], window: dict[str, Any], dtype: torch.dtype, target: str) -> None:
    """Of elements that are the maximum together, the first one gets the gradient."""
    torch.manual_seed(0)
    x = torch.randint(-4, 4, shape).float()
    x.view(-1)[5::17] = float("nan")
    x.view(-1)[:3] = -float("inf")
    exact = gradient(lambda x: pool(x * 2, **window), x, torch.float64)
    found = gradient(compiled(lambda x: pool(x * 2, **window), target), x, dtype)
    assert paths.taken()[GATHERED] == 1
    # Gradients are sums of a few, in f32, and are rounded once.
    torch.testing.assert_close(found.double(), exact, rtol=2e-7 if dtype is torch.float32 else 2**-8, atol=1e-6)


def test_channels_last_between_convolutions() -> None:
    torch.manual_seed(0)
    first, last = torch.nn.Conv2d(3, 8, 3, padding=1), torch.nn.Conv2d(8, 8, 3)
    x = torch.randn(2, 3, 17, 19)

    def run(x: torch.Tensor) -> torch.Tensor:
        first.to(x.dtype), last.to(x.dtype)
        return last(F.max_pool2d(first(x).relu(), 3, 2, 1))

    exact = gradient(run, x, torch.float64)
    first.bfloat16(), last.bfloat16()
    found = gradient(compiled(lambda x: last(F.max_pool2d(first(x).relu(), 3, 2, 1))), x, torch.bfloat16)
    assert paths.taken()[GATHERED] == 1
    assert (found.double() - exact).norm() < 2e-2 * exact.norm()


@pytest.mark.parametrize(
    ("shape", "window", "dynamic"),
    [
        ((1, 1, 20, 20), {"kernel_size": 4, "stride": 1}, False),  # 16 windows cover an element
        ((2, 3, 9, 11), {"kernel_size": 2, "dilation": 2}, False),
        ((2, 3, 9, 11), {"kernel_size": 3, "stride": 2, "padding": 1}, True),
    ],
)
def test_what_is_left_to_aten(shape: tuple[int, ...], window: dict[str, Any], dynamic: bool) -> None:
    x = torch.randn(shape)
    exact = gradient(lambda x: F.max_pool2d(x * 2, **window), x, torch.float64)
    found = gradient(compiled(lambda x: F.max_pool2d(x * 2, **window), dynamic=dynamic), x, torch.float32)
    torch.testing.assert_close(found.double(), exact, rtol=1e-6, atol=1e-6)
    assert LEFT in paths.taken() and GATHERED not in paths.taken()


def test_kernels_alone_on_the_cpu() -> None:
    """Neither the maxima nor their positions nor gradients are left to ATen."""
    x = torch.randn(2, 4, 12, 12, requires_grad=True)
    with collect() as reports:
        compiled(lambda x: F.max_pool2d(x, 3, 2, 1), "cpu")(x).sum().backward()
    assert [report.graph for report in reports] == ["forward", "backward"]
    assert not any(report.aten_calls for report in reports)
