# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Products whose sums are no multiple of 16 bytes: padded operands compute the same."""

import pytest
import torch
import torch.nn.functional as F

import kiln
from kiln.frontend.report import collect
from kiln.passes import pad_products


@pytest.fixture
def always(monkeypatch):
    """All products, also small ones, which the rule would leave."""
    monkeypatch.setenv("KILN_TARGET", "tt-cpu")
    monkeypatch.setenv("KILN_CACHE", "0")
    monkeypatch.setattr(pad_products, "_COPY", 0.0)
    monkeypatch.setattr(pad_products, "_GAIN", 0.0)


def check(model, *given):
    torch._dynamo.reset()
    compiled = torch.compile(model, backend=kiln.backend, fullgraph=True)
    with collect() as reports:
        out = compiled(*given)
    expected = model(*(x.double() for x in given))
    assert out.shape == expected.shape and out.is_contiguous()
    assert (out.double() - expected).norm() / expected.norm() < 1e-2
    assert any(note.pass_name == "pad-products" for report in reports for note in report.notes)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_padded_products_compute_the_same(dtype, always):
    """An operand that is computed, one that is an argument."""
    x, w, b = torch.randn(2, 9, 45).to(dtype), torch.randn(21, 45).to(dtype), torch.randn(21).to(dtype)
    check(lambda x, w, b: F.relu(F.linear(x * 2, w, b)), x, w, b)


@pytest.mark.parametrize("batch", [(), (3,), (2, 3)])
@pytest.mark.parametrize(("left", "right"), [(False, False), (False, True), (True, False), (True, True)])
def test_any_order_of_the_operands(batch, left, right, always):
    """Rows of 21, 45 and 13: along the sums, the result's rows, its columns."""
    x = torch.randn(*batch, *((45, 21) if left else (21, 45))).bfloat16()
    y = torch.randn(*batch, *((13, 45) if right else (45, 13))).bfloat16()
    check(lambda x, y: torch.tanh((x.mT if left else x) @ (y.mT if right else y)), x, y)


def test_one_operand_of_two_products(always):
    """Padded along the sums for one, along the columns for the other."""
    x, w = torch.randn(21, 45).bfloat16(), torch.randn(45, 45).bfloat16()
    check(lambda x, w: torch.relu(x @ w) + x @ w.mT, x, w)
