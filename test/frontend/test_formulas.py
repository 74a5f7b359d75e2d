# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Formulas in place of PyTorch's: the gradient of cumprod, and ops that some versions trace with wrong shapes or strides."""

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from kiln.frontend.formulas import corrections, cumprod_backward
from kiln.frontend.report import collect


def compiled(function):
    torch._dynamo.reset()
    return torch.compile(function, backend="kiln", options={"fallback": False})


def rows(width: int, dtype: torch.dtype) -> torch.Tensor:
    """Rows without zeros, with one at the start, inside and at the end, with two, and of zeros alone."""
    torch.manual_seed(0)
    x = (torch.rand(7, width) + 0.5).to(dtype)
    x[1, 0] = x[2, width // 2] = x[3, -1] = x[4, 1] = x[4, -2] = 0
    x[5] = 0
    return x


@pytest.mark.parametrize("dim", [0, 1, -1])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.complex64])
def test_gradient_of_cumprod(dtype, dim):
    x = rows(9, dtype).transpose(0, 1 if dim == 0 else 0).contiguous().requires_grad_()
    y = torch.cumprod(x, dim)
    grad = torch.randn(y.shape, dtype=dtype)
    (expected,) = torch.autograd.grad(y, x, grad)
    torch.testing.assert_close(cumprod_backward(grad, x.detach(), dim, y.detach()), expected)


@pytest.mark.parametrize("shape", [(), (1,), (1, 1)], ids=str)
@pytest.mark.parametrize("value", [0.0, 2.0, torch.inf])
def test_gradient_of_cumprod_of_one_element(shape, value):
    x = torch.full(shape, value)
    assert cumprod_backward(torch.full(shape, 3.0), x, 0, x).tolist() == torch.full(shape, 3.0).tolist()


def test_nothing_behind_a_zero_reaches_what_is_before_it():
    x, grad = torch.tensor([2.0, 0.0, 3.0]), torch.tensor([1.0, 1.0, torch.nan])
    leaf = x.clone().requires_grad_()
    (expected,) = torch.autograd.grad(torch.cumprod(leaf, 0), leaf, grad)
    found = cumprod_backward(grad, x, 0, torch.cumprod(x, 0))
    torch.testing.assert_close(found, expected, equal_nan=True)
    assert found.isnan().tolist() == [False, True, False]


@pytest.mark.parametrize("dynamic", [False, True])
def test_training_with_a_long_cumprod(dynamic):
    """PyTorch's formula is a loop over the elements: thousands of ops."""
    x = rows(300, torch.float32)
    results = []
    with collect() as reports:
        for function in (torch.cumprod, torch.compile(torch.cumprod, backend="kiln", dynamic=dynamic)):
            leaf = x.clone().requires_grad_()
            y = function(leaf, 1)
            y.backward(torch.linspace(-1, 1, 300).expand(7, 300))
            results.append((y.detach(), leaf.grad))
    torch.testing.assert_close(results[1], results[0], rtol=1e-4, atol=1e-4)
    assert len(reports) == 2 and all(report.executor == "kiln" for report in reports)
    assert max(len(report.decisions) for report in reports) < 40


def test_distances_of_many_points():
    """Of more than 25 points by a product, as eager's; without a call of ATen."""
    x, y = torch.randn(3, 60, 8), torch.randn(3, 40, 8)
    with collect() as reports:
        found = torch.compile(torch.cdist, backend="kiln", options={"cache": False})(x, y)
    exact = torch.cdist(x.double(), y.double())
    assert (found - exact).norm() < 3e-7 * exact.norm()
    assert not [call.op for report in reports for call in report.aten_calls]


