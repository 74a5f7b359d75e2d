# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Integers of a kernel as polynomials with integer coefficients over atoms.

An atom is a variable with bounds (a program's number, a lane of a block, a loop's trip, a size, a loaded integer) or a
result that no polynomial is: quotient, remainder, minimum, maximum, choice. Values are exact; that an op's result fits
into its machine type is proved elsewhere.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from math import inf
from typing import Any

__all__ = [
    "Atom",
    "Cond",
    "Interval",
    "Mono",
    "Poly",
    "choose",
    "const",
    "floor",
]

Interval = tuple[float, float]
"""Least and largest value; both are ints where they are finite."""

Mono = tuple["Atom", ...]


@dataclass(frozen=True, eq=False)
class Atom:
    """A factor of a monomial.

    kind: "program", "lane", "trip", "symbol", "opaque" (variables, told apart by `args`), or "div", "rem", "min",
    "max", "select" of the arguments. bounds: what holds without any fact.
    """

    kind: str
    args: tuple[Any, ...]
    bounds: Interval

    @cached_property
    def key(self) -> tuple[Any, ...]:
        """What equal atoms have in common, and others not."""
        return (self.kind, *(a.key if isinstance(a, Poly | Cond) else a for a in self.args))

    @cached_property
    def digest(self) -> int:
        """The hash of the key, computed once."""
        return hash(self.key)

    def __hash__(self) -> int:
        return self.digest

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Atom) and self.digest == other.digest and self.key == other.key)

    def __lt__(self, other: "Atom") -> bool:
        return (self.kind, self.digest) < (other.kind, other.digest)

    def __str__(self) -> str:
        if self.kind in ("div", "rem"):
            return f"({self.args[0]}) {'floordiv' if self.kind == 'div' else 'mod'} ({self.args[1]})"
        if self.kind in ("min", "max", "select"):
            return f"{self.kind}({', '.join(map(str, self.args))})"
        return {"program": "pid", "symbol": "s"}.get(self.kind, self.kind) + "".join(str(a) for a in self.args[:1])


