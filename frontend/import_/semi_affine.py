# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Which of PyTorch's symbolic sizes (sympy) are semi-affine. Needs no MLIR."""

from collections.abc import Sequence

import sympy
from torch.utils._sympy.functions import CleanDiv, FloorDiv, Mod, ModularIndexing, PythonMod

__all__ = ["NotAffine", "derived_parts"]


class NotAffine(Exception):
    """An expression that has no integer semi-affine form, with the expression as its argument."""


def derived_parts(expr: sympy.Expr) -> list[sympy.Expr]:
    """The largest parts of ``expr`` that no semi-affine expression holds.

    Raises:
        NotAffine: one of them is no integer.
    """
    children = _affine_children(expr)
    if children is not None:
        try:
            return [part for child in children for part in derived_parts(child)]
        except NotAffine:
            pass
    if expr.is_integer is False:
        raise NotAffine(expr)
    return [expr]


def _affine_children(expr: sympy.Expr) -> Sequence[sympy.Expr] | None:
    """The operands through which ``expr`` is semi-affine, or None when its head is not."""
    if expr.is_Integer or isinstance(expr, sympy.Symbol):
        return ()
    if isinstance(expr, (sympy.Add, sympy.Mul)):
        return expr.args
    if isinstance(expr, sympy.Pow) and expr.args[1].is_Integer and int(expr.args[1]) > 0:
        return expr.args[:1]
    # MLIR's floordiv and mod want a positive divisor; a symbolic one is a size there, and sizes of 0 never divide.
    if isinstance(expr, (FloorDiv, CleanDiv, Mod, PythonMod)) and _positive(expr.args[1]):
        return expr.args
    if isinstance(expr, ModularIndexing) and _positive(expr.args[1]) and _positive(expr.args[2]):
        return expr.args
    return None


def _positive(expr: sympy.Expr) -> bool:
    return expr.is_positive is True
