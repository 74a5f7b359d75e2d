# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Norms, softmax and gates in the kernel of the matrix products before them, against eager in float64."""

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import kiln

SMALL, LARGE = (24, 33), (640, 257)  # in and out features: a weight for blocks of rows, one for waiting once


class NormBehind(nn.Module):
    """layer_norm(x + linear(h)), with what was normalised where that is wanted, too."""

    def __init__(self, features, both=False):
        super().__init__()
        self.linear, self.norm, self.both = nn.Linear(*features), nn.LayerNorm(features[1]), both

    def forward(self, h, x):
        y = x + self.linear(h)
        return (y, self.norm(y)) if self.both else self.norm(y)


class RmsBehind(nn.Module):
    """RMS norm of linear(h) + x; returns the sum as well."""

    def __init__(self, features):
        super().__init__()
        self.linear, self.weight = nn.Linear(*features, bias=False), nn.Parameter(torch.rand(features[1]))

    def forward(self, h, x):
        y = self.linear(h) + x
        return y, self.weight * (y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + 1e-6))


class SoftmaxBehind(nn.Module):
    """softmax(linear(h))."""

    def __init__(self, features):
        super().__init__()
        self.linear = nn.Linear(*features)

    def forward(self, h):
        return torch.softmax(self.linear(h) / 3, -1)


class Gated(nn.Module):
    """silu(gate(x)) * up(x)."""

    def __init__(self, features, bias=False):
        super().__init__()
        self.gate, self.up = nn.Linear(*features, bias=bias), nn.Linear(*features, bias=bias)

    def forward(self, x):
        return F.silu(self.gate(x)) * self.up(x)


class GatedNorm(nn.Module):
    """layer_norm(gelu(gate(x)) * up(h)): two products of different matrices, then loops."""

    def __init__(self, features):
        super().__init__()
        self.gate, self.up, self.norm = nn.Linear(*features), nn.Linear(*features), nn.LayerNorm(features[1])

    def forward(self, x, h):
        return self.norm(F.gelu(self.gate(x)) * self.up(h))


class GatedTwice(nn.Module):
    """The gate is read by the other product's epilogue and by the loops."""

    def __init__(self, features):
        super().__init__()
        self.gate, self.up, self.norm = nn.Linear(*features), nn.Linear(*features), nn.LayerNorm(features[1])

    def forward(self, x):
        gate = self.gate(x)
        return self.norm(torch.tanh(gate) * self.up(x)) + torch.softmax(gate, -1)


def error(value, exact):
    """Relative error in the Frobenius norm."""
    return ((value.double() - exact).norm() / exact.norm().clamp(min=1e-30)).item()


def compiled(model, dynamic=None):
    torch._dynamo.reset()
    return torch.compile(model, backend="kiln", dynamic=dynamic, options={"fallback": False})


def check(model, *inputs, run=None, tolerance=2e-7):
    """Compares with float64: three times eager's error, or a rounding of the last digit."""
    model = model.eval()
    with torch.no_grad():
        eager, exact = model(*inputs), copy.deepcopy(model).double()(*(x.double() for x in inputs))
        found = (compiled(model) if run is None else run)(*inputs)
    for mine, theirs, true in zip(*(v if isinstance(v, tuple) else (v,) for v in (found, eager, exact)), strict=True):
        assert mine.shape == theirs.shape and mine.dtype == theirs.dtype and mine.stride() == theirs.stride()
        if mine.numel():
            assert error(mine, true) <= 3 * error(theirs, true) + tolerance


def kernels(model, *inputs):
    """Launches of one call."""
    torch._dynamo.reset()
    with torch.no_grad():
        (graph,) = kiln.explain(model.eval(), *inputs, options={"fallback": False}).graphs
    return sum(kernel.launches for kernel in graph.kernels)


@pytest.fixture
def threads(request):
    before = torch.get_num_threads()
    torch.set_num_threads(getattr(request, "param", 3))
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize("features", [SMALL, LARGE])
@pytest.mark.parametrize("rows", [1, 7, 133])
@pytest.mark.parametrize("threads", [1, 3], indirect=True)
def test_norm_behind_a_product(threads, features, rows):
    x = torch.randn(rows, features[1])
    check(NormBehind(features, both=rows > 1), torch.randn(rows, features[0]), x)


@pytest.mark.parametrize("features", [SMALL, LARGE, (5, 1), (1, 17)])
def test_rows_in_two_dims(threads, features):
    check(RmsBehind(features), torch.randn(3, 11, features[0]), torch.randn(3, 11, features[1]))
    check(SoftmaxBehind(features), torch.randn(3, 11, features[0]))