class Poly:
    """A sum of monomials, each with a coefficient that is not 0."""

    __slots__ = ("terms", "_digest", "_key", "_interval")

    def __init__(self, terms: Mapping[Mono, int]):
        self.terms = {m: c for m, c in terms.items() if c}
        self._digest: int | None = None
        self._key: tuple[Any, ...] | None = None
        self._interval: Interval | None = None

    @classmethod
    def of(cls, atom: Atom) -> "Poly":
        """The polynomial that is one atom."""
        return cls({(atom,): 1})

    @property
    def key(self) -> tuple[Any, ...]:
        """What equal polynomials have in common, and others not."""
        if self._key is None:
            found = ((tuple(a.key for a in m), c) for m, c in self.terms.items())
            self._key = tuple(sorted(found, key=hash))
        return self._key

    def __hash__(self) -> int:
        if self._digest is None:
            self._digest = hash(frozenset(self.terms.items()))
        return self._digest

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Poly) and self.terms == other.terms)

    @property
    def known(self) -> int | None:
        """The number that it is, if it is one."""
        if not self.terms:
            return 0
        return self.terms.get(()) if len(self.terms) == 1 else None

    @property
    def constant(self) -> int:
        """The coefficient without atoms."""
        return self.terms.get((), 0)

    @property
    def interval(self) -> Interval:
        """Bounds from those of the atoms alone."""
        if self._interval is None:
            low: float = 0
            high: float = 0
            for mono, c in self.terms.items():
                a, b = _mono_interval(mono)
                low += c * a if c > 0 else c * b
                high += c * b if c > 0 else c * a
            self._interval = low, high
        return self._interval

    def atoms(self) -> set[Atom]:
        """The atoms of all terms, not those inside of atoms."""
        return {a for m in self.terms for a in m}

    def __add__(self, other: "Poly | int") -> "Poly":
        terms = dict(self.terms)
        for m, c in _poly(other).terms.items():
            terms[m] = terms.get(m, 0) + c
        return Poly(terms)

    def __neg__(self) -> "Poly":
        return Poly({m: -c for m, c in self.terms.items()})

    def __sub__(self, other: "Poly | int") -> "Poly":
        terms = dict(self.terms)
        for m, c in _poly(other).terms.items():
            terms[m] = terms.get(m, 0) - c
        return Poly(terms)

    def __mul__(self, other: "Poly | int") -> "Poly":
        if isinstance(other, int):
            return Poly({m: c * other for m, c in self.terms.items()})
        terms: dict[Mono, int] = {}
        for m, c in self.terms.items():
            for n, d in other.terms.items():
                product = tuple(sorted((*m, *n))) if m and n else m or n
                terms[product] = terms.get(product, 0) + c * d
        return Poly(terms)

    def __floordiv__(self, other: "Poly") -> "Poly":
        """Rounded down; the divisor is positive."""
        if other.known is None:
            return _simple_quotient(self, other)
        whole, rest = _split(self, other.known)
        low, high = rest.interval
        if low >= 0 and high < other.known:
            return whole
        return whole + Poly.of(Atom("div", (rest, other), (floor(low, other.known), floor(high, other.known))))

    def __mod__(self, other: "Poly") -> "Poly":
        """What a division rounded down leaves; the divisor is positive."""
        if other.known is None:
            if self.known == 0 or _divides(other, self):
                return const(0)
            return Poly.of(Atom("rem", (self, other), (0, other.interval[1] - 1)))
        _, rest = _split(self, other.known)
        low, high = rest.interval
        if low >= 0 and high < other.known:
            return rest
        atoms = list(rest.terms.items())
        if len(atoms) == 1 and atoms[0][1] == 1 and [a.kind for a in atoms[0][0]] == ["rem"]:
            x, y = atoms[0][0][0].args
            if y.known is not None and y.known % other.known == 0:
                return x % other
        return Poly.of(Atom("rem", (rest, other), (0, other.known - 1)))

    def least(self, other: "Poly") -> "Poly":
        """The smaller one."""
        (a, b), (c, d) = self.interval, other.interval
        if (self - other).interval[1] <= 0:
            return self
        if (other - self).interval[1] <= 0:
            return other
        return Poly.of(Atom("min", (self, other), (min(a, c), min(b, d))))

    def largest(self, other: "Poly") -> "Poly":
        """The larger one."""
        (a, b), (c, d) = self.interval, other.interval
        if (self - other).interval[0] >= 0:
            return self
        if (other - self).interval[0] >= 0:
            return other
        return Poly.of(Atom("max", (self, other), (max(a, c), max(b, d))))

    def __str__(self) -> str:
        def term(m: Mono, c: int) -> str:
            factors = [str(a) for a in m]
            return " * ".join([*([str(c)] if c != 1 or not m else []), *factors])

        return " + ".join(term(m, c) for m, c in self.terms.items()) or "0"

    __repr__ = __str__


@dataclass(frozen=True)
class Cond:
    """A condition on polynomials.

    kind: "ge" (args[0] >= 0), "eq" (args[0] == 0), "ne", "and", "or" (of conditions), "true", "false", or "opaque"
    (of which nothing is known; told apart by `args`) and "not" (of an opaque one).
    """

    kind: str
    args: tuple[Any, ...] = ()

    @cached_property
    def key(self) -> tuple[Any, ...]:
        """What equal conditions have in common, and others not."""
        return (self.kind, *(a.key if isinstance(a, Poly | Cond) else a for a in self.args))

    @classmethod
    def of(cls, value: bool) -> "Cond":
        """The condition that always holds, or never."""
        return cls("true" if value else "false")

    @classmethod
    def compare(cls, kind: str, poly: Poly) -> "Cond":
        """`poly` >= 0 ("ge"), == 0 ("eq") or != 0 ("ne"), if that isn't known."""
        low, high = poly.interval
        if kind == "ge":
            return cls.of(low >= 0) if low >= 0 or high < 0 else cls("ge", (poly,))
        if low > 0 or high < 0:
            return cls.of(kind == "ne")
        if poly.known == 0:
            return cls.of(kind == "eq")
        return cls(kind, (poly,))

    def __and__(self, other: "Cond") -> "Cond":
        return _joined("and", self, other)

    def __or__(self, other: "Cond") -> "Cond":
        return _joined("or", self, other)

    def __invert__(self) -> "Cond":
        if self.kind in ("and", "or"):
            return Cond("or" if self.kind == "and" else "and", tuple(~c for c in self.args))
        if self.kind == "ge":
            return Cond.compare("ge", -self.args[0] - 1)
        flipped = {"eq": "ne", "ne": "eq", "true": "false", "false": "true"}
        if self.kind in flipped:
            return Cond(flipped[self.kind], self.args)
        return self.args[0] if self.kind == "not" else Cond("not", (self,))

    def __str__(self) -> str:
        if self.kind in ("and", "or"):
            return "(" + f" {self.kind} ".join(map(str, self.args)) + ")"
        signs = {"ge": ">=", "eq": "==", "ne": "!="}
        return f"{self.args[0]} {signs[self.kind]} 0" if self.kind in signs else self.kind