SCATTERS = {
    "slice": lambda x: torch.slice_scatter(x, x[:, :2] * 2, 1, 2, 4),
    "select": lambda x: torch.select_scatter(x, x[:, 0] * 2, 1, 2),
    "diagonal": lambda x: torch.diagonal_scatter(x, torch.diagonal(x) * 2),
}


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("name", SCATTERS)
@pytest.mark.parametrize("shape", [(6,), (4, 1)], ids=str)
def test_scatter_into_an_expanded_tensor(name, shape, dynamic):
    """PyTorch 2.11 traces a result whose elements share memory, as those of the base do."""
    base = torch.arange(float(torch.Size(shape).numel())).view(shape)
    for x in (base.expand(4, 6), base.expand(4, 6).contiguous()):
        torch._dynamo.reset()
        options = {"fallback": False}
        found = torch.compile(SCATTERS[name], backend="kiln", options=options, dynamic=dynamic)(x)
        expected = SCATTERS[name](x)
        torch.testing.assert_close(found, expected)
        assert found.stride() == expected.stride()


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("mode", ["reflect", "replicate"])
@pytest.mark.parametrize("sizes", [(5, 6), (4, 5, 6)], ids=str)
@pytest.mark.parametrize("channels", [1, 3])
def test_padding_of_channels_last(channels, sizes, mode, dynamic):
    """PyTorch traces planar results, 2.13 those of three dims. An image of one channel is planar and channels last."""

    def function(x):
        return torch.nn.functional.pad(x, (1, 2) * len(sizes), mode=mode) * 2

    layout = torch.channels_last if len(sizes) == 2 else torch.channels_last_3d
    images = torch.randn(2, channels, *sizes)
    for x in (images.clone(memory_format=layout), images):
        torch._dynamo.reset()
        found = torch.compile(function, backend="kiln", options={"fallback": False}, dynamic=dynamic)(x)
        torch.testing.assert_close(found, function(x))
        # FakeTensors of a dim of size 1 have either stride.
        assert found.squeeze(1).stride() == function(x).squeeze(1).stride()


@pytest.mark.parametrize(("device", "is_corrected"), [("cpu", True), ("cuda", False)])
def test_padding_is_planar_on_a_gpu(device, is_corrected):
    with FakeTensorMode():
        volume = torch.empty(2, 3, 4, 5, 6, device=device).to(memory_format=torch.channels_last_3d)
        found = corrections()[torch.ops.aten.replication_pad3d.default](volume, [1] * 6)
    assert (found is not NotImplemented) == is_corrected


@pytest.mark.parametrize("order", [2, 3.5])
@pytest.mark.parametrize(("shape", "dim"), [((1,), -1), ((5, 1), -1), ((4, 1, 3), -2), ((4, 1, 1), (-1, -2))], ids=str)
def test_norm_over_a_dim_of_size_one(shape, dim, order):
    """PyTorch 2.11 and 2.12 trace a result that keeps the dim."""

    def function(x):
        return torch.linalg.vector_norm(x, order, dim=dim)

    torch.manual_seed(0)
    x = torch.randn(shape)
    found = compiled(function)(x)
    torch.testing.assert_close(found, function(x))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
