# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Backward graphs whose runs of launches are cut: right gradients, and less memory while they run."""

import copy
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import kiln
import kiln.runtime.cuda.executor as cuda_executor
import kiln.runtime.cuda.replays as replays
from kiln.lowering.host import cutting
from kiln.runtime.cuda.cublaslt import LibraryError


class Allocated:
    """Bytes of the tensors that plans have allocated and that are alive, and the most since `peak` was set."""

    def __init__(self) -> None:
        self.now = self.peak = 0

    def empty(self, shape: Any, strides: Any, dtype: torch.dtype) -> torch.Tensor:
        made = torch.empty_strided(shape, strides, dtype=dtype)
        size = made.untyped_storage().nbytes()
        self.now += size
        self.peak = max(self.peak, self.now)
        weakref.finalize(made.untyped_storage(), self._gone, size)
        return made

    def _gone(self, size: int) -> None:
        self.now -= size


@pytest.fixture
def allocated(gpu: Any, monkeypatch: pytest.MonkeyPatch) -> Allocated:
    """What plans allocate on the emulated GPU, where small graphs are cut, too."""
    found = Allocated()
    monkeypatch.setattr(cuda_executor, "_allocator", lambda: found.empty)
    monkeypatch.setattr(cutting, "_LEAST_GAIN", 0)
    return found


class Gated(nn.Module):
    """Layers of products with gates and a residual; the gradient reads all of their results."""

    def __init__(self, layers: int, width: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(width, 2 * width) for _ in range(layers))
        self.norm = nn.LayerNorm(width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            a, b = layer(x).chunk(2, -1)
            x = x + a * torch.sigmoid(b)
        return (self.norm(x) * x).tanh().square().mean()


def trained(model: nn.Module, x: torch.Tensor, steps: int, **options: Any) -> Callable[[], None]:
    """Compiles a model and trains it, with the loss's own gradient at one address; the last step's gradients are left."""
    call = torch.compile(model, backend=kiln.backend, fullgraph=True, options={"fallback": False, **options})

    one = torch.ones(())

    def step() -> None:
        model.zero_grad(set_to_none=True)
        call(x).backward(one)

    for _ in range(steps):
        step()
    return step


def check(model: nn.Module, x: torch.Tensor) -> None:
    exact = copy.deepcopy(model).double()
    exact.zero_grad(set_to_none=True)
    exact(x.double()).backward()
    for p, q in zip(model.parameters(), exact.parameters(), strict=True):
        assert p.grad is not None and q.grad is not None
        assert (p.grad.double() - q.grad).norm() < 1e-5 * q.grad.norm()


def executors_of(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    made: list[Any] = []
    start = cuda_executor.CudaExecutor.__init__

    def keep(self: Any, *arguments: Any, **options: Any) -> None:
        start(self, *arguments, **options)
        made.append(self)

    monkeypatch.setattr(cuda_executor.CudaExecutor, "__init__", keep)
    return made


def test_less_memory_and_the_same_gradients(allocated, monkeypatch):
    x = torch.randn(64, 64)
    peaks = []
    for gain in (cutting._GAIN, 2.0):
        monkeypatch.setattr(cutting, "_GAIN", gain)
        torch._dynamo.reset()
        made = executors_of(monkeypatch)
        model = Gated(8, 64)
        step = trained(model, x, 2)
        model.zero_grad(set_to_none=True)
        allocated.peak = before = allocated.now
        step()
        peaks.append(allocated.peak - before)
        check(model, x)
        assert any(run.plan.cuts for run in made) == (gain < 1)
    assert peaks[0] < 0.8 * peaks[1]


def test_pieces_of_a_run_are_replayed(allocated, monkeypatch):
    """Each as a recording of its own, as many as a plan has pieces."""
    monkeypatch.setattr(cuda_executor, "LEAST_LAUNCHES", 1)
    monkeypatch.setattr(replays, "LEAST_LAUNCHES", 1)
    made = executors_of(monkeypatch)
    kept: dict[Any, torch.Tensor] = {}
    counts: dict[Any, int] = {}

    def empty(shape: Any, strides: Any, dtype: torch.dtype) -> torch.Tensor:
        """The same addresses in each step."""
        key = tuple(shape), dtype
        counts[key] = counts.get(key, 0) + 1
        return kept.setdefault((key, counts[key]), torch.empty_strided(shape, strides, dtype=dtype))

    monkeypatch.setattr(cuda_executor, "_allocator", lambda: empty)
    x, model = torch.randn(64, 64), Gated(4, 64)
    step = trained(model, x, 1)
    for _ in range(5):
        counts.clear()
        step()
        check(model, x)
    backward = max(made, key=lambda run: len(run.plan.cuts or ()))
    assert len(backward.plan.cuts) > 1 and backward.replays is not None
    assert backward.replays.made == len(backward.plan.cuts) + 1


def test_checked(allocated):
    """Launches are alone then, with one workspace."""
    x, model = torch.randn(64, 64), Gated(4, 64)
    trained(model, x, 2, check=True)
    check(model, x)


def test_without_the_library(allocated, monkeypatch):
    """Products are then calls that read what lies in a workspace."""

    def refuse() -> Any:
        raise LibraryError("none")

    made = executors_of(monkeypatch)
    monkeypatch.setattr(cuda_executor, "cublaslt", refuse)
    x, model = torch.randn(520, 260), Gated(4, 260)
    trained(model, x, 2)
    check(model, x)
    steps = [step for run in made for step in run.plan.steps]
    assert any(step.step == "aten" for step in steps) and not any(run.plan.cuts for run in made)
