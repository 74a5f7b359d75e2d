# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""How long calls take, compared with each other."""

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

__all__ = ["Measure", "Timing", "interleaved", "processor_time"]


@dataclass(frozen=True)
class Timing:
    """Seconds of one call: the median, and the least that was seen."""

    median: float
    least: float

    @property
    def is_disturbed(self) -> bool:
        """Whether most calls were interrupted: their time says nothing."""
        return self.median > _DISTURBED * self.least

    def beats(self, other: "Timing", margin: float) -> bool:
        """Whether this is faster by more than a factor of `margin`, in both.

        Where other work runs on the machine, threads that wait for each other are interrupted in many of the calls.
        """
        return self.median * margin < other.median and self.least * margin < other.least


Measure = Callable[[Sequence[Callable[[], None]], float], list[Timing]]
"""`(runs, seconds)` -> the time of one call of each; it should take about `seconds` in all."""

_SAMPLE = 1e-4  # seconds: below, a clock's resolution and the call itself are seen
_HOPELESS = 2.0  # times the best: not worth another look
_ROUNDS = 3
_DISTURBED = 3.0


def interleaved(
    runs: Sequence[Callable[[], None]], seconds: float, clock: Callable[[], float] = time.perf_counter
) -> list[Timing]:
    """The time of one call of each run by `clock`, in rounds in which every run has its turn.

    What slows the machine for a while so slows all of them. A first call warms up; a run that then takes more than
    twice as long as the best is called no more. At least three rounds, also where `seconds` are over before.
    """
    end = time.perf_counter() + seconds
    first: list[float] = []
    for run in runs:
        run()
        first.append(_timed(run, 1, clock))
    best = min(first)
    alive = [i for i, t in enumerate(first) if t <= _HOPELESS * best or t < _SAMPLE]
    repeats = [max(1, min(1000, round(_SAMPLE / max(t, 1e-7)))) for t in first]
    samples: list[list[float]] = [[] for _ in runs]
    rounds = 0
    while rounds < _ROUNDS or time.perf_counter() < end:
        turn = rounds % len(alive)
        for i in [*alive[turn:], *alive[:turn]]:
            samples[i].append(_timed(runs[i], repeats[i], clock))
        rounds += 1
    return [Timing(statistics.median(s), min(s)) if s else Timing(t, t) for s, t in zip(samples, first, strict=True)]


def processor_time(runs: Sequence[Callable[[], None]], seconds: float) -> list[Timing]:
    """`interleaved` for calls that stay in this thread: by its processor time, which other work on the machine does not
    add to.
    """
    return interleaved(runs, seconds, time.thread_time)


def _timed(run: Callable[[], None], repeats: int, clock: Callable[[], float]) -> float:
    start = clock()
    for _ in range(repeats):
        run()
    return (clock() - start) / repeats
