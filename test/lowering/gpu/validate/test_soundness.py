# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""What the validator's proofs say, against all points of small ranges."""

import random

import numpy as np
import pytest

from kiln.lowering.gpu.validate.bounds import holds
from kiln.lowering.gpu.validate.concrete import Numbers
from kiln.lowering.gpu.validate.disjoint import overlap
from kiln.lowering.gpu.validate.facts import Facts
from kiln.lowering.gpu.validate.poly import Atom, Cond, Poly, choose, const
from kiln.lowering.gpu.validate.values import Access, lane

PROGRAM = Atom("program", (0,), (0, 6))
TRIP = Atom("trip", (0,), (0, 2))
LANES = (lane(0, 4), lane(1, 8))
VARIABLES = [PROGRAM, TRIP, *LANES]


def _points() -> Numbers:
    """All values of all variables, one axis each."""
    table = {}
    for k, atom in enumerate(VARIABLES):
        shape = [-1 if i == k else 1 for i in range(len(VARIABLES))]
        table[atom] = np.arange(atom.bounds[1] + 1, dtype=np.int64).reshape(shape)
    return Numbers(table)


def _linear(rng: random.Random) -> Poly:
    total = const(rng.randint(-4, 12))
    for atom in VARIABLES:
        total = total + Poly.of(atom) * rng.choice([0, 0, 1, 2, 3, 4, 8, 12, 32])
    return total


def _index(rng: random.Random) -> Poly:
    """A sum of what kernels compute: quotients, remainders, minima, choices."""
    x, y = _linear(rng) + 4, _linear(rng) + 4
    c = const(rng.choice([2, 3, 7, 8, 12]))
    kinds = [x // c, x % c, x.least(y), x.largest(y), (x // c) % const(3), choose(Cond.compare("ge", x - y), x, y), x]
    return rng.choice(kinds) * rng.choice([-3, 1, 1, 5, 12]) + rng.choice(kinds) * rng.choice([0, 1, 4]) + _linear(rng)


def _conditions(rng: random.Random) -> list[Cond]:
    found: list[Cond] = []
    for _ in range(rng.randint(0, 3)):
        limit = const(rng.randint(1, 30)) - rng.choice([_linear, _index])(rng)
        found.append(Cond.compare(rng.choice(["ge", "ge", "ge", "eq", "ne"]), limit))
    return found


def _reached(points: Numbers, conditions: list[Cond]) -> np.ndarray:
    mask = np.ones([int(a.bounds[1]) + 1 for a in VARIABLES], dtype=bool)
    for c in conditions:
        mask = mask & points.cond(c)
    return mask


@pytest.mark.parametrize("seed", range(100))
def test_bounds_hold_at_every_point(seed: int) -> None:
    rng = random.Random(seed)
    points, conditions, poly = _points(), _conditions(rng), _index(rng)
    mask = _reached(points, conditions)
    facts = Facts(conditions, [poly])
    facts.deepen()
    if facts.contradict:
        assert not mask.any()
    if mask.any():
        least = int(np.broadcast_to(points.poly(poly), mask.shape)[mask].min())
        assert facts.lower(poly) <= least
        assert not holds(Cond("ge", (poly - least - 1,)), conditions)


@pytest.mark.parametrize("seed", range(100))
def test_what_is_proved_apart_never_meets(seed: int) -> None:
    rng = random.Random(1000 + seed)
    points = _points()
    accesses = []
    for number in range(2):
        digits = [Poly.of(a) for a in VARIABLES]
        rng.shuffle(digits)
        offset, unit = const(0), 1
        for digit, size in zip(digits, (8, 8, 8, 8), strict=True):
            offset = offset + digit * unit
            unit *= rng.choice([size, size, size // 2])
        offset = rng.choice([offset, offset, _index(rng)])
        accesses.append(Access("store", number, 0, offset, (), tuple(_conditions(rng)), (4, 8), "", ""))
    for a, b in ((accesses[0], accesses[0]), (accesses[0], accesses[1])):
        found = overlap(a, b, [], [PROGRAM])
        owners: dict[int, set[int]] = {}
        written = 0
        for access in {a.number: a, b.number: b}.values():
            mask = _reached(points, list(access.conditions))
            places = np.broadcast_to(points.poly(access.offset), mask.shape)[mask]
            programs = np.broadcast_to(points.table[PROGRAM], mask.shape)[mask]
            mine: dict[int, set[int]] = {}
            for place, program in zip(places.tolist(), programs.tolist(), strict=True):
                mine.setdefault(place, set()).add(program)
            if found.programs_differ and a is b:
                assert all(len(p) == 1 for p in mine.values())
            if found.programs_differ and a is not b:
                assert all(len(p | owners[k]) == 1 for k, p in mine.items() if k in owners)
            if found.all_differ and a is not b:
                assert not owners.keys() & mine.keys()
            owners |= mine
            written += len(places)
        if found.all_differ and a is b:
            assert written == len(owners)


def test_the_proofs_reach_something() -> None:
    apart = 0
    for seed in range(100):
        rng = random.Random(seed)
        offset = const(0)
        for digit, unit in zip(rng.sample(VARIABLES, 4), (1, 8, 64, 512), strict=True):
            offset = offset + Poly.of(digit) * unit
        access = Access("store", 0, 0, offset, (), (), (4, 8), "", "")
        apart += overlap(access, access, [], [PROGRAM]).all_differ
    assert apart == 100


def test_what_is_true_needs_no_time() -> None:
    """Accesses that are inside whatever the numbers are were unknown where others had used up a kernel's time."""
    assert holds(Cond.of(True), [], deadline=-1.0) and not holds(Cond.of(False), [], deadline=-1.0)
