# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""A search over what the greedy walk decides once and for all: which of several readers a value is computed in."""

from collections.abc import Callable, Mapping

from kiln.passes.fusion.cost import Cost
from kiln.passes.fusion.groups import Grouping

__all__ = ["APART", "search", "total"]

APART = -1
"""Choice for an op: no consumer's kernel. Other choices count the consumers, of which the chosen is tried first."""


def total(grouping: Grouping) -> Cost:
    """Of all kernels."""
    return sum((grouping.model.cost(group) for group in grouping.groups()), Cost())


def seconds(grouping: Grouping) -> float:
    """Estimated time of all kernels."""
    return sum(grouping.model.cost(group).seconds(grouping.model.machine) for group in grouping.groups())


def search(group: Callable[[Mapping[int, int]], Grouping], limit: int) -> tuple[Grouping, int]:
    """The best grouping that a hill climb finds from the greedy one, and how many groupings it looked at.

    group: makes a grouping; it maps positions of ops to choices, the greedy walk's own where there is none. Each op
    with a choice is changed in turn, and a change is kept if the estimated time of the whole function is less; until
    none helps or `limit` groupings were made.
    """
    choices: dict[int, int] = {}
    best = group(choices)
    time, made, improved = seconds(best), 1, True
    while improved:
        improved = False
        for position, consumers in list(best.alternatives.items()):
            for choice in range(APART, consumers):
                if choice == choices.get(position, 0):
                    continue
                if made >= limit:
                    return best, made
                candidate = group({**choices, position: choice})
                made += 1
                found = seconds(candidate)
                if found < time * (1 - 1e-6):
                    best, time, improved = candidate, found, True
                    choices[position] = choice
    return best, made
