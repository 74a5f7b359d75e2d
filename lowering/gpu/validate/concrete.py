# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Polynomials and conditions at numbers, for many at once: arrays of 64-bit integers that broadcast."""

from collections.abc import Mapping
from typing import Any, cast

import numpy as np

from kiln.lowering.gpu.validate.poly import Atom, Cond, Poly

__all__ = ["Array", "Numbers"]

Array = Any
"""A NumPy array, or a number."""


class Numbers:
    """Values of variables, and what is computed from them; atoms are computed once."""

    def __init__(self, table: Mapping[Atom, Array]):
        self.table: dict[Atom, Array] = dict(table)

    def poly(self, poly: Poly) -> Array:
        """The value of a polynomial: an int64 scalar, or an array over lanes."""
        total: Array = np.int64(0)
        for mono, c in poly.terms.items():
            term: Array = np.int64(c)
            for atom in mono:
                term = term * self.atom(atom)
            total = total + term
        return total

    def atom(self, atom: Atom) -> Array:
        """The value of an atom, computed once."""
        found = self.table.get(atom)
        if found is None:
            found = self.table[atom] = self._computed(atom)
        return found

    def cond(self, cond: Cond) -> Array:
        """Raises KeyError for a condition that depends on something unknown."""
        if cond.kind in ("true", "false"):
            return np.bool_(cond.kind == "true")
        if cond.kind in ("and", "or"):
            found: Array = np.bool_(cond.kind == "and")
            for c in cond.args:
                found = found & self.cond(c) if cond.kind == "and" else found | self.cond(c)
            return found
        if cond.kind not in ("ge", "eq", "ne"):
            raise KeyError(cond.kind)
        value = self.poly(cond.args[0])
        return value >= 0 if cond.kind == "ge" else value == 0 if cond.kind == "eq" else value != 0

    def _computed(self, atom: Atom) -> Array:
        if atom.kind not in ("div", "rem", "min", "max", "select"):
            raise KeyError(str(atom))
        if atom.kind == "select":
            cond, x, y = atom.args
            return cast(Any, np).where(self.cond(cond), self.poly(x), self.poly(y))
        x, y = (self.poly(a) for a in atom.args)
        if atom.kind in ("div", "rem"):
            y = np.where(y == 0, 1, y)  # of a branch that isn't taken
            return x // y if atom.kind == "div" else x % y
        return np.minimum(x, y) if atom.kind == "min" else np.maximum(x, y)
