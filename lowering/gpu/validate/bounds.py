# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Proofs that a condition holds wherever an op is reached: from facts, and case by case where these do not do."""

from collections.abc import Sequence
from math import inf
from time import monotonic

from kiln.lowering.gpu.validate.facts import Facts
from kiln.lowering.gpu.validate.poly import Atom, Cond, Poly
from kiln.lowering.gpu.validate.substitution import substitute_cond

__all__ = ["holds"]

_DEPTH = 4
"""Choices that one proof is taken apart by."""


def holds(goal: Cond, conditions: Sequence[Cond], deadline: float = inf, depth: int = _DEPTH) -> bool:
    """Whether `goal` is proved to hold where the conditions do, before `deadline` (of `time.monotonic`)."""
    if goal.kind == "and":
        return all(holds(part, conditions, deadline, depth) for part in goal.args)
    if goal.kind == "true":
        return True
    if monotonic() > deadline:
        return False
    facts = Facts(conditions, [goal.args[0]] if goal.kind in ("ge", "eq", "ne") else [])
    if facts.contradict or facts.proves(goal):
        return True
    facts.deepen()
    if facts.proves(goal):
        return True
    if depth == 0:
        return False
    for index, c in enumerate(facts.conditions):
        if c.kind == "or":
            rest = [*facts.conditions[:index], *facts.conditions[index + 1 :]]
            return all(holds(goal, [*rest, part], deadline, depth - 1) for part in c.args)
        if c.kind == "ne":
            rest = [*facts.conditions[:index], *facts.conditions[index + 1 :]]
            sides = (Cond.compare("ge", c.args[0] - 1), Cond.compare("ge", -c.args[0] - 1))
            return all(holds(goal, [*rest, side], deadline, depth - 1) for side in sides)
    choice = _choice(facts, goal)
    if choice is None:
        return False
    atom, first, x, y = choice
    return all(
        holds(_with(goal, atom, value), [*(_with(c, atom, value) for c in conditions), fact], deadline, depth - 1)
        for fact, value in ((first, x), (~first, y))
    )


def _choice(facts: Facts, goal: Cond) -> tuple[Atom, Cond, Poly, Poly] | None:
    """An atom that is one of two values, the condition for the first, and both."""
    atoms = sorted(facts.atoms, key=lambda a: a.kind != "select")
    for atom in atoms:
        if atom.kind == "select":
            return atom, *atom.args
        if atom.kind in ("min", "max"):
            x, y = atom.args
            return atom, Cond.compare("ge", y - x if atom.kind == "min" else x - y), x, y
    return None


def _with(cond: Cond, atom: Atom, value: Poly) -> Cond:
    return substitute_cond(cond, {atom: value}, {})
