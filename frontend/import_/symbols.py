# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""From PyTorch's symbolic sizes (sympy) to MLIR's affine expressions over function-level symbols.

A *symbol* is an integer known when the graph is called: a size variable of PyTorch's ``ShapeEnv`` (``s27``), an
unbacked one (``u0``, known once the op that makes it has run), or a *derived* one: an expression that no semi-affine
map can hold (``Max(1, s27)``), which the caller computes from the others and passes in. In expressions no symbol is
negative: for one that is there is the derived symbol of its opposite (``-s27``).
"""

from collections.abc import Sequence
from typing import Any, cast

import sympy
import torch
from torch.utils._sympy.functions import CleanDiv, FloorDiv, Mod, ModularIndexing, PythonMod
from torch_mlir import ir

from kiln.frontend.import_.fx_values import is_unbacked
from kiln.frontend.import_.semi_affine import NotAffine, derived_parts

__all__ = ["SymbolSpace", "as_expr"]


def as_expr(size: Any) -> sympy.Expr:
    """The sympy expression of an ``int`` or a ``SymInt`` (replacements that guards made are applied).

    A composed size that a guard fixes at 1 is 1: PyTorch broadcast it, and its expression does not tell.
    """
    if isinstance(size, torch.SymInt):
        expr: Any = cast(Any, size.node).expr
        return sympy.S.One if expr.args and _is_one(size) else expr
    return sympy.Integer(int(size))


def _is_one(size: torch.SymInt) -> bool:
    node: Any = size.node
    expr, env = node.expr, node.shape_env
    return env is not None and env._maybe_evaluate_static(sympy.Eq(expr, 1)) == sympy.true


class SymbolSpace:
    """The symbols of one function, in the order of ``kiln.symbols``.

    First :meth:`collect` every expression the function needs, then :meth:`freeze`; from then on :meth:`affine` and
    :meth:`map` build expressions over the fixed list. Order: base symbols by name, derived ones by text, unbacked
    ones by name, so that the same graph always gives the same list.
    """

    def __init__(self) -> None:
        self._base: dict[str, sympy.Expr] = {}
        self._derived: dict[str, sympy.Expr] = {}
        self._unbacked: dict[str, sympy.Expr] = {}
        self._position: dict[str, int] = {}
        self._maps: dict[tuple[sympy.Expr | int, ...], ir.AffineMapAttr] = {}
        self.names: list[str] = []
        self.given: frozenset[str] = frozenset()
        """Unbacked symbols that inputs show: a backward graph is given what the forward graph has found."""
        self.negative: frozenset[sympy.Expr] = frozenset()
        """Base symbols and derived expressions that are negative."""

    @property
    def base(self) -> list[str]:
        """Names of the size variables of PyTorch, in natural order (`s2` before `s10`)."""
        return sorted(self._base, key=_natural)

    @property
    def derived(self) -> dict[str, sympy.Expr]:
        """Text -> expression of the derived symbols."""
        return {name: self._derived[name] for name in sorted(self._derived)}

    @property
    def unbacked(self) -> list[str]:
        """Names of the symbols that ops of the graph find, in natural order."""
        return sorted(self._unbacked, key=_natural)

    def collect(self, expr: sympy.Expr) -> None:
        """Register the symbols of ``expr``; what is not semi-affine becomes a derived symbol."""
        if expr.is_Integer:
            return
        for symbol in expr.free_symbols:
            (self._unbacked if self.is_found(symbol) else self._base)[symbol.name] = symbol
            if symbol in self.negative:
                self._derive(symbol)
        for part in derived_parts(expr):
            self._derive(part)

    def is_found(self, symbol: sympy.Symbol) -> bool:
        """Whether the graph itself finds the symbol's value while it runs."""
        return is_unbacked(symbol) and symbol.name not in self.given

    def freeze(self) -> None:
        """Fix the order of the symbols; none can be collected from here on."""
        self.names = [*self.base, *self.derived, *self.unbacked]
        self._position = {name: i for i, name in enumerate(self.names)}

    def _derive(self, expr: sympy.Expr) -> None:
        expr = -expr if expr in self.negative else expr
        self._derived[str(expr)] = expr

    def affine(self, expr: sympy.Expr) -> ir.AffineExpr:
        """``expr`` as an affine expression over ``s0 .. sn-1``; needs :meth:`freeze` and an active context."""
        is_opposite = expr in self.negative
        position = self._position.get(str(-expr if is_opposite else expr))
        if position is not None:
            symbol = ir.AffineExpr.get_symbol(position)
            return ir.AffineExpr.get_mul(symbol, ir.AffineExpr.get_constant(-1)) if is_opposite else symbol
        if expr.is_Integer:
            return ir.AffineExpr.get_constant(int(expr))
        if isinstance(expr, sympy.Add):
            terms = [self.affine(arg) for arg in _ordered(expr.args)]
            total = terms[0]
            for term in terms[1:]:
                total = ir.AffineExpr.get_add(total, term)
            return total
        if isinstance(expr, sympy.Mul):
            factors = [self.affine(arg) for arg in _ordered(expr.args)]
            product = factors[0]
            for factor in factors[1:]:
                product = ir.AffineExpr.get_mul(product, factor)
            return product
        if isinstance(expr, sympy.Pow):
            base = self.affine(expr.args[0])
            power = base
            for _ in range(int(expr.args[1]) - 1):
                power = ir.AffineExpr.get_mul(power, base)
            return power
        if isinstance(expr, (FloorDiv, CleanDiv)):
            return ir.AffineExpr.get_floor_div(self.affine(expr.args[0]), self.affine(expr.args[1]))
        if isinstance(expr, (Mod, PythonMod)):
            return ir.AffineExpr.get_mod(self.affine(expr.args[0]), self.affine(expr.args[1]))
        if isinstance(expr, ModularIndexing):
            base, divisor, modulus = (self.affine(arg) for arg in expr.args)
            return ir.AffineExpr.get_mod(ir.AffineExpr.get_floor_div(base, divisor), modulus)
        raise NotAffine(expr)

    def map(self, exprs: Sequence[sympy.Expr | int]) -> ir.AffineMapAttr:
        """``affine_map<()[s0, ...] -> (exprs)>`` over all symbols of the function."""
        key = tuple(exprs)
        attribute = self._maps.get(key)
        if attribute is None:
            results = [ir.AffineExpr.get_constant(e) if isinstance(e, int) else self.affine(e) for e in key]
            attribute = ir.AffineMapAttr.get(ir.AffineMap.get(0, len(self.names), results))
            self._maps[key] = attribute
        return attribute


def _natural(name: str) -> tuple[str, int, str]:
    """Sort key that puts ``s9`` before ``s10``."""
    head = name.rstrip("0123456789")
    tail = name[len(head) :]
    return head, int(tail) if tail else -1, name


def _ordered(args: Sequence[sympy.Expr]) -> list[sympy.Expr]:
    """Symbols first, constants last (MLIR's own normal form); sympy's order otherwise."""
    return sorted(args, key=lambda arg: bool(arg.is_Integer))
