# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Gradients of attention in float64 on the CPU: what is kept for them has the type that PyTorch's op wants."""

import torch
import torch.nn.functional as F

import kiln


def test_gradients_of_attention_in_float64() -> None:
    def attend(q: torch.Tensor) -> torch.Tensor:
        return F.scaled_dot_product_attention(q, q * 2, q + 1).square().sum()

    q = torch.randn(2, 1, 8, 4, dtype=torch.float64, requires_grad=True)
    torch._dynamo.reset()
    run = torch.compile(attend, backend=kiln.backend, fullgraph=True, options={"fallback": False})
    (found,), (exact,) = torch.autograd.grad(run(q), q), torch.autograd.grad(attend(q), q)
    torch.testing.assert_close(found, exact, rtol=1e-12, atol=1e-12)
