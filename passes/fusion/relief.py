# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Kernels taken apart again where together they hold more at once than the ops one by one.

A producer in the kernel of a concatenation or a pad keeps its operands alive while the whole result is there: the last
step of an LSTM its gates, beside the stacked states. By itself it frees them first.
"""

from collections.abc import Callable, Mapping

from torch_mlir import ir

from kiln.passes.fusion.cost import amount
from kiln.passes.fusion.groups import Group, Grouping
from kiln.passes.fusion.order import Schedule
from kiln.passes.fusion.rules import fusion_rules
from kiln.passes.fusion.search import APART

__all__ = ["relieve"]

ROUNDS = 3
"""Groupings that are made at most; each takes apart all that is found."""


def relieve(grouping: Grouping, regroup: Callable[[Mapping[int, int]], Grouping], one_by_one: int) -> Grouping:
    """A grouping that holds little more at once than its ops one by one, if parts of larger results were to blame.

    Little is 1 / `spare_parts`: a kernel more costs time.

    regroup: makes another grouping of the same ops with some choices; `grouping` was made without any. one_by_one:
    bytes that the ops one by one hold at once.
    """
    schedule = Schedule.of(grouping)
    limit = one_by_one + one_by_one // fusion_rules().spare_parts
    peak = schedule.peak(grouping, enough=limit)
    taken: dict[int, int] = {}
    for _ in range(ROUNDS):
        if peak <= limit:
            break
        tried = taken | {
            grouping.graph.position[op]: APART
            for group in schedule.crowded(grouping, limit)
            for op in _smaller(grouping, group)
        }
        if tried == taken:
            break
        candidate = regroup(tried)
        found = schedule.peak(candidate)
        if found >= peak:
            break
        saved = amount(peak - found, "B")
        for position in tried.keys() - taken.keys():
            reason = f"a kernel of its own: {saved} less are alive at once than with a larger result's kernel"
            candidate.decisions.append((grouping.graph.operations[position], reason))
        grouping, peak, taken = candidate, found, tried
    return grouping


def _smaller(grouping: Grouping, group: Group) -> list[ir.Operation]:
    """Ops of a group whose result is a part of what a concatenation or pad of the group gives."""
    members = set(group.ops)
    bytes_of = grouping.model.bytes_of
    return [
        op
        for op in group.ops
        if op not in group.all_named
        and any(
            read.guarded and read.consumer in members and bytes_of(read.consumer.results[0]) > bytes_of(value)
            for value in op.results
            for read in grouping.graph.readers.get(value, ())
        )
    ]
