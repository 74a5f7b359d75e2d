# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Sampling in 16 bits on CPUs: ATen reads outside of images with channels last, Kiln samples in float32."""

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F

import kiln  # noqa: F401 - makes backend="kiln" known in a checkout that is not installed
from kiln.lowering import paths

Sampled = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
IMAGES = {2: ((3, 33, 16, 12), (3, 1, 33, 2)), 3: ((2, 17, 8, 9, 10), (2, 1, 2, 33, 3))}
"""By spatial dims: shapes of an image, whose channels fill no whole vectors, and of a grid."""
CHANNELS_LAST = {2: torch.channels_last, 3: torch.channels_last_3d}


def with_gradients(sampled: Sampled, x: torch.Tensor, grid: torch.Tensor) -> list[torch.Tensor]:
    x, grid = x.detach().requires_grad_(), grid.detach().requires_grad_()
    y = sampled(x, grid)
    out = torch.linspace(-1, 1, y.numel(), dtype=torch.bfloat16).view(y.shape).to(y.dtype)
    return [y.detach(), *torch.autograd.grad(y, (x, grid), out)]


@pytest.mark.parametrize("layout", ["planar", "channels last"])
@pytest.mark.parametrize("padding", ["zeros", "border"])
@pytest.mark.parametrize(
    ("mode", "dims"), [("nearest", 2), ("bilinear", 2), ("bicubic", 2), ("nearest", 3), ("bilinear", 3)]
)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_results_and_gradients_are_those_of_float32(
    dtype: torch.dtype, mode: str, dims: int, padding: str, layout: str
) -> None:
    torch._dynamo.reset()
    torch.manual_seed(0)

    def sampled(x: torch.Tensor, grid: torch.Tensor) -> torch.Tensor:
        return F.grid_sample(x, grid, mode=mode, padding_mode=padding, align_corners=True)

    image, positions = IMAGES[dims]
    x, grid = torch.randn(image).to(dtype), (torch.rand(positions) * 2.4 - 1.2).to(dtype)
    if layout == "channels last":
        x = x.to(memory_format=CHANNELS_LAST[dims])
    paths.reset()
    compiled = torch.compile(sampled, backend="kiln", dynamic=False, options={"fallback": False, "cache": False})
    found, wide = with_gradients(compiled, x, grid), with_gradients(sampled, x.float(), grid.float())
    for ours, right, given in zip(found, wide, (x, x, grid), strict=True):
        assert ours.dtype == given.dtype
        assert float((ours.double() - right).norm()) <= 4e-3 * float(right.norm())
    assert [y.stride() for y in found] == [y.stride() for y in wide]
    taken = paths.taken()
    assert taken["cpu grid-sampling: in float32"] and taken["cpu grid-sampling: gradients in float32"]


def test_float32_is_left_as_it_is() -> None:
    torch._dynamo.reset()
    paths.reset()
    x, grid = torch.randn(1, 3, 8, 8), torch.rand(1, 4, 4, 2)
    y = torch.compile(F.grid_sample, backend="kiln", dynamic=False, options={"cache": False})(
        x, grid, align_corners=True
    )
    torch.testing.assert_close(y, F.grid_sample(x, grid, align_corners=True), rtol=0, atol=0)
    assert not paths.taken().get("cpu grid-sampling: in float32")
