# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Intermediates in the memory of outputs that are not written yet, which is there anyway."""

import dataclasses

from kiln.runtime.binding import segments
from kiln.runtime.plan import Launch, Operand, Plan

__all__ = ["host_in_tensors"]


def host_in_tensors(plan: Plan) -> None:
    """Moves workspace buffers into tensors, in place; needs `first` and `last` of the buffers.

    A tensor that a run of launches allocates is there from the start of the run. Until the launch that writes it, it
    can hold what is dead by then: a buffer of at most its size, or of the same size where sizes are symbols. Largest
    buffers first, each into the smallest tensor that has room for it.
    """
    part_of = {step: k for k, part in enumerate(segments(plan)) for step in part.steps}
    guests: dict[int, list[int]] = {i: [] for i, b in enumerate(plan.buffers) if b.kind == "tensor" and b.first >= 0}
    host: dict[int, int] = {}
    mine = [i for i, b in enumerate(plan.buffers) if b.kind == "workspace" and b.first >= 0]
    mine.sort(key=lambda i: (-size if isinstance(size := plan.buffers[i].bytes, int) else 0, i))
    for i in mine:
        buffer = plan.buffers[i]
        fitting = []
        for t, others in guests.items():
            tensor = plan.buffers[t]
            if buffer.last >= tensor.first or part_of[buffer.first] != part_of[tensor.first]:
                continue
            if any(plan.buffers[o].first <= buffer.last and buffer.first <= plan.buffers[o].last for o in others):
                continue
            if buffer.bytes == tensor.bytes:
                fitting.append((0, t))
            elif isinstance(buffer.bytes, int) and isinstance(tensor.bytes, int) and buffer.bytes < tensor.bytes:
                fitting.append((tensor.bytes - buffer.bytes, t))
        if fitting:
            host[i] = min(fitting)[1]
            guests[host[i]].append(i)
    if host:
        _renumber(plan, host)


def _renumber(plan: Plan, host: dict[int, int]) -> None:
    """Replaces each key by its value and drops the keys."""
    kept = [i for i in range(len(plan.buffers)) if i not in host]
    number = {old: new for new, old in enumerate(kept)}
    number |= {guest: number[tensor] for guest, tensor in host.items()}

    def operand(o: Operand) -> Operand:
        return dataclasses.replace(o, buffer=number[o.buffer])

    buffers = list(plan.buffers)
    for guest, tensor in host.items():
        first = min(buffers[tensor].first, buffers[guest].first)
        buffers[tensor] = dataclasses.replace(buffers[tensor], first=first)
    plan.buffers = [buffers[i] for i in kept]
    for k, step in enumerate(plan.steps):
        if isinstance(step, Launch):
            pointers = tuple(dataclasses.replace(p, buffer=number[p.buffer]) for p in step.pointers)
            plan.steps[k] = dataclasses.replace(step, pointers=pointers)
        else:
            operands = tuple(operand(o) for o in step.operands)
            results = tuple(number[r] if r >= 0 else r for r in step.results)
            plan.steps[k] = dataclasses.replace(step, operands=operands, results=results)
    plan.outputs = [
        dataclasses.replace(o, tensor=operand(o.tensor)) if o.tensor is not None else o for o in plan.outputs
    ]
