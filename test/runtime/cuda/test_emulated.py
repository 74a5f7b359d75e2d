# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Compiled functions on the emulated GPU: plans, launch tables, launcher and executor as on a real one."""

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import kiln
from benchmarks.networks import BUILDERS


def compiled(function: Callable[..., Any], mode: str | None = None, **arguments: Any) -> Callable[..., Any]:
    if mode is not None:
        return torch.compile(function, backend=kiln.backend, fullgraph=True, mode=mode, **arguments)
    return torch.compile(function, backend=kiln.backend, fullgraph=True, options={"fallback": False}, **arguments)


def error(found: torch.Tensor, exact: torch.Tensor) -> float:
    assert found.shape == exact.shape
    return ((found.double() - exact.double()).norm() / exact.double().norm().clamp_min(1e-30)).item()


def test_one_native_call_runs_every_kernel(gpu):
    model = nn.Sequential(nn.Linear(20, 30), nn.GELU(), nn.LayerNorm(30), nn.Linear(30, 10))
    run, exact = compiled(model), copy.deepcopy(model).double()
    with torch.no_grad():
        for _ in range(3):
            x = torch.randn(7, 20)
            assert error(run(x), exact(x.double())) < 1e-5
    assert len(gpu.launched) == 3 * len(gpu.kernels)


def test_products_of_a_library(gpu):
    """Calls with a bias, of weights either way round; what follows is a kernel of its own."""

    def run(x, w, u, b, y):
        return F.gelu(F.linear(x, w, b)), x @ u, torch.addmm(b, y, u), torch.softmax(y @ u, -1)

    call = compiled(run)
    w, b = torch.randn(520, 260) / 16, torch.randn(520)
    for _ in range(2):
        x, y = torch.randn(2, 256, 260), torch.randn(512, 260)
        exact = run(x.double(), w.double(), w.T.double(), b.double(), y.double())
        for found, reference in zip(call(x, w, w.T.contiguous(), b, y), exact, strict=True):
            assert error(found, reference) < 1e-5
    assert not any("mm" in name or "linear" in name for name in gpu.kernels)


def test_results_that_atomics_add_to_are_cleared_before(gpu):
    def scatter(x, index, y):
        return x.index_add(0, index, y) * 2, (y * y).sum(0)

    run = compiled(scatter)
    for _ in range(2):
        x, index, y = torch.randn(10, 8), torch.randint(0, 10, (300,)), torch.randn(300, 8)
        for found, exact in zip(run(x, index, y), scatter(x.double(), index, y.double()), strict=True):
            assert error(found, exact) < 1e-5


def test_dynamic_sizes_share_one_plan(gpu):
    run = compiled(lambda x, b: torch.softmax(x + b, -1), dynamic=True)
    for m, n in ((3, 5), (64, 100), (2, 1030)):
        x, b = torch.randn(m, n), torch.randn(n)
        assert error(run(x, b), torch.softmax(x.double() + b.double(), -1)) < 1e-5
    assert len(gpu.kernels) == 1


def test_an_empty_batch(gpu):
    run = compiled(lambda x: torch.relu(x) + 1)
    assert run(torch.randn(0, 5)).shape == (0, 5)
    assert not gpu.launched


@pytest.mark.parametrize("start", [0, 1, 2, 3, 4])
def test_inputs_that_start_anywhere(gpu, start):
    memory = torch.randn(1040)
    run = compiled(lambda x, y: torch.relu(x) + y)
    for _ in range(2):
        x = memory[start : start + 1000]
        assert error(run(x, memory[:1000]), torch.relu(x.double()) + memory[:1000].double()) < 1e-6


@pytest.mark.parametrize("start", [0, 1])
def test_inputs_that_are_mutated(gpu, start):
    def step(x, y):
        x.add_(y)
        return x * 2

    run = compiled(step)
    memory = torch.randn(100)
    x, y = memory[start : start + 64], torch.randn(64)
    expected = x.double() + y.double()
    result = run(x, y)
    assert error(x, expected) < 1e-6
    assert error(result, 2 * expected) < 1e-6


@pytest.mark.parametrize("begins", ["native", "aten"])
def test_unaligned_inputs_that_only_a_later_kernel_reads(gpu, begins):
    """They are found before anything runs: what is mutated is mutated once."""

    def step(x, y):
        if begins == "native":
            x.mul_(2)
        return torch.sort(x, dim=-1).values + y

    run = compiled(step)
    memory = torch.randn(80)
    for start in (0, 1, 0, 3):
        x, y = torch.randn(2, 32), memory[start : start + 64].view(2, 32)
        given = x.clone()
        exact = step(given, y.double())
        assert error(run(x, y), exact) < 1e-6
        assert torch.equal(x, given)


def test_slices_of_inputs_inside_of_the_graph(gpu):
    """The pointer of a slice is known to be unaligned when the kernel is compiled."""
    run = compiled(lambda x: torch.relu(x[1:]) + x[:-1])
    x = torch.randn(200)
    assert error(run(x), torch.relu(x[1:].double()) + x[:-1].double()) < 1e-6


