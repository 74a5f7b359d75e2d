# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Variables of polynomials and conditions, and other values in their place."""

from collections.abc import Iterable, Mapping
from typing import Any

from kiln.lowering.gpu.validate.poly import Atom, Cond, Poly, choose, const

__all__ = ["substitute", "substitute_cond", "variables"]


def variables(values: Iterable[Poly | Cond]) -> set[Atom]:
    """The variables of which these are made."""
    found: set[Atom] = set()
    seen: set[Any] = set()
    stack: list[Any] = list(values)
    while stack:
        value = stack.pop()
        if value in seen:
            continue
        seen.add(value)
        if isinstance(value, Poly):
            stack += value.atoms()
        elif isinstance(value, Cond):
            stack += [a for a in value.args if isinstance(a, Poly | Cond)]
        elif value.kind in ("div", "rem", "min", "max", "select"):
            stack += value.args
        else:
            found.add(value)
    return found


def substitute(poly: Poly, table: Mapping[Atom, Poly], memo: dict[Any, Any]) -> Poly:
    """With other values of some variables. memo: of one table."""
    found = memo.get(poly)
    if found is None:
        found = const(0)
        for mono, c in poly.terms.items():
            product = const(c)
            for atom in mono:
                product = product * _substitute_atom(atom, table, memo)
            found = found + product
        memo[poly] = found
    return found


def substitute_cond(cond: Cond, table: Mapping[Atom, Poly], memo: dict[Any, Any]) -> Cond:
    """The same for a condition."""
    if cond.kind in ("ge", "eq", "ne"):
        return Cond.compare(cond.kind, substitute(cond.args[0], table, memo))
    if cond.kind in ("and", "or"):
        found = Cond.of(cond.kind == "and")
        for c in cond.args:
            new = substitute_cond(c, table, memo)
            found = found & new if cond.kind == "and" else found | new
        return found
    return cond


def _substitute_atom(atom: Atom, table: Mapping[Atom, Poly], memo: dict[Any, Any]) -> Poly:
    found = memo.get(atom)
    if found is None:
        found = memo[atom] = _rebuilt(atom, table, memo)
    return found


def _rebuilt(atom: Atom, table: Mapping[Atom, Poly], memo: dict[Any, Any]) -> Poly:
    if atom in table:
        return table[atom]
    if atom.kind == "select":
        cond = substitute_cond(atom.args[0], table, memo)
        return choose(cond, *(substitute(a, table, memo) for a in atom.args[1:]))
    if atom.kind not in ("div", "rem", "min", "max"):
        return Poly.of(atom)
    x, y = (substitute(a, table, memo) for a in atom.args)
    if atom.kind == "div":
        return x // y
    if atom.kind == "rem":
        return x % y
    return x.least(y) if atom.kind == "min" else x.largest(y)
