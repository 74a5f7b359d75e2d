# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Products of 8-bit floats with scales: numbers on a CPU, machine code."""

import pytest
import torch
import torch.nn.functional as F
from fusion_support import compile_fusion, emit_fusion

import kiln
from kiln.errors import UnsupportedError
from kiln.frontend.report import collect
from kiln.lowering.gpu.dot.fusions import DotOptions

PRODUCT = """
func.func @main(%x: tensor<{m}x{k}x{t}>, %w: tensor<{n}x{k}x{t}>) -> tensor<{m}x{n}xf32> {{
  %0 = "kiln.fusion"(%x, %w) ({{
  ^bb0(%a: tensor<{m}x{k}x{t}>, %b: tensor<{n}x{k}x{t}>):
    %1 = "kiln.matmul"(%a, %b) {{transpose_lhs = false, transpose_rhs = true{fast}}}
      : (tensor<{m}x{k}x{t}>, tensor<{n}x{k}x{t}>) -> tensor<{m}x{n}xf32>
    "kiln.yield"(%1) : (tensor<{m}x{n}xf32>) -> ()
  }}) {{kind = "matmul", name = "product"}} : (tensor<{m}x{k}x{t}>, tensor<{n}x{k}x{t}>) -> tensor<{m}x{n}xf32>
  return %0 : tensor<{m}x{n}xf32>
}}
"""


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


@pytest.mark.parametrize("arch", ["sm_89", "sm_90", "sm_100"])
@pytest.mark.parametrize("fast", [False, True])
def test_machine_code(arch, fast):
    text = PRODUCT.format(m=64, n=4096, k=4096, t="f8E4M3FN", fast=", fast_sums" if fast else "")
    made = compile_fusion(text, DotOptions(arch, descriptors=True))
    assert made.cubin and ("tcgen05.mma" if arch == "sm_100" else "e4m3") in made.ptx
    if arch == "sm_90":
        assert "wgmma.mma_async" in made.ptx and "cp.async.bulk.tensor" in made.ptx


def test_older_gpus_have_none():
    with pytest.raises(UnsupportedError, match="no tensor cores for f8E4M3FN"):
        emit_fusion(PRODUCT.format(m=64, n=64, k=64, t="f8E4M3FN", fast=""), DotOptions("sm_80"))
