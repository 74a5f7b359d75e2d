# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""``kiln.trace``: the stages of a model to print, compare, rerun, time and check; in a notebook, as the page."""

import html
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch.fx import GraphModule
from torch.utils._pytree import tree_leaves
from typing_extensions import override

from kiln.frontend.backend import kiln as backend
from kiln.frontend.report.apart import compile_apart, compiling_apart
from kiln.frontend.report.device_times import called_steps, device_launches, kernel_events
from kiln.frontend.report.profile import Profile
from kiln.frontend.report.trace.diffing import diff_text
from kiln.frontend.report.trace.locations import located_lines
from kiln.frontend.report.trace.page import page, write_page
from kiln.frontend.report.trace.records import HOST, GraphTrace, StepRecord
from kiln.frontend.report.trace.reruns import rerun
from kiln.frontend.report.trace.session import gathering
from kiln.frontend.report.trace.trials import timed, verified
from kiln.runtime.plan import AtenStep
from kiln.runtime.profile import LaunchTimes, recording

__all__ = ["Stage", "Trace", "TracedGraph", "trace"]

_HEIGHT = 800


@dataclass(frozen=True)
class Stage:
    """The module behind one pass. ``print(stage)`` shows it without locations."""

    name: str
    step: StepRecord
    source: str
    """The text with locations; behind ``outline-kernels``, that of the functions."""
    done: int
    """How many steps of the pipeline have run."""

    @property
    def text(self) -> str:
        """The IR as MLIR prints it."""
        return "\n".join(line.text for line in located_lines(self.source))

    def diff(self, other: "Stage | str") -> str:
        """What differs from another stage, or from text: lines with ``-`` (there only) and ``+`` (here only)."""
        text = other if isinstance(other, str) else other.text
        return diff_text(text.splitlines(), self.text.splitlines())

    @override
    def __str__(self) -> str:
        return self.text


@dataclass
class TracedGraph:
    """One graph: ``record`` has all that was recorded of it."""

    record: GraphTrace

    def __str__(self) -> str:
        """The names of the stages, which are what ``print(graph.stage(name))`` takes."""
        return ", ".join(stage.name for stage in self.stages)

    __repr__ = __str__

    @property
    def stages(self) -> list[Stage]:
        """The module as imported, then behind each pass that changed it."""
        return [found for found in self._behind() if found.step.has_changed or found.step.stage]

    def stage(self, name: str) -> Stage:
        """The module where a stage is complete, or behind a pass (the last time it changed something, if ever).

        Raises KilnError, naming those that there are, for another name.
        """
        from kiln.errors import KilnError, did_you_mean

        every = self._behind()
        found = [s for s in every if name in (s.step.stage, s.step.name.partition("{")[0])]
        if not found:
            near = did_you_mean(name, [s.name for s in every])
            names = ", ".join(dict.fromkeys(s.name for s in self.stages))
            raise KilnError(f"no stage or pass {name!r}{near}; there are {names}")
        return ([s for s in found if s.step.has_changed or s.step.stage == name] or found)[-1]

    def _behind(self) -> list[Stage]:
        """The module behind each step."""
        found: list[Stage] = []
        text = ""
        for done, step in enumerate(self.record.steps):
            text = step.parts.get(HOST, text)
            found.append(Stage(step.stage or step.name.partition("{")[0], step, text, done))
        return found

    def rerun(
        self, after: str = "input", passes: str = "", *, until: str | None = None, check: bool = False
    ) -> "TracedGraph":
        """Compile again from a stage, or from behind a pass, with other passes in between; nothing is loaded or run.

        Args:
            after: a name as of :meth:`stage`; ``input``: from the first pass on.
            passes: text of a pipeline to run first: ``"fuse{strategy=greedy}"``.
            until: the last stage to complete; ``""``: run ``passes`` alone; None: up to machine code.
            check: compare numbers after each pass up to the stage ``sched`` (docs/checking.md).

        Raises:
            KilnError: an unknown stage or pass, or one behind ``sched``.
            CompileError: a pass that fails; with ``check``, one that changes numbers.
        """
        found = self.stage(after)
        return TracedGraph(rerun(self.record, found.done, found.source, passes, until, check=check))

    def time(self, calls: int = 20, *, cpu_time: bool = False) -> Profile:
        """How long each kernel takes, as :func:`kiln.profile` shows it, on random inputs of the graph's sizes.

        Kernels are made anew from the stage ``sched``: of a rerun, they are those of its passes. Sizes that are symbols
        are small.

        Args:
            calls: how many calls are timed; the table has medians.
            cpu_time: take the CPU time of the calling thread, which other programs disturb less; for one thread.

        Raises:
            KilnError: the graph was not compiled up to ``sched``, or runs on no random inputs.
            CompileError: a kernel that does not compile.
        """
        found = self.stage("sched")
        return timed(self.record, found.done, found.source, calls, cpu_time=cpu_time)

    def check(self) -> None:
        """Compare numbers on random inputs: after each pass up to ``sched``, then those that the kernels compute.

        Raises:
            CompileError: a pass changes numbers; it names the pass.
            NumericsError: the kernels compute something else than their IR says.
            KilnError: the graph was not compiled up to ``sched``, or runs on no random inputs.
        """
        found = self.stage("sched")
        rerun(self.record, 0, self.stage("input").source, "", "sched", check=True)
        verified(self.record, found.done, found.source)

    def kernel(self, name: str, stage: str) -> str:
        """A kernel's code at a stage (``vector``, ``llvm``, ``ttir``), or as machine code (``s``, ``ptx``).

        ``name``: the kernel's, or the beginning of it. Raises KilnError where there is none.
        """
        from kiln.errors import KilnError

        full = next((kernel for kernel in self.record.kernels() if kernel.startswith(name)), None)
        if full is None:
            raise KilnError(f"no kernel {name!r}; there are {', '.join(self.record.kernels())}")
        code = self.record.code.get(full, {}).get(stage)
        if code is not None:
            return code
        text = self.record.part_at(full, stage)
        if text is None:
            raise KilnError(f"kernel {full} has no stage {stage!r}")
        return "\n".join(line.text for line in located_lines(text))


