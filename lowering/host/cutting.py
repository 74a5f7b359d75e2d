# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Where runs of launches are cut so that memory is freed in between.

A run of launches is one native call: outputs that it writes are there from its start, and arguments that only it reads
(what a forward graph saved) until its end. A backward graph without ATen calls is one run, which would hold all saved
tensors and all gradients at once. The cuts are few: a run goes on while it holds hardly more than the least that any
cuts allow.
"""

import dataclasses
from collections.abc import Collection, Iterator
from itertools import accumulate, pairwise

from kiln.lowering import paths
from kiln.runtime.binding import segments
from kiln.runtime.plan import Plan

__all__ = ["cut_runs"]

_SLACK = 1 / 100
"""By how much a run may hold more than the least possible peak."""

_GAIN, _LEAST_GAIN = 1 / 64, 1 << 20
"""A smaller part of the peak, or fewer bytes, pay for no cut: a native call takes the processor some microseconds."""

_TAKEN = paths.group("cuda cuts", "a run of launches")


def cut_runs(plan: Plan, given: Collection[int]) -> None:
    """Sets `Plan.cuts`, in place, where that lowers the most that a call holds.

    Needs `first` and `last` of the buffers. Each run then has a workspace of its own; what is alive between two runs
    becomes a tensor of its own. Plans with symbols stay as they are.

    given: numbers of the input buffers that nothing else refers to, whose memory goes behind the last step that reads
      them.
    """
    if plan.symbols or not plan.steps or not all(isinstance(b.bytes, int) for b in plan.buffers):
        return
    held = _Held(plan, given)
    runs = [(part.steps[0], part.steps[-1]) for part in segments(plan)]
    least = max(held.during(k, k) for k in range(len(plan.steps)))
    cuts = [k for first, last in runs for k in held.cuts(first, last, least * (1 + _SLACK))]
    ends = sorted({*(first for first, _ in runs), *cuts, len(plan.steps)})
    now, then = held.as_one(runs), max(held.during(first, end - 1) for first, end in pairwise(ends))
    if now - then < max(_GAIN * now, _LEAST_GAIN):
        return
    plan.cuts = cuts
    _TAKEN("a run of launches")
    part_of = {step: k for k, part in enumerate(segments(plan)) for step in part.steps}
    for i, buffer in enumerate(plan.buffers):
        if buffer.kind == "workspace" and buffer.first >= 0 and part_of[buffer.first] != part_of[buffer.last]:
            plan.buffers[i] = dataclasses.replace(buffer, kind="tensor")


class _Held:
    """Bytes that a plan holds while it runs.

    inputs[k]: arguments that step k or a later one reads. Of tensors, and of intermediates (index 1): before[.][k],
    made by an earlier step and used at step k or later; made[.][k], made by step k.
    """

    def __init__(self, plan: Plan, given: Collection[int]) -> None:
        count = len(plan.steps)
        self.inputs, self.made = [0] * (count + 2), [[0] * count for _ in range(2)]
        self.before = [[0] * (count + 2) for _ in range(2)]
        self.starts: list[dict[int, int]] = [{} for _ in range(count)]  # intermediates that end: first step -> bytes
        returned = {o.tensor.buffer for o in plan.outputs if o.tensor is not None}
        for i, b in enumerate(plan.buffers):
            size = int(b.bytes)
            if b.first < 0 or size <= 0:
                continue
            if i in given:
                _add(self.inputs, 0, b.last, size)
            elif b.kind in ("tensor", "aten", "workspace"):
                is_space = b.kind == "workspace"
                self.made[is_space][b.first] += size
                _add(self.before[is_space], b.first + 1, count if i in returned else b.last, size)
                if is_space:
                    ending = self.starts[b.last]
                    ending[b.first] = ending.get(b.first, 0) + size
        self.inputs, self.before = list(accumulate(self.inputs)), [list(accumulate(n)) for n in self.before]

    def during(self, first: int, last: int) -> int:
        """Bytes held by a run of these steps."""
        *_, (_, held) = self._grown(first, last)
        return held

    def cuts(self, first: int, last: int, limit: float) -> Iterator[int]:
        """Steps to cut a run at so that each piece goes on while it holds no more than the limit."""
        start = first
        while start <= last:
            for step, held in self._grown(start, last):
                if held > limit and step > start:
                    yield step
                    start = step
                    break
            else:
                return

    def as_one(self, runs: list[tuple[int, int]]) -> int:
        """Bytes held with one workspace for all of these runs, which is there from the first to the last."""
        most, workspace = 0, 0
        for first, last in runs:
            tensors = self.before[0][first]
            wanted: list[int] = []
            for k in range(first, last + 1):
                tensors += self.made[0][k]
                wanted.append(tensors + self.before[1][k] + self.made[1][k])
            most = max(most, self.inputs[first] + tensors)
            workspace = max(workspace, max(wanted) - tensors)  # the rest lies in tensors that are not written yet
        return most + workspace

    def _grown(self, first: int, last: int) -> Iterator[tuple[int, int]]:
        """(step, bytes held by the run up to it), for each step of a run; intermediates lie in tensors that are not
        written yet, where there is room.
        """
        tensors = self.before[0][first] + self.before[1][first]
        alive = most = 0
        for k in range(first, last + 1):
            tensors += self.made[0][k]
            alive += self.made[1][k]
            most = max(most, tensors + alive)
            alive -= sum(size for start, size in self.starts[k].items() if start >= first)
            yield k, self.inputs[first] + max(tensors + alive, most)


def _add(changes: list[int], first: int, last: int, size: int) -> None:
    """Notes bytes that are there from one step to another, both included, as changes from step to step."""
    changes[first] += size
    changes[last + 1] -= size
