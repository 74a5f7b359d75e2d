# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""sin, cos, tan, asin, acos, atan and atan2.

sin, cos and tan subtract a multiple of pi (or pi/2) that is stored in three parts; with fused multiply-adds the first
two subtractions are exact up to the limits below (W. Kahan; N. Juffa).  Lanes beyond go to libm.
"""

import math

from kiln.lowering.cpu.vector_math.coefficients import COEFFICIENTS
from kiln.lowering.cpu.vector_math.constants import PARTS
from kiln.lowering.cpu.vector_math.exponential import round_magic
from kiln.lowering.cpu.vector_math.fallback import repair_with_libm
from kiln.lowering.cpu.vector_math.lanes import Emitter, Lanes

# |x| up to which three parts leave an accurate remainder.
_LIMIT = {"f32": 1.0e5, "f64": 1.0e9}


def _subtract(e: Emitter, x: Lanes, n: Lanes, unit: str) -> Lanes:
    """x - n * unit."""
    for part in PARTS[unit, e.element]:
        x = e.fma(n, -part, x)
    return x


def _odd(e: Emitter, name: str, x: Lanes) -> Lanes:
    """x + x^3 p(x^2)."""
    z = x * x
    return e.fma(x * z, e.polynomial(COEFFICIENTS[name, e.element], z), x)


def _repair(e: Emitter, name: str, x: Lanes, magnitude: Lanes, result: Lanes) -> Lanes:
    return repair_with_libm(e, name, e.compare("ogt", magnitude, _LIMIT[e.element]), result, x)


def sin(e: Emitter, x: Lanes) -> Lanes:
    """sign(x) (-1)^n sin(a - n pi), a = |x|, n = round(a/pi)."""
    a = e.abs(x)
    magic = round_magic(e)
    t = e.fma(a, PARTS["1/pi", e.element][0], magic)
    odd = e.int_op("shli", e.as_int(t), e.bits - 1)
    sine = _odd(e, "sin", _subtract(e, a, t - magic, "pi"))
    return _repair(e, "sin", x, a, e.flip_sign(sine, e.int_op("xori", odd, e.sign_bit(x))))


def cos(e: Emitter, x: Lanes) -> Lanes:
    """-(-1)^n sin(a - (n + 1/2) pi), a = |x|, n = round(a/pi - 1/2)."""
    a = e.abs(x)
    magic = round_magic(e)
    t = e.fma(a, PARTS["1/pi", e.element][0], -0.5) + magic
    even = e.int_op("shli", e.int_op("addi", e.as_int(t), 1), e.bits - 1)
    r = _subtract(e, a, e.fma(t - magic, 2.0, 1.0), "pi/2")
    return _repair(e, "cos", x, a, e.flip_sign(_odd(e, "sin", r), even))


def tan(e: Emitter, x: Lanes) -> Lanes:
    """sign(x) tan(r) or -1/tan(r), r = |x| - n pi/2."""
    a = e.abs(x)
    magic = round_magic(e)
    t = e.fma(a, PARTS["2/pi", e.element][0], magic)
    odd = e.compare_int("ne", e.int_op("andi", e.as_int(t), 1), e.i(0))
    r = _subtract(e, a, t - magic, "pi/2")
    if e.bits == 32:
        tangent = _odd(e, "tan", r)
        result = e.select(odd, -1.0, tangent) / e.select(odd, tangent, 1.0)
    else:
        z = r * r
        sine = _odd(e, "sin_quarter", r)
        cosine = e.fma(z * z, e.polynomial(COEFFICIENTS["cos_quarter", "f64"], z), e.fma(z, -0.5, 1.0))
        result = e.select(odd, -cosine, sine) / e.select(odd, sine, cosine)
    return _repair(e, "tan", x, a, e.flip_sign(result, e.sign_bit(x)))


def _asin_core(e: Emitter, a: Lanes) -> tuple[Lanes, Lanes]:
    """(a <= 1/2, v): v = asin(a) there, else asin(sqrt((1 - a)/2)), which is acos(a)/2."""
    small = e.compare("ole", a, 0.5)
    z = e.select(small, a * a, e.fma(a, -0.5, 0.5))
    s = e.select(small, a, e.sqrt(z))
    return small, e.fma(s * z, e.polynomial(COEFFICIENTS["asin", e.element], z), s)


def asin(e: Emitter, x: Lanes) -> Lanes:
    """The arc sine; NaN outside of [-1, 1]."""
    a = e.abs(x)
    small, v = _asin_core(e, a)
    high, low, _ = PARTS["pi/2", e.element]
    result = e.select(small, v, high - e.fma(v, 2.0, -low))
    return e.as_float(e.int_op("ori", e.as_int(result), e.sign_bit(x)))


def acos(e: Emitter, x: Lanes) -> Lanes:
    """The arc cosine; NaN outside of [-1, 1]."""
    a, sign = e.abs(x), e.sign_bit(x)
    small, v = _asin_core(e, a)
    signed = e.flip_sign(v, sign)
    near = PARTS["pi/2", e.element][0] - (signed - PARTS["pi/2", e.element][1])
    twice = signed + signed  # acos(a), negated for x < 0
    pi_high, pi_low, _ = PARTS["pi", e.element]
    far = e.select(e.compare("olt", x, 0.0), pi_high + (twice + pi_low), twice)
    return e.select(small, near, far)


def _atan_quotient(e: Emitter, a: Lanes, b: Lanes) -> tuple[Lanes, Lanes]:
    """(atan(a/b), a + b) for a, b >= 0, with one division and a polynomial on [0, tan(pi/8)].

    atan(a/b) = pi/2 + atan(-b/a) = pi/4 + atan((a - b)/(a + b)).
    """
    steep = e.compare("ogt", a, b * (math.sqrt(2.0) + 1.0))
    middle = e.compare("ogt", a, b * (math.sqrt(2.0) - 1.0))
    total = a + b
    numerator = e.select(steep, -b, e.select(middle, a - b, a))
    denominator = e.select(steep, a, e.select(middle, total, b))
    high, low = (
        e.select(steep, half, e.select(middle, quarter, 0.0))
        for half, quarter in zip(PARTS["pi/2", e.element], PARTS["pi/4", e.element], strict=False)
    )
    q = numerator / denominator
    z = q * q
    return high + (q + e.fma(q * z, e.polynomial(COEFFICIENTS["atan", e.element], z), low)), total


def atan(e: Emitter, x: Lanes) -> Lanes:
    """The arc tangent, odd in x."""
    result, _ = _atan_quotient(e, e.abs(x), e.f(1.0))
    return e.as_float(e.int_op("ori", e.as_int(result), e.sign_bit(x)))


def atan2(e: Emitter, y: Lanes, x: Lanes) -> Lanes:
    """The angle of (x, y), with the zeros and infinities of C99 Annex F."""
    a, b = e.abs(y), e.abs(x)
    # scale large operands: a + b must not overflow (what this flushes to 0 is too small to matter)
    large = e.compare("ogt", e.select(e.compare("ogt", a, b), a, b), 2.0 ** (e.bias - 2))
    factor = e.select(large, 2.0**-10, 1.0)
    a, b = a * factor, b * factor
    both = e.compare("oeq", a, math.inf) & e.compare("oeq", b, math.inf)
    a, b = e.select(both, 1.0, a), e.select(both, 1.0, b)
    result, total = _atan_quotient(e, a, b)
    result = e.select(e.compare("oeq", total, 0.0), 0.0, result)
    pi_high, pi_low, _ = PARTS["pi", e.element]
    negative = e.compare_int("slt", e.as_int(x), e.i(0))
    result = e.select(negative, pi_high - (result - pi_low), result)
    return e.as_float(e.int_op("ori", e.as_int(result), e.sign_bit(y)))
