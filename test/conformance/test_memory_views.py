# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Views that count elements in memory (``as_strided``), and views of ``prims``: eager's elements, wherever a plan keeps
the tensor."""

import pytest
import torch
import torch.nn.functional as F

from kiln.frontend.report import collect

from .conftest import assert_same

aten, prims = torch.ops.aten, torch.ops.prims


def check(fn, *inputs, dynamic=False):
    """Results, and gradients of inputs that want them, are eager's; nothing runs as a whole with ATen."""
    ours = [x.detach().requires_grad_(x.requires_grad) for x in inputs]
    with collect() as reports:
        found, expected = torch.compile(fn, backend="kiln", fullgraph=True, dynamic=dynamic)(*ours), fn(*inputs)
        assert_same(found, expected)
        if any(x.requires_grad for x in inputs):
            found.square().sum().backward()
            expected.square().sum().backward()
            assert_same([x.grad for x in ours], [x.grad for x in inputs])
    assert reports and all(report.executor == "kiln" for report in reports)


X = torch.randn(4, 6)
IMAGE = torch.randn(2, 3, 4, 5)
WEIGHT = torch.randn(8, 3, 3, 3)


@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
@pytest.mark.parametrize(
    ("fn", "x"),
    [
        (lambda x: torch.as_strided(x, (2, 2), (1, 2), 3) + 1, IMAGE.to(memory_format=torch.channels_last)),
        (lambda x: torch.as_strided(x, (3, 4), (2, 1)) * 2, X.t()),
        (lambda x: torch.as_strided(x, (3, 4), (2, 1)) * 2, X[:, ::2]),
        (lambda x: torch.as_strided(x, (3, 2), (2, 1), 7) * 2, X[1:]),
        (lambda x: torch.as_strided(x * 2, (3, 4), (2, 1), 1) + 1, X),
        (lambda x: torch.as_strided(x * 2, (3, 4), (2, 1), 1) + 1, X.t()),
        (lambda x: torch.as_strided(x * 2, (3, 4), (2, 1), 1) + 1, IMAGE.to(memory_format=torch.channels_last)),
        (lambda x: torch.as_strided((x * 2)[1:], (5, 4), (2, 1), 3) + 1, X),
        (lambda x: torch.as_strided((x * 2).t()[1:], (5, 4), (2, 1)) + 1, X),
        (lambda x: torch.as_strided(torch.as_strided(x * 2, (6,), (3,), 2), (4, 2), (1, 3), 1) + 1, X),
        (lambda x: torch.as_strided(x.exp(), (4, 3, 2), (2, 1, 1)).sum(0), X),
    ],
    ids=[
        "channels last", "transposed", "steps", "begins later", "computed", "computed transposed",
        "computed channels last", "part of computed", "part of transposed", "of as_strided", "overlapping",
    ],
)  # fmt: skip
def test_as_strided(fn, x, dynamic):
    check(fn, x, dynamic=dynamic)


def test_as_strided_of_what_kernels_write_in_their_own_order():
    def fn(x, w):
        y = F.relu(F.conv2d(x, w))
        return torch.as_strided(y, (6, 7), (5, 2), 3) * 2, y.sum(1)

    check(fn, IMAGE, WEIGHT)
    check(fn, IMAGE.to(memory_format=torch.channels_last), WEIGHT.to(memory_format=torch.channels_last))


def test_what_was_read_is_not_written_over():
    """The elements are read late, after kernels that could reuse the memory that they come from."""

    def fn(x):
        y = torch.softmax(x, -1)
        window = torch.as_strided(y.t().contiguous(), (5, 30), (7, 1), 2)
        z = torch.softmax(torch.softmax(y * 3, 0) + 1, -1)
        return torch.cumsum(z, 0).sum() + window

    check(fn, torch.randn(40, 50))


