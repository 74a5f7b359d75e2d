# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Launches replayed as CUDA graphs on an NVIDIA GPU, against eager PyTorch in float64; skipped where there is none."""

import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import kiln
from kiln.runtime.cuda.executor import CudaExecutor

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")


@pytest.fixture
def executors(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    made: list[Any] = []
    start = CudaExecutor.__init__

    def keep(self: Any, *arguments: Any, **options: Any) -> None:
        start(self, *arguments, **options)
        made.append(self)

    monkeypatch.setattr(CudaExecutor, "__init__", keep)
    return made


def compiled(function: Callable[..., Any], **options: Any) -> Callable[..., Any]:
    torch._dynamo.reset()
    return torch.compile(function, backend=kiln.backend, fullgraph=True, options={"fallback": False, **options})


def error(found: torch.Tensor, exact: torch.Tensor) -> float:
    return ((found.double() - exact).norm() / exact.norm()).item()


def layers(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor, filters: torch.Tensor) -> torch.Tensor:
    """Products with a bias, convolutions and normalisations, ten times."""
    for _ in range(10):
        x = F.layer_norm(F.linear(x, w, b) + x, (1024,))
        image = x.view(-1, 64, 32, 32)
        x = torch.relu(F.conv2d(image, filters, padding=1)).view(-1, 1024) + x
    return x


def operands(seed: int = 0) -> list[torch.Tensor]:
    generator = torch.Generator("cuda").manual_seed(seed)

    def random(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, device="cuda", generator=generator).bfloat16()

    return [random(512, 1024), random(1024, 1024) / 32, random(1024), random(64, 64, 3, 3) / 24]


def exact(given: list[torch.Tensor]) -> torch.Tensor:
    return layers(*(t.double() for t in given))


@torch.no_grad()
def test_calls_at_the_same_addresses(executors: list[Any]) -> None:
    run, given = compiled(layers), operands()
    for call in range(8):
        given[0].copy_(operands(call)[0])
        assert error(run(*given), exact(given)) < 2e-2
    assert executors[-1].replays.made >= 1
    assert not executors[-1].replays.reason


@torch.no_grad()
def test_results_that_are_kept(executors: list[Any]) -> None:
    """Nothing that a caller holds changes, whatever memory later calls get."""
    run, given = compiled(layers), operands()
    kept = []
    for call in range(24):
        given[0].copy_(operands(call)[0])
        found = run(*given)
        if call % 5 == 4:
            kept.append((found, exact(given)))
        del found
    assert executors[-1].replays.made >= 1
    for found, reference in kept:
        assert error(found, reference) < 2e-2


@torch.no_grad()
def test_streams_and_a_recording_of_the_caller(executors: list[Any]) -> None:
    run, given = compiled(layers), operands()
    reference = exact(given)
    streams = [torch.cuda.current_stream(), torch.cuda.Stream(), torch.cuda.Stream()]
    torch.cuda.synchronize()
    for call in range(30):
        with torch.cuda.stream(streams[call % 3]):
            found = run(*given)
            assert error(found, reference) < 2e-2
            del found
    assert executors[-1].replays.made >= 1
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        recorded = run(*given)
    given[0].copy_(operands(3)[0])
    graph.replay()
    assert error(recorded, exact(given)) < 2e-2
    assert error(run(*given), exact(given)) < 2e-2


@torch.no_grad()
def test_threads_that_allocate_and_wait(executors: list[Any]) -> None:
    """A recording may be refused while another thread waits for the whole GPU; nobody notices."""
    run, failures = compiled(layers), []
    run(*operands())
    done = threading.Event()

    def guarded(work: Callable[..., None], *arguments: Any) -> threading.Thread:
        def guard() -> None:
            try:
                work(*arguments)
            except Exception as problem:  # noqa: BLE001 - reported below
                failures.append(problem)

        thread = threading.Thread(target=guard)
        thread.start()
        return thread

    def disturb() -> None:
        held: list[torch.Tensor] = []
        while not done.is_set():
            held.append(torch.randn(1000, 1000 + len(held) % 200, device="cuda"))  # new memory of the device
            held[-1].sum().item()
            torch.cuda.synchronize()
            if len(held) > 200:
                held.clear()

    def work(seed: int) -> None:
        given = operands(seed)
        reference = exact(given)
        with torch.no_grad(), torch.cuda.stream(torch.cuda.Stream()):
            torch.cuda.synchronize()
            for _ in range(20):
                assert error(run(*given), reference) < 2e-2

    disturbing = guarded(disturb)
    for thread in [guarded(work, seed) for seed in range(3)]:
        thread.join()
    done.set()
    disturbing.join()
    assert not failures, failures
    print(executors[-1].replays.made, executors[-1].replays.reason)


def test_training(executors: list[Any]) -> None:
    given = [t.float().requires_grad_() for t in operands()]
    wide = [t.detach().double().requires_grad_() for t in given]
    run = compiled(layers)
    # The allocator may hand out a few sets of addresses in turn, each of which has to come several times.
    for call in range(24):
        for found, reference in ((given, run), (wide, layers)):
            for t in found:
                t.grad = None
            reference(*found).square().mean().backward()
        for found, reference in zip(given, wide, strict=True):
            assert found.grad is not None and reference.grad is not None
            assert error(found.grad, reference.grad) < 2e-2, call  # TF32 in cuDNN
    assert any(e.replays is not None and e.replays.made for e in executors)


@torch.no_grad()
def test_turned_off(executors: list[Any]) -> None:
    run, given = compiled(layers, replays=False), operands()
    for _ in range(5):
        assert error(run(*given), exact(given)) < 2e-2
    assert executors[-1].replays is None
