# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Grids of affine maps as native code: numbers against eager in float64."""

import pytest
import torch
import torch.nn.functional as F

from kiln.frontend.report import collect

OPTIONS = {"fallback": False, "cache": False}


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
