# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Selections whose condition is constant, or whose choices are equal."""

from torch_mlir import ir

from .expressions import Match, NoMatch
from .rules import Safety, row, rule
from .values import dtype_of

T = "selection"
EXACT = Safety.EXACT

row("where-true", "where(1, x, y)", "x", EXACT, "the condition is constant", T)
row("where-false", "where(0, x, y)", "y", EXACT, "the condition is constant", T)
row("where-same", "where(c, x, x)", "x", EXACT, "both choices are the same value", T)
row("masked-fill-never", "masked_fill(x, 0, v)", "x", EXACT, "the mask is constant", T)


@rule("where-not", "where(logical_not(c), x, y)", "where(c, y, x)", EXACT, "for booleans", T)
def where_not(m: Match) -> ir.Value:
    """`where(not c, x, y)` is `where(c, y, x)`, for boolean `c`."""
    if dtype_of(m["c"]) != "i1":
        raise NoMatch("")
    return m.build("where.self", m["c"], m["y"], m["x"])
