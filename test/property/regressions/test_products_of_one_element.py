# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Products and convolutions whose results have dims of size 1 did not compile. The index of the only column of a product
was not simplified to 0, as that of what follows it is, so a cast behind the product was taken for loops that read what
no kernel stores. A result behind a convolution that has fewer dims than the convolution's was indexed with all of them."""

import pytest
import torch
import torch.nn.functional as F

from kiln.frontend.report import collect


def scaled(x, y, z):
    return torch.baddbmm(z, x, y, alpha=0.25)


def both_ways(x, y, z):
    product = x @ y
    return product.relu(), product.sum(-2), torch.softmax(product + z, -1)


def channels(x, w, mean, variance):
    spread = variance.abs() + 0.5
    return F.silu(F.batch_norm(F.conv2d(x, w), mean, spread)), spread


@pytest.mark.parametrize("target", ["cpu", "tt-cpu"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("function", [scaled, both_ways])
@pytest.mark.parametrize("shape", [(1, 1, 1), (1, 16, 1), (5, 16, 1), (1, 1, 16)], ids=str)
def test_products(shape, function, dtype, target):
    """With gradients, which are products of one column where those of the shape are not."""
    m, k, n = shape
    torch.manual_seed(0)
    drawn = [torch.randn(1, *sizes).to(dtype) for sizes in ((m, k), (k, n), (m, n))]
    results = []
    with collect() as reports:
        for run in (function, torch.compile(function, backend="kiln", options={"fallback": False, "target": target})):
            operands = [x.clone().requires_grad_() for x in drawn]
            found = run(*operands)
            found = found if isinstance(found, tuple) else (found,)
            torch.autograd.backward(found, [torch.full_like(x, 0.5) for x in found])
            results.append([*found, *(x.grad for x in operands if x.grad is not None)])
    assert not [d for report in reports for d in report.decisions if d.way == "aten"]
    tolerance = {"rtol": 2e-2, "atol": 2e-2} if dtype == torch.bfloat16 else {}
    torch.testing.assert_close(results[1], results[0], **tolerance)


@pytest.mark.parametrize("target", ["cpu", "tt-cpu"])
def test_a_value_for_each_channel_of_one_pixel(target):
    torch.manual_seed(0)
    operands = torch.randn(1, 384, 1, 1), torch.randn(10, 384, 1, 1) * 0.05, torch.randn(10), torch.randn(10)
    found = torch.compile(channels, backend="kiln", options={"fallback": False, "target": target})(*operands)
    torch.testing.assert_close(found, channels(*operands), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("target", ["cpu", "tt-cpu"])
def test_sums_over_one_column_of_an_image(target):
    torch.manual_seed(0)
    x, w = torch.randn(2, 32, 5, 4), torch.randn(48, 32, 7, 7) * 0.02

    def sums(x, w):
        return torch.logsumexp(F.conv2d(x, w, stride=4, padding=3), -1)

    found = torch.compile(sums, backend="kiln", options={"fallback": False, "target": target})(x, w)
    torch.testing.assert_close(found, sums(x, w), rtol=1e-4, atol=1e-4)


def test_two_products_of_one_column_in_a_kernel():
    """A column of one element has stride 0. The sizes of a block did not tell that the product's are 1, and the kernel
    that was chosen for one column did not take that stride."""
    torch.manual_seed(0)
    drawn = torch.randn(1, 200), torch.randn(200, 1)

    def products(x, y):
        return x @ y, y @ x[:, :7]

    results = []
    for run in (products, torch.compile(products, backend="kiln", options={"fallback": False, "target": "cpu"})):
        operands = [x.clone().requires_grad_() for x in drawn]
        torch.autograd.backward(run(*operands), [torch.full((1, 1), 0.5), torch.full((200, 7), 0.25)])
        results.append([x.grad for x in operands])
    torch.testing.assert_close(results[1], results[0], rtol=1e-4, atol=1e-4)
