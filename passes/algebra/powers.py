# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Powers and divisions by constants: strength reduction."""

import math

from torch_mlir import ir

from .expressions import Match, NoMatch
from .rules import Safety, row, rule
from .values import is_float

T = "powers"
EXACT, FAST = Safety.EXACT, Safety.FAST

row("pow-zero", "pow(x, 0)", "full(x, 1)", EXACT, "ATen fills with 1, for NaN too", T)
row("pow-one", "pow(x, 1)", "x", EXACT, "ATen copies x", T)
row("pow-two", "pow(x, 2)", "mul(x, x)", EXACT, "ATen computes x * x", T)
row("pow-three", "pow(x, 3)", "mul(mul(x, x), x)", EXACT, "ATen computes x * x * x", T)


def _floating(m: Match, name: str) -> ir.Value:
    value = m.like_root(m["x"])
    m.need(is_float(value), "the elements are no floating-point numbers")
    return m.build(name, value)


@rule("pow-half", "pow(x, 0.5)", "sqrt(x)", EXACT, "ATen computes sqrt(x)", T)
def pow_half(m: Match) -> ir.Value:
    """`x ** 0.5` is `sqrt(x)`."""
    return _floating(m, "sqrt")


@rule("pow-minus-one", "pow(x, -1)", "reciprocal(x)", EXACT, "ATen computes 1 / x", T)
def pow_minus_one(m: Match) -> ir.Value:
    """`x ** -1` is `1 / x`."""
    return _floating(m, "reciprocal")


@rule("pow-minus-half", "pow(x, -0.5)", "rsqrt(x)", FAST, "ATen computes 1 / sqrt(x); rsqrt may round otherwise", T)
def pow_minus_half(m: Match) -> ir.Value:
    """`x ** -0.5` is `rsqrt(x)`."""
    return _floating(m, "rsqrt")


@rule(
    "div-constant",
    "div(x, c)",
    "mul(x, 1 / c)",
    EXACT,
    "exact where c and 1 / c are powers of two in float32's normal range; other divisors need fast_math",
    T,
)
def div_constant(m: Match) -> ir.Value:
    """`x / c` is `x * (1 / c)`: exactly for powers of two, with fast_math for other finite `c`."""
    divisor = m.const("c")
    if not isinstance(divisor, int | float) or divisor in (0, 1, -1) or not math.isfinite(divisor):
        raise NoMatch("")
    value = m.like_root(m["x"])
    m.need(is_float(value), "the elements are no floating-point numbers")
    mantissa, exponent = math.frexp(divisor)
    exact = abs(mantissa) == 0.5 and abs(exponent) <= 14
    m.need(exact or m.fast_math, "needs fast_math: 1 / c rounds")
    return m.build("mul.Scalar", value, m.number(1.0 / divisor))
