# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Reshapes as index maps: which source element does a result element of ``view`` read?

A reshape keeps the row-major order of elements. :func:`reshape_map` first cuts both shapes into the smallest groups
of dims with equal products, so that `[B, S, H*D] -> [B, S, H, D]` touches only its last group and stays as simple as
possible for layout analysis: merging dims is linear, splitting one needs floordiv and mod.

Sizes are polynomials over symbols (with opaque atoms for floordiv/mod), and equality is that of polynomials.
"""

from collections.abc import Sequence

from torch_mlir import ir

Polynomial = dict[tuple[str, ...], int]
"""Sum of monomials: sorted atom names -> integer coefficient (never 0)."""


class SizeAlgebra:
    """Arithmetic on dimension sizes with a table from atom names back to AffineExprs."""

    def __init__(self) -> None:
        self._atoms: dict[str, ir.AffineExpr] = {}

    def polynomial(self, expr: ir.AffineExpr) -> Polynomial:
        """``expr`` (over symbols only) as a polynomial; floordiv, ceildiv and mod are atoms."""
        expr = expr.maybe_downcast()  # arithmetic that folds leaves a wrong wrapper class
        if isinstance(expr, ir.AffineConstantExpr):
            value = expr.value
            return {(): value} if value else {}
        if isinstance(expr, ir.AffineAddExpr):
            return _sum(self.polynomial(expr.lhs), self.polynomial(expr.rhs))
        if isinstance(expr, ir.AffineMulExpr):
            return multiply(self.polynomial(expr.lhs), self.polynomial(expr.rhs))
        name = str(expr)
        self._atoms[name] = expr
        return {(name,): 1}

    def expr(self, polynomial: Polynomial) -> ir.AffineExpr:
        """The AffineExpr of a polynomial made by this algebra, in a deterministic order of terms."""
        total: ir.AffineExpr | None = None
        for monomial, coefficient in sorted(polynomial.items(), key=lambda item: (-len(item[0]), item[0])):
            term: ir.AffineExpr | None = None
            for atom in monomial:
                term = self._atoms[atom] if term is None else term * self._atoms[atom]
            if term is None:
                term = ir.AffineExpr.get_constant(coefficient)
            elif coefficient != 1:
                term = term * coefficient
            total = term if total is None else total + term
        return total if total is not None else ir.AffineExpr.get_constant(0)


def _sum(a: Polynomial, b: Polynomial) -> Polynomial:
    out = dict(a)
    for monomial, coefficient in b.items():
        value = out.get(monomial, 0) + coefficient
        if value:
            out[monomial] = value
        else:
            out.pop(monomial, None)
    return out


def multiply(a: Polynomial, b: Polynomial) -> Polynomial:
    """Product of two polynomials."""
    out: Polynomial = {}
    for left, x in a.items():
        for right, y in b.items():
            out = _sum(out, {tuple(sorted(left + right)): x * y})
    return out


def divide(a: Polynomial, b: Polynomial) -> Polynomial | None:
    """``a / b`` if it is exact and ``b`` is one monomial (or ``a == b``), else None."""
    if a == b:
        return {(): 1}
    if len(b) != 1:
        return None
    (monomial, coefficient), *_ = b.items()
    out: Polynomial = {}
    for term, value in a.items():
        rest = list(term)
        for atom in monomial:
            if atom not in rest:
                return None
            rest.remove(atom)
        if value % coefficient:
            return None
        out[tuple(rest)] = value // coefficient
    return out


ONE: Polynomial = {(): 1}


def same_size(a: ir.AffineExpr, b: ir.AffineExpr) -> bool:
    """Are two sizes equal for every value of the symbols (as far as polynomial arithmetic shows)?"""
    algebra = SizeAlgebra()
    return algebra.polynomial(a) == algebra.polynomial(b)


def _groups(src: Sequence[Polynomial], dst: Sequence[Polynomial]) -> list[tuple[range, range]]:
    """Cuts both dim lists into the smallest consecutive groups with equal products (dims of size 1 excluded)."""

    def prefixes(dims: Sequence[Polynomial]) -> list[Polynomial]:
        out = [ONE]
        for dim in dims:
            out.append(multiply(out[-1], dim))
        return out

    def cuts(a: Sequence[Polynomial], b: Sequence[Polynomial]) -> list[tuple[int, int]]:
        pa, pb = prefixes(a), prefixes(b)
        return [(i, pb.index(p)) for i, p in enumerate(pa) if p in pb]

    # Equal suffix products are cuts as well: the totals agree, if only by a guard (s0 even) that is not written here.
    found = set(cuts(src, dst))
    found |= {(len(src) - i, len(dst) - j) for i, j in cuts(src[::-1], dst[::-1])}
    groups: list[tuple[range, range]] = []
    last = (0, 0)
    for cut in [*sorted(found), (len(src), len(dst))]:
        if cut[0] > last[0] and cut[1] > last[1]:
            groups.append((range(last[0], cut[0]), range(last[1], cut[1])))
            last = cut
    if groups and last != (len(src), len(dst)):
        s, d = groups.pop()
        groups.append((range(s.start, len(src)), range(d.start, len(dst))))
    elif not groups:
        groups.append((range(len(src)), range(len(dst))))
    return groups


def reshape_map(
    src_dims: Sequence[ir.AffineExpr], dst_dims: Sequence[ir.AffineExpr], symbol_count: int
) -> ir.AffineMap:
    """``affine_map<(d0, ..)[s..] -> (source indices)>`` of a row-major reshape.

    src_dims, dst_dims: sizes as AffineExprs over ``symbol_count`` symbols; their products must be equal. The map has
    one dim per result dim. A shape with a static zero has no elements: its map reads index 0 everywhere.
    """
    algebra = SizeAlgebra()
    src = [algebra.polynomial(e) for e in src_dims]
    dst = [algebra.polynomial(e) for e in dst_dims]
    zero = ir.AffineExpr.get_constant(0)
    indices: list[ir.AffineExpr] = [zero] * len(src)
    if all(src) and all(dst):
        src_at = [i for i, p in enumerate(src) if p != ONE]
        dst_at = [j for j, p in enumerate(dst) if p != ONE]
        for s, d in _groups([src[i] for i in src_at], [dst[j] for j in dst_at]):
            for i, expr in _reshape_group(algebra, src, dst, [src_at[k] for k in s], [dst_at[k] for k in d]):
                indices[i] = expr
    return ir.AffineMap.get(len(dst), symbol_count, indices)


def _reshape_group(
    algebra: SizeAlgebra, src: list[Polynomial], dst: list[Polynomial], src_at: list[int], dst_at: list[int]
) -> list[tuple[int, ir.AffineExpr]]:
    """Index of each source dim of one group, from the result dims of the group."""
    terms: list[tuple[ir.AffineExpr, Polynomial]] = []  # (dim, stride), innermost first
    stride = ONE
    for j in reversed(dst_at):
        terms.append((ir.AffineExpr.get_dim(j), stride))
        stride = multiply(stride, dst[j])
    out: list[tuple[int, ir.AffineExpr]] = []
    suffix = ONE
    for i in reversed(src_at):
        out.append((i, _digit(algebra, terms, suffix, src[i], outermost=i == src_at[0])))
        suffix = multiply(suffix, src[i])
    return out


def _digit(
    algebra: SizeAlgebra,
    terms: list[tuple[ir.AffineExpr, Polynomial]],
    suffix: Polynomial,
    size: Polynomial,
    outermost: bool,
) -> ir.AffineExpr:
    """``(sum of dim * stride) floordiv suffix mod size``, with the terms that cannot matter left out.

    The strides are the running products of the group's dims, so the sum of the terms inside of term k is below
    stride k: it vanishes from a floordiv by stride k, and needs no mod by stride k.
    """
    inner: list[tuple[ir.AffineExpr, Polynomial]] = []
    outer: list[tuple[ir.AffineExpr, Polynomial]] = []
    bound: Polynomial | None = None
    for dim, stride in terms:
        quotient = divide(stride, suffix)
        if quotient is None:
            inner.append((dim, stride))
            continue
        if not outer:
            bound = stride
        outer.append((dim, quotient))
    # Everything inside the first divisible stride is below it.
    pieces: list[ir.AffineExpr] = []
    if inner and bound != suffix:
        pieces.append(ir.AffineExpr.get_floor_div(_linear(algebra, inner), algebra.expr(suffix)))
    if outermost:
        return _add([_linear(algebra, outer)] * bool(outer) + pieces)
    # Multiples of the size drop out of the mod; the first one dropped bounds what is left.
    kept: list[tuple[ir.AffineExpr, Polynomial]] = []
    below_size = False
    for dim, quotient in outer:
        if divide(quotient, size) is None:
            kept.append((dim, quotient))
        elif quotient == size:
            below_size = True
    value = _add([_linear(algebra, kept)] * bool(kept) + pieces)
    if below_size or not (kept or pieces):
        return value
    return ir.AffineExpr.get_mod(value, algebra.expr(size))


def _linear(algebra: SizeAlgebra, terms: list[tuple[ir.AffineExpr, Polynomial]]) -> ir.AffineExpr:
    return _add([dim if stride == ONE else dim * algebra.expr(stride) for dim, stride in reversed(terms)])


def _add(exprs: list[ir.AffineExpr]) -> ir.AffineExpr:
    total = ir.AffineExpr.get_constant(0)
    for expr in exprs:
        total = total + expr
    return total
