# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Scans with a function of one's own, as `torch.associative_scan` writes them out: one kernel each, right in float64."""

import pytest
import torch
from torch._higher_order_ops.associative_scan import associative_scan

import kiln

TARGETS = ["cpu", "tt-cpu"]


@pytest.fixture(autouse=True)
def fresh_compiler():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def linear(x, y):
    return x[0] * y[0], y[0] * x[1] + y[1]


def with_position(x, y):
    """A running maximum and where it is."""
    takes = y[0] >= x[0]
    return torch.where(takes, y[0], x[0]), torch.where(takes, y[1], x[1])


def stable(x, y):
    """A weighted mean with weights in logarithms: three values, all of which the others need."""
    top = torch.maximum(x[0], y[0])
    left, right = torch.exp(x[0] - top), torch.exp(y[0] - top)
    return top, left * x[1] + right * y[1], left * x[2] + right * y[2]


def scan(function, xs, dim, reverse=False):
    return associative_scan(function, xs, dim, reverse=reverse, combine_mode="generic")


def in_order(function, xs, dim, reverse=False):
    """The same, element after element."""
    parts = list(zip(*(x.unbind(dim) for x in xs), strict=True))
    parts = parts[::-1] if reverse else parts
    found = [parts[0]]
    for part in parts[1:]:
        found.append(function(found[-1], part))
    return tuple(
        torch.stack(values[::-1] if reverse else values, dim) for values in map(list, zip(*found, strict=True))
    )


def compiled(function, target):
    return torch.compile(function, backend="kiln", dynamic=False, options={"target": target, "fallback": False})


def inputs(shape, dtype=torch.float32):
    return torch.rand(shape).to(dtype), torch.randn(shape).to(dtype)


def near(found, exact, tolerance):
    for value, wanted in zip(found, exact, strict=True):
        assert value.shape == wanted.shape
        assert (value.double() - wanted).abs().max() <= tolerance * wanted.abs().max()


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize(("shape", "dim"), [((2, 8, 3, 4), 1), ((1, 13, 40), 1), ((3, 50), 1), ((64,), 0)])
def test_two_operands_of_which_both_results_are_read(target, shape, dim, reverse):
    xs = inputs(shape)
    run = compiled(lambda *xs: scan(linear, xs, dim, reverse), target)
    near(run(*xs), in_order(linear, [x.double() for x in xs], dim, reverse), 1e-5)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("length", [1, 3, 4, 5, 100])
def test_lengths(target, length):
    xs = inputs((2, length, 20))
    run = compiled(lambda *xs: scan(linear, xs, 1)[1] * 2, target)
    near([run(*xs)], [2 * in_order(linear, [x.double() for x in xs], 1)[1]], 1e-5)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(torch.float64, 1e-12), (torch.bfloat16, 2e-2), (torch.float16, 2e-3)]
)
def test_types(target, dtype, tolerance):
    xs = inputs((2, 33, 24), dtype)
    run = compiled(lambda *xs: scan(linear, xs, 1)[1], target)
    near([run(*xs)], [in_order(linear, [x.double() for x in xs], 1)[1]], tolerance)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("shape", [(2, 40), (40, 2)])
def test_integers_beside_floats(target, shape):
    x, at = torch.randn(shape), torch.arange(40).view([n if n == 40 else 1 for n in shape]).expand(shape).clone()
    dim = shape.index(40)
    run = compiled(lambda x, at: scan(with_position, (x, at), dim), target)
    found, positions = run(x, at)
    exact, where = torch.cummax(x, dim)
    assert torch.equal(found, exact) and torch.equal(positions, where)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dim", [0, 1])
def test_three_operands(target, dim):
    xs = tuple(torch.randn(24, 40) for _ in range(3))
    run = compiled(lambda *xs: scan(stable, xs, dim)[2], target)
    near([run(*xs)], [in_order(stable, [x.double() for x in xs], dim)[2]], 1e-5)


@pytest.mark.parametrize("target", TARGETS)
def test_longer_than_a_block(target):
    xs = inputs((2, 4300))
    run = compiled(lambda *xs: scan(linear, xs, 1)[1], target)
    near([run(*xs)], [in_order(linear, [x.double() for x in xs], 1)[1]], 1e-5)


@pytest.mark.parametrize("target", TARGETS)
def test_what_is_pointwise_before_it_is_computed_in_its_kernel(target):
    def model(step, rate, x):
        decay, gain = torch.exp(-step.unsqueeze(-1) * rate), (step * x).unsqueeze(-1).expand(2, 32, 12, 8)
        return scan(linear, (decay, gain), 1)[1]

    step, rate, x = torch.rand(2, 32, 12), torch.rand(12, 8), torch.randn(2, 32, 12)
    decay, gain = torch.exp(-step.unsqueeze(-1) * rate), (step * x).unsqueeze(-1).expand(2, 32, 12, 8)
    near([compiled(model, target)(step, rate, x)], [in_order(linear, [decay.double(), gain.double()], 1)[1]], 1e-5)
    (graph,) = kiln.explain(model, step, rate, x, options={"target": target}).graphs
    assert [kernel.kind for kernel in graph.kernels] == ["recurrence"]


def test_a_function_that_is_not_associative_keeps_its_steps():
    def model(x):
        return scan(lambda x, y: (x[0] - y[0],), (x,), 0)[0]

    x = torch.randn(9, 4)
    report = kiln.explain(model, x)
    assert "recurrence" not in [kernel.kind for graph in report.graphs for kernel in graph.kernels]
    torch.testing.assert_close(torch.compile(model, backend="kiln")(x), model(x))


def test_gradients():
    def model(a, b):
        return scan(linear, (a, b), 1)[1].square().sum()

    a, b = (x.requires_grad_() for x in inputs((2, 9, 4)))
    expected = torch.autograd.grad(model(a, b), (a, b))
    found = torch.autograd.grad(torch.compile(model, backend="kiln")(a, b), (a, b))
    torch.testing.assert_close(found, expected)
