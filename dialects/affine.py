# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Affine expressions from Python: substitution, evaluation, simplification under known ranges, linear form, text.

Symbols are sizes, hence never negative; `mod` and `floordiv` are MLIR's: rounding down, positive divisors.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from typing import Any, cast

from torch_mlir import ir

from kiln.dialects import polynomial as poly
from kiln.dialects.memo import PerContext
from kiln.dialects.polynomial import Poly, Ranges

# Answers by the hashes of expressions, which are their addresses: an expression is a unique object of its context.
# Keeping expressions would keep the context alive.  `_UNCHANGED` is no polynomial.
_SIMPLIFIED, _DIMS, _POLYNOMIALS, _EQUAL = PerContext(), PerContext(), PerContext(), PerContext()
_UNCHANGED: Any = object()
_NONE: frozenset[int] = frozenset()

# A compilation asks for hundreds of thousands of these: the classes once, and `type(e) is` instead of `isinstance`,
# which asks the bindings where the answer is no. What the bindings return is of the most derived class.
_DIM, _SYMBOL, _CONSTANT = ir.AffineDimExpr, ir.AffineSymbolExpr, ir.AffineConstantExpr

Replacements = Mapping[int, ir.AffineExpr] | Sequence[ir.AffineExpr]
Extents = Mapping[int, ir.AffineExpr | int] | Sequence[ir.AffineExpr | int]

_BUILD: dict[type, Callable[[ir.AffineExpr, ir.AffineExpr], ir.AffineExpr]] = {
    ir.AffineAddExpr: ir.AffineExpr.get_add,
    ir.AffineMulExpr: ir.AffineExpr.get_mul,
    ir.AffineModExpr: ir.AffineExpr.get_mod,
    ir.AffineFloorDivExpr: ir.AffineExpr.get_floor_div,
    ir.AffineCeilDivExpr: ir.AffineExpr.get_ceil_div,
}


# ---------------------------------------------------------------------------------------------------------- queries


def constant_of(expr: ir.AffineExpr) -> int | None:
    """The integer that `expr` is, or None."""
    expr = expr.maybe_downcast()
    return expr.value if type(expr) is _CONSTANT else None


def symbols_in(expr: ir.AffineExpr) -> set[int]:
    """Positions of the symbols that occur in `expr`."""
    return _positions(expr, _SYMBOL)


def dims_in(expr: ir.AffineExpr) -> frozenset[int]:
    """Positions of the dims that occur in `expr`."""
    cls = type(expr)
    if cls is _CONSTANT or cls is _SYMBOL:
        return _NONE
    known = _DIMS.of(expr.context)
    found = known.get(hash(expr))
    if found is None:
        found = known[hash(expr)] = frozenset(_positions(expr, _DIM))
    return found


def _positions(expr: ir.AffineExpr, kind: type) -> set[int]:
    found: set[int] = set()
    stack = [expr.maybe_downcast()]
    while stack:
        e = stack.pop()
        cls = type(e)
        if cls is kind:
            found.add(e.position)
        elif cls in _BUILD:
            stack += (e.lhs, e.rhs)
    return found


def evaluate(expr: ir.AffineExpr, dims: Sequence[int] = (), symbols: Sequence[int] = ()) -> int:
    """The value of `expr` at a point.  Raises ZeroDivisionError where a divisor is 0."""
    expr = expr.maybe_downcast()
    if isinstance(expr, ir.AffineConstantExpr):
        return expr.value
    if isinstance(expr, ir.AffineDimExpr):
        return dims[expr.position]
    if isinstance(expr, ir.AffineSymbolExpr):
        return symbols[expr.position]
    lhs, rhs = evaluate(expr.lhs, dims, symbols), evaluate(expr.rhs, dims, symbols)
    if isinstance(expr, ir.AffineAddExpr):
        return lhs + rhs
    if isinstance(expr, ir.AffineMulExpr):
        return lhs * rhs
    if isinstance(expr, ir.AffineModExpr):
        return lhs % rhs
    return lhs // rhs if isinstance(expr, ir.AffineFloorDivExpr) else -(-lhs // rhs)


# ----------------------------------------------------------------------------------------------------- substitution


def substitute(expr: ir.AffineExpr, dims: Replacements = (), symbols: Replacements = ()) -> ir.AffineExpr:
    """`expr` with dims and symbols replaced by position; positions that are not given stay."""
    expr = expr.maybe_downcast()
    if type(expr) is _CONSTANT:
        return expr
    return _replaced(expr, _by_position(dims), _by_position(symbols))


