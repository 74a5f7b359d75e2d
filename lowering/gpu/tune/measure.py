# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""How long kernels take on a GPU, compared with each other: replays of CUDA graphs in turn, by the GPU's clock."""

import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch

from kiln.lowering.tune.measure import Timing

__all__ = ["replay_times"]

_REPLAY = 5e-4  # seconds that one replay should take: the start of a graph and the events' resolution are seen below
_MOST_CALLS, _LEAST_CALLS = 64, 4
_HOPELESS = 2.0  # times the best: not worth another look
_ROUNDS = 5


def replay_times(runs: Sequence[Callable[[], None]], seconds: float) -> list[Timing]:
    """A `Measure` for the current GPU: the time of one call of each run, in rounds in which every run has its turn.

    The clock of a GPU under load goes down with its temperature, for all runs alike only if they are interleaved.
    Many calls are recorded as one graph, so that the time to launch is none of the kernel's; a run that goes through
    several sets of operands does so in the recording. One that takes more than twice as long as the best is replayed
    once.
    """
    end = time.perf_counter() + seconds
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        first = [_timed(run, 2) / 2 for run in runs]
        calls = [max(_LEAST_CALLS, min(_MOST_CALLS, round(_REPLAY / max(t, 1e-6)))) for t in first]
        replays = [_recorded(run, n) for run, n in zip(runs, calls, strict=True)]
        once = [_timed(replay, 1) / n for replay, n in zip(replays, calls, strict=True)]
        alive = [i for i, t in enumerate(once) if t <= _HOPELESS * min(once)]
        samples: list[list[float]] = [[] for _ in runs]
        rounds = 0
        while rounds < _ROUNDS or time.perf_counter() < end:
            turn = rounds % len(alive)
            for i in [*alive[turn:], *alive[:turn]]:
                samples[i].append(_timed(replays[i], 1) / calls[i])
            rounds += 1
    torch.cuda.current_stream().wait_stream(stream)
    return [Timing(statistics.median(s), min(s)) if s else Timing(t, t) for s, t in zip(samples, once, strict=True)]


def _recorded(run: Callable[[], None], calls: int) -> Callable[[], None]:
    """A replay of this many calls."""
    graph: Any = torch.cuda.CUDAGraph()
    # Code that other threads compile is no part of the recording.
    graph.capture_begin(capture_error_mode="thread_local")
    try:
        for _ in range(calls):
            run()
    finally:
        graph.capture_end()
    graph.replay()
    return graph.replay


def _timed(run: Callable[[], None], repeats: int) -> float:
    """Seconds on the GPU."""
    start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    for _ in range(repeats):
        run()
    stop.record()
    stop.synchronize()
    return start.elapsed_time(stop) / 1e3
