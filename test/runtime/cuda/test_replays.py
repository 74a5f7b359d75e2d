# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Launches at addresses seen before, replayed: on an emulated GPU whose recordings keep what was launched."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import kiln
import kiln.runtime.cuda.executor as cuda_executor
import kiln.runtime.cuda.replays as replays


@pytest.fixture
def executors(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The executors made so far, which record segments of any length."""
    made: list[Any] = []
    start = cuda_executor.CudaExecutor.__init__

    def keep(self: Any, *arguments: Any, **options: Any) -> None:
        start(self, *arguments, **options)
        made.append(self)

    monkeypatch.setattr(cuda_executor.CudaExecutor, "__init__", keep)
    monkeypatch.setattr(cuda_executor, "LEAST_LAUNCHES", 1)
    monkeypatch.setattr(replays, "LEAST_LAUNCHES", 1)
    return made


def compiled(function: Callable[..., Any], **options: Any) -> Callable[..., Any]:
    return torch.compile(function, backend=kiln.backend, fullgraph=True, options={"fallback": False, **options})


def error(found: torch.Tensor, exact: torch.Tensor) -> float:
    return ((found.double() - exact.double()).norm() / exact.double().norm()).item()


class Memory:
    """Results and workspaces at the same addresses in each call, as a caching allocator has them; `shift` moves them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.shift, self._made = 0, 0
        self._kept: dict[Any, torch.Tensor] = {}
        monkeypatch.setattr(cuda_executor, "_allocator", lambda: self.empty)

    def start(self) -> None:
        """Before a call."""
        self._made = 0

    def empty(self, shape: Any, strides: Any, dtype: torch.dtype) -> torch.Tensor:
        self._made += 1
        key = self.shift, self._made, tuple(shape), dtype
        if key not in self._kept:
            self._kept[key] = torch.empty_strided(shape, strides, dtype=dtype)
        return self._kept[key]


@pytest.fixture
def memory(monkeypatch: pytest.MonkeyPatch, gpu: Any) -> Memory:
    return Memory(monkeypatch)


def network(x, w, b, scale):
    y = F.gelu(F.linear(x, w, b))
    return torch.softmax(y, -1) * scale, y.sum(0)


def operands() -> list[torch.Tensor]:
    return [torch.randn(512, 260), torch.randn(520, 260) / 16, torch.randn(520), torch.randn(520)]


def test_the_third_call_with_the_same_addresses_records(gpu, executors, memory):
    run = compiled(network)
    x, w, b, scale = operands()
    for call in range(6):
        memory.start()
        x.normal_()  # other numbers in the same place
        exact = network(x.double(), w.double(), b.double(), scale.double())
        for found, reference in zip(run(x, w, b, scale), exact, strict=True):
            assert error(found, reference) < 1e-5
            found.zero_()
        assert (gpu.recorded, gpu.replayed) == (call >= 2, max(0, call - 2))
    assert gpu.library.calls  # a product with a bias is among what was replayed


@pytest.mark.parametrize("moved", ["input", "weight", "bias", "results"])
def test_what_moves_is_launched_where_it_is(gpu, executors, memory, moved):
    run = compiled(network)
    given = operands()
    places = {"input": 0, "weight": 1, "bias": 2}
    kept = []
    for call in range(12):
        memory.start()
        if call >= 4 and moved == "results":
            memory.shift = call
        elif call >= 4:
            kept.append(given[places[moved]])  # so that each has an address of its own
            given[places[moved]] = torch.randn_like(given[places[moved]])
        exact = network(*(t.double() for t in given))
        for found, reference in zip(run(*given), exact, strict=True):
            assert error(found, reference) < 1e-5
    assert (gpu.recorded, gpu.replayed) == (1, 1)


def test_inputs_that_take_turns_have_a_recording_each(gpu, executors, memory):
    run = compiled(network)
    given = [operands() for _ in range(3)]
    for call in range(15):
        memory.start()
        exact = network(*(t.double() for t in given[call % 3]))
        for found, reference in zip(run(*given[call % 3]), exact, strict=True):
            assert error(found, reference) < 1e-5
    assert (gpu.recorded, gpu.replayed) == (3, 6)


def test_sizes_have_recordings_of_their_own(gpu, executors, memory):
    run = torch.compile(lambda x: torch.softmax(x, -1).sum(0), backend=kiln.backend, dynamic=True)
    given = [torch.randn(40, 50), torch.randn(50, 40)]
    for call in range(10):
        memory.start()
        x = given[call % 2]
        assert error(run(x), torch.softmax(x.double(), -1).sum(0)) < 1e-5
    assert (gpu.recorded, gpu.replayed) == (2, 4)


def test_inputs_that_are_mutated(gpu, executors, memory):
    def step(x, y):
        x.add_(y)
        return x * 2

    run = compiled(step)
    x, y = torch.randn(64), torch.randn(64)
    expected = x.double()
    for _ in range(6):
        memory.start()
        expected = expected + y.double()
        assert error(run(x, y), 2 * expected) < 1e-6
        assert error(x, expected) < 1e-6
    assert gpu.replayed == 3


def test_segments_between_aten_calls(gpu, executors, memory):
    def function(x, y):
        return torch.sort(torch.relu(x) + y, -1).values * 2 + y

    run = compiled(function)
    x, y = torch.randn(8, 32), torch.randn(8, 32)
    for _ in range(8):
        memory.start()
        x.normal_()
        assert error(run(x, y), function(x.double(), y.double())) < 1e-6


def test_convolutions_of_a_library(gpu, executors, memory):
    def function(x, w):
        return torch.relu(F.conv2d(x, w, padding=1))

    run = compiled(function)
    x, w = (torch.randn(2, 64, 16, 16), torch.randn(64, 64, 3, 3) / 24)
    for _ in range(6):
        memory.start()
        x.normal_()
        found = run(x, w)
        assert error(found, function(x.double(), w.double())) < 1e-5
        found.zero_()
    assert gpu.dnn_library.calls and gpu.replayed == 3


def test_nothing_is_replayed_while_the_caller_records(gpu, executors, memory, monkeypatch):
    run = compiled(network)
    given = operands()
    for _ in range(4):
        memory.start()
        run(*given)
    launched = len(gpu.launched)
    monkeypatch.setattr(executors[-1].replays, "_is_recorded", lambda: True)
    memory.start()
    run(*given)
    assert gpu.replayed == 1 and len(gpu.launched) > launched


def test_it_can_be_turned_off(gpu, executors, memory):
    run = compiled(network, replays=False)
    given = operands()
    for _ in range(5):
        memory.start()
        run(*given)
    assert not gpu.recorded


def test_few_launches_are_not_recorded(gpu, memory):
    run = compiled(network)
    given = operands()
    for _ in range(5):
        memory.start()
        run(*given)
    assert not gpu.recorded


def test_what_cannot_be_recorded_is_launched(gpu, executors, memory):
    gpu.refuses_recordings = True
    run = compiled(network)
    given = operands()
    exact = network(*(t.double() for t in given))
    for call in range(14):
        assert bool(executors and executors[-1].replays.reason) == (call >= 12)
        memory.start()
        for found, reference in zip(run(*given), exact, strict=True):
            assert error(found, reference) < 1e-5
            found.zero_()
    assert "not permitted" in executors[-1].replays.reason
