# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Times of a GPU's kernels, as PyTorch's profiler has them from the driver, by the launches of plans."""

from collections.abc import Callable, Iterable, Sequence
from math import prod
from typing import Any

import torch

from kiln.runtime.plan import AtenStep, Expr, Kernel, Launch, Plan
from kiln.runtime.profile import LaunchTimes

__all__ = ["called_steps", "device_launches", "kernel_events", "work_of"]


_MEMSET = "Memset (Device)"
"""In front of a kernel that adds to its result."""


def kernel_events(call: Callable[[], object], calls: int) -> list[tuple[str, float]]:
    """Names and seconds of all that a GPU does in some calls, in the order in which it does it."""
    activities = [torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=activities, acc_events=True) as profiler:
        for _ in range(calls):
            call()
        torch.cuda.synchronize()
    found: list[Any] = list(profiler.events() or ())
    events = [event for event in found if str(event.device_type).endswith("CUDA")]
    events.sort(key=_start)
    return [(event.name, 1e-6 * event.time_range.elapsed_us()) for event in events]


def _start(event: Any) -> float:
    return event.time_range.start


def device_launches(plans: Iterable[Plan], events: Sequence[tuple[str, float]], calls: int) -> list[LaunchTimes]:
    """The launches of plans with the times of ``calls`` calls, and what else ran there (libraries, PyTorch's kernels).

    Kernels are known by the name of their function. The events of one that several launches have are theirs in turn;
    where they are more or fewer than the calls explain (a plan that runs several times in a call), they are one row.
    So are a library's, of which a call launches as many as the events say.
    """
    times: dict[str, list[float]] = {}
    for name, seconds in events:
        times.setdefault(name, []).append(seconds)
    found: list[LaunchTimes] = []
    launched = _launched(plans)
    for entry, launches in launched.items():
        seconds = times.pop(entry, [])
        if len(seconds) == calls * len(launches):
            parts = [seconds[i :: len(launches)] for i in range(len(launches))]
        else:
            launches, parts = launches[:1], [seconds]
        for (plan, kernel, launch), part in zip(launches, parts, strict=True):
            found.append(_times(plan, kernel, launch, part))
    for name, seconds in times.items():
        each_call = len(seconds) // calls if len(seconds) % calls == 0 else 1
        found += [LaunchTimes(name, "library", seconds=seconds[i::each_call]) for i in range(each_call)]
    return [launch for launch in found if launch.seconds]


def called_steps(plans: Sequence[Plan], events: Sequence[tuple[str, float]], calls: int) -> list[LaunchTimes]:
    """The steps of plans that libraries and PyTorch's operators do, with the times of ``calls`` calls, in order.

    What a GPU does between two of Kiln's own kernels is that of the step between them; where several steps are there,
    or calls differ, it is nobody's.
    """
    count = len(events) // calls if calls else 0
    parts = [events[i * count : (i + 1) * count] for i in range(calls)]
    if not count or len(events) % calls or any([n for n, _ in part] != [n for n, _ in parts[0]] for part in parts):
        return []
    found: list[LaunchTimes] = []
    at = 0
    waiting: list[LaunchTimes] = []
    for each, step in [(plan, step) for plan in plans for step in plan.steps]:
        if isinstance(step, AtenStep):
            waiting.append(LaunchTimes(step.op, "aten"))
            continue
        kernel = each.kernels[step.kernel]
        if kernel.kind == "library":
            waiting.append(_times(each, kernel, step, []))
            continue
        end = next((i for i in range(at, count) if parts[0][i][0] == kernel.entry), None)
        if end is not None:
            found += _between(waiting, [part[at:end] for part in parts])
            at, waiting = end + 1, []
    return [*found, *_between(waiting, [part[at:] for part in parts])]


def _between(steps: Sequence[LaunchTimes], parts: Sequence[Sequence[tuple[str, float]]]) -> Sequence[LaunchTimes]:
    """Steps with no kernel of Kiln's between them, and what ran there in each call."""
    if len(steps) == 1:
        steps[0].seconds.extend(sum(seconds for name, seconds in part if name != _MEMSET) for part in parts)
    return steps


_Launches = dict[str, list[tuple[Plan, Kernel, Launch]]]


def _launched(plans: Iterable[Plan]) -> _Launches:
    """Launches of kernels of Kiln's own, by the function's name."""
    found: _Launches = {}
    for plan in plans:
        own: _Launches = {}
        for step in plan.steps:
            if isinstance(step, Launch) and plan.kernels[step.kernel].kind != "library":
                kernel = plan.kernels[step.kernel]
                own.setdefault(kernel.entry, []).append((plan, kernel, step))
        for entry, launches in own.items():
            found.setdefault(entry, []).extend(launches)
    return found


def _times(plan: Plan, kernel: Kernel, launch: Launch, seconds: list[float]) -> LaunchTimes:
    """Sizes that are known at run time only are left out."""
    written = launch.pointers[len(launch.pointers) - launch.results :]
    shapes = tuple(tuple(map(_known, plan.buffers[p.buffer].shape)) for p in written)
    moved = sum(size for _, _, size in {(p.buffer, p.bytes, _known(p.size)) for p in launch.pointers})
    dtype = plan.buffers[launch.pointers[0].buffer].dtype if launch.pointers else ""
    return LaunchTimes(kernel.name, kernel.kind, 0, shapes, work_of(launch), moved, dtype, seconds)


def work_of(launch: Launch) -> int:
    """Multiplications with an addition of a launch's products; at most 0 where it has none, or sizes are not known."""
    if launch.product is not None:
        return prod(map(_known, launch.product.sizes))
    if launch.convolution is not None:
        return prod(map(_known, (*launch.convolution.result, *launch.convolution.weight[1:])))
    return _known(launch.work)


def _known(size: Expr) -> int:
    return size if isinstance(size, int) else 0
