# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Integers that differ in sign alone are the same bits to the compiler, and other numbers to PyTorch."""

import pytest
import torch

PAIRS = [(torch.uint8, torch.int8), (torch.int8, torch.uint8)]


def returned(a, dtype):
    """What is computed, what came in, and a view of it, each in both types."""
    b = a + 1
    return b, b.to(dtype), a.to(dtype), a, a.flip(0).to(dtype)


def truncated(a, dtype):
    """Casts of floats that are one kernel's one result."""
    x = a.float() / 2
    return x.to(dtype), x.to(a.dtype)


def called(a, dtype):
    """Ops that ATen runs: on inputs, on what kernels wrote, and on what other calls returned."""
    b, c = a + 1, torch.topk(a, 4)[0]
    return torch.topk(a.to(dtype), 3)[0], torch.sort(b)[0], torch.sort(b.to(dtype))[0], torch.topk(c.to(dtype), 2)[0], c


def computed(a, dtype):
    b = a.to(dtype)
    return b.float(), a.float(), b.amax(), a.amax(), b > a.to(torch.int64), b.sum(), b // 3


@pytest.mark.parametrize("function", [returned, truncated, called, computed])
@pytest.mark.parametrize(("given", "other"), PAIRS)
def test_each_result_has_its_sign(given, other, function, check):
    generator = torch.Generator().manual_seed(3)
    a = torch.randint(-128, 128, (37,), generator=generator).to(given)
    check(lambda x: function(x, other), a, options={"fallback": False})
