# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""A scan that is written out in log steps became a recurrence, while its steps, with their roundings, were saved for the
gradient. An element that was the largest of the recurrence's was none of the steps': gradients were 0 / 0."""

import pytest
import torch
from torch._higher_order_ops.associative_scan import generic_associative_scan


@pytest.mark.parametrize("target", ["cpu", "tt-cpu"])
@pytest.mark.parametrize("steps", [16, 17])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_scan_beside_its_steps(dtype, steps, target):
    torch.manual_seed(0)
    x, b = torch.randn(8, steps, 40).to(dtype).requires_grad_(), torch.randn(8, steps, 40).to(dtype)

    def network(x, b):
        y = generic_associative_scan(lambda a, b, c, d: (a * c, c * b + d), [torch.sigmoid(x), b], 1)[1]
        z = torch.tanh(y) * torch.sigmoid(y)
        return z - z[..., :39].amax(-1, keepdim=True)

    torch._dynamo.reset()
    compiled = torch.compile(network, backend="kiln", dynamic=False, options={"fallback": False, "target": target})
    weight = torch.randn(8, steps, 40)
    (found,) = torch.autograd.grad((compiled(x, b) * weight).sum(), x)
    (right,) = torch.autograd.grad((network(x.double(), b.double()) * weight).sum(), x)
    assert bool(found.isfinite().all())
    close = (found.double() - right).abs() <= 0.05 * right.abs() + 0.02  # of equal numbers another one is the largest
    assert close.double().mean() > 0.9
