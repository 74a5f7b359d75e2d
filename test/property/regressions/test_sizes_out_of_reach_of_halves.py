# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""A size known at run time was rounded to 16 bits before it was multiplied or divided by, where numbers of the program
are not: 128,000 elements were infinitely many in f16, and the gradient of their mean was 0."""

import pytest
import torch


@pytest.mark.parametrize("target", ["cpu", "tt-cpu"])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize(
    "function",
    [lambda x: x.mean(), lambda x: x / x.numel(), lambda x: x * x.numel() * 1e-5, lambda x: x - 1e-5 * x * x.numel()],
)
def test_size(function, dtype, target):
    x = torch.linspace(-3, 3, 4 * 32001).view(4, 32001).to(dtype).requires_grad_()
    expected = torch.autograd.grad(function(x.double()).sum(), x)[0].double()
    torch._dynamo.mark_dynamic(x, 0)
    found = torch.compile(function, backend="kiln", options={"target": target})(x)
    torch.testing.assert_close(found.double(), function(x.double()), rtol=0.02, atol=1e-6)
    gradient = torch.autograd.grad(found.sum(), x)[0]
    torch.testing.assert_close(gradient.double(), expected, rtol=0.01, atol=1e-6)
