# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""How long each launch of a plan and each of its ATen calls takes, on the CPU."""

import contextlib
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any, cast

import torch
from typing_extensions import override

from kiln.runtime.binding import Binding
from kiln.runtime.plan import AtenStep, Launch, Plan
from kiln.runtime.split import Groups, SplitExecutor

__all__ = ["LaunchTimes", "ProfilingExecutor", "Recording", "current_recording", "recording"]


@dataclass
class LaunchTimes:
    """One launch or ATen call of a graph: the kernel's name and kind ("aten" for a call), seconds of each time it ran.

    threads: how many share it (0: the operator decides). results: the shapes of what it writes. work: its elementary
    operations (multiplications with an addition, in a product), -1 where that is not known. moved: bytes that it reads
    and writes, 0 where that is not known. dtype: the element type of its first operand ("bfloat16").
    """

    name: str
    kind: str
    threads: int = 0
    results: tuple[tuple[int, ...], ...] = ()
    work: int = -1
    moved: int = 0
    dtype: str = ""
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
    plans: list[Plan] = field(default_factory=list[Plan])
    """Those for GPUs, whose launches the driver times."""

    def clear(self) -> None:
        """Forgets the times, as those of warm-up calls."""
        for launch in self.launches:
            launch.seconds.clear()


_current: Recording | None = None
"""Of the process: autograd compiles and runs backward graphs of a GPU in a thread of its own."""


def current_recording() -> Recording | None:
    """What graphs that are loaded now should record to."""
    return _current


@contextlib.contextmanager
def recording(clock: Callable[[], float] = time.perf_counter) -> Generator[Recording, None, None]:
    """Graphs for the CPU that are loaded inside run their launches one by one, and record how long each takes."""
    global _current
    made = Recording(clock)
    before, _current = _current, made
    try:
        yield made
    finally:
        _current = before


class ProfilingExecutor(SplitExecutor):
    """An executor with a clock around each launch.

    What it costs to call native code is not counted. The sum is thus the time of the kernels alone; a call as a whole
    takes longer by Python's part, and may take less where threads stay together over several launches.
    """

    has_regions = True

    def __init__(self, plan: Plan, constants: Mapping[str, torch.Tensor], into: Recording) -> None:
        self._into = into
        self._seen: dict[tuple[int, int], LaunchTimes] = {}
        super().__init__(plan, constants)

    @override
    def each(self, groups: Groups) -> None:
        self._seconds(groups)  # brings the launcher's code back into the caches
        empty = self._seconds(groups)
        for i, group in enumerate(groups.groups):
            seconds = self._seconds(groups, group)
            self._launch_times(groups.table, i, group[0]).append(max(0.0, seconds - empty))

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

    def _seconds(self, groups: Groups, group: Sequence[int] = ()) -> float:
        """How long native code takes for a launch."""
        clock = self._into.clock
        start = clock()
        groups.run(group)
        return clock() - start

    def _launch_times(self, table: int, number: int, threads: int) -> list[float]:
        def describe() -> LaunchTimes:
            launch, binding = self.launch_of(table, number)
            kernel = self.plan.kernels[launch.kernel]
            written = launch.pointers[len(launch.pointers) - launch.results :]
            shapes = tuple(binding.shape(self.plan.buffers[p.buffer]) for p in written)
            work = binding.values[launch.work]
            dtype = self.plan.buffers[launch.pointers[0].buffer].dtype if launch.pointers else ""
            return LaunchTimes(kernel.name, kernel.kind, threads, shapes, work, _moved(launch, binding), dtype)

        return self._record((table, number), describe)

    def _record(self, key: tuple[int, int], describe: Callable[[], LaunchTimes]) -> list[float]:
        if key not in self._seen:
            self._seen[key] = describe()
            self._into.launches.append(self._seen[key])
        return self._seen[key].seconds


def _moved(launch: Launch, binding: Binding) -> int:
    """Bytes of the distinct tensors that a launch reads and writes."""
    read = {(p.buffer, binding.values[p.bytes], binding.values[p.size]) for p in launch.pointers}
    return sum(max(0, size) for _, _, size in read)


def _shapes(tensors: Sequence[torch.Tensor]) -> tuple[tuple[int, ...], ...]:
    return tuple(tuple(t.shape) for t in tensors)