@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
@pytest.mark.parametrize("of", [lambda x: x * 2, lambda x: (x * 2).t(), lambda x: (x * 2)[1:]])
def test_gradients_of_as_strided(of, dynamic):
    x = torch.randn(4, 6, requires_grad=True)
    check(lambda x: torch.as_strided(of(x), (3, 4), (2, 1), 6) * 3, x, dynamic=dynamic)


def test_as_strided_scatter():
    check(lambda x, y: torch.as_strided_scatter(x * 2, y, (2, 3), (6, 2), 1), X, torch.randn(2, 3))
    check(lambda x, y: torch.as_strided_scatter(x * 2, y, (2, 3), (6, 2), 1), torch.randn(6, 4).t(), torch.randn(2, 3))


@pytest.mark.parametrize("size", [(24,), (1, 8, 3), (6, 4)])
def test_all_elements_in_memory_order(size):
    """A view, or a copy of what is written: never the memory of an argument."""
    stride = torch.empty(size).stride()
    check(lambda x: torch.as_strided(x * 2, size, stride) + 1, X)
    check(lambda x, y: torch.as_strided_scatter(x * 2, y, size, stride), X, torch.randn(size))
    check(
        lambda x, y: torch.as_strided_scatter(x * 2, y * 3, size, stride).sum(0),
        X,
        torch.randn(size[::-1]).permute(*reversed(range(len(size)))),
    )
    y = torch.randn(size)
    run = torch.compile(lambda x, y: torch.as_strided_scatter(x * 2, y, size, stride), backend="kiln", fullgraph=True)
    assert run(X, y).data_ptr() != y.data_ptr()


@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
@pytest.mark.parametrize(
    "fn",
    [
        lambda x: prims.view_of(x),
        lambda x: prims.view_of.default(x) + 1,
        lambda x: prims.squeeze(x, [0, 2]),
        lambda x: prims.squeeze(x * 2, [2]).exp(),
        lambda x: prims.transpose(x, [3, 1, 2, 0]) + 1,
        lambda x: prims.view_of(x * 2).add_(1),
    ],
    ids=["view_of", "view_of.default", "squeeze", "squeeze of computed", "transpose", "written"],
)
def test_views_of_prims(fn, dynamic):
    check(fn, torch.randn(1, 3, 1, 4), dynamic=dynamic)


def test_gradients_through_views_of_prims():
    check(lambda x: aten.squeeze.dims(x, [0, 2]).sin(), torch.randn(1, 3, 1, 4, requires_grad=True))


@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
@pytest.mark.parametrize(
    ("fn", "shape"),
    [
        (lambda x: F.adaptive_avg_pool1d(x, 0), (2, 3, 4)),
        (lambda x: F.adaptive_avg_pool2d(x, (0, 3)), (2, 3, 4, 5)),
        (lambda x: F.adaptive_avg_pool2d(x * 2, 0), (3, 4, 5)),
        (lambda x: F.adaptive_avg_pool3d(x, (2, 0, 3)), (2, 3, 4, 5, 6)),
        (lambda x: F.adaptive_max_pool2d(x, (0, 3)), (2, 3, 4, 5)),
        (lambda x: F.adaptive_max_pool2d(x, (3, 0), return_indices=True), (2, 3, 4, 5)),
    ],
    ids=["avg1d", "avg2d", "without batch", "avg3d", "max2d", "max2d with indices"],
)
def test_pooling_to_nothing(fn, shape, dynamic):
    check(fn, torch.randn(shape), dynamic=dynamic)


def test_derivatives_of_derivatives_are_kernels():
    """functorch replays each view of what it differentiates twice by `as_strided`, which is a view here."""
    w, v = torch.randn(6, 5), torch.randn(5, 3)

    def fn(x):
        return torch.func.grad(
            lambda z: torch.func.grad(lambda y: (torch.tanh(y @ w) @ v).pow(3).sum())(z).pow(2).sum()
        )(x)

    with collect() as reports:
        check(fn, torch.randn(6))
    assert reports
    assert not [call for report in reports for call in report.aten_calls]
