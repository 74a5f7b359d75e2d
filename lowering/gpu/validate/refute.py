# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Counterexamples: a program, a trip and a lane at which an access is wrong, found by computing some of them."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, cast

import numpy as np

from kiln.lowering.gpu.validate.concrete import Array, Numbers
from kiln.lowering.gpu.validate.poly import Atom, Cond, Poly
from kiln.lowering.gpu.validate.substitution import variables
from kiln.lowering.gpu.validate.values import Access

__all__ = ["Example", "collision", "outside"]

_POINTS = 1 << 21
"""That are computed at once."""
_KEPT = 4096
"""Points of one access that are looked for among those of another."""
_BATCHES = 12
_SIZES = (1, 2, 3, 5, 8, 17, 64, 100, 129, 1000)
"""That symbols take."""


@dataclass(frozen=True)
class Example:
    """Values of all variables at which something is wrong."""

    values: Mapping[Atom, int]

    def value(self, poly: Poly) -> int:
        """The value of a polynomial at this point."""
        return int(Numbers(dict(self.values)).poly(poly))

    def shown(self) -> str:
        """`program 3, lane [0, 5], trip 2`."""
        order = {"symbol": "size", "program": "program", "trip": "trip", "lane": "lane", "loaded": "loaded integer"}
        found: list[str] = []
        for kind, name in order.items():
            items = sorted((a.args[0], v) for a, v in self.values.items() if a.kind == kind)
            if kind in ("program", "trip") and len(items) == 1:
                found.append(f"{name} {items[0][1]}")
            elif items and kind == "lane":
                found.append(f"lane [{', '.join(f'axis {a}: {v}' for a, v in items)}]")
            elif items:
                found += [f"{name} {a}: {v}" for a, v in items]
        return ", ".join(found)

    def shown_range(self, ends: tuple[Poly, Poly]) -> str:
        """A range with the values of its ends at this point, for a message."""
        return f"[{self.value(ends[0])}, {self.value(ends[1])}]"


def outside(access: Access, goals: Sequence[Cond], guards: Sequence[Cond]) -> Example | None:
    """A point at which the access is made and one of the goals does not hold."""
    conditions = [*access.conditions, *guards]
    for numbers, axes in _samples([access.offset, *conditions, *goals], access.lanes):
        try:
            reached = _all(numbers, conditions)
            wrong = ~_all(numbers, goals)
        except (KeyError, OverflowError):  # something that isn't known; beyond 64 bits
            return None
        found = np.nonzero(np.atleast_1d(reached & wrong))
        if len(found[0]):
            return _at(numbers, axes, [int(f[0]) for f in found], np.broadcast(reached, wrong).shape)
    return None


def collision(a: Access, b: Access, guards: Sequence[Cond], programs: Sequence[Atom]) -> str | None:
    """Two programs that touch one element, as text."""
    accesses = (a,) if a is b else (a, b)
    samples = [_samples([x.offset, *x.conditions, *guards, *map(Poly.of, programs)], x.lanes) for x in accesses]
    for batches in zip(*samples, strict=False):
        known: dict[int, tuple[int, Example]] = {}
        for access, (numbers, axes) in zip(accesses, batches, strict=True):
            if not any(x.kind == "program" for x in axes) or any(x.kind == "symbol" for x in numbers.table):
                return None
            try:
                reached = _all(numbers, [*access.conditions, *guards])
            except (KeyError, OverflowError):
                return None
            hit = _first_collision(known, access, numbers, axes, reached)
            if hit is not None:
                return hit
    return None


