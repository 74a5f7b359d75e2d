# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Calls on an NVIDIA GPU: streams, threads, memory, errors, recordings; skipped where there is none."""

import copy
import subprocess
import sys
import threading

import pytest
import torch
from on_gpu_support import check, compiled, error, randn
from torch import nn

import kiln
from kiln.runtime.cuda.driver import CudaError, driver

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")


def test_inputs_that_start_anywhere() -> None:
    """Kernels may assume 16-byte alignment; inputs that have it not are copied."""
    memory = randn(4097)
    run = compiled(lambda x, y: torch.relu(x) + y)
    for start in (0, 1, 2, 3, 4):
        x = memory[start : start + 1024]
        assert error(run(x, memory[:1024]), torch.relu(x.double()) + memory[:1024].double()) < 1e-6


def test_mutation_of_inputs() -> None:
    def step(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        x.add_(y)
        return x * 2

    run = compiled(step)
    memory = randn(1025)
    for start in (0, 1):
        x, y = memory[start : start + 1024], randn(1024)
        expected = x.double() + y.double()
        result = run(x, y)
        assert error(x, expected) < 1e-6
        assert error(result, 2 * expected) < 1e-6


def test_empty_tensors() -> None:
    run = compiled(lambda x: torch.relu(x) + 1)
    assert run(randn(0, 5)).shape == (0, 5)
    check(lambda x: x.sum(0) + 1, randn(0, 5))


def test_a_stream_of_the_caller() -> None:
    run = compiled(lambda x, y: torch.softmax(x + y, -1))
    x, y = randn(512, 512), randn(512)
    run(x, y)
    side = torch.cuda.Stream()
    torch.cuda.synchronize()
    with torch.cuda.stream(side):
        z = x * 2
        result = run(z, y)
    side.synchronize()
    assert error(result, torch.softmax(2 * x.double() + y.double(), -1)) < 1e-5


def test_calls_from_several_threads() -> None:
    run = compiled(lambda x, y: torch.softmax(x + y, -1).relu())
    x, y = randn(64, 300), randn(300)
    run(x, y)
    failures: list[Exception] = []

    def work(seed: int) -> None:
        try:
            generator = torch.Generator("cuda").manual_seed(seed)
            for _ in range(10):
                z = torch.randn(64, 300, device="cuda", generator=generator)
                assert error(run(z, y), torch.softmax(z.double() + y.double(), -1)) < 1e-5
        except Exception as problem:  # noqa: BLE001 - reported below
            failures.append(problem)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_running_out_of_memory_is_pytorch_s_error() -> None:
    run = compiled(lambda x: x + 1)
    run(randn(16))
    torch.cuda.set_per_process_memory_fraction(0.01)
    try:
        with pytest.raises(torch.cuda.OutOfMemoryError):
            big = torch.zeros(1, device="cuda").expand(1 << 30)
            run(big)
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)


def test_an_error_of_the_driver_names_what_failed() -> None:
    with pytest.raises(CudaError, match="nonsense"):
        driver().context(0)
        driver().load(b"no code", "nonsense", 0)


def test_an_index_out_of_range_is_the_device_s_assertion() -> None:
    """In a process of its own, which can use the GPU no more."""
    program = """
import torch, kiln
run = torch.compile(lambda w, i: torch.nn.functional.embedding(i, w) * 2, backend="kiln", options={"fallback": False})
w = torch.randn(50, 7, device="cuda")
good = torch.randint(0, 50, (30,), device="cuda")
assert torch.equal(run(w, good), w[good] * 2)
try:
    run(w, good + 25)
    torch.cuda.synchronize()
except RuntimeError as error:
    print("raised", "assert" in str(error))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert "raised True" in done.stdout, done.stderr[-2000:]
    assert "index out of range in aten.embedding" in done.stderr + done.stdout


def test_reduce_overhead() -> None:
    model = nn.Sequential(nn.Linear(64, 128), nn.GELU(), nn.LayerNorm(128), nn.Linear(128, 64)).cuda()
    exact = copy.deepcopy(model).double()
    run = compiled(model, mode="reduce-overhead")
    kept: list[tuple[torch.Tensor, torch.Tensor]] = []
    with torch.no_grad():
        for i in range(8):
            x = randn(32, 64)
            result = run(x)
            assert error(result, exact(x.double())) < 1e-3
            if i in (3, 5):
                kept.append((result, x))
        for result, x in kept:
            assert error(result, exact(x.double())) < 1e-3


def test_reduce_overhead_when_training() -> None:
    model = nn.Sequential(nn.Linear(64, 128), nn.GELU(), nn.Linear(128, 64)).cuda()
    exact = copy.deepcopy(model).double()
    run = compiled(model, mode="reduce-overhead")
    optimizers = [torch.optim.SGD(m.parameters(), 0.1) for m in (model, exact)]
    for _ in range(6):
        x = randn(32, 64)
        for optimizer, net, value in zip(optimizers, (run, exact), (x, x.double()), strict=True):
            optimizer.zero_grad()
            net(value).square().mean().backward()
            optimizer.step()
    for found, reference in zip(model.parameters(), exact.parameters(), strict=True):
        assert error(found, reference) < 1e-3


def test_reduce_overhead_with_a_loss_that_lives_until_the_next_one() -> None:
    model = nn.Sequential(nn.Linear(64, 128), nn.GELU(), nn.LayerNorm(128), nn.Linear(128, 64)).cuda()
    exact = copy.deepcopy(model).double()
    run = compiled(lambda x: model(x).square().mean(), mode="reduce-overhead")
    optimizers = [torch.optim.SGD(m.parameters(), 0.1) for m in (model, exact)]
    for _ in range(12):
        x = randn(32, 64)
        loss, reference = run(x), exact(x.double()).square().mean()
        for optimizer, value in zip(optimizers, (loss, reference), strict=True):
            optimizer.zero_grad()
            value.backward()
            optimizer.step()
        assert error(loss.detach(), reference.detach()) < 1e-4
    for found, wide_one in zip(model.parameters(), exact.parameters(), strict=True):
        assert error(found, wide_one) < 1e-3


def test_reduce_overhead_of_several_sizes_shares_no_memory() -> None:
    weight = randn(64, 256)

    def run(x: torch.Tensor) -> torch.Tensor:
        return torch.softmax((x @ weight).relu().cumsum(1), 1) @ weight.T

    torch._dynamo.reset()
    call = torch.compile(run, backend=kiln.backend, dynamic=True, mode="reduce-overhead")
    kept: list[tuple[torch.Tensor, torch.Tensor]] = []
    with torch.no_grad():
        for i in range(24):
            x = randn((128, 512, 2048, 512)[i % 4], 64)
            if i % 3:
                kept.append((call(x), run(x.double().float())))
            else:
                call(x)
            kept = kept[-3:]
            for found, reference in kept:
                assert error(found, reference) < 1e-4
