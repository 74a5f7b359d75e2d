# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""How long each launch of a plan and each of its ATen calls takes, on the CPU."""

import array
import contextlib
import contextvars
import ctypes
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any, cast

import torch

from kiln.runtime.binding import Binder, Binding, Segment, StateLayout
from kiln.runtime.executor import Executor
from kiln.runtime.plan import AtenStep, Plan

__all__ = ["LaunchTimes", "ProfilingExecutor", "Recording", "current_recording", "recording"]


@dataclass
class LaunchTimes:
    """One launch or ATen call of a graph: the kernel's name and kind ("aten" for a call), seconds of each time it ran.

    threads: how many share it (0: the operator decides). results: the shapes of what it writes. work: its elementary
    operations (multiplications with an addition, in a product), -1 where that is not known.
    """

    name: str
    kind: str
    threads: int = 0
    results: tuple[tuple[int, ...], ...] = ()
    work: int = -1
    seconds: list[float] = field(default_factory=list[float])

    @property
    def median(self) -> float:
        """The median of the times, in seconds."""
        return median(self.seconds)


@dataclass
class Recording:
    """The launches of all graphs that were loaded inside of `recording`, in the order in which they first ran.

    clock: `time.perf_counter`, or `time.thread_time` for kernels on one thread of a busy machine.
    """

    clock: Callable[[], float] = time.perf_counter
    launches: list[LaunchTimes] = field(default_factory=list[LaunchTimes])

    def clear(self) -> None:
        """Forgets the times, as those of warm-up calls."""
        for launch in self.launches:
            launch.seconds.clear()


_current: contextvars.ContextVar[Recording | None] = contextvars.ContextVar("kiln_recording", default=None)


def current_recording() -> Recording | None:
    """What graphs that are loaded now should record to."""
    return _current.get()


@contextlib.contextmanager
def recording(clock: Callable[[], float] = time.perf_counter) -> Generator[Recording, None, None]:
    """Graphs for the CPU that are loaded inside run their launches one by one, and record how long each takes."""
    made = Recording(clock)
    token = _current.set(made)
    try:
        yield made
    finally:
        _current.reset(token)


class ProfilingExecutor(Executor):
    """An executor that calls native code once per launch, with a clock around each.

    Each launch is a parallel region of its own, and what it costs to call native code is not counted. The sum is thus
    the time of the kernels alone; a call as a whole takes longer by Python's part, and may take less where threads
    stay together over several launches.
    """

    def __init__(self, plan: Plan, constants: Mapping[str, torch.Tensor], into: Recording) -> None:
        self._into = into
        self._seen: dict[tuple[int, int], LaunchTimes] = {}
        self._tables: dict[int, tuple[int, Binding]] = {}
        super().__init__(plan, constants)

    def _load(self, parts: Sequence[Segment]) -> tuple[Binder, Callable[[int], Any] | None]:
        binder, launch = super()._load(parts)
        binder.regions = False
        if launch is None:
            return binder, None

        def timed(state: int) -> None:
            table_word = ctypes.c_int64.from_address(state + 8 * StateLayout.TABLE)
            table = table_word.value
            block, *groups = _groups(table)
            self._seconds(launch, state, table_word, [block, 0])  # brings the launcher's code back into the caches
            empty = self._seconds(launch, state, table_word, [block, 0])
            for i, group in enumerate(groups):
                seconds = self._seconds(launch, state, table_word, [block, *group, 0])
                self._launch_times(table, i, group[0]).append(max(0.0, seconds - empty))
            table_word.value = table

        return binder, timed

    def _resolve(self, name: str, value: object) -> object:
        resolved = super()._resolve(name, value)
        if not isinstance(value, AtenStep):
            return resolved
        call = cast(Callable[..., Any], resolved)
        step = value

        def timed(*arguments: Any) -> Any:
            clock = self._into.clock
            start = clock()
            result = call(*arguments)
            seconds = clock() - start
            tensors = [r for r in result if isinstance(r, torch.Tensor)]
            times = self._record((-1, id(step)), lambda: LaunchTimes(step.op, "aten", 0, _shapes(tensors)))
            times.append(seconds)
            return result

        return timed

    def _bind(self, epoch: int, *rest: Any, **named: Any) -> Binding:
        binding = super()._bind(epoch, *rest, **named)
        self._tables |= {address: (segment, binding) for segment, address in binding.tables.items()}
        return binding

    def _seconds(
        self, launch: Callable[[int], Any], state: int, table_word: ctypes.c_int64, words: Sequence[int]
    ) -> float:
        """How long native code takes for a table."""
        table = array.array("q", words)
        table_word.value = table.buffer_info()[0]
        clock = self._into.clock
        start = clock()
        launch(state)
        return clock() - start

    def _launch_times(self, table: int, number: int, threads: int) -> list[float]:
        def describe() -> LaunchTimes:
            segment, binding = self._tables[table]
            launch = self._parts[segment].launches[number]
            kernel = self.plan.kernels[launch.kernel]
            written = launch.pointers[len(launch.pointers) - launch.results :]
            shapes = tuple(binding.shape(self.plan.buffers[p.buffer]) for p in written)
            return LaunchTimes(kernel.name, kernel.kind, threads, shapes, binding.values[launch.work])

        return self._record((table, number), describe)

    def _record(self, key: tuple[int, int], describe: Callable[[], LaunchTimes]) -> list[float]:
        if key not in self._seen:
            self._seen[key] = describe()
            self._into.launches.append(self._seen[key])
        return self._seen[key].seconds


def _shapes(tensors: Sequence[torch.Tensor]) -> tuple[tuple[int, ...], ...]:
    return tuple(tuple(t.shape) for t in tensors)


def _groups(table: int) -> Iterator[Any]:
    """The first word of a launch table (lowering/host/launcher.py), then each of its groups as a list."""

    def word(at: int) -> int:
        return ctypes.c_int64.from_address(table + 8 * at).value

    yield word(0)
    at = 1
    while word(at):
        length = word(at + 1)
        yield [word(at + i) for i in range(length)]
        at += length
