# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""What is known of a kernel's integers at a place, and what follows: lower bounds of polynomials.

A fact is a polynomial that is not negative: from a mask, a branch, the bounds of a loop, or from what an atom is (a
quotient q of x by c: x - c q and c q + c - 1 - x). The bound of a polynomial is searched for: add facts, times a
number or a monomial that is not negative, such that its largest negative term goes away. That proves linear bounds,
also with symbolic sizes as factors; it is sound, and not complete.
"""

from collections.abc import Iterable, Sequence
from itertools import combinations
from math import ceil, inf

from kiln.lowering.gpu.validate.poly import Atom, Cond, Interval, Mono, Poly, const, floor
from kiln.lowering.gpu.validate.substitution import substitute

__all__ = ["Facts"]

_ROUNDS = 6
"""Of tightening the bounds of atoms."""
_DEPTH = 7
"""Facts that one bound adds up."""
_STEPS = 600
"""Sums that are looked at for one bound."""
_BRANCHES = 3
"""Sums that are followed further, of those of one step."""


class Facts:
    """Conditions that hold together."""

    def __init__(self, conditions: Iterable[Cond], of: Iterable[Poly] = ()):
        """of: polynomials whose atoms' own facts are needed as well."""
        self.conditions = _conjuncts(conditions)
        self.is_false = any(c.kind == "false" for c in self.conditions)
        self.given: list[Poly] = []
        for c in self.conditions:
            if c.kind in ("ge", "eq"):
                self.given.append(c.args[0])
            if c.kind == "eq":
                self.given.append(-c.args[0])
        self.atoms: dict[Atom, None] = {}
        self.bounds: dict[Atom, Interval] = {}
        self._own: dict[Poly, None] = {}
        self._by_mono: dict[Mono, list[Poly]] = {}
        self._memo: dict[tuple[Poly, int], float] = {}
        for poly in self.given:
            self._enter(poly)
        self.learn([*of, *(c.args[0] for c in self.conditions if c.kind == "ne")])
        if self._learn_ends():
            self._tighten()
            self._index()

    def _learn_ends(self) -> bool:
        """Facts of what is not 0, but would be so at one end of its range: `turn != 1` of 0 and 1."""
        before = len(self.given)
        for c in self.conditions:
            low, high = self.interval(c.args[0]) if c.kind == "ne" else (-1, 1)
            if low == 0:
                self.given.append(c.args[0] - 1)
            if high == 0:
                self.given.append(-c.args[0] - 1)
        return len(self.given) > before

    def _quotients(self) -> None:
        """Upper bounds of quotients of what a given fact bounds: x <= u makes x floordiv c <= u floordiv c."""
        for atom in list(self.atoms):
            if atom.kind != "div":
                continue
            x, y = atom.args
            for form in _forms(x):
                for fact in list(self.given):
                    bound = _bounded_by(form, fact)
                    found = None if bound is None else _quotient(bound, y)
                    if found is not None:
                        self._derive(found - Poly.of(atom))
                    elif bound is not None and y.known is None:
                        self._derive(_without_factor(bound - y * Poly.of(atom)))

    def _derive(self, fact: Poly) -> None:
        if fact not in self._own:
            self._own[fact] = None
            self._enter(fact)

    def learn(self, polys: Iterable[Poly]) -> None:
        """Take in the atoms of more polynomials."""
        before = len(self.atoms)
        for poly in polys:
            self._enter(poly)
        if len(self.atoms) > before or not self._by_mono:
            self._quotients()
            self._tighten()
            self._index()
            self._memo = {}

    def lower(self, poly: Poly, goal: float = inf) -> float:
        """A lower bound; the search ends where it reaches `goal`."""
        self.learn([poly])
        budget = [_STEPS]
        return self._search(poly, goal, _DEPTH, budget)

    def deepen(self) -> None:
        """Tighten the bounds of quotients, remainders and minima by searching for those of their arguments."""
        for _ in range(2):
            before = dict(self.bounds)
            for atom in list(self.atoms):
                if atom.kind in ("div", "rem", "min", "max"):
                    sides = [self._searched(x) for x in atom.args]
                    self._meet(atom, self._of_sides(atom, sides[0], sides[1]))
            if self.bounds == before:
                return
            self._tighten()
            self._index()
            self._memo = {}

    def _searched(self, poly: Poly) -> Interval:
        if poly.known is not None:
            return poly.known, poly.known
        return self._search(poly, inf, 3, [60]), -self._search(-poly, inf, 3, [60])

    def upper(self, poly: Poly) -> float:
        """An upper bound."""
        return -self.lower(-poly)

    def proves(self, cond: Cond) -> bool:
        """Whether the condition follows."""
        if self.is_false or cond.kind == "true":
            return True
        if cond.kind == "and":
            return all(self.proves(c) for c in cond.args)
        if cond.kind == "or":
            return any(self.proves(c) for c in cond.args)
        if cond.kind == "ge":
            return self.lower(cond.args[0], 0) >= 0
        if cond.kind == "eq":
            return self.lower(cond.args[0], 0) >= 0 and self.lower(-cond.args[0], 0) >= 0
        if cond.kind == "ne":
            return self.lower(cond.args[0], 1) >= 1 or self.lower(-cond.args[0], 1) >= 1
        return cond in self.conditions

    @property
    def contradict(self) -> bool:
        """Whether the facts are seen to exclude each other: the place is never reached."""
        if self.is_false or any(low > high for low, high in self.bounds.values()):
            return True
        return any(self.upper(p) < 0 for p in self.given) or any((~c) in self.conditions for c in self.conditions)

    def interval(self, poly: Poly) -> Interval:
        """Bounds from those of the atoms, as the facts tighten them."""
        low: float = 0
        high: float = 0
        for mono, c in poly.terms.items():
            a, b = self._mono(mono)
            low += c * a if c > 0 else c * b
            high += c * b if c > 0 else c * a
        return low, high

    def fixed(self, poly: Poly) -> Poly:
        """With the atoms that can have one value only replaced by it."""
        self.learn([poly])
        table = {a: const(int(low)) for a, (low, high) in self.bounds.items() if low == high}
        return substitute(poly, table, {}) if table else poly

    # -- the atoms ------------------------------------------------------------------------------------------

    def _enter(self, poly: Poly) -> None:
        for atom in sorted(poly.atoms()):
            if atom in self.atoms:
                continue
            self.atoms[atom] = None
            self.bounds[atom] = atom.bounds
            for inner in atom.args:
                if isinstance(inner, Poly):
                    self._enter(inner)
            for fact in _own_facts(atom):
                self._own[fact] = None
                self._enter(fact)

    def _tighten(self) -> None:
        for _ in range(_ROUNDS):
            before = dict(self.bounds)
            for fact in (*self.given, *self._own):
                self._narrow(fact)
            for atom in self.atoms:
                self._meet(atom, self._from_arguments(atom))
            if self.bounds == before or any(low > high for low, high in self.bounds.values()):
                break

    def _narrow(self, fact: Poly) -> None:
        """Bounds of each atom that stands alone in a term, from the others'."""
        _, high = self.interval(fact)
        for mono, c in fact.terms.items():
            if len(mono) != 1:
                continue
            (atom,) = mono
            low_a, high_a = self.bounds[atom]
            own = c * (high_a if c > 0 else low_a)
            rest = high - own if own not in (inf, -inf) else self.interval(fact - Poly({mono: c}))[1]
            if rest == inf or rest != rest:
                continue
            if c > 0:
                self._meet(atom, (-(rest // c), inf))
            else:
                self._meet(atom, (-inf, rest // -c))

    def _meet(self, atom: Atom, found: Interval) -> None:
        low, high = self.bounds[atom]
        self.bounds[atom] = max(low, found[0]), min(high, found[1])

    def _from_arguments(self, atom: Atom) -> Interval:
        if atom.kind not in ("div", "rem", "min", "max", "select"):
            return -inf, inf
        x, y = atom.args[-2:]
        return self._of_sides(atom, self.interval(x), self.interval(y))

    def _of_sides(self, atom: Atom, x: Interval, y: Interval) -> Interval:
        """Bounds of an atom of these arguments."""
        (a, b), (c, d) = x, y
        if atom.kind == "min":
            return min(a, c), min(b, d)
        if atom.kind == "max":
            return max(a, c), max(b, d)
        if atom.kind == "select":
            return min(a, c), max(b, d)
        if atom.kind == "rem":
            return (a, b) if a >= 0 and b < c else (0, min(b, d - 1) if a >= 0 else d - 1)
        if c == d:
            return floor(a, int(c)), floor(b, int(c))
        return (0 if a >= 0 else -inf), (floor(b, int(c)) if 1 <= c < inf and b >= 0 else inf)

    def _mono(self, mono: Mono) -> Interval:
        low: float = 1
        high: float = 1
        for atom in mono:
            a, b = self.bounds.get(atom, atom.bounds)
            corners = [0 if 0 in (x, y) else x * y for x in (low, high) for y in (a, b)]
            low, high = min(corners), max(corners)
        return low, high

    # -- the search -----------------------------------------------------------------------------------------

    def _index(self) -> None:
        self._by_mono = {}
        for fact in (*self.given, *self._own):
            for mono, c in fact.terms.items():
                if c < 0 and mono:
                    self._by_mono.setdefault(mono, []).append(fact)
        for atom, (_, high) in self.bounds.items():
            # As factors of other atoms: a product's bounds are those of its atoms at once otherwise.
            if high != inf:
                self._by_mono.setdefault((atom,), []).append(const(int(high)) - Poly.of(atom))

    def _search(self, poly: Poly, goal: float, depth: int, budget: list[int]) -> float:
        best = self.interval(poly)[0]
        if best >= goal or depth == 0:
            return best
        known = self._memo.get((poly, depth))
        if known is not None:
            return known
        for scale, rest in self._candidates(poly, budget):
            wanted = goal * scale - (scale - 1) if goal != inf else inf
            found = self._search(rest, wanted, depth - 1, budget)
            found = found if found in (inf, -inf) else ceil(found / scale) if scale > 1 else found
            best = max(best, found)
            if best >= goal:
                return best
            if budget[0] <= 0:
                return best
        self._memo[poly, depth] = best
        return best

    def _candidates(self, poly: Poly, budget: list[int]) -> list[tuple[int, Poly]]:
        """(k, k poly - a fact) with a negative term of the polynomial gone, those with the best bounds first."""
        found: list[tuple[float, int, int, Poly]] = []
        for mono, c in poly.terms.items():
            if not mono or c > 0 or c * self._mono(mono)[1] >= 0:
                continue
            for other, factor in self._cancelling(mono):
                budget[0] -= 1
                s = -other.terms[_without(mono, factor)]
                scale = s // _gcd(-c, s)
                rest = poly * scale - other * Poly({factor: -c * scale // s})
                if len(rest.terms) <= len(poly.terms) + 6:
                    found.append((-self.interval(rest)[0] / scale, len(found), scale, rest))
        for fact in self.given:
            if fact.constant >= 0 or poly.constant >= 0:
                continue
            budget[0] -= 1
            shared = [(poly.terms[m], c) for m, c in fact.terms.items() if m and c > 0 and poly.terms.get(m, 0) > 0]
            for p, s in dict.fromkeys(shared):
                scale = s // _gcd(p, s)
                rest = poly * scale - fact * (p * scale // s)
                found.append((-self.interval(rest)[0] / scale, len(found), scale, rest))
        return [(scale, rest) for _, _, scale, rest in sorted(found)[:_BRANCHES]]

    def _cancelling(self, mono: Mono) -> list[tuple[Poly, Mono]]:
        """Facts that have a part of a monomial as a negative term, with the other part, which is not negative."""
        found: list[tuple[Poly, Mono]] = []
        for count in range(len(mono), 0, -1):
            for part in dict.fromkeys(combinations(mono, count)):
                if part not in self._by_mono:
                    continue
                factor = _without(mono, part)
                if all(self.bounds.get(a, a.bounds)[0] >= 0 for a in factor):
                    found += [(fact, factor) for fact in self._by_mono[part]]
        return found


def _own_facts(atom: Atom) -> list[Poly]:
    """What holds of an atom by what it is."""
    own = Poly.of(atom)
    if atom.kind == "div":
        x, y = atom.args
        return [x - y * own, y * own + y - 1 - x]
    if atom.kind == "rem":
        x, y = atom.args
        facts = [y - 1 - own, own]
        quotient = x // y
        return [*facts, x - y * quotient - own, own + y * quotient - x]
    if atom.kind == "min":
        return [atom.args[0] - own, atom.args[1] - own]
    if atom.kind == "max":
        return [own - atom.args[0], own - atom.args[1]]
    return []


def _forms(poly: Poly) -> list[Poly]:
    """The polynomial, and if it is a remainder alone, the dividend less what was divided."""
    found = [poly]
    if len(poly.terms) == 1:
        ((mono, c),) = poly.terms.items()
        if c == 1 and len(mono) == 1 and mono[0].kind == "rem":
            x, y = mono[0].args
            found.append(x - y * (x // y))
    return found


def _bounded_by(poly: Poly, fact: Poly) -> Poly | None:
    """u of a fact u - poly >= 0 that has nothing of the polynomial left in it, but for what it takes away."""
    first = next((m for m in poly.terms if m), None)
    if first is None or fact.terms.get(first) != -poly.terms[first]:
        return None
    bound = fact + poly
    return None if any(a in bound.atoms() for a in first) else bound


def _quotient(poly: Poly, divisor: Poly) -> Poly | None:
    """poly floordiv divisor, where that is a polynomial."""
    if divisor.known is not None:
        found = poly // divisor
        return None if any(a.kind == "div" and a not in poly.atoms() for a in found.atoms()) else found
    above = poly + 1
    (mono, c), *_ = divisor.terms.items()
    for other, k in above.terms.items():
        rest = list(other)
        if k % c == 0 and all(a in rest for a in mono):
            factor = Poly({_without(other, mono): k // c})
            if above == divisor * factor:
                return factor - 1
    return None


def _without_factor(fact: Poly) -> Poly:
    """What follows of g a + c >= 0 for a monomial g >= 1: a >= 0, and a >= 1 if c < 0."""
    monos = [m for m in fact.terms if m]
    common = (
        tuple(a for a in dict.fromkeys(monos[0]) if all(a in m for m in monos) and a.bounds[0] >= 0) if monos else ()
    )
    if not common or fact.constant > 0:
        return fact
    quotient = Poly({_without(m, common): c for m, c in fact.terms.items() if m})
    return quotient - 1 if fact.constant < 0 else quotient


def _conjuncts(conditions: Iterable[Cond]) -> list[Cond]:
    found: dict[Cond, None] = {}
    stack: list[Cond] = list(conditions)
    while stack:
        c = stack.pop(0)
        if c.kind == "and":
            stack = [*c.args, *stack]
        elif c.kind != "true":
            found[c] = None
    return list(found)


def _without(mono: Mono, part: Sequence[Atom]) -> Mono:
    rest = list(mono)
    for atom in part:
        rest.remove(atom)
    return tuple(rest)


def _gcd(a: int, b: int) -> int:
    while b:
        a, b = b, a % b
    return a