def test_gradient_of_embedding_bags(mode, dtype):
    """In bf16 PyTorch 2.13 traces a saved tensor of sums with as many elements as there are indices; ATen's has none."""
    torch.manual_seed(0)
    table, bags = torch.randn(100, 8).to(dtype), torch.randint(0, 100, (7, 9))
    results = []

    def embed(weight: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.embedding_bag(at, weight, mode=mode)

    for function in (embed, compiled(embed)):
        leaf = table.clone().requires_grad_()
        y = function(leaf, bags)
        y.backward(torch.linspace(-1, 1, 56).view(7, 8).to(dtype))
        results.append((y.detach(), leaf.grad))
    torch.testing.assert_close(results[1], results[0])


@pytest.mark.parametrize("target", ["cpu", "tt-cpu"])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32], ids=str)
@pytest.mark.parametrize(("shape", "dim"), [((6, 4, 3), 2), ((5, 7), 0), ((5,), 0)], ids=str)
def test_weight_norm(shape, dim, dtype, target):
    """PyTorch 2.13 traces norms of f16 in a dtype that ATen's gradient refuses, and one norm for a vector."""
    torch.manual_seed(0)
    v, grad = torch.randn(shape, dtype=torch.float64), torch.randn(shape, dtype=torch.float64)
    g = torch.rand([n if d == dim else 1 for d, n in enumerate(shape)], dtype=torch.float64) + 0.5
    v, g, grad = (x.to(dtype) for x in (v, g, grad))

    def step(function, dtype):
        leaves = [x.detach().to(dtype).requires_grad_() for x in (v.mT if v.dim() == 2 else v, g)]
        y = function(leaves[0].mT if v.dim() == 2 else leaves[0], leaves[1])
        return [y.detach(), *torch.autograd.grad(y, leaves, grad.to(dtype))]

    def function(v, g):
        return torch._weight_norm(v, g, dim)

    torch._dynamo.reset()
    with collect() as reports:
        found = step(torch.compile(function, backend="kiln", options={"target": target}), dtype)
    assert len(reports) == 2 and all(r.executor == "kiln" and not r.aten_calls for r in reports)
    for value, expected, exact in zip(found, step(function, dtype), step(function, torch.float64), strict=True):
        assert (value.dtype, value.stride()) == (expected.dtype, expected.stride())
        error, theirs = ((x.double() - exact).norm() for x in (value, expected))
        assert error <= 1.5 * theirs + 4 * torch.finfo(dtype).eps * exact.norm() / value.numel() ** 0.5 + 1e-6


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int32, torch.complex64], ids=str)
@pytest.mark.parametrize(("left", "right", "dim"), [((50, 3), (50, 3), -1), ((3, 1, 9), (3, 4, 1), 0), ((3,), (3,), 0)])
def test_cross(left, right, dim, dtype):
    """A cross product is pointwise ops in a kernel, and so is its gradient."""
    torch.manual_seed(0)
    x, y = ((torch.randn(shape, dtype=torch.float64) * 3).to(dtype) for shape in (left, right))
    leaves = [v.requires_grad_(dtype.is_floating_point) for v in (x, y)]

    def step(function, leaves):
        found = function(*leaves)
        return [
            found.detach(),
            *(torch.autograd.grad((found / 9).sin().sum(), leaves) if dtype.is_floating_point else []),
        ]

    with collect() as reports:
        found = step(compiled(lambda x, y: torch.linalg.cross(x, y, dim=dim)), leaves)
    assert dtype.is_complex or all(r.executor == "kiln" and not r.aten_calls for r in reports)
    wide = dtype if not dtype.is_floating_point else torch.float64
    exact = step(
        lambda x, y: torch.linalg.cross(x, y, dim=dim),
        [v.detach().to(wide).requires_grad_(wide.is_floating_point) for v in leaves],
    )
    for value, expected in zip(found, exact, strict=True):
        assert value.is_contiguous()
        torch.testing.assert_close(value.to(wide), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
@pytest.mark.parametrize("shape", [(6, 5), (5,)], ids=str)
def test_multilabel_margin_loss(shape, reduction, dtype):
    """PyTorch traces a loss that counts what follows the last label as label 0."""
    torch.manual_seed(0)
    x = torch.randn(shape, dtype=dtype, requires_grad=True)
    rows = [[1, 2, -1, 0, 0], [-1] * 5, [0, 1, 2, 3, 4], [3, -1, -1, 2, 3], [0, 0, 1, -1, 4], [4, 2, 0, 1, -1]]
    target = torch.tensor(rows)
    target = target if x.dim() == 2 else target[0]

    def function(x):
        return torch.nn.functional.multilabel_margin_loss(x, target, reduction=reduction)

    results = []
    for step in (function, compiled(function)):
        loss = step(x)
        results.append((loss.detach(), *torch.autograd.grad(loss.sum(), x)))
    torch.testing.assert_close(results[1], results[0])