@pytest.mark.parametrize("features", [(24, 517), (300, 768), (7, 1)])
@pytest.mark.parametrize("rows", [1, 7, 130])
@pytest.mark.parametrize("threads", [1, 3], indirect=True)
def test_two_products_in_one_block(threads, features, rows):
    check(Gated(features, bias=rows == 7), torch.randn(rows, features[0]))


@pytest.mark.parametrize("features", [SMALL, LARGE])
def test_loops_behind_two_products(threads, features):
    check(GatedNorm(features), torch.randn(19, features[0]), torch.randn(19, features[0]))
    check(GatedTwice(features), torch.randn(2, 71, features[0]))


@pytest.mark.parametrize("features", [SMALL, LARGE])
def test_strided_residual(threads, features):
    x = torch.randn(features[1], 2 * 37)[:, ::2].t()
    check(NormBehind(features), torch.randn(features[0], 37).t(), x)
    check(NormBehind(features), torch.randn(37, features[0]), torch.randn(1, features[1]).expand(37, -1))


@pytest.mark.parametrize("features", [SMALL, LARGE])
def test_rows_known_at_run_time(threads, features):
    for model in (NormBehind(features, both=True).eval(), Gated(features).eval()):
        run = compiled(model, dynamic=True)
        for rows in (2, 9, 140, 3):
            inputs = [torch.randn(2, rows, features[0]), torch.randn(2, rows, features[1])]
            check(model, *inputs[: 2 if isinstance(model, NormBehind) else 1], run=run)


@pytest.mark.parametrize("features", [SMALL, LARGE])
def test_no_rows(features):
    check(NormBehind(features), torch.randn(0, features[0]), torch.randn(0, features[1]))
    check(Gated(features), torch.randn(0, features[0]))


@pytest.mark.parametrize("features", [SMALL, LARGE])
def test_bf16(threads, features):
    rows = 21
    for model in (NormBehind(features), Gated(features)):
        inputs = [torch.randn(rows, n, dtype=torch.bfloat16) for n in features]
        check(model.bfloat16(), *inputs[: 2 if isinstance(model, NormBehind) else 1], tolerance=4e-3)


def test_values_that_a_kernel_must_not_lose():
    """NaN and infinities stay in their rows."""
    model = NormBehind(SMALL).eval()
    h, x = torch.randn(40, SMALL[0]), torch.randn(40, SMALL[1])
    x[3, 5], x[17, 0] = float("nan"), float("inf")
    with torch.no_grad():
        found, wanted = compiled(model)(h, x), model(h, x)
    assert torch.equal(found.isnan(), wanted.isnan())
    torch.testing.assert_close(found, wanted, equal_nan=True)


class Uneven(nn.Module):
    """A wide product, then a narrow one of one row, whose kernel is worth fewer threads than the first."""

    def __init__(self):
        super().__init__()
        self.wide, self.narrow = nn.Linear(256, 1024), NormBehind((1024, 80))

    def forward(self, h, x):
        return self.narrow(torch.relu(self.wide(h)), x)


def test_threads_without_a_share_do_not_hold_up_the_others():
    before = torch.get_num_threads()
    torch.set_num_threads(6)
    try:
        model = Uneven().eval()
        run = compiled(model)
        for _ in range(20):
            check(model, torch.randn(1, 256), torch.randn(1, 80), run=run)
    finally:
        torch.set_num_threads(before)


def test_kernel_counts():
    for features in (SMALL, LARGE):
        h, x = torch.randn(9, features[0]), torch.randn(9, features[1])
        assert kernels(NormBehind(features), h, x) == 1
        assert kernels(NormBehind(features, both=True), h, x) == 1
        assert kernels(SoftmaxBehind(features), h) == 1
        assert kernels(Gated(features), h) == 1
        assert kernels(GatedNorm(features), h, h) == 1


@pytest.mark.parametrize("shape", [(32, 4), (1, 32, 4)])
def test_sums_kept_in_a_result_of_another_shape(shape):
    """The backward pass computes what is clamped in place as a batch of rows, in the memory of the masked result."""

    def weigh(x, layer, values):
        weights = F.linear(x, layer).reshape(shape)
        weights.clamp_(-0.5, 0.5)
        return torch.bmm(weights.reshape(32, 1, 4), values)

    run, given, found = torch.compile(weigh, backend="kiln"), [(128, 5), (1, 5), (32, 4, 3)], []
    leaves = [torch.randn(size, requires_grad=True) for size in given]
    wide = [x.detach().double().requires_grad_() for x in leaves]
    back = torch.randn(32, 1, 3)
    for function, inputs in ((run, leaves), (weigh, wide)):
        found.append(torch.autograd.grad((function(*inputs) * back).sum(), inputs))
    for mine, right in zip(*found, strict=True):
        assert float((mine.double() - right).norm()) < 1e-5 * float(right.norm())
