# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Affine expressions as polynomials: the arithmetic under `kiln.dialects.affine.simplify`.

A polynomial is a sorted tuple of (monomial, integer coefficient), a monomial a sorted tuple of atoms, and an atom is
`("d", i)`, `("s", i)`, `("f", p, k)` for `p floordiv k` or `("m", p, k)` for `p mod k`.  These are plain tuples, so
that results can be cached across MLIR contexts without keeping one alive.

Symbols are sizes, hence at least 0, and a divisor is at least 1 wherever it is evaluated.  `ranges` are sorted pairs of
a dim and its extent, a polynomial: the dim runs from 0 to extent - 1, and extents are at least 1 at any point at which
the expression is evaluated.
"""

from functools import lru_cache
from math import gcd
from typing import Any

Atom = tuple[Any, ...]  # ("d", position) | ("s", position) | ("f", Poly, Poly) | ("m", Poly, Poly)
Mono = tuple[Atom, ...]
Poly = tuple[tuple[Mono, int], ...]
Ranges = tuple[tuple[int, Poly], ...]

ZERO: Poly = ()
ONE: Poly = (((), 1),)


def const(value: int) -> Poly:
    """The polynomial of an integer."""
    return (((), value),) if value else ZERO


def atom(a: Atom) -> Poly:
    """The polynomial that is one atom."""
    return (((a,), 1),)


def as_const(p: Poly) -> int | None:
    """The integer that `p` is, or None."""
    if not p:
        return 0
    return p[0][1] if len(p) == 1 and not p[0][0] else None


def _from_dict(terms: dict[Mono, int]) -> Poly:
    return tuple(sorted((m, c) for m, c in terms.items() if c))


def add(p: Poly, q: Poly) -> Poly:
    """`p + q`, not recombined (see `recombine`)."""
    if not p or not q:
        return p or q
    terms = dict(p)
    for m, c in q:
        terms[m] = terms.get(m, 0) + c
    return _from_dict(terms)


def scale(p: Poly, factor: int) -> Poly:
    """`factor * p`."""
    return tuple((m, c * factor) for m, c in p) if factor else ZERO


def sub(p: Poly, q: Poly) -> Poly:
    """`p - q`, not recombined."""
    return add(p, scale(q, -1))


def mul(p: Poly, q: Poly) -> Poly:
    """`p * q`, multiplied out and not recombined."""
    terms: dict[Mono, int] = {}
    for m, c in p:
        for n, e in q:
            key = tuple(sorted(m + n)) if m and n else m or n
            terms[key] = terms.get(key, 0) + c * e
    return _from_dict(terms)


def divide_mono(m: Mono, by: Mono) -> Mono | None:
    """The monomial `m / by`, or None if `by` does not divide it."""
    rest = list(m)
    for a in by:
        if a not in rest:
            return None
        rest.remove(a)
    return tuple(rest)


def _degree(term: tuple[Mono, int]) -> tuple[int, Mono]:
    """By this order, by degree first, a product's first and last terms are those of the factors, multiplied."""
    return len(term[0]), term[0]


