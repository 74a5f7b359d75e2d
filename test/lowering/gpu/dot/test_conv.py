# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Convolutions in Triton IR: their numbers (run on the CPU) against float64, and machine code."""

import pytest
import torch
import torch.nn.functional as F
from dot_support import conv
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

TOLERANCE = {torch.float32: 2e-6, torch.bfloat16: 5e-3, torch.float16: 6e-4}
FUNCTION = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}


def check(x, w, stride, padding, dilation, groups, channels_last=False, dynamic=False):
    rank = x.ndim - 2
    want = FUNCTION[rank](x.double(), w.double(), None, stride, padding, dilation, groups)
    out = torch.full(want.shape, 7.0, dtype=x.dtype)
    if channels_last:
        x, w, out = (t.contiguous(memory_format=torch.channels_last) for t in (x, w, out))
    conv(x, w, out, stride, padding, dilation, groups, dynamic).run()
    error = (out.double() - want).norm() / want.norm().clamp_min(1e-30)
    assert error < TOLERANCE[x.dtype]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize("channels", [3, 40, 64])
def test_3x3(channels, channels_last, dtype):
    x, w = torch.randn(2, channels, 9, 11).to(dtype), torch.randn(24, channels, 3, 3).to(dtype)
    check(x, w, (1, 1), (1, 1), (1, 1), 1, channels_last)


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize(("groups", "channels", "out"), [(4, 16, 32), (2, 64, 20), (6, 6, 6), (6, 6, 12)])
def test_groups(groups, channels, out, dynamic):
    x, w = torch.randn(2, channels, 10, 7), torch.randn(out, channels // groups, 3, 3)
    check(x, w, (2, 1), (1, 0), (1, 2), groups, True, dynamic)


def test_one_tap_is_a_product():
    check(torch.randn(3, 32, 5, 7), torch.randn(16, 32, 1, 1), (1, 1), (0, 0), (1, 1), 1, True)


@pytest.mark.parametrize("rank", [1, 3])
def test_one_and_three_dims(rank):
    x, w = torch.randn(2, 20, *[7] * rank), torch.randn(5, 20, *[3] * rank)
    check(x, w, [2] * rank, [1] * rank, [1] * rank, 1)


@settings(max_examples=25, suppress_health_check=list(HealthCheck))
@given(
    st.integers(1, 3), st.integers(1, 3), st.integers(1, 20), st.integers(1, 20), st.integers(1, 9), st.integers(1, 4),
    st.integers(1, 3), st.integers(0, 3), st.integers(1, 2), st.booleans(), st.booleans(),
)  # fmt: skip
def test_anything(images, groups, channels, out, size, kernel, stride, padding, dilation, channels_last, dynamic):
    width = size + 2
    if size + 2 * padding < (kernel - 1) * dilation + 1:
        return
    x, w = torch.randn(images, channels * groups, size, width), torch.randn(out * groups, channels, kernel, kernel)
    check(x, w, (stride, 1), (padding, padding), (dilation, dilation), groups, channels_last, dynamic)
