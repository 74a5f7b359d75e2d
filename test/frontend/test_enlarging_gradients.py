# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Gradients of enlarged images as sums over windows."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F

import kiln
from kiln.frontend.enlarging_gradients import find_windows
from kiln.lowering import paths

WINDOWS = "any enlarging-gradients: windows"
CHANNELS_LAST = torch.channels_last


def enlarged(x: torch.Tensor, **options: Any) -> torch.Tensor:
    return F.interpolate(x, **options).sin()


def gradients(x: torch.Tensor, target: str, dynamic: bool = False, **options: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """Kiln's, and float64's."""
    torch._dynamo.reset()
    paths.reset()
    settings = {"target": target, "fallback": False}
    run = torch.compile(enlarged, backend=kiln.backend, fullgraph=True, dynamic=dynamic, options=settings)
    ours, wide = x.detach().requires_grad_(), x.double().detach().requires_grad_()
    y, exact = run(ours, **options), enlarged(wide, **options)
    weight = torch.linspace(1, -1, y.numel()).view(y.shape).bfloat16()
    (found,) = torch.autograd.grad(y, ours, weight.to(y.dtype))
    (expected,) = torch.autograd.grad(exact, wide, weight.double())
    assert found.stride() == expected.stride() and found.dtype == x.dtype
    return found, expected


@pytest.mark.parametrize("target", ["cpu", "tt-cpu"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(
    ("shape", "options"),
    [
        ((2, 3, 12, 7), {"scale_factor": 2, "mode": "bilinear"}),
        ((2, 3, 5, 4), {"scale_factor": 4, "mode": "bilinear"}),
        ((1, 4, 6, 5), {"size": (12, 20), "mode": "bilinear"}),
        ((2, 3, 6, 5), {"scale_factor": 2, "mode": "bicubic"}),
        ((2, 3, 6, 5), {"scale_factor": 2}),
    ],
)
def test_channels_last(shape: tuple[int, ...], options: dict[str, Any], dtype: torch.dtype, target: str) -> None:
    torch.manual_seed(0)
    x = torch.randn(shape).to(dtype).contiguous(memory_format=CHANNELS_LAST)
    found, exact = gradients(x, target, **options)
    limit = 1e-6 if dtype == torch.float32 else 1e-2
    assert (found.double() - exact).norm() < limit * exact.norm()
    assert paths.taken().get(WINDOWS)


@pytest.mark.parametrize("memory", [torch.contiguous_format, CHANNELS_LAST])
@pytest.mark.parametrize("options", [{"scale_factor": 4}, {"scale_factor": 2, "mode": "bilinear"}])
def test_any_number_of_images(options: dict[str, Any], memory: torch.memory_format) -> None:
    torch._dynamo.reset()
    paths.reset()
    run = torch.compile(enlarged, backend=kiln.backend, fullgraph=True, options={"fallback": False, "cache": False})
    for images in (2, 5):
        x = torch.randn(images, 3, 6, 7).contiguous(memory_format=memory).requires_grad_()
        torch._dynamo.mark_dynamic(x, 0)
        (found,) = torch.autograd.grad(run(x, **options).sum(), x)
        (expected,) = torch.autograd.grad(enlarged(x, **options).sum(), x)
        torch.testing.assert_close(found, expected)
    assert paths.taken().get(WINDOWS)


@pytest.mark.parametrize(
    ("options", "dynamic"),
    [
        ({"scale_factor": 3, "mode": "bilinear"}, False),  # thirds are rounded
        ({"scale_factor": 2, "mode": "bilinear", "align_corners": True}, False),
        ({"size": (17, 9), "mode": "bilinear"}, False),
        ({"scale_factor": 2.0, "mode": "bilinear"}, True),
    ],
)
def test_other_positions_stay(options: dict[str, Any], dynamic: bool) -> None:
    x = torch.randn(2, 3, 6, 5).contiguous(memory_format=CHANNELS_LAST)
    found, exact = gradients(x, "cpu", dynamic, **options)
    assert (found.double() - exact).norm() < 1e-5 * exact.norm()
    assert WINDOWS not in paths.taken()


def test_values_that_are_broadcast_stay() -> None:
    def put(x: torch.Tensor) -> torch.Tensor:
        positions = (torch.arange(8) * 0.5).long()
        return torch.ops.aten.index_put(torch.zeros(3, 4), [None, positions], x, True).sin()

    x = torch.randn(1, 8, requires_grad=True)
    paths.reset()
    run = torch.compile(put, backend=kiln.backend, fullgraph=True, options={"fallback": False})
    torch.testing.assert_close(run(x), put(x))
    assert WINDOWS not in paths.taken()


def test_windows() -> None:
    """Of two pixels each from the second on, and the edges; none where pixels of an element are not side by side."""
    found = find_windows([0, 0, 0, 1, 1, 2, 2, 3], 4)
    assert found is not None
    assert (found.step, found.shift, found.first, found.last, found.edges) == (2, 1, 1, 8, ((0, 0),))
    found = find_windows([1, 1, 1, 2, 2, 3, 3, 3], 4)
    assert found is not None
    assert (found.step, found.shift, found.first, found.last, found.edges) == (2, -1, 1, 7, ((0, 1), (7, 3)))
    assert find_windows([0, 1, 0, 1, 2, 3, 2, 3], 4) is None
    assert find_windows([0, 1, 2, 3], 4) is None
