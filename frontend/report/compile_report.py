# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""What a compilation did, as data: filled by ``compile_graph``, printed by ``kiln.explain``."""

import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field

from kiln.frontend.report.eager_memory import EagerMemory
from kiln.notes import Note
from kiln.runtime.statistics import MemoryReport

__all__ = ["CompileReport", "Decision", "Freezing", "Kernel", "Proved", "collect", "publish"]


@dataclass(frozen=True)
class Decision:
    """Which way one torch op went: ``way`` is "kiln", "torch-mlir" or "aten", ``reason`` why not an earlier one."""

    op: str
    location: str
    way: str
    reason: str = ""


@dataclass(frozen=True)
class Kernel:
    """One generated kernel: its fusion's name and kind, the ops in its body, how often the graph launches it.

    Kind "library": a function of a GPU's library that the launch table calls, and the ATen ops that it does.
    """

    name: str
    kind: str
    ops: tuple[str, ...]
    launches: int = 1


@dataclass(frozen=True)
class Proved:
    """What was proved of a GPU's kernels (docs/validation.md): how many were looked at, how many properties hold, and a
    line for each of which nothing is known.
    """

    kernels: int
    proved: int
    unknown: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.kernels} kernels: {self.proved} properties proved, {len(self.unknown)} not known"


@dataclass(frozen=True)
class Freezing:
    """What became of the option ``freezing``: ``reason`` why nothing is frozen (empty if something is).

    ``inputs``: parameters and buffers that are constants. ``bytes``: memory of all constants that the code reads;
    ``new_bytes``: the part that folding added to the model's own. ``convolutions``, ``scales``: batch norms folded
    into a convolution's weight, and made a scale and a shift.
    """

    reason: str = ""
    inputs: int = 0
    bytes: int = 0
    new_bytes: int = 0
    convolutions: int = 0
    scales: int = 0

    def __str__(self) -> str:
        if self.reason:
            return self.reason
        folded = f"{self.convolutions} batch norms in convolutions, {self.scales} as scale and shift"
        return (
            f"{self.inputs} parameters and buffers frozen: constants of {self.bytes / 1024:,.1f} KiB, "
            f"{self.new_bytes / 1024:,.1f} KiB of them beside the model's; {folded}"
        )


@dataclass
class CompileReport:
    """One compiled graph.

    ``graph``: "inference", "forward" or "backward". ``executor``: "kiln", or "aten" when the whole graph runs with
    ATen for ``fallback_reason``. ``stages``: seconds per stage, in order. ``workspace_bytes``: memory of all
    intermediates (0 where sizes are dynamic and unknown). ``constant_bytes``: memory of the constants that the code
    reads. ``memory``, ``eager_memory``: bytes moved and held, with the example inputs' sizes, by the plan and by
    eager's operators; None where sizes are known at run time only. ``freezing``: None unless the option is on.
    ``cache``: what the persistent cache did: "loaded", "stored", "off", or "off: ..." and "not stored: ..." with
    the reason; ``key``: where the graph is in it, if it is. ``trace``: why AOTAutograd's cache has no trace of a graph
    for which Kiln's has the code; empty if it has, or was not asked. ``rewrites``: how often each pattern of
    ``rewrite-patterns`` matched. ``statistics``: what each pass counted, such as the rules of ``simplify-algebra``
    that matched. ``notes``: why passes did what they did, or did not.
    ``proved``: what checked execution proved of kernels for a GPU.
    """

    graph: str
    nodes: int = 0
    executor: str = "kiln"
    fallback_reason: str = ""
    reproducer: str = ""
    decisions: list[Decision] = field(default_factory=list[Decision])
    kernels: list[Kernel] = field(default_factory=list[Kernel])
    aten_calls: list[Decision] = field(default_factory=list[Decision])
    opaque: list[str] = field(default_factory=list[str])
    symbols: list[str] = field(default_factory=list[str])
    stages: dict[str, float] = field(default_factory=dict[str, float])
    workspace_bytes: int = 0
    constant_bytes: int = 0
    memory: MemoryReport | None = None
    eager_memory: EagerMemory | None = None
    freezing: Freezing | None = None
    cache: str = ""
    key: str = ""
    trace: str = ""
    rewrites: dict[str, int] = field(default_factory=dict[str, int])
    statistics: dict[str, dict[str, int]] = field(default_factory=dict[str, dict[str, int]])
    notes: list[Note] = field(default_factory=list[Note])
    proved: Proved | None = None

    @property
    def seconds(self) -> float:
        """Wall time of the whole compilation."""
        return sum(self.stages.values())

    def ways(self) -> dict[str, int]:
        """Number of torch ops per way."""
        counts: dict[str, int] = {}
        for decision in self.decisions:
            counts[decision.way] = counts.get(decision.way, 0) + 1
        return counts

    @contextmanager
    def stage(self, name: str) -> Generator[None, None, None]:
        """Add the block's wall time to ``stages[name]``."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self.stages[name] = self.stages.get(name, 0.0) + time.perf_counter() - start


class _Sinks(threading.local):
    def __init__(self) -> None:
        self.active: list[list[CompileReport]] = []


_sinks = _Sinks()
_shared: list[list[CompileReport]] = []


@contextmanager
def collect(*, every_thread: bool = False) -> Generator[list[CompileReport], None, None]:
    """Gather the reports of every graph that this thread, or the process, compiles inside the block.

    The backward graph may be compiled by autograd's own thread: gather from every thread and run backward inside.
    """
    reports: list[CompileReport] = []
    active = _shared if every_thread else _sinks.active
    active.append(reports)
    try:
        yield reports
    finally:
        # By identity: blocks inside of each other may have gathered the same.
        active[:] = [other for other in active if other is not reports]


def publish(report: CompileReport) -> None:
    """Hand ``report`` to every active :func:`collect` of this thread, and to those of the process."""
    for reports in (*_sinks.active, *_shared):
        reports.append(report)
