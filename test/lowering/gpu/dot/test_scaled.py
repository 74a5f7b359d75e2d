# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Products of 8-bit floats with scales: numbers on a CPU, machine code."""

import pytest
import torch
import torch.nn.functional as F

import kiln
from kiln.frontend.report import collect


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.float8_e5m2])
@pytest.mark.parametrize("rowwise", [False, True])
@pytest.mark.parametrize("m", [1, 19])
def test_scaled_products(dtype, rowwise, m, monkeypatch):
    """With a bias and an activation behind it: one kernel and no call, but where cuBLAS is faster."""
    monkeypatch.setenv("KILN_TARGET", "tt-cpu")
    monkeypatch.setenv("KILN_CACHE", "0")
    n, k = 48, 80
    x, w = torch.randn(m, k).to(dtype), torch.randn(n, k).to(dtype)
    scales = (torch.rand(m, 1), torch.rand(1, n)) if rowwise else (torch.rand(()), torch.rand(()))
    bias = torch.randn(n).bfloat16()

    def model(x, w, a, b, bias):
        return F.silu(torch._scaled_mm(x, w.t(), a, b, bias=bias, out_dtype=torch.bfloat16))

    torch._dynamo.reset()
    with collect() as reports:
        out = torch.compile(model, backend=kiln.backend, fullgraph=True)(x, w, *scales, bias)
    assert bool(reports[0].aten_calls) is not rowwise and len(reports[0].kernels) == 1
    exact = F.silu((x.double() @ w.double().T) * (scales[0].double() * scales[1].double()) + bias.double())
    assert out.dtype == torch.bfloat16
    assert (out.double() - exact).norm() / exact.norm() < 1e-2
