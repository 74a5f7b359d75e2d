# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Gradients of average poolings and of reflected borders on a GPU against the CPU's in float64; skipped where there is
no GPU.

PyTorch's CUDA kernel of average pooling for channels last takes images with a border for ones without: eager's gradient
is no reference.
"""

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from on_gpu_support import compiled, error, randn

from kiln.frontend.report import collect

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")


@pytest.mark.parametrize("memory", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize(("shape", "dynamic"), [((2, 24, 9, 11), False), ((3, 1, 14, 6), False), ((2, 8, 9, 9), True)])
@pytest.mark.parametrize(("window", "stride", "padding"), [(3, 1, 1), (3, 2, 1), (2, 2, 0), (7, 1, 3)])
def test_average_pooling(
    shape: tuple[int, ...], dynamic: bool, memory: Any, window: int, stride: int, padding: int
) -> None:
    def pool(x: torch.Tensor) -> torch.Tensor:
        return F.avg_pool2d(torch.sin(x), window, stride, padding)

    x = randn(*shape).contiguous(memory_format=memory).requires_grad_()
    torch._dynamo.reset()
    y = torch.compile(pool, backend="kiln", dynamic=dynamic, options={"fallback": False})(x)
    weight = torch.randn_like(y)
    (found,) = torch.autograd.grad(y, x, weight)
    wide = x.detach().cpu().double().requires_grad_()
    (exact,) = torch.autograd.grad(pool(wide), wide, weight.cpu().double())
    assert found.stride() == x.stride()
    assert error(found, exact.cuda()) < 1e-5


@pytest.mark.parametrize("memory", [torch.contiguous_format, torch.channels_last])
def test_kernels_alone(memory: Any) -> None:
    x = randn(2, 24, 8, 8).contiguous(memory_format=memory).requires_grad_()
    for pool in (lambda x: F.avg_pool2d(x, 3, 1, 1), lambda x: F.adaptive_avg_pool2d(x, 4)):
        with collect() as reports:
            compiled(pool)(x).sum().backward()
        assert not any(report.aten_calls for report in reports)


@pytest.mark.parametrize("memory", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize("padding", [(1, 1, 1, 1), (2, 0, 3, 1)])
def test_reflected_borders(memory: Any, padding: tuple[int, ...]) -> None:
    def pad(x: torch.Tensor) -> torch.Tensor:
        return F.pad(x, padding, mode="reflect")

    x = randn(2, 8, 12, 10).contiguous(memory_format=memory).requires_grad_()
    y, theirs = compiled(pad)(x), pad(x)
    weight = torch.randn_like(y)
    ((found,), (eager,)) = (torch.autograd.grad(result, x, weight) for result in (y, theirs))
    wide = x.detach().cpu().double().requires_grad_()
    (exact,) = torch.autograd.grad(pad(wide), wide, weight.cpu().double())
    assert found.stride() == eager.stride()
    assert error(found, exact.cuda()) < 1e-6