def divide_exact(p: Poly, k: Poly) -> Poly | None:
    """`p / k` where `k` divides `p` as a polynomial, else None."""
    quotient: Poly = ZERO
    lead, lead_c = max(k, key=_degree)
    while p:
        m, c = max(p, key=_degree)
        rest = divide_mono(m, lead)
        if rest is None or c % lead_c:
            return None
        term: Poly = ((rest, c // lead_c),)
        quotient = add(quotient, term)
        p = sub(p, mul(term, k))
    return quotient


# --------------------------------------------------------------------------------------------------------- division


@lru_cache(maxsize=1 << 15)
def divmod_(p: Poly, k: Poly, ranges: Ranges) -> tuple[Poly, Poly]:
    """`(p floordiv k, p mod k)`, simplified; undefined, and kept as they are, where `k` is a number below 1."""
    if _is_undefined(k):
        return atom(("f", p, k)), atom(("m", p, k))
    whole, rest = _split(p, k)
    if not rest or (nonnegative(rest, ranges, k) and nonnegative(sub(sub(k, ONE), rest), ranges, k)):
        return whole, rest
    quotient, remainder = _divide_rest(rest, k, ranges)
    return recombine(add(whole, quotient), ranges), remainder


def _is_undefined(k: Poly) -> bool:
    """Whether `k` is no divisor: a number below 1, as the sizes of empty tensors are."""
    number = as_const(k)
    return number is not None and number <= 0


def _split(p: Poly, k: Poly) -> tuple[Poly, Poly]:
    """`p = k * whole + rest`, term by term where `k` is one term, by whole multiples found in `p` else."""
    if len(k) != 1:
        return _split_by_sum(p, k)
    mono, factor = k[0]
    whole: dict[Mono, int] = {}
    rest: dict[Mono, int] = {}
    for m, c in p:
        q = divide_mono(m, mono)
        # A coefficient splits as well: 5 * d floordiv 4 = d + d floordiv 4.
        n, r = divmod(c, factor) if q is not None else (0, c)
        if n and q is not None:
            whole[q] = whole.get(q, 0) + n
        if r:
            rest[m] = rest.get(m, 0) + r
    return _from_dict(whole), _from_dict(rest)


def _split_by_sum(p: Poly, k: Poly) -> tuple[Poly, Poly]:
    """`_split` by a sum: takes out every `term * k` all of whose terms occur in `p`."""
    exact = divide_exact(p, k)
    if exact is not None:
        return exact, ZERO
    whole = ZERO
    lead, lead_c = k[-1]
    for m, c in reversed(p):
        q = divide_mono(m, lead)
        if q is None or c % lead_c:
            continue
        multiple = mul(((q, c // lead_c),), k)
        have = dict(p)
        if all(have.get(n, 0) * e > 0 and abs(have[n]) >= abs(e) for n, e in multiple):
            whole = add(whole, ((q, c // lead_c),))
            p = sub(p, multiple)
    return whole, p


def _divide_rest(p: Poly, k: Poly, ranges: Ranges) -> tuple[Poly, Poly]:
    """Division where no term of `p` is a multiple of `k` and the quotient may be other than 0."""
    nested = _nested(p, k, ranges)
    if nested is not None:
        return nested
    for g in _common_factors(p, k):
        # (g * a + b) divided by (g * h), 0 <= b < g: the quotient is a floordiv h, the rest g * (a mod h) + b.
        a, b = _split(p, g)
        if a and (not b or (nonnegative(b, ranges, g) and nonnegative(sub(sub(g, ONE), b), ranges, g))):
            h = divide_exact(k, g)
            assert h is not None
            quotient, remainder = divmod_(a, h, ranges)
            return quotient, recombine(add(mul(g, remainder), b), ranges)
    plain = _without_mods(p, k)
    return atom(("f", p, k)), atom(("m", p, k)) if plain == p else divmod_(plain, k, ranges)[1]


def _without_mods(p: Poly, k: Poly) -> Poly:
    """What has the same remainder by `k`: (x mod (k * h) + y) mod k = (x + y) mod k, as in a roll of a roll."""
    plain = p
    for m, c in p:
        if len(m) == 1 and m[0][0] == "m" and not _is_undefined(m[0][2]) and divide_exact(m[0][2], k) is not None:
            plain = add(sub(plain, ((m, c),)), scale(m[0][1], c))
    return plain


def _common_factors(p: Poly, k: Poly) -> list[Poly]:
    """Factors of `k`, other than 1, that some term of `p` has as well; larger ones first.  Of a sum, its content."""
    if len(k) != 1:
        content = gcd(*(c for _, c in k))
        return [const(content)] if content > 1 else []
    mono, factor = k[0]
    found: set[Poly] = set()
    for m, c in p:
        shared: list[Atom] = []
        rest = list(m)
        for a in mono:
            if a in rest:
                rest.remove(a)
                shared.append(a)
        g = gcd(c, factor)
        if shared or g > 1:
            found.add(((tuple(shared), g),))
    return sorted((g for g in found if g != k), key=lambda g: (-len(g[0][0]), -g[0][1], g))


def _nested(p: Poly, k: Poly, ranges: Ranges) -> tuple[Poly, Poly] | None:
    """Division of a single floordiv or mod."""
    if len(p) != 1 or p[0][1] != 1 or len(p[0][0]) != 1:
        return None
    inner = p[0][0][0]
    if inner[0] == "f":
        # (x floordiv a) floordiv k = x floordiv (a * k).
        _, x, a = inner
        return divmod_(x, mul(a, k), ranges)[0], atom(("m", p, k))
    if inner[0] == "m":
        # (x mod (k * h)) mod k = x mod k;  (x mod (k * h)) floordiv k = (x floordiv k) mod h.
        _, x, a = inner
        h = divide_exact(a, k)
        if h is not None:
            quotient, remainder = divmod_(x, k, ranges)
            return divmod_(quotient, h, ranges)[1], remainder
    return None


def recombine(p: Poly, ranges: Ranges) -> Poly:
    """`k * (x floordiv k) + x mod k` is `x`, and `k * ((x floordiv k + y) mod b) + x mod k` is
    `(x + k * y) mod (k * b)`, at any common factor.
    """
    while (found := _recombined(p, ranges)) is not None:
        p = found
    return p


def _recombined(p: Poly, ranges: Ranges) -> Poly | None:
    """`p` with one pair of terms as one; None if it has none."""
    terms = dict(p)
    for m, c in p:
        for a in m:
            if a[0] != "m" or _is_undefined(a[2]):
                continue
            rest = divide_mono(m, (a,))
            assert rest is not None
            _, x, k = a
            quotient = divmod_(x, k, ranges)[0]
            if len(quotient) != 1 or quotient[0][1] != 1 or len(k) != 1:
                continue
            # The partner: c * rest * k * (x floordiv k), or the same of its remainder.
            factor, by = c * k[0][1], k[0][0]
            partner = tuple(sorted(rest + quotient[0][0] + by))
            if terms.get(partner) == factor:
                return _with_pair(p, (m, c), (partner, factor), mul(((rest, c),), x))
            for other, coefficient in p:
                last = divide_mono(other, tuple(sorted(rest + by))) if coefficient == factor else None
                if last is None or len(last) != 1 or last[0][0] != "m" or quotient[0] not in last[0][1]:
                    continue
                if not _is_undefined(last[0][2]):
                    moved = add(x, mul(k, sub(last[0][1], quotient)))
                    remainder = divmod_(moved, mul(k, last[0][2]), ranges)[1]
                    return _with_pair(p, (m, c), (other, factor), mul(((rest, c),), remainder))
    return None


def _with_pair(p: Poly, one: tuple[Mono, int], other: tuple[Mono, int], both: Poly) -> Poly:
    """`p` with what two of its terms are together in their place."""
    return add(sub(p, tuple(sorted([one, other]))), both)


# ----------------------------------------------------------------------------------------------------------- ranges


@lru_cache(maxsize=1 << 15)
def nonnegative(p: Poly, ranges: Ranges, divisor: Poly = ZERO) -> bool:
    """Whether `p >= 0` is provable at every point; `divisor` is known to be at least 1."""
    extents = dict(ranges)
    positive: set[Atom] = {a for m, _ in divisor for a in m} if len(divisor) == 1 else set()
    for _, extent in ranges:
        if len(extent) == 1:
            positive.update(extent[0][0])
    return _nonnegative(p, extents, ranges, frozenset(positive), 8)


def _nonnegative(p: Poly, extents: dict[int, Poly], ranges: Ranges, positive: frozenset[Atom], depth: int) -> bool:
    if depth == 0:
        return False
    variable = next((a for m, _ in p for a in m if a[0] != "s"), None)
    if variable is None:
        return _symbols_nonnegative(p, positive)
    factor: dict[Mono, int] = {}
    rest: dict[Mono, int] = {}
    for m, c in p:
        n = m.count(variable)
        if n > 1:
            return False
        if n:
            factor[divide_mono(m, (variable,)) or ()] = c
        else:
            rest[m] = c
    a, b = _from_dict(factor), _from_dict(rest)
    low, high = _bounds(variable, extents, ranges)
    if low is not None and _nonnegative(a, extents, ranges, positive, depth - 1):
        return _nonnegative(add(b, mul(a, low)), extents, ranges, positive, depth - 1)
    if high is not None and _nonnegative(scale(a, -1), extents, ranges, positive, depth - 1):
        return _nonnegative(add(b, mul(a, high)), extents, ranges, positive, depth - 1)
    return False


def _bounds(variable: Atom, extents: dict[int, Poly], ranges: Ranges) -> tuple[Poly | None, Poly | None]:
    """Inclusive bounds of a dim, floordiv or mod; None where there is none known."""
    if variable[0] == "d":
        extent = extents.get(variable[1])
        return (None, None) if extent is None else (ZERO, sub(extent, ONE))
    _, x, k = variable
    if _is_undefined(k):
        return None, None
    if variable[0] == "m":
        return ZERO, sub(k, ONE)
    low = ZERO if nonnegative(x, ranges, k) else None
    high = _upper(x, extents)
    if high is None:
        return low, None
    whole, rest = _split(high, k)
    # An upper bound needs 0 <= rest < k only; for constants `_split` sees to it.
    in_range = as_const(rest) is not None and (as_const(k) is not None or rest == ZERO)
    if not in_range:
        # (k * n - 1) floordiv k = n - 1.
        whole, rest = _split(add(high, ONE), k)
        return low, sub(whole, ONE) if rest == ZERO else None
    return low, whole


def _upper(p: Poly, extents: dict[int, Poly]) -> Poly | None:
    """An upper bound of `p` where each term has at most one dim, no floordiv or mod."""
    out: Poly = ZERO
    for m, c in p:
        dims = [a for a in m if a[0] != "s"]
        if not dims:
            out = add(out, ((m, c),))
            continue
        if len(dims) > 1 or dims[0][0] != "d" or dims[0][1] not in extents:
            return None
        if c > 0:
            rest = divide_mono(m, (dims[0],)) or ()
            out = add(out, mul(((rest, c),), sub(extents[dims[0][1]], ONE)))
    return out


def _symbols_nonnegative(p: Poly, positive: frozenset[Atom]) -> bool:
    """Whether `p`, over symbols only, has no negative coefficient once positive symbols are written as 1 + t."""
    if any(c < 0 for _, c in p):
        shifted: Poly = ZERO
        for m, c in p:
            term = const(c)
            for a in m:
                term = mul(term, add(atom(a), ONE) if a in positive else atom(a))
            shifted = add(shifted, term)
        p = shifted
    return all(c >= 0 for _, c in p)
