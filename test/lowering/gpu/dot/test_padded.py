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
    monkeypatch.setattr(pad_products, "_pays", lambda *given: True)


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


def test_gradients_of_one_product_share_a_copy(always):
    """The gradient of logits [3, 8, 21] is the left operand of both products: as it is for the activations', and with
    its rows flattened and turned for the weights'.
    """
    torch._dynamo.reset()
    x, w = torch.randn(3, 8, 16).bfloat16(), torch.randn(21, 16).bfloat16()
    g = torch.randn(3, 8, 21).bfloat16()
    given = [v.requires_grad_() for v in (x, w)]
    out = torch.compile(lambda x, w: F.linear(torch.tanh(x), w), backend=kiln.backend, fullgraph=True)(*given)
    with collect() as reports:
        out.backward(g)
    wide = [v.detach().double().requires_grad_() for v in given]
    F.linear(torch.tanh(wide[0]), wide[1]).backward(g.double())
    for ours, exact in zip(given, wide, strict=True):
        assert (ours.grad.double() - exact.grad).norm() / exact.grad.norm() < 1e-2
    (report,) = reports
    assert sum(note.pass_name == "pad-products" for note in report.notes) == 2
    assert sum(kernel.kind == "pointwise" for kernel in report.kernels) <= 3  # two copies, the gradient of tanh


def test_gradients_through_rows_that_their_kernel_pads(always):
    """The gradient of the logits is computed in the graph: both products and the bias' sum read its padded rows."""
    torch._dynamo.reset()
    x, w, b = torch.randn(24, 16).bfloat16(), torch.randn(21, 16).bfloat16(), torch.randn(21).bfloat16()
    y = torch.randint(0, 21, (24,))
    given = [v.requires_grad_() for v in (x, w, b)]

    def loss(x, w, b):
        return F.cross_entropy(F.linear(x, w, b), y)

    out = torch.compile(loss, backend=kiln.backend, fullgraph=True)(*given)
    with collect() as reports:
        out.backward()
    wide = [v.detach().double().requires_grad_() for v in given]
    loss(*wide).backward()
    for ours, exact in zip(given, wide, strict=True):
        assert (ours.grad.double() - exact.grad).norm() / exact.grad.norm() < 2e-2
    assert any(note.pass_name == "pad-products" for report in reports for note in report.notes)
