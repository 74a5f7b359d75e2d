# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""How much memory a plan uses, step by step."""

from collections.abc import Sequence
from dataclasses import dataclass

from kiln.runtime.expressions import affine_evaluator
from kiln.runtime.memory import Interval, aligned, assign_offsets
from kiln.runtime.plan import Launch, Plan

__all__ = ["MemoryReport", "StepMemory", "memory_report"]


@dataclass(frozen=True)
class StepMemory:
    """One step: bytes of the distinct buffers that it reads or writes, and bytes of workspace alive during it."""

    name: str
    touched: int
    live: int


@dataclass(frozen=True)
class MemoryReport:
    """All in bytes. `workspace` is what is allocated for intermediates, `peak` the least that any planning needs,
    `intermediates` their sum, `tensors` those allocated by each call (outputs, operands of ATen calls)."""

    steps: tuple[StepMemory, ...]
    workspace: int
    peak: int
    intermediates: int
    tensors: int


def memory_report(plan: Plan, symbols: Sequence[int] = ()) -> MemoryReport:
    """The memory of a plan for given values of all its symbols, in the order of `plan.symbols`."""
    sizes_of = affine_evaluator([b.bytes for b in plan.buffers])(symbols)
    sizes = [max(0, sizes_of[b.bytes]) for b in plan.buffers]
    mine = [i for i, b in enumerate(plan.buffers) if b.kind == "workspace"]
    steps = []
    for k, step in enumerate(plan.steps):
        if isinstance(step, Launch):
            touched = {p.buffer for p in step.pointers}
        else:
            touched = {*(o.buffer for o in step.operands), *(r for r in step.results if r >= 0)}
        live = sum(aligned(sizes[i]) for i in mine if plan.buffers[i].first <= k <= plan.buffers[i].last)
        steps.append(StepMemory(step.name, sum(sizes[i] for i in touched), live))
    workspace = 0
    for epoch in {b.epoch for b in plan.buffers}:
        buffers = [(i, plan.buffers[i]) for i in mine if plan.buffers[i].epoch == epoch]
        workspace += assign_offsets([Interval(sizes[i], b.first, b.last) for i, b in buffers])[1]
    return MemoryReport(
        tuple(steps),
        workspace,
        max((s.live for s in steps), default=0),
        sum(aligned(sizes[i]) for i in mine),
        sum(sizes[i] for i, b in enumerate(plan.buffers) if b.kind in ("tensor", "aten")),
    )
