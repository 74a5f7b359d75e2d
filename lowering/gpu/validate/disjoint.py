# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Whether two programs write the same element.

The two offsets are equal, so their difference D is 0. D is taken apart by its coefficients as a number is into digits:
D = g A + R with R between -g and g makes A = 0 and R = 0 (or another pair, or none: nothing is written twice). What
is found equal so adds equations (quotient and remainder are equal, so are the dividends) until the programs' numbers
turn out equal, or a contradiction is found.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from math import ceil, floor, gcd, inf, lcm
from typing import Any

from kiln.lowering.gpu.validate.facts import Facts
from kiln.lowering.gpu.validate.poly import Atom, Cond, Mono, Poly, const
from kiln.lowering.gpu.validate.substitution import substitute, substitute_cond, variables
from kiln.lowering.gpu.validate.values import Access

__all__ = ["Overlap", "overlap"]

_ROUNDS = 40


@dataclass(frozen=True)
class Overlap:
    """What is proved of two accesses: that different programs don't meet; that no two elements written are one."""

    programs_differ: bool
    all_differ: bool
    why: str = ""


def overlap(a: Access, b: Access, guards: Sequence[Cond], programs: Sequence[Atom]) -> Overlap:
    """Whether `a` of one program and `b` of another one can write the same element.

    guards: what holds of the symbols. programs: the numbers of a program, whether or not an access depends on them.
    """
    first = Facts([*a.conditions, *guards], [a.offset])
    if first.contradict:
        return Overlap(True, True)
    hidden = [Poly.of(v) for v in (*programs, *a.lanes, *b.lanes)]
    table = _primed([b.offset, *b.conditions, a.offset, *a.conditions, *hidden])
    memo: dict[Any, Any] = {}
    conditions = [substitute_cond(c, table, memo) for c in b.conditions]
    other = substitute(b.offset, table, memo)
    second = Facts([*conditions, *guards], [other])
    if second.contradict:
        return Overlap(True, True)
    system = _System(first, second)
    for facts in (first, second):
        system.add_given(facts)
    own = variables([a.offset, *a.conditions, *hidden])
    own = sorted(v for v in own if v.kind in ("program", "trip", "lane"))
    system.solve(a.offset - other, table)
    if system.is_contradictory:
        return Overlap(True, True)
    equal = {v for v in own if system.implies(Poly.of(v) - table[v])}
    apart = equal.issuperset(programs)
    is_same = a.number == b.number and a.conditions == b.conditions
    return Overlap(apart, is_same and len(equal) == len(own), "" if apart else system.shown())


def _primed(values: Iterable[Poly | Cond]) -> dict[Atom, Poly]:
    """Other values of all variables but the sizes."""
    found = [v for v in variables(values) if v.kind != "symbol"]
    return {v: Poly.of(Atom(v.kind, (*v.args, "'"), v.bounds)) for v in found}


