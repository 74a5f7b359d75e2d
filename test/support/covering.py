# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Which cases of a large grid of parameters (several `parametrize` on one test) a quick run takes."""

from collections import Counter
from collections.abc import Sequence
from random import Random

import pytest

__all__ = ["left_out"]

_ALL = 8
"""A grid of at most so many cases is run whole."""
_TIMES = 2
"""How often each value of each parameter is met, at least, where a grid is not."""


def left_out(items: Sequence[pytest.Item]) -> set[pytest.Item]:
    """The cases that a quick run leaves out: those that are drawn when all values in them have been met twice.

    The same for the same tests, and none of a test with one list of cases, each of which is there for something of its
    own.
    """
    grids: dict[str, list[tuple[pytest.Item, list[tuple[int, str]]]]] = {}
    for item in items:
        grids.setdefault(item.nodeid.partition("[")[0], []).append((item, _values(item)))
    found: set[pytest.Item] = set()
    for name, grid in grids.items():
        if len(grid) <= _ALL or len(grid[0][1]) < 2:
            continue
        met: Counter[tuple[int, str]] = Counter()
        for item, values in Random(name).sample(grid, len(grid)):
            if all(met[value] >= _TIMES for value in values):
                found.add(item)
            else:
                met.update(values)
    return found


def _values(item: pytest.Item) -> list[tuple[int, str]]:
    """The values of each `parametrize` of a test in one of its cases, by its number."""
    spec = getattr(item, "callspec", None)
    if spec is None:
        return []
    found: list[tuple[int, str]] = []
    for number, mark in enumerate(item.iter_markers("parametrize")):
        names = mark.args[0].replace(" ", "").split(",") if isinstance(mark.args[0], str) else mark.args[0]
        found.append((number, repr([spec.params.get(name) for name in names])))
    return found
