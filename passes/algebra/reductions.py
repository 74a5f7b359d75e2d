# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Reductions over dimensions of size 1."""

from torch_mlir import ir

from .expressions import Match, NoMatch
from .identities import never_negative_zero
from .rules import Safety, rule
from .values import is_integral, sizes_of

T = "reductions"
EXACT = Safety.EXACT


def _single(m: Match) -> ir.Value:
    """The operand, if the root reduces dimensions of size 1 only and keeps them.

    A tensor of rank 0 counts as one of a single dimension of size 1, and its result has rank 0 either way.
    """
    sizes = sizes_of(m["x"])
    if sizes is None:
        raise NoMatch("")
    dims = m.const("dims")
    dims = range(len(sizes)) if not dims else [dims] if isinstance(dims, int) else dims
    if sizes and any(sizes[dim] != 1 for dim in dims):
        raise NoMatch("")
    m.need(not sizes or m.const("keep") is True, "the dimension of size 1 is dropped: the result has another rank")
    return m.like_root(m["x"])


def _sum(m: Match) -> ir.Value:
    value = _single(m)
    if not is_integral(value) and not never_negative_zero(value) and not m.fast_math:
        raise NoMatch("needs fast_math: a sum starts with +0.0, so that the sum of -0.0 is +0.0")
    return value


_SUM = "exact for integers and where x is never -0.0; else +0.0 + (-0.0) is +0.0 and it needs fast_math"

rule("sum-of-one", "sum(x, dims, keep)", "x  (dims of size 1)", EXACT, _SUM, T)(_sum)
rule("mean-of-one", "mean(x, dims, keep)", "x  (dims of size 1)", EXACT, _SUM, T)(_sum)
rule("amax-of-one", "amax(x, dims, keep)", "x  (dims of size 1)", EXACT, "one element is its own maximum", T)(_single)
rule("amin-of-one", "amin(x, dims, keep)", "x  (dims of size 1)", EXACT, "one element is its own minimum", T)(_single)
