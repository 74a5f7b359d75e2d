# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Times on a GPU: medians of interleaved replays of CUDA graphs, and of calls, over inputs that rotate.

All contenders run in turn, so that each sees the same clocks; a GPU at its power limit is slower by a tenth and more.
"""

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

__all__ = ["Time", "call_overhead", "interleaved", "relative_error", "wall_times"]

Call = Callable[..., Any]


@dataclass(frozen=True)
class Time:
    """Microseconds per call: the median, and the spread (largest minus smallest) over the median."""

    us: float
    spread: float


def interleaved(
    calls: dict[str, Call], sets: Sequence[Sequence[torch.Tensor]], *, rounds: int = 9, target_ms: float = 2.0
) -> dict[str, Time]:
    """Time per call of each contender on the GPU alone; one that cannot be recorded is left out.

    Contenders take turns at being the first, and each replay that counts follows one of the same contender: at the
    power limit clocks follow what ran before.
    """
    graphs: dict[str, tuple[torch.cuda.CUDAGraph, int]] = {}
    for name, call in calls.items():
        try:
            graphs[name] = _recorded(call, sets, target_ms)
        except Exception as error:  # noqa: BLE001 - the others can still be timed
            print(f"  {name}: cannot be recorded: {type(error).__name__}: {str(error)[:200]}", flush=True)
            torch.cuda.synchronize()
    times: dict[str, list[float]] = {name: [] for name in graphs}
    names = list(graphs)
    for i in range(rounds):
        first = i % len(names) if names else 0
        for name in (*names[first:], *names[:first]):
            graph, count = graphs[name]
            graph.replay()
            times[name].append(_elapsed(graph.replay) / count)
    return {name: Time(statistics.median(t), (max(t) - min(t)) / statistics.median(t)) for name, t in times.items()}


def _elapsed(work: Callable[[], Any]) -> float:
    """Microseconds on the GPU."""
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record()
    work()
    end.record()
    end.synchronize()
    return start.elapsed_time(end) * 1e3


def _recorded(call: Call, sets: Sequence[Sequence[torch.Tensor]], target_ms: float) -> tuple[torch.cuda.CUDAGraph, int]:
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for inputs in sets:
            call(*inputs)
    torch.cuda.current_stream().wait_stream(stream)
    torch.cuda.synchronize()
    once = _elapsed(lambda: [call(*inputs) for inputs in sets]) / len(sets)
    count = max(len(sets), min(60, int(target_ms * 1e3 / max(once, 1)) + 1))
    count = -(-count // len(sets)) * len(sets)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for i in range(count):
            call(*sets[i % len(sets)])
    return graph, count


def wall_times(
    calls: dict[str, Call], sets: Sequence[Sequence[torch.Tensor]], *, rounds: int = 9, target_ms: float = 20.0
) -> dict[str, Time]:
    """Time per call as a user sees it, launches included: calls one after the other, then a wait for the GPU.

    Contenders take turns at being the first: who follows one that leaves the GPU idle finds other clocks and caches.
    """
    counts: dict[str, int] = {}
    for name, call in calls.items():
        _wall(call, sets, len(sets))  # what is compiled, recorded or loaded then is no part of a call
        once = _wall(call, sets, len(sets))
        counts[name] = max(len(sets), min(200, int(target_ms * 1e3 / max(once, 1))))
    times: dict[str, list[float]] = {name: [] for name in calls}
    names = list(calls)
    for i in range(rounds):
        first = i % len(names)
        for name in (*names[first:], *names[:first]):
            _wall(calls[name], sets, len(sets))
            times[name].append(_wall(calls[name], sets, counts[name]))
    return {name: Time(statistics.median(t), (max(t) - min(t)) / statistics.median(t)) for name, t in times.items()}


def _wall(call: Call, sets: Sequence[Sequence[torch.Tensor]], count: int) -> float:
    torch.cuda.synchronize()
    start = time.perf_counter()
    for i in range(count):
        call(*sets[i % len(sets)])
    torch.cuda.synchronize()
    return (time.perf_counter() - start) / count * 1e6


def call_overhead(call: Call, inputs: Sequence[torch.Tensor], calls: int = 2, rounds: int = 9) -> float:
    """Microseconds of CPU time per call: until it returns, with the GPU's queue empty at the start.

    Few calls at once: the queue holds about a thousand launches, and who fills it waits for the GPU.
    """
    found = []
    for _ in range(rounds):
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(calls):
            call(*inputs)
        found.append((time.perf_counter() - start) / calls * 1e6)
    torch.cuda.synchronize()
    return min(found)


def relative_error(found: torch.Tensor, exact: torch.Tensor) -> float:
    """|found - exact| / |exact| in float64, of the whole tensor."""
    wide = exact.double()
    return ((found.double() - wide).norm() / wide.norm()).item()
