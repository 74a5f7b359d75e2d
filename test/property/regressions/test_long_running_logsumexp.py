# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""A running logsumexp was off by up to 20 units in the last place after 4096 elements. Its reduction chose between the sum with
a term and the sum without it; kernels knew no way to combine such sums, and added one term after the other."""

import pytest
import torch


@pytest.mark.parametrize("target", ["cpu", "tt-cpu"])
def test_running_logsumexp(target):
    torch.manual_seed(0)
    x = torch.relu(torch.randn(4096))
    torch._dynamo.reset()
    compiled = torch.compile(torch.logcumsumexp, backend="kiln", options={"fallback": False, "target": target})
    exact = torch.logcumsumexp(x.double(), 0)
    assert ((compiled(x, 0) - exact).abs() / exact.abs().clamp_min(1)).max() < 3 * 2**-23


@pytest.mark.parametrize("target", ["cpu", "tt-cpu"])
def test_infinities_and_nan(target):
    x = torch.tensor([[-torch.inf, -torch.inf, 2.0, 1.0], [1.0, torch.inf, 0.0, 2.0], [0.0, 3.0, torch.nan, 1.0]])
    torch._dynamo.reset()
    compiled = torch.compile(torch.logcumsumexp, backend="kiln", options={"fallback": False, "target": target})
    torch.testing.assert_close(compiled(x, 1), torch.logcumsumexp(x, 1), equal_nan=True)