def test_aten_calls_between_kernels(gpu):
    def model(x):
        values = torch.sort(x * 2, dim=-1).values
        return values.relu() + 1

    run = compiled(model)
    for _ in range(2):
        x = torch.randn(5, 40)
        assert error(run(x), model(x.double())) < 1e-6


def test_forward_and_backward(gpu):
    model = nn.Sequential(nn.Linear(20, 30), nn.Tanh(), nn.LayerNorm(30), nn.Linear(30, 10))
    run, exact = compiled(model), copy.deepcopy(model).double()
    x = torch.randn(7, 20)
    run(x).square().mean().backward()
    exact(x.double()).square().mean().backward()
    for found, reference in zip(model.parameters(), exact.parameters(), strict=True):
        assert found.grad is not None and reference.grad is not None
        assert error(found.grad, reference.grad) < 1e-4


def test_attention(gpu):
    q, k, v = (torch.randn(2, 3, 50, 32) for _ in range(3))
    run = compiled(lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True))
    exact = F.scaled_dot_product_attention(q.double(), k.double(), v.double(), is_causal=True)
    assert error(run(q, k, v), exact) < 1e-5


def test_reduce_overhead_replays(gpu):
    model = nn.Sequential(nn.Linear(20, 30), nn.GELU(), nn.Linear(30, 10))
    run, exact = compiled(model, mode="reduce-overhead"), copy.deepcopy(model).double()
    kept = []
    with torch.no_grad():
        for i in range(6):
            x = torch.randn(7, 20)
            result = run(x)
            assert error(result, exact(x.double())) < 1e-5
            if i == 3:
                kept.append((result, x))
        for result, x in kept:
            assert error(result, exact(x.double())) < 1e-5


def test_products_through_tensor_maps(gpu):
    """Both operands by descriptors, of an input, of another address at each call, and of an intermediate."""

    def model(x, w, v):
        return F.silu(F.linear(F.gelu(F.linear(x, w)), v))

    torch.manual_seed(0)
    torch._dynamo.reset()
    run = torch.compile(model, backend=kiln.backend, fullgraph=True, options={"fallback": False})
    w, v = torch.randn(512, 64).bfloat16(), torch.randn(512, 512).bfloat16()
    inputs = [torch.randn(2040, 64).bfloat16() for _ in range(3)]
    for x in inputs:
        assert error(run(x, w, v), model(x.double(), w.double(), v.double())) < 1e-2
    assert sum(map(len, gpu.descriptors.values())) == 4


def test_a_plan_out_of_the_cache(gpu, monkeypatch, tmp_path):
    monkeypatch.setenv("KILN_CACHE", "1")
    monkeypatch.setenv("KILN_CACHE_DIR", str(tmp_path))

    def model(x, y):
        return torch.softmax(x @ y, -1)

    x, y = torch.randn(9, 20), torch.randn(20, 30)
    for _ in range(2):
        torch._dynamo.reset()
        assert error(compiled(model)(x, y), model(x.double(), y.double())) < 1e-5
    assert gpu.emitted == len(gpu.kernels)  # compiled once
    assert len(gpu.names) == 2 * gpu.emitted  # loaded twice


@pytest.mark.parametrize("name", ["bert", "gpt2"])
def test_networks(gpu, name):
    model, make = BUILDERS[name]()
    inputs = make(torch.Generator().manual_seed(0))
    run = compiled(model)
    with torch.no_grad():
        exact = copy.deepcopy(model).double()(*inputs)
        for _ in range(2):
            assert error(run(*inputs), exact) < 1e-5


def test_what_is_written_to_with_indices(gpu):
    """A copy in front, the memory of another kernel's result, and zeros that the launch clears: kernels alone."""

    def run(x, index, y):
        return x.index_add(0, index, y), torch.sin(x).index_put((index,), y), torch.zeros_like(x).index_add(0, index, y)

    call = compiled(run)
    for _ in range(2):
        x, index, y = torch.randn(40, 8), torch.randperm(40)[:30], torch.randn(30, 8)
        before = x.clone()
        for found, exact in zip(call(x, index, y), run(x.double(), index, y.double()), strict=True):
            assert error(found, exact) < 1e-6
        assert torch.equal(x, before)
    assert gpu.cleared == 2
    assert sum(name.startswith("copy") for name in gpu.launched) == 2


def test_dynamic_numbers_of_indices(gpu):
    call = compiled(lambda g, i: torch.ops.aten.embedding_dense_backward(g, i, 50, 3, False) * 2, dynamic=True)
    for length in (5, 70, 0):
        g, i = torch.randn(2, length, 16), torch.randint(0, 50, (2, length))
        exact = torch.ops.aten.embedding_dense_backward(g.double(), i, 50, 3, False) * 2
        assert error(call(g, i), exact) < 1e-6
