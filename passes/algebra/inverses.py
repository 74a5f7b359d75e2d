# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Functions that undo each other."""

from .rules import Safety, row

T = "inverses"
EXACT, FAST = Safety.EXACT, Safety.FAST

row("neg-neg", "neg(neg(x))", "x", EXACT, "the sign bit is flipped twice", T)
row("bitwise-not-twice", "bitwise_not(bitwise_not(x))", "x", EXACT, "every bit is flipped twice", T)
row("logical-not-twice", "logical_not(logical_not(x))", "x", EXACT, "for booleans; other types become booleans", T)
row("logical-not-bitwise-not", "logical_not(bitwise_not(x))", "x", EXACT, "for booleans; others change their type", T)
row("bitwise-not-logical-not", "bitwise_not(logical_not(x))", "x", EXACT, "for booleans; others change their type", T)
row("exp-log", "exp(log(x))", "x", FAST, "log of a negative number is NaN; both round", T)
row("log-exp", "log(exp(x))", "x", FAST, "exp overflows to Inf and underflows to 0; both round", T)
row("sqrt-square", "sqrt(mul(x, x))", "abs(x)", FAST, "x * x overflows and underflows", T)
row("square-sqrt", "mul(sqrt(x), sqrt(x))", "x", FAST, "sqrt of a negative number is NaN; both round", T)
row("reciprocal-reciprocal", "reciprocal(reciprocal(x))", "x", FAST, "both round; the inverse overflows", T)
row("rsub-rsub-one", "rsub(rsub(x, 1), 1)", "x", FAST, "1 - x rounds", T)
