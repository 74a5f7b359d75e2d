# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""What cost models choose among: the same choice with a trace and without."""

from kiln.lowering.considered import cheapest, considered, considering

COSTS = {"a": 2.0, "b": 1.0, "c": 1.0, "d": 0.5}


def choose() -> str:
    return cheapest("letter", "ns", COSTS, lambda x: COSTS[x], lambda x: x != "d")


def test_the_first_of_the_cheapest_that_fit():
    assert choose() == "b"
    with considered() as choices:
        assert choose() == "b"
    assert [choice.candidates for choice in choices] == [(("b", 1.0), ("c", 1.0), ("a", 2.0))]


def test_choices_are_for_the_op_that_they_are_made_for():
    with considering("nobody looks"):
        choose()
    with considered() as choices:
        with considering("loc(1)"):
            choose()
        choose()
    assert [(choice.what, choice.unit, choice.location) for choice in choices] == [
        ("letter", "ns", "loc(1)"),
        ("letter", "ns", ""),
    ]
    choose()
    assert len(choices) == 2


def test_a_tuple_shows_its_first():
    with considered() as choices:
        assert cheapest("n", "ns", (1, 2), lambda x: (3.0, -x)) == 2
    assert choices[0].candidates == (("2", 3.0), ("1", 3.0))


def test_what_fits_is_asked_for_no_more_than_needed():
    asked: list[str] = []
    cheapest("letter", "ns", COSTS, lambda x: COSTS[x], lambda x: bool(asked.append(x)) or x == "b")
    assert asked == ["d", "b"]
