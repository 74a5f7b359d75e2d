# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Sums of groups of neighbouring channels: rows of a few elements, of which several are summed at once."""

import pytest
import torch
import torch.nn.functional as F

from kiln.lowering import paths


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("channels, groups", [(6, 6), (12, 4), (20, 5), (64, 8), (40, 4), (64, 2)])
def test_group_norm_of_channels_last(channels, groups, dtype):
    """It writes its channels-last result itself, and copies nothing."""
    torch._dynamo.reset()
    torch.manual_seed(0)
    x = (torch.randn(2, channels, 19, 23) + 3).to(dtype).contiguous(memory_format=torch.channels_last)
    run = torch.compile(lambda x: F.silu(F.group_norm(x, groups)), backend="kiln", dynamic=False)
    before = paths.taken().get("any assign-layouts: joined dims", 0)
    result, exact = run(x), F.silu(F.group_norm(x.double(), groups))
    assert result.is_contiguous(memory_format=torch.channels_last)
    assert float((result.double() - exact).abs().max()) < (3e-6 if dtype == torch.float32 else 2e-2)
    if channels != groups:
        assert paths.taken().get("any assign-layouts: joined dims", 0) == before + 1


@pytest.mark.parametrize("rows", [1, 7, 8, 9, 64, 515, 5003])
def test_short_rows(rows):
    torch._dynamo.reset()
    torch.manual_seed(0)
    x = torch.randn(rows, 6, 5)
    run = torch.compile(lambda x: (x.sum((0, 2)), x.amax((0, 2)), (x * x).mean((0, 2))), backend="kiln", dynamic=False)
    y = x.double()
    exact = y.sum((0, 2)), y.amax((0, 2)), (y * y).mean((0, 2))
    for result, right in zip(run(x), exact, strict=True):
        assert float(((result.double() - right).abs() / y.abs().sum((0, 2))).max()) < 1e-6


def test_long_sums_stay_accurate():
    """Of 250,000 positive terms in rows of five: one sum for each lane was off by 3e-6."""
    torch._dynamo.reset()
    torch.manual_seed(0)
    x = torch.rand(50_000, 6, 5)
    result = torch.compile(lambda x: x.sum((0, 2)), backend="kiln", dynamic=False)(x)
    exact = x.double().sum((0, 2))
    assert float(((result - exact) / exact).abs().max()) < 4e-7
