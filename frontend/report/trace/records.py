# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""What is recorded of a graph's way through the compiler, as plain data: it outlives the module."""

from dataclasses import dataclass, field

from kiln.frontend.report.compile_report import CompileReport
from kiln.lowering.considered import Choice
from kiln.notes import Note
from kiln.passes.rewrites import Rewrite
from kiln.runtime.plan import Launch, Plan
from kiln.runtime.profile import LaunchTimes

__all__ = ["AppliedRewrite", "GraphTrace", "Node", "StepRecord"]

HOST = ""
"""The part of a module that is no kernel: its functions."""


@dataclass(frozen=True)
class AppliedRewrite:
    """One rewrite of a pass, and the file and line in the compiler that asked for it."""

    rewrite: Rewrite
    source: str


@dataclass(frozen=True)
class Node:
    """One node of the FX graph. ``frames``: files and lines of the model's calls that lead to it, outermost first;
    empty where they are not known.
    """

    name: str
    op: str
    args: str = ""
    type: str = ""
    frames: tuple[tuple[str, int], ...] = ()


@dataclass
class StepRecord:
    """The module behind one pass.

    ``parts``: texts with locations of what the pass changed, :data:`HOST` for the functions (the whole module, before
    kernels are symbols) and a kernel's name for its code, or its fusion where there is no code yet. ``removed``:
    kernels that are no longer there. ``seconds``: of the pass alone. ``choices``: what its cost models chose among.
    """

    name: str
    spec: str
    stage: str = ""
    why: str = ""
    is_inserted: bool = False
    seconds: float = 0.0
    parts: dict[str, str] = field(default_factory=dict[str, str])
    removed: tuple[str, ...] = ()
    notes: list[Note] = field(default_factory=list[Note])
    statistics: dict[str, int] = field(default_factory=dict[str, int])
    rewrites: list[AppliedRewrite] = field(default_factory=list[AppliedRewrite])
    choices: list[Choice] = field(default_factory=list[Choice])

    @property
    def has_changed(self) -> bool:
        """Whether the pass changed the module."""
        return bool(self.parts or self.removed)


@dataclass
class GraphTrace:
    """One compiled graph.

    ``pipeline``: text of each pass, why it stands there, and the stage that it completes. ``steps``: the first is the
    module as imported. ``launched``: names of kernels in the order in which the functions
    launch them; ``locations``: of the ops in the fusion of each of these launches, in order. ``ttir``: what Triton is
    given, with locations. ``code``: what compilers made of each kernel, as text, by the ending of its file. ``kinds``,
    ``schedules``, ``levels``: of the kernels' fusions, as text, and LLVM's optimisation level for each. ``times``: of
    the plan's steps; None where a step was not measured. ``tf32``: whether products of f32 may use tensor cores.
    """

    report: CompileReport
    target: str = ""
    pipeline: list[tuple[str, str, str]] = field(default_factory=list[tuple[str, str, str]])
    steps: list[StepRecord] = field(default_factory=list[StepRecord])
    nodes: list[Node] = field(default_factory=list[Node])
    launched: list[str] = field(default_factory=list[str])
    locations: list[tuple[str, ...]] = field(default_factory=list[tuple[str, ...]])
    ttir: dict[str, str] = field(default_factory=dict[str, str])
    code: dict[str, dict[str, str]] = field(default_factory=dict[str, dict[str, str]])
    kinds: dict[str, str] = field(default_factory=dict[str, str])
    levels: dict[str, int] = field(default_factory=dict[str, int])
    schedules: dict[str, str] = field(default_factory=dict[str, str])
    plan: Plan | None = None
    times: list[LaunchTimes | None] = field(default_factory=list[LaunchTimes | None])
    tf32: bool = False

    def part_at(self, part: str, stage: str) -> str | None:
        """The text of a part where a stage is complete; None where there is none."""
        last = max((i for i, step in enumerate(self.steps) if step.stage == stage), default=-1)
        texts = [step.parts[part] for step in self.steps[: last + 1] if part in step.parts]
        return texts[-1] if texts else None

    def kernels(self) -> list[str]:
        """Names of the kernels, in the order of their first launches."""
        return list(dict.fromkeys(self.launched))

    def kernel_of(self, launch: Launch) -> str:
        """The name of the kernel that a step of the plan launches."""
        assert self.plan is not None
        return self.plan.kernels[launch.kernel].name
