# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Products whose sums are no multiple of 16 bytes: padded operands compute the same."""

import pytest
import torch
import torch.nn.functional as F

import kiln
from kiln.frontend.report import collect
from kiln.passes import pad_products


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_padded_products_compute_the_same(dtype, monkeypatch):
    """Small ones, which the rule would leave: an operand that is computed, one that is an argument."""
    monkeypatch.setenv("KILN_TARGET", "tt-cpu")
    monkeypatch.setenv("KILN_CACHE", "0")
    monkeypatch.setattr(pad_products, "_COPY", 0.0)
    monkeypatch.setattr(pad_products, "_GAIN", 0.0)

    def model(x, w, b):
        return F.relu(F.linear(x * 2, w, b))

    x, w, b = torch.randn(2, 9, 45).to(dtype), torch.randn(21, 45).to(dtype), torch.randn(21).to(dtype)
    torch._dynamo.reset()
    compiled = torch.compile(model, backend=kiln.backend, fullgraph=True)
    with collect() as reports:
        out = compiled(x, w, b)
    expected = model(x.double(), w.double(), b.double())
    assert (out.double() - expected).norm() / expected.norm() < 1e-2
    assert any(note.pass_name == "pad-products" for report in reports for note in report.notes)
