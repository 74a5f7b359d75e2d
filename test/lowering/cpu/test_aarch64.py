# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""What is made for an AArch64 host (16-byte vectors, 32 registers, none of x86's instructions), run here.

Its kernels are plain vectors of MLIR: what they compute does not depend on the processor, and nothing in them may.
"""

import dataclasses
import re
from pathlib import Path

import pytest
import torch
from torch.nn import functional as F

from kiln.lowering.cpu import isa


@pytest.fixture(autouse=True)
def neoverse(monkeypatch):
    features = ("aes", "crc", "fp-armv8", "lse", "neon", "sha2")
    host = dataclasses.replace(
        isa.host(), name="neoverse-n1", vector_bytes=16, vector_registers=32, features=features, library_bytes=16
    )
    monkeypatch.setattr(isa, "host", lambda: host)
    torch._dynamo.reset()


def _product(x, w, b):
    return F.gelu(x @ w + b).softmax(-1)


def _attention(x, w, b):
    q = (x @ w).view(-1, 3, 17).transpose(0, 1)[None]
    return F.scaled_dot_product_attention(q, q.flip(2), q + 1, is_causal=True) * b[:17]


def _convolution(x, w, b):
    image = x[:, :64].reshape(1, -1, 8, 8)
    return F.relu(F.conv2d(image, w[:45, :30].reshape(6, 1, 15, 15)[:, :, :3, :3].expand(6, x.shape[0], 3, 3), b[:6]))


def _scan(x, w, b):
    return x.cumsum(1).amax(0) + torch.log1p(w.abs()).sum(1)


def _halves(x, w, b):
    return (F.linear(x.bfloat16(), w.T.bfloat16(), b.bfloat16()).tanh() + F.silu(b.half()).float()).float()


def _integers(x, w, b):
    return torch._int_mm((x * 20).to(torch.int8), (w * 20).to(torch.int8)).float() * b


@pytest.mark.parametrize("function", [_product, _attention, _convolution, _scan, _halves, _integers])
def test_kernels(function, tmp_path: Path):
    inputs = torch.randn(33, 72), torch.randn(72, 51), torch.randn(51)
    options = {"debug_dir": str(tmp_path), "cache": False, "fallback": False}
    found = torch.compile(function, backend="kiln", fullgraph=True, options=options)(*inputs)
    eager = function(*inputs)
    wide = function(*(x.double() for x in inputs)) if function not in (_halves, _integers) else eager.double()
    scale = wide.norm()
    error = (found.double() - wide).norm() / scale
    assert found.shape == eager.shape and found.dtype == eager.dtype
    assert error <= (3e-3 if function is _halves else 2 * (eager.double() - wide).norm() / scale + 1e-7)
    texts = [path.read_text() for path in tmp_path.rglob("*.llvm.mlir")]
    assert texts and not any(re.search(r"x86|avx|amx", text) for text in texts)
    if function is _product:
        assert any(re.search(r"intr\.fma.*vector<4xf32>", text) for text in texts), "sums of one register"
