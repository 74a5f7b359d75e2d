# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Gradients of attention on a GPU, where what follows attention decides how the gradient of its result lies."""

import pytest
import torch
import torch.nn.functional as F

import kiln

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
@pytest.mark.parametrize(
    ("tokens", "heads", "groups", "width", "causal"),
    [
        (7, 4, 2, 112, True),
        (129, 6, 2, 72, True),
        (128, 4, 4, 128, True),
        (128, 4, 4, 64, False),
        (100, 4, 2, 256, True),
    ],
)
def test_gradients_behind_pointwise_ops(tokens, heads, groups, width, causal, dtype):
    def model(q, k, v):
        q, k, v = (x.transpose(1, 2) for x in (q, k, v))
        result = F.scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=groups != heads)
        return result, torch.tanh(result)

    def gradients(function, inputs):
        inputs = [x.detach().clone().requires_grad_() for x in inputs]
        results = function(*inputs)
        torch.autograd.backward(results, [g.to(r.dtype) for g, r in zip(given, results, strict=True)])
        return [x.grad for x in inputs]

    torch._dynamo.reset()  # else the second case is compiled for all sizes
    inputs = [torch.randn(1, tokens, n, width, device="cuda").to(dtype) for n in (heads, groups, groups)]
    given = [torch.randn(1, heads, tokens, width, device="cuda").to(dtype) for _ in range(2)]
    exact = gradients(model, [x.double() for x in inputs])
    found = gradients(torch.compile(model, backend=kiln.backend, options={"fallback": False}), inputs)
    limit = {torch.bfloat16: 1e-2, torch.float16: 2e-3, torch.float32: 1e-5}[dtype]
    for gradient, reference in zip(found, exact, strict=True):
        assert (gradient.double() - reference).norm() <= limit * reference.norm()
