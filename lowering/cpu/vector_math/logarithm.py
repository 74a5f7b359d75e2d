# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""log, log2, log10, log1p, asinh, acosh and atanh.

x = 2^n m with m in [sqrt(1/2), sqrt(2)), log(m) = f + rest(f) for f = m - 1: a polynomial in f32, in f64 the series of
atanh(f/(2 + f)) as arranged in FreeBSD's msun (e_log.c), where f stays exact and only small terms are rounded.
"""

import math

from kiln.lowering.cpu.vector_math.coefficients import COEFFICIENTS
from kiln.lowering.cpu.vector_math.constants import PARTS
from kiln.lowering.cpu.vector_math.exponential import round_magic
from kiln.lowering.cpu.vector_math.lanes import Emitter, Lanes

_SQRT_HALF = {"f32": 0x3F3504F3, "f64": 0x3FE6A09E667F3BCD}  # bits of sqrt(1/2)


def split(e: Emitter, x: Lanes, denormals: bool = True) -> tuple[Lanes, Lanes]:
    """(n as a float, f) with x = 2^n (1 + f), for finite x > 0; anything for other x."""
    magic = round_magic(e)
    offset = magic + e.bias
    if denormals:
        tiny = e.compare("olt", x, 2.0 ** (1 - e.bias))
        x = e.select(tiny, x * 2.0**e.mantissa, x)
        biased, f = _split_bits(e, x)
        correction = e.select(tiny, offset + e.mantissa, offset)
    else:
        biased, f = _split_bits(e, x)
        correction = e.f(offset)
    # biased is a small integer: put it into the low bits of the magic number (AVX2 has no i64 to f64 conversion)
    return e.as_float(e.int_op("ori", biased, e.as_int(e.f(magic)))) - correction, f


def _split_bits(e: Emitter, x: Lanes) -> tuple[Lanes, Lanes]:
    """(n + bias as an integer, m - 1) of a normal x = 2^n m."""
    sqrt_half = _SQRT_HALF[e.element]
    shifted = e.int_op("addi", e.as_int(x), (e.bias << e.mantissa) - sqrt_half)
    m = e.int_op("addi", e.int_op("andi", shifted, (1 << e.mantissa) - 1), sqrt_half)
    return e.int_op("shrui", shifted, e.mantissa), e.as_float(m) - 1.0


def rest(e: Emitter, f: Lanes) -> Lanes:
    """log(1 + f) - f for 1 + f in [sqrt(1/2), sqrt(2)]."""
    if e.bits == 32:
        p = e.polynomial(COEFFICIENTS["log", "f32"], f)
        return f * f * e.fma(p, f, -0.5)
    half_square = f * f * 0.5
    s = f / (f + 2.0)
    z = s * s
    return e.fma(s, e.fma(z, e.polynomial(COEFFICIENTS["log_atanh", "f64"], z), half_square), -half_square)


def special(e: Emitter, x: Lanes, pole: float, result: Lanes) -> Lanes:
    """-inf at the pole, NaN below it, inf at inf, and NaN for NaN; ``result`` elsewhere."""
    at_or_below = e.select(e.compare("oeq", x, pole), -math.inf, math.nan)
    result = e.select(e.compare("ole", x, pole), at_or_below, result)
    return e.select(e.compare("uge", x, math.inf), x, result)


def _combine(e: Emitter, n: Lanes, f: Lanes) -> Lanes:
    """n ln(2) + log(1 + f)."""
    high, low = PARTS["ln(2)", e.element]
    return e.fma(n, high, f + e.fma(n, low, rest(e, f)))


def log(e: Emitter, x: Lanes) -> Lanes:
    """The natural logarithm; NaN below 0, -inf at 0."""
    return special(e, x, 0.0, _combine(e, *split(e, x)))


def log2(e: Emitter, x: Lanes) -> Lanes:
    """The logarithm to base 2, exact for powers of two."""
    n, f = split(e, x)
    high, low = PARTS["1/ln(2)", e.element]
    return special(e, x, 0.0, n + e.fma(f, high, e.fma(f, low, rest(e, f) * high)))


def log10(e: Emitter, x: Lanes) -> Lanes:
    """The logarithm to base 10, with log10(2) in two parts."""
    n, f = split(e, x)
    high, low = PARTS["1/ln(10)", e.element]
    two_high, two_low = PARTS["log10(2)", e.element]
    small = e.fma(n, two_low, e.fma(f, low, rest(e, f) * high))
    return special(e, x, 0.0, e.fma(n, two_high, e.fma(f, high, small)))


def log1p(e: Emitter, x: Lanes) -> Lanes:
    """1 + x = 2^n (1 + f), where f = 2^-n x + (2^-n - 1) is rounded once, from x itself."""
    sign = e.sign_bit(x)
    biased, _ = _split_bits(e, x + 1.0)
    n = e.as_float(e.int_op("ori", biased, e.as_int(e.f(round_magic(e))))) - round_magic(e, e.bias)
    exponent = e.int_op("subi", e.int_op("shli", biased, e.mantissa), e.bias << e.mantissa)
    scaled = e.as_float(e.int_op("subi", e.as_int(x), exponent))  # exact: n is 0 for small x
    inverse = e.int_op("maxsi", e.op("arith.subi", e.int_type, e.i(2 * e.bias), biased), 1)  # >= 2^-126: + 1 hides it
    f = scaled + (e.as_float(e.int_op("shli", inverse, e.mantissa)) - 1.0)
    result = special(e, x, -1.0, _combine(e, n, f))
    return e.as_float(e.int_op("ori", e.as_int(result), sign))  # log1p(-0) = -0


def _log1p_of_large(e: Emitter, a: Lanes, argument: Lanes) -> Lanes:
    """log1p(argument), or log(2a) where a > 2^(mantissa + 2): there the argument may overflow and equals 2a."""
    large = e.compare("ogt", a, 2.0 ** (e.mantissa + 2))
    result = log1p(e, e.select(large, a, argument))
    return result + e.select(large, math.log(2.0), 0.0)


def asinh(e: Emitter, x: Lanes) -> Lanes:
    """sign(x) log1p(a + a^2/(1 + sqrt(1 + a^2))), a = |x|."""
    a = e.abs(x)
    z = a * a
    result = _log1p_of_large(e, a, a + z / (e.sqrt(z + 1.0) + 1.0))
    return e.with_sign(e.abs(result), e.sign_bit(x))


def acosh(e: Emitter, x: Lanes) -> Lanes:
    """log1p(t + sqrt(2t + t^2)), t = x - 1; NaN below 1."""
    t = x - 1.0
    result = _log1p_of_large(e, x, t + e.sqrt(e.fma(t, t, t + t)))
    return e.select(e.compare("olt", x, 1.0), math.nan, result)


def atanh(e: Emitter, x: Lanes) -> Lanes:
    """sign(x)/2 log1p(2a + 2a^2/(1 - a)), a = |x|; inf at 1, NaN beyond."""
    a = e.abs(x)
    twice = a + a
    result = log1p(e, e.fma(twice, a / (1.0 - a), twice)) * 0.5
    result = e.select(e.compare("ogt", a, 1.0), math.nan, result)
    return e.as_float(e.int_op("ori", e.as_int(result), e.sign_bit(x)))
