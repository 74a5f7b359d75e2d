# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Samples at the points of a grid as native code: numbers against eager in float64, points far outside, NaN."""

import pytest
import torch
import torch.nn.functional as F

from kiln.frontend.report import collect

OPTIONS = {"fallback": False, "cache": False}


def _check(image: torch.Tensor, grid: torch.Tensor, *how: object, dynamic: bool = False) -> None:
    torch._dynamo.reset()
    with collect() as reports:
        compiled = torch.compile(F.grid_sample, backend="kiln", dynamic=dynamic or None, options=OPTIONS)
        found = compiled(image, grid, *how)
    assert not [call.op for report in reports for call in report.aten_calls]
    exact = F.grid_sample(image.double(), grid.double(), *how)
    eager = F.grid_sample(image, grid, *how)
    assert found.dtype == eager.dtype
    assert found.stride() == eager.stride()
    assert (found - exact).norm() <= 2 * (eager - exact).norm() + 1e-7 * exact.norm()


@pytest.mark.parametrize("align_corners", [True, False])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("mode", ["bilinear", "nearest"])
def test_modes(mode: str, padding: str, align_corners: bool) -> None:
    image, grid = torch.randn(2, 3, 9, 11), torch.rand(2, 5, 6, 2) * 6 - 3
    _check(image, grid, mode, padding, align_corners)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_other_types(dtype: torch.dtype) -> None:
    _check(torch.randn(2, 3, 9, 11, dtype=dtype), torch.rand(2, 5, 6, 2, dtype=dtype) * 3 - 1.5)


def test_dynamic_sizes() -> None:
    _check(torch.randn(2, 3, 9, 11), torch.rand(2, 5, 6, 2) * 6 - 3, "bilinear", "reflection", False, dynamic=True)


def test_images_of_one_row_are_mirrored() -> None:
    _check(torch.randn(1, 2, 1, 8), torch.rand(1, 3, 4, 2) * 6 - 3, "bilinear", "reflection", True)


def test_elements_outside_are_zeros_whatever_the_image_holds() -> None:
    """The first element is Inf: a formula that reads it for points outside, and multiplies by zero, gives NaN."""
    image = torch.full((1, 1, 4, 4), float("inf"))
    grid = torch.tensor([[[[-3.0, 0.0], [9.0, 9.0], [1e30, -1e30]]]])
    found = torch.compile(F.grid_sample, backend="kiln", options=OPTIONS)(image, grid)
    assert torch.equal(found, torch.zeros(1, 1, 1, 3))


@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
def test_points_that_are_no_numbers(padding: str) -> None:
    image, grid = torch.randn(1, 2, 4, 4), torch.tensor([[[[float("nan"), 0.0], [0.25, float("inf")]]]])
    compiled = torch.compile(F.grid_sample, backend="kiln", options=OPTIONS)
    compiled(image, grid, "bilinear", padding)


@pytest.mark.parametrize("align_corners", [True, False])
@pytest.mark.parametrize("sizes", [(4, 3, 9, 11), (2, 3, 5, 6, 7)], ids=str)
def test_affine_grids(sizes: tuple[int, ...], align_corners: bool) -> None:
    rows = len(sizes) - 2
    theta = torch.randn(sizes[0], rows, rows + 1)
    with collect() as reports:
        found = torch.compile(F.affine_grid, backend="kiln", options=OPTIONS)(theta, sizes, align_corners)
    assert not [call.op for report in reports for call in report.aten_calls]
    exact = F.affine_grid(theta.double(), sizes, align_corners)
    assert (found - exact).norm() < 3e-7 * exact.norm()
    assert found.stride() == F.affine_grid(theta, sizes, align_corners).stride()
