# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Functions and networks through ``target="tt-cpu"``: the GPU's kernels, run on the CPU, against eager in float64."""

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import kiln
from benchmarks.networks import BUILDERS
from kiln.errors import BackendOptionError

FUNCTIONS: dict[str, tuple[Callable[..., Any], list[tuple[int, ...]]]] = {
    "pointwise": (lambda x, y: torch.sigmoid(x * 2 + y).relu() - torch.tanh(y), [(7, 101), (101,)]),
    "softmax": (lambda x: torch.softmax(x, -1), [(33, 1003)]),
    "reductions": (lambda x: (x.sum(0), x.mean(1), x.amax(), x.argmax(1) * 1.0), [(33, 501)]),
    "transpose": (lambda x: (x.t() + 1).contiguous(), [(33, 70)]),
    "cat": (lambda x, y: torch.cat([x, y * 2], 1), [(10, 8), (10, 5)]),
    "empty": (lambda x: -x, [(0, 7, 1)]),
    "pad": (lambda x: F.pad(x, (1, 2, 3, 0)) * 2, [(5, 7)]),
    "scan": (lambda x: x.cumsum(-1), [(5, 300)]),
    "product": (lambda a, b: F.gelu(a @ b), [(37, 50), (50, 70)]),
    "one row": (lambda a, b: a @ b, [(1, 50), (50, 70)]),
    "batches": (lambda a, b: a @ b.transpose(1, 2), [(3, 17, 20), (3, 9, 20)]),
    "attention": (lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True), [(2, 3, 50, 32)] * 3),
    "convolution": (lambda x, w: F.relu(F.conv2d(x, w, padding=1)), [(2, 3, 12, 13), (8, 3, 3, 3)]),
    "norm": (lambda x, w: F.layer_norm(x, (65,), w, w), [(9, 65), (65,)]),
}


def compiled(function: Callable[..., Any], **arguments: Any) -> Callable[..., Any]:
    torch._dynamo.reset()
    options = {"target": "tt-cpu", "fallback": False, "cache": False}
    return torch.compile(function, backend=kiln.backend, fullgraph=True, options=options, **arguments)


def wide(value: Any) -> Any:
    return value.double() if isinstance(value, torch.Tensor) and value.is_floating_point() else value


def check(run: Callable[..., Any], function: Callable[..., Any], inputs: Any, limit: float) -> None:
    """The result's relative error, in float64."""
    found, exact = run(*inputs), function(*map(wide, inputs))
    if isinstance(found, torch.Tensor):
        found, exact = (found,), (exact,)
    for value, reference in zip(found, exact, strict=True):
        assert value.shape == reference.shape
        error = (value.double() - reference.double()).norm() / reference.double().norm().clamp_min(1e-30)
        assert error.item() < limit


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_functions(name, dtype):
    function, shapes = FUNCTIONS[name]
    torch.manual_seed(0)
    # Far from each other, so that rounding does not decide which element is the largest.
    inputs = [torch.randn(shape).to(dtype) for shape in shapes]
    check(compiled(function), function, inputs, 2e-5 if dtype is torch.float32 else 2e-2)


@pytest.mark.parametrize("name", ["pointwise", "softmax", "product", "norm"])
def test_sizes_that_change(name):
    function, shapes = FUNCTIONS[name]
    if name == "norm":
        function = lambda x, w: F.layer_norm(x, (x.shape[-1],), w, w)
    run = compiled(function, dynamic=True)
    for extra in (0, 1, 30):
        check(run, function, [torch.randn([n + extra for n in shape]) for shape in shapes], 2e-5)


def test_strided_inputs_zeros_and_ones():
    function = FUNCTIONS["pointwise"][0]
    for x in (torch.randn(20, 14).t()[::2, ::3], torch.zeros(7, 7), torch.ones(7, 7), torch.randn(7).expand(7, 7)):
        check(compiled(function), function, [x, torch.randn(7)], 2e-5)


def test_an_input_that_is_mutated():
    def step(x, y):
        x.add_(y)
        return x * 2

    x, y = torch.randn(33), torch.randn(33)
    expected = x + y
    assert torch.allclose(compiled(step)(x, y), 2 * expected)
    assert torch.allclose(x, expected)


def test_sums_into_rows_that_are_named_more_than_once():
    def scatter(x, index, y):
        return torch.relu(x.index_add(0, index, y))

    x, index, y = torch.randn(10, 8), torch.tensor([1, 1, 3]), torch.randn(3, 8)
    check(compiled(scatter), scatter, [x, index, y], 1e-5)


@pytest.mark.parametrize("name", ["bert", "llama", "resnet18"])
def test_networks(name):
    model, make = BUILDERS[name]()
    inputs = make(torch.Generator().manual_seed(0))
    with torch.no_grad():
        check(compiled(model), copy.deepcopy(model).double(), inputs, 1e-5)


def test_forward_and_backward():
    layer = nn.TransformerEncoderLayer(32, 4, 48, dropout=0.0, batch_first=True, activation="gelu")
    exact = copy.deepcopy(layer).double()
    x, weight = torch.randn(2, 9, 32), torch.randn(2, 9, 32)
    (compiled(layer)(x) * weight).sum().backward()
    (exact(x.double()) * weight).sum().backward()
    for found, reference in zip(layer.parameters(), exact.parameters(), strict=True):
        assert found.grad is not None and reference.grad is not None
        difference = (found.grad.double() - reference.grad).norm()
        assert (difference / reference.grad.norm()).item() < 1e-4


def test_the_knob_and_a_wrong_target(monkeypatch):
    monkeypatch.setenv("KILN_TARGET", "tt-cpu")
    assert kiln.frontend.options.Options.build().target == "tt-cpu"
    with pytest.raises(BackendOptionError, match="did you mean 'tt-cpu'"):
        kiln.frontend.options.Options.build(None, {"target": "ttcpu"})


@pytest.mark.parametrize("axis", [0, 1])
def test_sums_round_as_often_as_a_tree(axis):
    """A chain of thousands of additions would be off by 1e-5; a GPU adds in pairs."""
    x = torch.rand(4096, 3) + 1 if axis == 0 else torch.rand(3, 4096) + 1
    found, exact = compiled(lambda x: x.sum(axis))(x), x.double().sum(axis)
    assert ((found.double() - exact) / exact).abs().max() < 3e-7
