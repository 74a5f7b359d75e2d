# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""How much memory a plan moves and holds, step by step.

A kernel is counted as reading each operand and writing each result once. What it reads again from the cache (three
passes over a row), or does not read (rows of a table that no index names), is not known here; eager's operators are
counted the same way (frontend/report/eager_memory.py).
"""

from collections.abc import Sequence
from dataclasses import dataclass

from kiln.runtime.binding import Segment, segments
from kiln.runtime.expressions import affine_evaluator
from kiln.runtime.memory import Interval, aligned, assign_offsets
from kiln.runtime.plan import AtenStep, Expr, Launch, Operand, Plan

__all__ = ["MemoryReport", "StepMemory", "memory_report"]


@dataclass(frozen=True)
class StepMemory:
    """One step: bytes of the distinct tensors that it reads and writes, and bytes of workspace alive during it."""

    name: str
    read: int
    written: int
    live: int


@dataclass(frozen=True)
class MemoryReport:
    """All in bytes. `workspace` is what is allocated for intermediates, `least` what any placement of them needs,
    `intermediates` their sum, `tensors` those allocated by each call (outputs, operands and results of ATen calls),
    `peak` the most that is allocated at once: the workspace with the tensors of the moment, without the kernels'
    scratch memory, which `scratch` tells per thread.
    """

    steps: tuple[StepMemory, ...]
    workspace: int
    least: int
    intermediates: int
    tensors: int
    peak: int
    scratch: int
    held: tuple[int, ...]

    @property
    def moved(self) -> int:
        """Bytes read and written by all steps."""
        return sum(step.read + step.written for step in self.steps)


def memory_report(plan: Plan, symbols: Sequence[int] = ()) -> MemoryReport:
    """The memory of a plan for given values of all its symbols, in the order of `plan.symbols`."""
    value = affine_evaluator(_expressions(plan))(symbols)
    sizes = [max(0, value[b.bytes]) for b in plan.buffers]
    mine = [i for i, b in enumerate(plan.buffers) if b.kind == "workspace"]
    steps: list[StepMemory] = []
    for k, step in enumerate(plan.steps):
        live = sum(aligned(sizes[i]) for i in mine if plan.buffers[i].first <= k <= plan.buffers[i].last)
        if isinstance(step, Launch):
            count = len(step.pointers) - step.results
            read = {(p.buffer, value[p.bytes], value[p.size]) for p in step.pointers[:count]}
            written = [value[p.size] for p in step.pointers[count:]]
        else:
            read = {(o.buffer, value[o.offset], _operand_bytes(plan, o, value, sizes)) for o in step.operands}
            written = [sizes[r] for r in step.results if r >= 0]
        steps.append(StepMemory(step.name, sum(max(0, n) for _, _, n in read), sum(max(0, n) for n in written), live))
    parts = segments(plan)
    tensors, workspaces = _tensors(plan, sizes, parts), _workspaces(plan, sizes, parts)
    held = tuple(map(sum, zip(tensors, workspaces, strict=True)))
    return MemoryReport(
        tuple(steps),
        max(workspaces, default=0),
        max((s.live for s in steps), default=0),
        sum(aligned(sizes[i]) for i in mine),
        sum(sizes[i] for i, b in enumerate(plan.buffers) if b.kind in ("tensor", "aten")),
        max(held),
        max((value[s.scratch] for s in plan.steps if isinstance(s, Launch)), default=0),
        held,
    )


def _workspaces(plan: Plan, sizes: Sequence[int], parts: Sequence[Segment]) -> list[int]:
    """Bytes of workspace that are there during each segment, and behind the last."""
    mine = [i for i, b in enumerate(plan.buffers) if b.kind == "workspace"]
    groups = [[i for i in mine if plan.buffers[i].epoch == epoch] for epoch in {b.epoch for b in plan.buffers}]
    if plan.cuts is not None:
        groups = [sorted({i for i in part.buffers if plan.buffers[i].kind == "workspace"}) for part in parts]
    found = [
        assign_offsets([Interval(sizes[i], plan.buffers[i].first, plan.buffers[i].last) for i in group])[1]
        for group in groups
    ]
    return [*found, 0] if plan.cuts is not None else [sum(found)] * (len(parts) + 1)


def _tensors(plan: Plan, sizes: Sequence[int], parts: Sequence[Segment]) -> list[int]:
    """Bytes of tensors that calls allocate during each segment, and behind the last: each is there from the segment
    that first uses it to the one that last does.
    """
    first: dict[int, int] = {}
    last: dict[int, int] = {}
    for k, part in enumerate(parts):
        for buffer in part.buffers:
            first.setdefault(buffer, k)
            last[buffer] = k
    for output in plan.outputs:
        if output.tensor is not None:
            first.setdefault(output.tensor.buffer, len(parts))
            last[output.tensor.buffer] = len(parts)
    owned = [b for b in first if plan.buffers[b].kind in ("tensor", "aten")]
    return [sum(sizes[b] for b in owned if first[b] <= k <= last[b]) for k in range(len(parts) + 1)]


def _operand_bytes(plan: Plan, operand: Operand, value: dict[Expr, int], sizes: Sequence[int]) -> int:
    if operand.shape is None or operand.strides is None:
        return sizes[operand.buffer]
    buffer = plan.buffers[operand.buffer]
    elements, whole = 1, 1
    for n, step in zip(operand.shape, operand.strides, strict=True):
        elements *= value[n] if value[step] else 1
    for n in buffer.shape:
        whole *= value[n]
    return sizes[operand.buffer] * elements // whole if whole else 0


def _expressions(plan: Plan) -> list[Expr]:
    found: list[Expr] = [0]
    for buffer in plan.buffers:
        found += [buffer.bytes, *buffer.shape]
    for step in plan.steps:
        if isinstance(step, AtenStep):
            for o in step.operands:
                found += [*(o.shape or ()), *(o.strides or ()), o.offset]
        else:
            found += [e for p in step.pointers for e in (p.bytes, p.size)]
            found.append(step.scratch)
    return found