def _by_position(given: Any) -> Any:
    if isinstance(given, Mapping):
        return cast(Mapping[int, Any], given)
    return dict(enumerate(cast(Sequence[Any], given))) if given else {}


# No function inside of `substitute`: one that calls itself is a cycle with what it refers to, which would keep the
# expressions' context, and with it a whole compiled module, until the next collection of garbage.
def _replaced(
    e: ir.AffineExpr, dims: Mapping[int, ir.AffineExpr], symbols: Mapping[int, ir.AffineExpr]
) -> ir.AffineExpr:
    cls = type(e)
    if cls is _DIM:
        return dims.get(e.position, e).maybe_downcast()
    if cls is _CONSTANT:
        return e
    if cls is _SYMBOL:
        return symbols.get(e.position, e).maybe_downcast()
    # The bindings type the result of a builder by the builder, also where MLIR folds: `d0 + 0` comes as an
    # AffineAddExpr over a dim, and its `lhs` crashes.  So every result is downcast before anything looks at it.
    return _BUILD[cls](_replaced(e.lhs, dims, symbols), _replaced(e.rhs, dims, symbols)).maybe_downcast()


def apply(map_: ir.AffineMap, dims: Sequence[ir.AffineExpr], symbols: Replacements = ()) -> list[ir.AffineExpr]:
    """The results of `map_` at the given dims (and symbols)."""
    return [substitute(e, dims, symbols) for e in map_.results]


def compose(outer: ir.AffineMap, inner: ir.AffineMap, extents: Extents = ()) -> ir.AffineMap:
    """The map `d -> outer(inner(d))`, simplified for dims of the given extents; both are over the same symbols."""
    results = apply(outer, list(inner.results))
    n_symbols = max(outer.n_symbols, inner.n_symbols)
    return ir.AffineMap.get(inner.n_dims, n_symbols, [simplify(e, extents) for e in results])


# --------------------------------------------------------------------------------------------------- simplification


def simplify(expr: ir.AffineExpr, extents: Extents = ()) -> ir.AffineExpr:
    """An equal, simpler expression, in a canonical order of terms.

    `extents` gives the number of values of each dim (an integer, or an expression over symbols): a dim runs from 0 to
    extent - 1, and every extent is at least 1 wherever `expr` is evaluated.  Dims that are not given have no range.
    """
    expr = expr.maybe_downcast()
    cls = type(expr)
    if cls is _CONSTANT or cls is _SYMBOL:
        return expr
    known = _extents_of(dims_in(expr), extents)
    if cls is _DIM:
        # A dim is 0 or what it is.
        extent = known[0][1] if known else 2
        size = extent if type(extent) is int else extent.value if type(extent) is _CONSTANT else None
        if size is not None:
            return ir.AffineConstantExpr.get(0) if size == 1 else expr
    cache = _SIMPLIFIED.of(expr.context)
    key = (hash(expr), *[(d, e) if type(e) is int else (d, hash(e), None) for d, e in known])
    found = cache.get(key)
    if found is None:
        p = _poly(expr, _ranges(dict(known)))
        # Nothing is built for what is simple already.
        found = cache[key] = _UNCHANGED if _expr(p) == expr else p
    return expr if found is _UNCHANGED else _expr(found)


def _extents_of(dims: frozenset[int], extents: Extents) -> list[tuple[int, ir.AffineExpr | int]]:
    """The given extents of some dims."""
    if type(extents) is dict or isinstance(extents, Mapping):
        return [(d, extents[d]) for d in dims if d in extents]
    return [(d, extents[d]) for d in dims if d < len(extents)]


def equal(a: ir.AffineExpr, b: ir.AffineExpr, extents: Extents = ()) -> bool:
    """Whether `a` and `b` are provably equal; False may mean that they are."""
    if a == b:
        return True
    known = _extents_of(dims_in(a) | dims_in(b), extents)
    cache = _EQUAL.of(a.context)
    key = (hash(a), hash(b), *[(d, e) if type(e) is int else (d, hash(e), None) for d, e in known])
    found = cache.get(key)
    if found is None:
        ranges = _ranges(dict(known))
        found = cache[key] = not poly.recombine(poly.sub(_poly(a, ranges), _poly(b, ranges)), ranges)
    return found


def nonnegative(expr: ir.AffineExpr, extents: Extents = ()) -> bool:
    """Whether `expr >= 0` is provable."""
    ranges = _ranges(extents)
    return poly.nonnegative(_poly(expr, ranges), ranges)


