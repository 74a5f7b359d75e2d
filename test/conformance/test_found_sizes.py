# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Sizes and numbers that a graph finds while it runs, as outputs of it: what a forward graph hands to its backward
graph, and what a function returns."""

import pytest
import torch
from torch.utils import _pytree as pytree

from kiln.frontend.report import collect

from .conftest import assert_same


@pytest.fixture(autouse=True)
def captured():
    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True, capture_scalar_outputs=True):
        yield


def gradients(fn, x):
    x = x.clone().requires_grad_()
    result = fn(x)
    result.square().sum().backward()
    return result.detach(), x.grad


@pytest.mark.parametrize("cache", [False, True], ids=["", "cached"])
@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
@pytest.mark.parametrize(
    "fn",
    [
        lambda x: torch.masked_select(x, x > 0).sum(),
        lambda x: torch.masked_select(x * 2, x > 0) * 3,
        lambda x: x[x > 0].exp(),
        lambda x: x[x.nonzero()[:, 0]] * x.nonzero().shape[0],
        lambda x: torch.relu(x[x[:, 0] > 0]) @ x.t(),
        lambda x: torch.softmax(x[(x[:, 0] > 0).nonzero().squeeze(1)], -1),
    ],
    ids=["masked_select", "masked_select of computed", "mask", "nonzero", "rows", "chosen"],
)
def test_gradients(fn, dynamic, cache, caches):
    compiled = None
    for _ in range(2):
        torch._dynamo.reset()
        compiled = torch.compile(fn, backend="kiln", fullgraph=True, dynamic=dynamic, options={"cache": cache})
        with collect() as reports:
            for x in (torch.randn(5, 7), torch.randn(5, 7).abs(), -torch.randn(5, 7).abs()):
                assert_same(gradients(compiled, x), gradients(fn, x))
        assert {report.graph for report in reports} == {"forward", "backward"}
        assert all(report.executor == "kiln" for report in reports)


@pytest.mark.parametrize(
    "fn",
    [
        lambda x: (x.nonzero().shape[0] + 1, x * 2),
        lambda x: (x[x > 0].shape[0], x.nonzero()),
        lambda x: (x.sum().to(torch.int64).item() * 3, x + 1),
        lambda x: (x.to(torch.int64)[0, 0].item(), x.nonzero().shape[0] * 2 + x.shape[0]),
        lambda x: (x + 1, x.nonzero().shape[0] > 3, x.nonzero().shape[0] != 35),
        lambda x: (x * 2, (x > 0).any().item()),
        lambda x: (x[x > 0].exp(), (x > 0).all().item(), x.shape[0] * 7 == x.shape[1] * 5),
    ],
    ids=["of nothing returned", "of a returned tensor", "item", "both", "compared", "truth", "truth and sizes"],
)
@pytest.mark.parametrize("cache", [False, True], ids=["", "cached"])
@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
def test_numbers_that_are_returned(fn, dynamic, cache, caches):
    for _ in range(2):
        torch._dynamo.reset()
        compiled = torch.compile(fn, backend="kiln", fullgraph=True, dynamic=dynamic, options={"cache": cache})
        with collect() as reports:
            for x in (torch.randn(5, 7), torch.zeros(5, 7), torch.ones(5, 7)):
                found, expected = compiled(x), fn(x)
                assert [type(a) for a in found] == [type(b) for b in expected]
                assert_same(found, expected)
        assert all(report.executor == "kiln" for report in reports)


@pytest.mark.parametrize(
    "fn",
    [
        lambda x: x.nonzero() * 2,
        lambda x: (torch.argwhere(x > 0).t() + 1, x[x > 0]),
        lambda x: torch.relu(x.new_ones(7, 3) @ x.new_ones(3, x.nonzero().shape[0])).t(),
    ],
    ids=["nonzero", "argwhere", "columns"],
)
@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
def test_strides_that_depend_on_data(fn, dynamic):
    """The number of positions is a distance in memory. Where there is none, eager's strides are others than traced."""
    compiled = torch.compile(fn, backend="kiln", fullgraph=True, dynamic=dynamic)
    with collect() as reports:
        for _ in range(2):
            assert_same(compiled(x := torch.randn(5, 7)), fn(x))
        found, expected = (pytree.tree_leaves(f(torch.zeros(5, 7))) for f in (compiled, fn))
        assert [x.shape for x in found] == [x.shape for x in expected]
    assert all(report.executor == "kiln" for report in reports)


def test_a_number_of_an_input():
    def fn(x, n):
        number = n.item()
        return number + 1, x + number

    compiled = torch.compile(fn, backend="kiln", fullgraph=True)
    for number in (0, 4, -7):
        assert_same(compiled(torch.ones(3), torch.tensor(number)), fn(torch.ones(3), torch.tensor(number)))