@dataclass
class _System:
    """Equations (polynomials that are 0) over the atoms of both programs."""

    first: Facts
    second: Facts
    equations: list[Poly] = field(default_factory=list[Poly])
    rows: dict[Mono, dict[Mono, Fraction]] = field(default_factory=dict[Mono, dict[Mono, Fraction]])
    aliases: dict[Atom, Poly] = field(default_factory=dict[Atom, Poly])
    is_contradictory: bool = False

    def add_given(self, facts: Facts) -> None:
        """What the facts say is equal, and atoms with one value only."""
        for c in facts.conditions:
            if c.kind == "eq":
                self._add(c.args[0])
        for atom, (low, high) in facts.bounds.items():
            if low == high:
                self._add(Poly.of(atom) - int(low))
        for atom in facts.atoms:
            if atom.kind == "rem":
                x, y = atom.args
                self._add(x - y * (x // y) - Poly.of(atom))

    def solve(self, difference: Poly, table: dict[Atom, Poly]) -> None:
        pending = [difference]
        seen: set[Poly] = set()
        memo: dict[Any, Any] = {}
        for _ in range(_ROUNDS):
            while pending and not self.is_contradictory:
                equation = self._divided(pending.pop())
                if self.is_contradictory:
                    return
                if equation in seen:
                    continue
                seen.add(equation)
                self._add(equation)
                pending += self._taken_apart(equation)
            if self.is_contradictory:
                return
            for atom in [*self.first.atoms]:
                if atom.kind != "div":
                    continue
                x, y = atom.args
                whole = x - substitute(x, table, memo)
                if whole in seen:
                    continue
                rest = x % y
                quotient = Poly.of(atom)
                if self._same(quotient, table, memo) and self._same(rest, table, memo):
                    pending.append(whole)
            if not pending:
                self._compare_facts()
                return

    def _compare_facts(self) -> None:
        """Whether a fact of one program excludes one of the other, atoms that are equal in both being one."""
        if not self.aliases:
            return
        for fact in self.second.given:
            theirs = _renamed(fact, self.aliases)
            if theirs != fact and any((theirs + mine).interval[1] < 0 for mine in self.first.given):
                self.is_contradictory = True

    def _divided(self, equation: Poly) -> Poly:
        """By what divides all coefficients; no integers solve it if the constant isn't divided."""
        common = gcd(*(c for m, c in equation.terms.items() if m))
        if common > 1 and equation.constant % common:
            self.is_contradictory = True
        if common <= 1:
            return equation
        return Poly({m: c // common for m, c in equation.terms.items()})

    def implies(self, equation: Poly) -> bool:
        """Whether an equation is a combination of those found."""
        return not self._reduced(equation)

    def shown(self) -> str:
        return "; ".join(f"{e} == 0" for e in self.equations[-4:])

    def _same(self, poly: Poly, table: dict[Atom, Poly], memo: dict[Any, Any]) -> bool:
        return self.implies(poly - substitute(poly, table, memo))

    def _add(self, equation: Poly) -> None:
        reduced = self._reduced(equation)
        if not reduced:
            return
        self.equations.append(equation)
        pivot = next((m for m in sorted(reduced, key=len, reverse=True) if m), None)
        if pivot is None or self._is_impossible(reduced):
            self.is_contradictory = True
            return
        if self._is_alias(reduced):
            return
        scale = reduced[pivot]
        row = {m: c / scale for m, c in reduced.items()}
        for other, values in self.rows.items():
            c = values.get(pivot)
            if c:
                self.rows[other] = _combined(values, row, -c)
        self.rows[pivot] = row

    def _is_impossible(self, equation: dict[Mono, Fraction]) -> bool:
        """Whether the bounds of the atoms leave no solution."""
        scale = lcm(*(c.denominator for c in equation.values()))
        mine, theirs = _sides(Poly({m: int(c * scale) for m, c in equation.items()}))
        low, high = (x + y for x, y in zip(self.first.interval(mine), self.second.interval(theirs), strict=True))
        return low > 0 or high < 0

    def _is_alias(self, equation: dict[Mono, Fraction]) -> bool:
        """Takes in an equation of an atom of the second program with its own of the first: it is put in its place, in
        products as well.
        """
        if len(equation) != 2 or sum(equation.values()) or any(len(m) != 1 for m in equation):
            return False
        pair = sorted((m[0] for m in equation), key=lambda a: a in self.second.atoms and a not in self.first.atoms)
        if pair[0] not in self.first.atoms or pair[1] not in self.second.atoms:
            return False
        self.aliases[pair[1]] = Poly.of(pair[0])
        equations, self.equations, self.rows = self.equations, [], {}
        for other in equations:
            self._add(other)
        return True

    def _reduced(self, equation: Poly) -> dict[Mono, Fraction]:
        if self.aliases:
            equation = _renamed(equation, self.aliases)
        found = {m: Fraction(c) for m, c in equation.terms.items()}
        for mono in list(found):
            c = found.get(mono)
            if c and mono in self.rows:
                found = _combined(found, self.rows[mono], -c)
        return found

    # -- digits ---------------------------------------------------------------------------------------------

    def _taken_apart(self, equation: Poly) -> list[Poly]:
        """Equations that follow from one by splitting it at a coefficient; the first split that works."""
        for unit in _units(equation):
            whole, rest = _split(equation, unit)
            if not rest.terms or whole.known is not None:
                continue
            found = self._carry(unit, rest)
            if found is None:
                continue
            if found == "none":
                self.is_contradictory = True
                return []
            carry = int(found)
            return [whole + carry, rest - unit * carry]
        return []

    def _carry(self, unit: Poly, rest: Poly) -> int | str | None:
        """The only multiple of `unit` that `rest` can be, "none" if it can be none, None if there may be several."""
        mine, theirs = _sides(rest)
        size = unit.known
        if size is not None:
            low = self.first.lower(mine) + self.second.lower(theirs)
            high = self.first.upper(mine) + self.second.upper(theirs)
            if inf in (abs(low), abs(high)):
                return None
            least, most = ceil(Fraction(int(low), size)), floor(Fraction(int(high), size))
            return "none" if least > most else least if least == most else None
        # Both parts in [0, unit).
        theirs = -theirs
        shift = mine.constant
        if shift:
            return None
        fits = (
            self.first.lower(mine, 0) >= 0
            and self.first.lower(unit - 1 - mine, 0) >= 0
            and self.second.lower(theirs, 0) >= 0
            and self.second.lower(unit - 1 - theirs, 0) >= 0
        )
        return 0 if fits else None


def _units(equation: Poly) -> list[Poly]:
    """Coefficients at which an equation may be split, the largest first: numbers, then products of sizes."""
    numbers = sorted({abs(c) for m, c in equation.terms.items() if m and abs(c) > 1}, reverse=True)
    products: dict[Mono, None] = {}
    for mono in equation.terms:
        sizes = tuple(a for a in mono if not _is_own(a))
        if sizes and len(sizes) < len(mono):
            products[sizes] = None
    symbolic: list[Poly] = []
    for sizes in sorted(products, key=len, reverse=True):
        scales = {abs(c) for m, c in equation.terms.items() if tuple(a for a in m if not _is_own(a)) == sizes}
        symbolic += [Poly({sizes: c}) for c in sorted(scales, reverse=True)]
    return [*symbolic, *(const(n) for n in numbers)]


def _is_own(atom: Atom) -> bool:
    """Whether it differs between the programs."""
    return any(v.kind != "symbol" for v in variables([Poly.of(atom)]))


def _split(equation: Poly, unit: Poly) -> tuple[Poly, Poly]:
    """(A, R) with equation = unit * A + R; R has all terms that `unit` does not divide."""
    ((factor, size),) = unit.terms.items()
    whole: dict[Mono, int] = {}
    rest: dict[Mono, int] = {}
    for mono, c in equation.terms.items():
        left = list(mono)
        fits = c % size == 0 and bool(mono)
        for atom in factor:
            if atom in left:
                left.remove(atom)
            else:
                fits = False
        if fits:
            whole[tuple(left)] = c // size
        else:
            rest[mono] = c
    return Poly(whole), Poly(rest)


def _sides(poly: Poly) -> tuple[Poly, Poly]:
    """The terms of the first program (and the constant), and those of the second."""
    mine: dict[Mono, int] = {}
    theirs: dict[Mono, int] = {}
    for mono, c in poly.terms.items():
        is_second = any("'" in v.args for v in variables([Poly({mono: 1})]))
        (theirs if is_second else mine)[mono] = c
    return Poly(mine), Poly(theirs)


def _renamed(poly: Poly, aliases: dict[Atom, Poly]) -> Poly:
    """With atoms replaced, those inside of others left as they are."""
    if not any(a in aliases for a in poly.atoms()):
        return poly
    found = const(0)
    for mono, c in poly.terms.items():
        term = const(c)
        for atom in mono:
            term = term * aliases.get(atom, Poly.of(atom))
        found = found + term
    return found


def _combined(values: dict[Mono, Fraction], row: dict[Mono, Fraction], factor: Fraction) -> dict[Mono, Fraction]:
    found = dict(values)
    for mono, c in row.items():
        total = found.get(mono, Fraction(0)) + factor * c
        if total:
            found[mono] = total
        else:
            found.pop(mono, None)
    return found
