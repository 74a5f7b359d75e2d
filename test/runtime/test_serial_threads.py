# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Threads one after the other: each planted race gives other numbers, in every run."""

import ctypes
from collections.abc import Callable, Generator
from typing import Any

import pytest
import torch
from torch.nn import functional as F

from kiln.errors import KilnError
from kiln.lowering.cpu.builder import Builder
from kiln.lowering.cpu.tile import kernel
from kiln.runtime import launches
from kiln.runtime.checked.serial_threads import SerialThreads, serial_threads

COUNTS = (2, 3, 7)
ORDERS = ("forward", "reversed")


@pytest.fixture
def threads() -> Generator[SerialThreads, None, None]:
    torch._dynamo.reset()
    with serial_threads() as found:
        yield found


def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    return torch.compile(function, backend="kiln", options={"fallback": False, "cache": False})


def step(x: torch.Tensor, y: torch.Tensor) -> None:
    x.mul_(1.5)
    y.mul_(1.5)


def one_after_the_other(threads: SerialThreads, size: int) -> dict[tuple[int, str], float]:
    """What becomes of 2 that is multiplied by 1.5, beside `size` others (kernels that were made before are kept)."""
    run, found = compiled(step), {}
    for number in (1, *COUNTS):
        for order in ORDERS:
            one, many = torch.tensor([2.0]), torch.ones(size)
            threads.call(lambda one=one, many=many: run(one, many), number, order)
            assert bool((many == one / 2).all())
            found[number, order] = one.item()
    return found


def test_threads_run_one_after_the_other(threads: SerialThreads) -> None:
    assert set(one_after_the_other(threads, 300).values()) == {3.0}
    assert threads.regions == len(COUNTS) * len(ORDERS)


def test_a_result_that_each_thread_stores_is_found(threads: SerialThreads, monkeypatch: pytest.MonkeyPatch) -> None:
    """In place, by threads that do not share the work: each reads what the one before has written."""
    monkeypatch.setattr(Builder, "split", lambda b, tid, nt, units: (0, units))
    found = one_after_the_other(threads, 301)
    assert found == {(number, order): 2 * 1.5**number for number, order in found}


def product_and_norm(x: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    y = F.linear(x, w)
    return y, F.layer_norm(y, (w.shape[0],))


@pytest.mark.parametrize("waits", [True, False])
def test_a_barrier_that_is_missing_is_found(
    threads: SerialThreads, monkeypatch: pytest.MonkeyPatch, waits: bool
) -> None:
    """Loops behind a product read columns that another thread stores."""
    barriers: list[Any] = []
    emit = kernel.wait_for_team
    monkeypatch.setattr(kernel, "wait_for_team", lambda b, nt: barriers.append(emit(b, nt) if waits else None))
    columns = 512 if waits else 528  # kernels that were made before are kept
    x, w = torch.randn(4, 64), torch.randn(columns, 64)
    run = compiled(product_and_norm)
    expected = product_and_norm(x, w)
    assert all(map(torch.allclose, threads.call(lambda: run(x, w)), expected, (1e-4,) * 2, (1e-4,) * 2))
    assert barriers
    for number in COUNTS:
        right = [
            torch.allclose(threads.call(lambda: run(x, w), number, order)[1], expected[1], 1e-4, 1e-4)
            for order in ORDERS
        ]
        assert right == [True, True] if waits else not all(right)


@pytest.mark.parametrize("waits", [True, False])
def test_a_launch_that_does_not_wait_is_found(
    threads: SerialThreads, monkeypatch: pytest.MonkeyPatch, waits: bool
) -> None:
    """A product reads rows that other threads of the launch before store."""
    if not waits:
        monkeypatch.setattr(launches.ReadyLaunch, "waits_for", lambda mine, other: False)
    x, w, v = torch.randn(40, 64), torch.randn(64, 64), torch.randn(64, 64)
    run = compiled(lambda x, w, v: torch.cumsum(x @ w, 0) @ v)
    expected = torch.cumsum(x @ w, 0) @ v
    for number in COUNTS:
        right = [
            torch.allclose(threads.call(lambda: run(x, w, v), number, order), expected, 1e-3, 1e-3) for order in ORDERS
        ]
        assert right == [True, True] if waits else not all(right)


def test_barriers_that_some_threads_do_not_reach_are_an_error(threads: SerialThreads) -> None:
    def address(name: str, *types: Any) -> Any:
        return ctypes.CFUNCTYPE(*types)(threads.address(name))

    integer, pointer, size = ctypes.c_int, ctypes.c_void_p, ctypes.c_uint
    number, wait = address("omp_get_thread_num", integer), address("GOMP_barrier", None)
    parallel = address("GOMP_parallel", None, pointer, pointer, size, size)
    order: list[int] = []

    def share(_: int) -> None:
        if number() != 1:
            wait()
        order.append(number())

    entry = ctypes.CFUNCTYPE(None, pointer)(share)
    with pytest.raises(KilnError, match="of 3 threads some wait at a barrier that others do not reach"):
        threads.call(lambda: parallel(ctypes.cast(entry, pointer), None, 3, 0), 3, "reversed")
    assert order == [1, 2, 0]


def test_what_is_not_written_is_nan(threads: SerialThreads) -> None:
    x = threads.empty((2, 3), (3, 1), torch.float16)
    assert bool(x.isnan().all()) and threads.empty((2,), (1,), torch.int64).tolist() == [-1, -1]
    workspace = threads.workspace(torch.zeros(8, dtype=torch.uint8))
    assert workspace.view(torch.float64).isnan().item()
    workspace.zero_()
    threads.call(lambda: None)
    assert workspace.view(torch.float64).isnan().item()


def test_rows_that_are_one_row_are_packed_for_the_larger_block(threads: SerialThreads) -> None:
    """All blocks of rows begin at one place in memory, and a thread may have the last one, of fewer rows, first."""
    row, w, y = (torch.randn(n, k).half() for n, k in ((1, 64), (144, 64), (375, 144)))
    given = row.expand(375, 64), w, y

    def layer(x: torch.Tensor, w: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return F.gelu(F.linear(x, w) + y)

    run, expected = compiled(layer), layer(*(t.double() for t in given))
    for number in COUNTS:
        for order in ORDERS:
            result = threads.call(lambda: run(*given), number, order)
            torch.testing.assert_close(result.double(), expected, atol=0.05, rtol=0.01)