def linear_coefficients(expr: ir.AffineExpr) -> tuple[ir.AffineExpr, dict[int, ir.AffineExpr]] | None:
    """`(constant, {dim: coefficient})` over symbols, zero coefficients left out; None if not linear in the dims."""
    constant: list[tuple[poly.Mono, int]] = []
    terms: dict[int, list[tuple[poly.Mono, int]]] = {}
    for m, c in _poly(expr, ()):
        dims = [a for a in m if _holds_dim(a)]
        if not dims:
            constant.append((m, c))
        elif len(dims) == 1 and dims[0][0] == "d":
            rest = poly.divide_mono(m, (dims[0],)) or ()
            terms.setdefault(dims[0][1], []).append((rest, c))
        else:
            return None
    return _expr(tuple(constant)), {d: _expr(tuple(sorted(t))) for d, t in sorted(terms.items())}


def is_linear(expr: ir.AffineExpr) -> bool:
    """Whether `expr` is a sum of dims times expressions over symbols."""
    return linear_coefficients(expr) is not None


def is_multiple(expr: ir.AffineExpr, k: int) -> bool:
    """Whether `expr` is a multiple of k whatever its dims and symbols are, as far as its form shows."""
    expr = expr.maybe_downcast()
    if isinstance(expr, ir.AffineConstantExpr):
        return expr.value % k == 0
    if isinstance(expr, ir.AffineAddExpr):
        return is_multiple(expr.lhs, k) and is_multiple(expr.rhs, k)
    if isinstance(expr, ir.AffineMulExpr):
        return is_multiple(expr.lhs, k) or is_multiple(expr.rhs, k)
    return k == 1


def _holds_dim(a: poly.Atom) -> bool:
    if a[0] in "ds":
        return a[0] == "d"
    return any(_holds_dim(b) for p in a[1:] for m, _ in p for b in m)


# ------------------------------------------------------------------------------------------------------ polynomials


def _ranges(extents: Extents) -> Ranges:
    items = extents.items() if isinstance(extents, Mapping) else enumerate(extents)
    return tuple(sorted((d, poly.const(e) if isinstance(e, int) else _poly(e, ())) for d, e in items))


def _poly(expr: ir.AffineExpr, ranges: Ranges) -> Poly:
    known = _POLYNOMIALS.of(expr.context)
    key = hash(expr), ranges
    found = known.get(key)
    if found is None:
        # A dim of extent 1 is 0.
        single = {d for d, extent in ranges if extent == poly.ONE}
        found = known[key] = _walk(expr.maybe_downcast(), ranges, single)
    return found


def _walk(e: ir.AffineExpr, ranges: Ranges, single: set[int]) -> Poly:
    cls = type(e)
    if cls is _CONSTANT:
        return poly.const(e.value)
    if cls is _DIM:
        return poly.ZERO if e.position in single else poly.atom(("d", e.position))
    if cls is _SYMBOL:
        return poly.atom(("s", e.position))
    lhs, rhs = _walk(e.lhs, ranges, single), _walk(e.rhs, ranges, single)
    if cls is ir.AffineAddExpr:
        return poly.recombine(poly.add(lhs, rhs), ranges)
    if cls is ir.AffineMulExpr:
        return poly.mul(lhs, rhs)
    if cls is ir.AffineModExpr:
        return poly.divmod_(lhs, rhs, ranges)[1]
    if cls is ir.AffineCeilDivExpr:
        lhs = poly.sub(poly.add(lhs, rhs), poly.ONE)
    return poly.divmod_(lhs, rhs, ranges)[0]


def _expr(p: Poly) -> ir.AffineExpr:
    """The expression of `p`: terms with dims first, by position, then symbols, then the constant."""
    terms = sorted(p, key=lambda t: (not t[0], not any(_holds_dim(a) for a in t[0]), t))
    built = [_term(m, c) for m, c in terms]
    total = reduce(ir.AffineExpr.get_add, built) if built else ir.AffineExpr.get_constant(0)
    return total.maybe_downcast()


def _term(m: poly.Mono, c: int) -> ir.AffineExpr:
    factors = [_atom(a) for a in sorted(m, key=lambda a: (not _holds_dim(a), a))]
    if not factors:
        return ir.AffineExpr.get_constant(c)
    product = reduce(ir.AffineExpr.get_mul, factors)
    return product if c == 1 else ir.AffineExpr.get_mul(product, ir.AffineExpr.get_constant(c))


def _atom(a: poly.Atom) -> ir.AffineExpr:
    if a[0] == "d":
        return ir.AffineExpr.get_dim(a[1])
    if a[0] == "s":
        return ir.AffineExpr.get_symbol(a[1])
    build = ir.AffineExpr.get_mod if a[0] == "m" else ir.AffineExpr.get_floor_div
    return build(_expr(a[1]), _expr(a[2]))
