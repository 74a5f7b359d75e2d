# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""``kiln.profile``: how long each kernel of a model takes."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from io import StringIO
from statistics import median
from typing import Any

import torch
from rich.console import Console
from rich.table import Table
from torch.fx import GraphModule

from kiln.dialects.kiln import opdef_of_kind
from kiln.frontend.backend import kiln as backend
from kiln.frontend.options import Options
from kiln.frontend.report.apart import compile_apart, compiling_apart
from kiln.frontend.report.device_times import device_launches, kernel_events
from kiln.frontend.report.roof import GpuRoof, Roof, gpu_roof, host_roof
from kiln.runtime.plan import Plan
from kiln.runtime.profile import LaunchTimes, recording

__all__ = ["Profile", "profile", "profile_of"]


@dataclass
class Profile:
    """The launches of a call in their order, with the time of each; ``print(profile)`` shows them as a table.

    GB/s are the bytes of a kernel's operands and results in its time. "of roof" is how much of its time it would take
    at the machine's rates; what is left is what a better kernel could save.

    ``call``: median seconds of a whole call as it is compiled, without a clock between its launches. ``target``: that
    of the options.
    """

    call: float = 0.0
    threads: int = 1
    launches: list[LaunchTimes] = field(default_factory=list[LaunchTimes])
    target: str = "cpu"
    roof: Roof | GpuRoof = field(default_factory=host_roof)

    @property
    def kernels(self) -> float:
        """Seconds of all launches and ATen calls together."""
        return sum(launch.median for launch in self.launches)

    def to_text(self, width: int = 120, *, verbose: bool = False) -> str:
        """The table as plain text: a row per kernel and shape, slowest first; ``verbose``: per launch, in order."""
        console = Console(file=StringIO(), width=width, highlight=False, no_color=True)
        table = Table(
            "kernel", "kind", "results", "times", "us each", "share", "GFLOP/s", "GB/s", "of roof",
            title=f"{len(self.launches)} launches take {1e3 * self.kernels:.3f} ms {self._where()}, "
            f"a call {1e3 * self.call:.3f} ms", title_justify="left",
        )  # fmt: skip
        total, roof = self.kernels or 1.0, self.roof
        for group in self._groups(verbose):
            each = sum(launch.median for launch in group) / len(group)
            first = group[0]
            # Products and convolutions count a multiplication with its addition as one operation.
            is_product = opdef_of_kind(first.kind).flops is not None
            rate = f"{2e-9 * first.work / each:.1f}" if is_product and first.work > 0 and each else ""
            shapes = ", ".join("x".join(map(str, shape)) for shape in first.results)
            share = f"{100 * each * len(group) / total:.1f} %"
            bandwidth = f"{1e-9 * first.moved / each:.1f}" if first.moved and each else ""
            least = roof.seconds(first) if first.kind not in ("aten", "library") and each else 0.0
            left = f"{min(100.0, 100 * least / each):.0f} %" if least else ""
            table.add_row(
                first.name, first.kind, shapes, str(len(group)), f"{1e6 * each:.1f}", share, rate, bandwidth, left
            )
        console.print(table)
        if self.target == "tt-cpu":
            console.print("These are a GPU's kernels as loops on the CPU: the times are no GPU's (docs/tt-cpu.md).")
        console.print(f"Roof: {roof.name}.", markup=False)
        assert isinstance(console.file, StringIO)
        return console.file.getvalue()

    def _where(self) -> str:
        return f"on {self.roof.name}" if isinstance(self.roof, GpuRoof) else f"with {self.threads} threads"

    def _groups(self, verbose: bool) -> list[list[LaunchTimes]]:
        if verbose:
            return [[launch] for launch in self.launches]
        found: dict[tuple[Any, ...], list[LaunchTimes]] = {}
        for launch in self.launches:
            found.setdefault((launch.name, launch.kind, launch.results, launch.work), []).append(launch)
        return sorted(found.values(), key=lambda group: -sum(launch.median for launch in group))

    def __str__(self) -> str:
        return self.to_text()


def profile(
    model: Callable[..., Any],
    *inputs: Any,
    mode: str | None = None,
    options: dict[str, Any] | None = None,
    dynamic: bool | None = None,
    calls: int = 20,
    cpu_time: bool = False,
    **kwargs: Any,
) -> Profile:
    """Compile ``model(*inputs, **kwargs)``, call it, and tell how long each of its launches takes.

    On a GPU the times are the driver's, by PyTorch's profiler, and rows of kind "library" are other kernels that ran.

    Args:
        model: a module or a function.
        inputs, kwargs: its arguments.
        mode, options, dynamic: as for ``torch.compile``.
        calls: how many calls are timed; the table has medians.
        cpu_time: take the CPU time of the calling thread, which other programs disturb less; for one thread.

    Raises:
        BackendOptionError: an unknown mode or option.
    """
    if isinstance(model, torch._dynamo.eval_frame.OptimizedModule):
        model = model._orig_mod

    def compiled() -> Callable[..., Any]:
        # A backend of its own, and no kept ones: neither Dynamo's cache for "kiln" nor its files are used or filled.
        def profiling(gm: GraphModule, example_inputs: Any) -> Callable[..., Any]:
            return backend(gm, example_inputs, mode=mode, options=options)

        with compiling_apart():
            found = compile_apart(model, profiling, dynamic)
            found(*inputs, **kwargs)
        return found

    def called(run: Callable[..., Any]) -> Any:
        return run(*inputs, **kwargs)

    return profile_of(compiled, called, calls, Options.build(mode, options), cpu_time=cpu_time)


def profile_of(
    compiled: Callable[[], Callable[..., Any]],
    call: Callable[[Callable[..., Any]], Any],
    calls: int,
    options: Options,
    *,
    cpu_time: bool = False,
) -> Profile:
    """The profile of what is compiled with ``options``.

    Args:
        compiled: compiles and loads anew at each call, so that its executors are those that record.
        call: runs what was compiled, once.
        calls: how often that is done.
        options: for the target and what GPUs may round.
        cpu_time: as in :func:`profile`.
    """
    clock = time.thread_time if cpu_time else time.perf_counter
    with recording(clock) as recorded:
        run = compiled()
        recorded.clear()
        for _ in range(calls):
            call(run)
    if recorded.plans:
        return _of_gpu(compiled, call, recorded.plans, calls, options)
    whole = compiled()
    seconds: list[float] = []
    for _ in range(calls):
        start = clock()
        call(whole)
        seconds.append(clock() - start)
    launches = [launch for launch in recorded.launches if launch.seconds]
    return Profile(median(seconds), torch.get_num_threads(), launches, options.target or "cpu")


def _of_gpu(
    compiled: Callable[[], Callable[..., Any]],
    call: Callable[[Callable[..., Any]], Any],
    plans: list[Plan],
    calls: int,
    options: Options,
) -> Profile:
    """The profile of a model on a GPU. plans: those of its graphs."""
    run = compiled()
    seconds: list[float] = []
    for _ in range(calls):
        torch.cuda.synchronize()
        start = time.perf_counter()
        call(run)
        torch.cuda.synchronize()
        seconds.append(time.perf_counter() - start)
    launches = device_launches(plans, kernel_events(lambda: call(run), calls), calls)
    return Profile(median(seconds), 0, launches, "cuda", gpu_roof(tf32=options.tf32))
