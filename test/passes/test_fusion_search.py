# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""The search over fusion choices: what it keeps, when it ends; and the cost model's arithmetic."""

from dataclasses import dataclass, field

import pytest

from kiln.passes.fusion.cost import Cost, Machine, amount
from kiln.passes.fusion.search import APART, search

MACHINE = Machine(launch=1.0, cache_bytes=100, cache_rate=10.0, memory_rate=1.0, vector_rate=10.0, product_rate=20.0)


@dataclass
class Model:
    costs: dict[str, Cost]
    machine: Machine = MACHINE

    def cost(self, group: str) -> Cost:
        return self.costs[group]


@dataclass
class Candidate:
    """A grouping of one kernel that takes `price` operations."""

    price: int
    alternatives: dict[int, int]
    model: Model = field(init=False)

    def __post_init__(self) -> None:
        self.model = Model({"kernel": Cost(operations=self.price, kernels=1)})

    def groups(self) -> list[str]:
        return ["kernel"]


def test_keeps_what_is_cheaper_and_nothing_else():
    """Op 3 is better apart, op 5 with its second consumer; op 7 is best as it is."""
    prices = {(3, APART): -40, (3, 1): 10, (5, APART): 5, (5, 1): -20, (7, APART): 30}

    def group(choices):
        return Candidate(100 + sum(prices[c] for c in choices.items() if c[1]), {3: 2, 5: 2, 7: 1})

    best, made = search(group, limit=100)
    assert best.price == 40
    assert made > 5


def test_a_choice_may_open_another():
    def group(choices):
        together = choices.get(1) == APART and choices.get(2) == 1
        return Candidate(50 if together else 90 if choices.get(1) == APART else 100, {1: 1, 2: 2})

    assert search(group, limit=100)[0].price == 50


def test_ends_at_the_limit():
    made = []

    def group(choices):
        made.append(choices)
        return Candidate(1000 - len(made), dict.fromkeys(range(50), 2))

    assert search(group, limit=17)[1] == 17
    assert len(made) == 17


@pytest.mark.parametrize(
    ("cost", "expected"),
    [
        (Cost(read=40, written=40, operations=10, kernels=1), 1 + 8),  # moving in the cache takes longer
        (Cost(read=40, written=40, operations=100, kernels=1), 1 + 10),  # computing does
        (Cost(read=100, written=40, operations=100, products=200, kernels=1), 1 + 140),  # memory
        (Cost(read=100, written=40, kernels=2), 2 + 14),  # two kernels of 70 bytes each
    ],
)
def test_roofline(cost, expected):
    assert cost.seconds(MACHINE) == pytest.approx(expected)


def test_amounts():
    assert amount(2_100_000, "B") == "2.1 MB"
    assert amount(64, "B") == "64 B"
    assert amount(-4000, "op") == "-4 kop"