@dataclass
class Trace:
    """The graphs that a call compiled. In Jupyter and marimo it shows itself as the page."""

    graphs: list[TracedGraph]
    title: str = "Kiln trace"

    def __str__(self) -> str:
        """The title, and the stages of each graph."""
        return "\n".join([self.title, *(f"graph {i}: {graph}" for i, graph in enumerate(self.graphs))])

    __repr__ = __str__

    def html(self) -> str:
        """The page, as one text."""
        return page([graph.record for graph in self.graphs], self.title)

    def save(self, path: str | Path) -> None:
        """Write the page. Raises KilnError for a file that cannot be written."""
        write_page(path, [graph.record for graph in self.graphs], self.title)

    def _repr_html_(self) -> str:
        document = html.escape(self.html())
        return f'<iframe srcdoc="{document}" style="width: 100%; height: {_HEIGHT}px; border: 0"></iframe>'

    def _mime_(self) -> tuple[str, str]:
        """Marimo's own protocol, which it asks before IPython's."""
        return "text/html", self._repr_html_()


def trace(
    model: Callable[..., Any],
    *inputs: Any,
    mode: str | None = None,
    options: dict[str, Any] | None = None,
    dynamic: bool | None = None,
    calls: int = 5,
    backward: bool = False,
    **kwargs: Any,
) -> Trace:
    """Compile and run ``model(*inputs, **kwargs)``, and keep what it was at every stage.

    Args:
        model: a module or a function.
        inputs, kwargs: its arguments.
        mode, options, dynamic: as for ``torch.compile``.
        calls: how often it is called to measure its kernels; 0: they are not measured. Times on a GPU are the driver's.
        backward: also run backward from the sum of the results, which adds to the parameters' gradients.

    Raises:
        BackendOptionError: an unknown mode or option.
    """
    if isinstance(model, torch._dynamo.eval_frame.OptimizedModule):
        model = model._orig_mod
    settings = {**(options or {}), "cache": False}

    # A backend of its own, and no kept ones: neither Dynamo's cache for "kiln" nor its files are used or filled.
    def tracing(gm: GraphModule, example_inputs: Any) -> Callable[..., Any]:
        return backend(gm, example_inputs, mode=mode, options=settings)

    with gathering() as traces, recording() as recorded, compiling_apart():
        compiled = compile_apart(model, tracing, dynamic)

        def call() -> None:
            result = compiled(*inputs, **kwargs)
            if backward:
                _run_backward(result)

        call()
        recorded.clear()
        if not recorded.plans:
            for _ in range(calls):
                call()
    launches = list(recorded.launches)
    if recorded.plans and calls:
        call()  # what a GPU runs is loaded and, where it is replayed, recorded
        events = kernel_events(call, calls)
        launches += [x for x in device_launches(recorded.plans, events, calls) if x.kind != "library"]
        launches += called_steps(recorded.plans, events, calls)
    _assign(traces, launches)
    name = type(model).__name__ if isinstance(model, torch.nn.Module) else getattr(model, "__name__", "model")
    return Trace([TracedGraph(found) for found in traces], f"Kiln trace of {name}")


def _run_backward(result: Any) -> None:
    leaves = [x for x in tree_leaves(result) if isinstance(x, torch.Tensor) and x.requires_grad]
    if leaves:
        torch.autograd.backward([x.sum() for x in leaves])


def _assign(traces: list[GraphTrace], launches: Sequence[LaunchTimes]) -> None:
    """Give each step of a plan its times: launches are recorded in the order in which they first ran."""
    left = list(launches)
    for found in traces:
        plan = found.plan
        found.times = []
        for step in plan.steps if plan is not None else ():
            name = step.op if isinstance(step, AtenStep) else found.kernel_of(step)
            times = next((launch for launch in left if launch.name == name), None)
            found.times.append(_known(times))
            if times is not None:
                left = [launch for launch in left if launch is not times]


def _known(times: LaunchTimes | None) -> LaunchTimes | None:
    return times if times is not None and times.seconds else None
