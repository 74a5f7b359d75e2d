# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Intermediates in the memory of outputs that are not written yet, which is there anyway."""

import dataclasses
from bisect import insort

import torch

from kiln.runtime.binding import segments
from kiln.runtime.memory import Interval, Placed, aligned, smallest_gap
from kiln.runtime.plan import Check, Expr, Launch, Operand, Plan, Pointer

__all__ = ["host_in_tensors"]


def host_in_tensors(plan: Plan) -> None:
    """Moves workspace buffers into tensors, in place; needs `first` and `last` of the buffers.

    A tensor that a run of launches allocates is there from the start of the run. Until the launch that writes it, it
    can hold what is dead by then, side by side: buffers of a size that is known, or one after another of the tensor's
    own size where sizes are symbols. Largest buffers first, each where it leaves least room.
    """
    part_of = {step: k for k, part in enumerate(segments(plan)) for step in part.steps}
    guests: dict[int, list[Placed]] = {i: [] for i, b in enumerate(plan.buffers) if b.kind == "tensor" and b.first >= 0}
    host: dict[int, tuple[int, int]] = {}
    mine = [i for i, b in enumerate(plan.buffers) if b.kind == "workspace" and b.first >= 0]
    mine.sort(key=lambda i: (-size if isinstance(size := plan.buffers[i].bytes, int) else 0, i))
    for i in mine:
        buffer = plan.buffers[i]
        fitting: list[tuple[int, int, int]] = []  # room left, tensor, offset
        for t, others in guests.items():
            tensor = plan.buffers[t]
            if buffer.last >= tensor.first or part_of[buffer.first] != part_of[tensor.first]:
                continue
            if isinstance(buffer.bytes, int) and isinstance(tensor.bytes, int):
                gap = smallest_gap(others, Interval(buffer.bytes, buffer.first, buffer.last), tensor.bytes)
                if gap is not None:
                    fitting.append((gap[1], t, gap[0]))
            elif buffer.bytes == tensor.bytes and not any(o.meets(buffer.first, buffer.last) for o in others):
                fitting.append((0, t, 0))
        if fitting:
            _, t, offset = min(fitting)
            host[i] = t, offset
            size = aligned(buffer.bytes) if isinstance(buffer.bytes, int) else 1
            insort(guests[t], Placed(offset, offset + size, buffer.first, buffer.last))
    if host:
        _renumber(plan, host)


def _renumber(plan: Plan, host: dict[int, tuple[int, int]]) -> None:
    """Replaces each key by its tensor and the offset in it, and drops the keys."""
    kept = [i for i in range(len(plan.buffers)) if i not in host]
    number = {old: new for new, old in enumerate(kept)}
    number |= {guest: number[tensor] for guest, (tensor, _) in host.items()}

    def operand(o: Operand) -> Operand:
        return dataclasses.replace(o, buffer=number[o.buffer])

    def pointer(p: Pointer) -> Pointer:
        _, offset = host.get(p.buffer, (p.buffer, 0))
        bytes_ = _plus(p.bytes, offset)
        size = buffers[p.buffer].bytes
        within = (offset, offset + size) if p.buffer in host and isinstance(size, int) else p.within
        return dataclasses.replace(p, buffer=number[p.buffer], bytes=bytes_, within=within)

    def looked_at(o: Operand) -> Operand:
        """A tensor of a check, whose offset counts its own elements."""
        _, offset = host.get(o.buffer, (o.buffer, 0))
        dtype = o.dtype or buffers[o.buffer].dtype
        start = _plus(o.offset, offset // getattr(torch, dtype).itemsize)
        return dataclasses.replace(o, buffer=number[o.buffer], offset=start, dtype=dtype)

    def check(c: Check | None) -> Check | None:
        if c is None:
            return None
        operands, results = (tuple(map(looked_at, tensors)) for tensors in (c.operands, c.results))
        return dataclasses.replace(c, operands=operands, results=results)

    buffers = list(plan.buffers)
    for guest, (tensor, _) in host.items():
        first = min(buffers[tensor].first, buffers[guest].first)
        buffers[tensor] = dataclasses.replace(buffers[tensor], first=first)
    plan.buffers = [buffers[i] for i in kept]
    for k, step in enumerate(plan.steps):
        if isinstance(step, Launch):
            plan.steps[k] = dataclasses.replace(
                step, pointers=tuple(pointer(p) for p in step.pointers), check=check(step.check)
            )
        else:
            operands = tuple(operand(o) for o in step.operands)
            results = tuple(number[r] if r >= 0 else r for r in step.results)
            plan.steps[k] = dataclasses.replace(step, operands=operands, results=results, check=check(step.check))
    plan.outputs = [
        dataclasses.replace(o, tensor=operand(o.tensor)) if o.tensor is not None else o for o in plan.outputs
    ]


def _plus(size: Expr, number: int) -> Expr:
    if isinstance(size, int):
        return size + number
    return f"{size} + {number}" if number else size
