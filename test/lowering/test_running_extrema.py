# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""`cummax`, `cummin`, `logcumsumexp`: one pass over the dim, where each element used to read all before it."""

import pytest
import torch

import kiln

TARGETS = ["cpu", "tt-cpu"]
CASES = [  # shape, dim, dtype, dynamic
    ((3, 50, 7), 1, torch.float32, False),
    ((2, 3, 100), -1, torch.float32, False),
    ((2, 5, 40), -1, torch.float16, True),
    ((3, 40, 5), 1, torch.float64, True),
    ((3, 0, 4), 1, torch.float32, False),
    ((3, 0, 4), 1, torch.float32, True),
]


@pytest.fixture(autouse=True)
def fresh_compiler():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def compiled(function, target, dynamic=False):
    options = {"target": target, "fallback": False}
    return torch.compile(function, backend="kiln", dynamic=dynamic, options=options)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(("shape", "dim", "dtype", "dynamic"), [*CASES, ((9,), 0, torch.int64, False)])
def test_extrema_and_positions(target, shape, dim, dtype, dynamic):
    x = torch.randint(-3, 4, shape).to(dtype)  # there are equals
    run = compiled(lambda x: (*torch.cummax(x, dim), *torch.cummin(x, dim)), target, dynamic)
    for found, exact in zip(run(x), (*torch.cummax(x, dim), *torch.cummin(x, dim)), strict=True):
        assert torch.equal(found, exact)


@pytest.mark.parametrize("target", TARGETS)
def test_nan_stays(target):
    inf, nan = torch.inf, torch.nan
    x = torch.tensor([[1.0, nan, 5.0, nan], [-inf, -inf, 3.0, inf], [nan, nan, 0.0, 0.0], [2.0, 2.0, inf, nan]])
    run = compiled(lambda x: (*torch.cummax(x, 1), *torch.cummin(x, 1)), target)
    for found, exact in zip(run(x), (*torch.cummax(x, 1), *torch.cummin(x, 1)), strict=True):
        torch.testing.assert_close(found, exact, equal_nan=True, rtol=0, atol=0)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(("shape", "dim", "dtype", "dynamic"), CASES)
def test_logarithms_of_sums(target, shape, dim, dtype, dynamic):
    x = torch.randn(shape).to(dtype)
    found = compiled(lambda x: torch.logcumsumexp(x, dim), target, dynamic)(x)
    torch.testing.assert_close(found, torch.logcumsumexp(x.double(), dim).to(dtype))


@pytest.mark.parametrize("target", TARGETS)
def test_sums_of_growing_terms(target):
    """Each step has a new largest exponent: a factor that is rounded the same way each time adds up."""
    x = torch.arange(5000, dtype=torch.float32) * 1e-4
    exact = torch.logcumsumexp(x.double(), 0)
    error = (compiled(lambda x: torch.logcumsumexp(x, 0), target)(x) - exact).abs()
    assert (error / exact.abs().clamp_min(1)).max() < 2**-23


def test_cost_grows_with_the_length():
    """One kernel that is a recurrence, not a reduction over all that is before."""
    for function in (torch.cummax, torch.cummin, torch.logcumsumexp):
        found = kiln.explain(lambda x, function=function: function(x, 0), torch.randn(4096))
        assert {k.kind for k in found.graphs[0].kernels} <= {"recurrence", "pointwise"}