def const(value: int) -> Poly:
    """The polynomial of an integer."""
    return Poly({(): value})


def floor(x: float, divisor: int) -> float:
    """x / divisor rounded down; x may be infinite."""
    return x if x in (inf, -inf) else x // divisor


def choose(cond: Cond, x: Poly, y: Poly) -> Poly:
    """x where the condition holds, else y."""
    if cond.kind in ("true", "false") or x == y:
        return y if cond.kind == "false" else x
    (a, b), (c, d) = x.interval, y.interval
    return Poly.of(Atom("select", (cond, x, y), (min(a, c), max(b, d))))


def _poly(x: Poly | int) -> Poly:
    return const(x) if isinstance(x, int) else x


def _mono_interval(mono: Mono) -> Interval:
    low: float = 1
    high: float = 1
    for atom in mono:
        corners = [_times(x, y) for x in (low, high) for y in atom.bounds]
        low, high = min(corners), max(corners)
    return low, high


def _times(x: float, y: float) -> float:
    return 0 if x == 0 or y == 0 else x * y


def _split(poly: Poly, c: int) -> tuple[Poly, Poly]:
    """(q, r) with poly = c q + r, where r has what c does not divide."""
    whole: dict[Mono, int] = {}
    rest: dict[Mono, int] = {}
    for m, k in poly.terms.items():
        if not m:
            whole[m], rest[m] = divmod(k, c)
        elif k % c == 0:
            whole[m] = k // c
        else:
            rest[m] = k
    return Poly(whole), Poly(rest)


def _divides(divisor: Poly, poly: Poly) -> bool:
    return _exact_quotient(poly, divisor) is not None


def _exact_quotient(poly: Poly, divisor: Poly) -> Poly | None:
    """poly / divisor, for a divisor of one monomial."""
    if len(divisor.terms) != 1:
        return None
    ((mono, c),) = divisor.terms.items()
    terms: dict[Mono, int] = {}
    for m, k in poly.terms.items():
        rest = list(m)
        for atom in mono:
            if atom not in rest:
                return None
            rest.remove(atom)
        if k % c:
            return None
        terms[tuple(rest)] = k // c
    return Poly(terms)


def _simple_quotient(poly: Poly, divisor: Poly) -> Poly:
    exact = const(0) if poly.known == 0 else _exact_quotient(poly, divisor)
    if exact is not None:
        return exact
    low, high = poly.interval
    return Poly.of(Atom("div", (poly, divisor), (0 if low >= 0 else -inf, high if low >= 0 else inf)))


def _joined(kind: str, x: Cond, y: Cond) -> Cond:
    neutral, absorbing = ("true", "false") if kind == "and" else ("false", "true")
    if absorbing in (x.kind, y.kind):
        return Cond(absorbing)
    if x.kind == neutral:
        return y
    if y.kind == neutral:
        return x
    parts = [*(x.args if x.kind == kind else [x]), *(y.args if y.kind == kind else [y])]
    return Cond(kind, tuple(dict.fromkeys(parts)))
