# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Sampling of images on a GPU against the CPU's in float64; skipped where there is no GPU."""

import pytest
import torch
import torch.nn.functional as F
from on_gpu_support import randn

import kiln  # noqa: F401 - makes backend="kiln" known in a checkout that is not installed
from kiln.lowering import paths

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")


@pytest.mark.parametrize("align_corners", [False, True])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("mode", ["nearest", "bicubic"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_against_float64(dtype: torch.dtype, mode: str, padding: str, align_corners: bool) -> None:
    """Positions of 64ths, which all types have: halfway between two pixels, at borders, outside."""
    how = {"mode": mode, "padding_mode": padding, "align_corners": align_corners}
    x, grid = randn(3, 24, 14, 22).to(dtype), (torch.randint(-80, 81, (3, 17, 9, 2), device="cuda") / 64).to(dtype)
    torch._dynamo.reset()
    paths.reset()
    y = torch.compile(lambda x, g: F.grid_sample(x, g, **how) * 2, backend="kiln", dynamic=False)(x, grid)
    expected = F.grid_sample(x.cpu().double(), grid.cpu().double(), **how) * 2
    limit = 2.0**-6 if dtype == torch.bfloat16 else 2.0**-9
    torch.testing.assert_close(y.cpu().double(), expected, rtol=limit, atol=limit)
    assert paths.taken()[f"cuda grid-sampling: {'cubic' if mode == 'bicubic' else mode}"]