def _first_collision(
    known: dict[int, tuple[int, Example]], access: Access, numbers: Numbers, axes: Sequence[Atom], reached: Array
) -> str | None:
    """One among the points of an access, or with those in `known` (offset: program, point), to which some are added."""
    program = next(x for x in axes if x.kind == "program")
    reached, offset, number = np.broadcast_arrays(reached, numbers.poly(access.offset), numbers.table[program])
    keep = np.nonzero(reached.ravel())[0]
    places, owners = offset.ravel()[keep], number.ravel()[keep]
    order = np.lexsort((owners, places))
    same = np.nonzero((np.diff(places[order]) == 0) & (np.diff(owners[order]) != 0))[0]

    def example(position: int) -> Example:
        index: tuple[Any, ...] = cast(Any, np).unravel_index(keep[position], reached.shape)
        return _at(numbers, axes, [int(i) for i in index], reached.shape)

    if len(same):
        first, second = (example(int(order[same[0] + i])) for i in (0, 1))
        return f"{first.shown()} and {second.shown()} both touch offset {first.value(access.offset)}"
    for position in np.nonzero(np.isin(places, np.array(list(known), dtype=np.int64)))[0][:64]:
        owner, other = known[int(places[position])]
        if owner != owners[position]:
            mine = example(int(position))
            return f"{other.shown()} and {mine.shown()} both touch offset {int(places[position])}"
    for position in range(0, len(places), max(1, len(places) // _KEPT)):
        known.setdefault(int(places[position]), (int(owners[position]), example(position)))
    return None


def _all(numbers: Numbers, conditions: Sequence[Cond]) -> Array:
    found: Array = np.bool_(True)
    for c in conditions:
        found = found & numbers.cond(c)
    return found


def _at(numbers: Numbers, axes: Sequence[Atom], index: Sequence[int], shape: Sequence[int]) -> Example:
    values: dict[Atom, int] = {}
    index = [*[0] * (len(axes) - len(index)), *index] if len(index) < len(axes) else index
    for k, atom in enumerate(axes):
        array = np.asarray(numbers.table[atom])
        values[atom] = int(array.ravel()[index[k]] if array.size > 1 else array.ravel()[0])
    for atom, value in numbers.table.items():
        if atom.kind == "symbol":
            values[atom] = int(value)
    return Example(values)


def _samples(values: Sequence[Poly | Cond], lanes: Sequence[Atom]) -> Iterator[tuple[Numbers, list[Atom]]]:
    """Points to look at, as arrays along one axis per variable: all lanes, some programs and trips, sizes in turn.

    None where something isn't known: it may never have the value that would be wrong.
    """
    free = {*variables(values), *lanes}
    if any(a.kind == "opaque" for a in free):
        return
    symbols = sorted(a for a in free if a.kind == "symbol")
    outer = sorted(a for a in free if a.kind not in ("symbol", "lane"))
    inner = sorted(a for a in free if a.kind == "lane")
    axes = [*outer, *inner]
    if any(a.bounds[0] > a.bounds[1] for a in outer):
        return  # a loop without trips
    rng = np.random.default_rng(0)
    for sizes in _choices(symbols):
        for all_lanes in (True, False):
            points: dict[Atom, Any] = {a: np.arange(a.args[1]) if all_lanes else _points(a, 5, rng) for a in inner}
            room = max(4, _POINTS // max(1, prod(len(x) for x in points.values())))
            each = max(4, int(room ** (1 / max(1, len(outer)))))
            # Few trips leave more room for programs.
            for k, atom in enumerate(sorted(outer, key=lambda a: a.bounds[1] - a.bounds[0])):
                points[atom] = _points(atom, each, rng)
                room = max(1, room // len(points[atom]))
                each = max(4, int(room ** (1 / max(1, len(outer) - k - 1))))
            table: dict[Atom, Any] = dict(zip(symbols, sizes, strict=True))
            for k, atom in enumerate(axes):
                shape = [-1 if i == k else 1 for i in range(len(axes))]
                table[atom] = points[atom].astype(np.int64).reshape(shape)
            yield Numbers(table), axes


def _choices(symbols: Sequence[Atom]) -> Iterator[tuple[int, ...]]:
    if not symbols:
        return iter([()])
    if len(symbols) == 1:
        return ((size,) for size in _SIZES)
    return (tuple(_SIZES[(i * (k + 1) + k) % len(_SIZES)] for k in range(len(symbols))) for i in range(_BATCHES))


def _points(atom: Atom, count: int, rng: np.random.Generator) -> Any:
    low, high = max(atom.bounds[0], -(1 << 40)), atom.bounds[1]
    if high - low > 1 << 40:
        high = low + (1 << 40) + 4096
    if high - low < count:
        return np.arange(int(low), int(high) + 1)
    ends = [low, low + 1, (low + high) // 2, high - 1, high]
    return np.unique(np.concatenate([np.array(ends), rng.integers(int(low), int(high) + 1, max(0, count - 5))]))
