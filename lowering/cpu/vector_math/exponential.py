# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""exp, exp2, expm1, sinh, cosh and tanh.

Range reduction (W. J. Cody and W. Waite, "Software Manual for the Elementary Functions", 1980): x = n ln(2) + r with
an integer n and |r| <= ln(2)/2.  Adding 1.5 * 2^mantissa rounds to an integer and leaves it, as an integer, in the
low bits; a bias added along makes those bits the exponent of a power of two.
"""

import math

from kiln.lowering.cpu.vector_math.coefficients import COEFFICIENTS
from kiln.lowering.cpu.vector_math.constants import PARTS
from kiln.lowering.cpu.vector_math.lanes import Emitter, Lanes

# Beyond these the result is 0 or inf (exp, exp2; expm1 is -1 below its lower end).
_EXP_RANGE = {"f32": (-104.0, 89.0), "f64": (-746.0, 710.0)}
_EXP2_RANGE = {"f32": (-151.0, 129.0), "f64": (-1076.0, 1025.0)}
_EXPM1_RANGE = {"f32": (-20.0, 89.0), "f64": (-40.0, 710.0)}
# sinh and cosh overflow at 89.42 and 710.48; tanh rounds to 1 from 9.02 and 19.07 on.
_COSH_LIMIT = {"f32": 90.0, "f64": 711.0}
_TANH_LIMIT = {"f32": 9.1, "f64": 20.0}


def round_magic(e: Emitter, bias: int = 0) -> float:
    """The number that, added to x, leaves round(x) + bias in the low bits of the sum."""
    return 1.5 * 2.0**e.mantissa + bias


def reduce_ln2(e: Emitter, x: Lanes, bias: int) -> tuple[Lanes, Lanes, Lanes]:
    """x = n ln(2) + r as (n + bias in the low bits of an integer, n as a float, r)."""
    magic = round_magic(e, bias)
    t = e.fma(x, PARTS["1/ln(2)", e.element][0], magic)
    n = t - magic
    high, low = PARTS["ln(2)", e.element]
    return e.as_int(t), n, e.fma(n, -low, e.fma(n, -high, x))


def scale(e: Emitter, p: Lanes, twice_biased: Lanes) -> Lanes:
    """p * 2^n for the low bits n + 2 * bias of ``twice_biased``, rounded once.

    In two steps, so that the factors neither overflow nor underflow where the result need not: the result goes
    gradually through the denormals to 0, and to inf.  A NaN p stays one.
    """
    half = e.int_op("shrui", twice_biased, 1)
    rest = e.int_op("subi", twice_biased, half)
    return p * e.as_float(e.int_op("shli", half, e.mantissa)) * e.as_float(e.int_op("shli", rest, e.mantissa))


def _exp_polynomial(e: Emitter, r: Lanes) -> Lanes:
    p = e.polynomial(COEFFICIENTS["exp", e.element], r)
    return e.fma(e.fma(p, r, 1.0), r, 1.0)


def exp(e: Emitter, x: Lanes, factor: Lanes | None = None) -> Lanes:
    """exp(x), or exp(x) * factor rounded only at the end (factor in (0, 2])."""
    x = e.clamp(x, *_EXP_RANGE[e.element])
    bits, _, r = reduce_ln2(e, x, 2 * e.bias)
    p = _exp_polynomial(e, r)
    return scale(e, p if factor is None else p * factor, bits)


def exp_of_sum(e: Emitter, x: Lanes, tail: Lanes) -> Lanes:
    """exp(x + tail) for a tail below the spacing of x."""
    bits, _, r = reduce_ln2(e, e.clamp(x, *_EXP_RANGE[e.element]), 2 * e.bias)
    return scale(e, _exp_polynomial(e, r + tail), bits)


def exp_flushed(e: Emitter, x: Lanes) -> Lanes:
    """exp(x) for fastmath<afn>: five ops fewer, and no denormal results.

    0 below about ln(2^-126.5), inf above about ln(2^127.5): the biased exponent reaches 0 or all ones there.
    """
    top = (e.bias + 1) * math.log(2.0)
    bits, _, r = reduce_ln2(e, e.clamp(x, -(e.bias - 0.2) * math.log(2.0), top), e.bias)
    return _exp_polynomial(e, r) * e.as_float(e.int_op("shli", bits, e.mantissa))


def exp2(e: Emitter, x: Lanes) -> Lanes:
    """`2 ** x`, by a polynomial of the rest of x after rounding to an integer."""
    x = e.clamp(x, *_EXP2_RANGE[e.element])
    magic = round_magic(e, 2 * e.bias)
    t = x + magic
    r = x - (t - magic)
    return scale(e, e.fma(e.polynomial(COEFFICIENTS["exp2", e.element], r), r, 1.0), e.as_int(t))


def exp2_flushed(e: Emitter, x: Lanes) -> Lanes:
    """exp2(x) for fastmath<afn>, as :func:`exp_flushed`."""
    x = e.clamp(x, -float(e.bias), float(e.bias + 1))
    magic = round_magic(e, e.bias)
    t = x + magic
    r = x - (t - magic)
    p = e.fma(e.polynomial(COEFFICIENTS["exp2", e.element], r), r, 1.0)
    return p * e.as_float(e.int_op("shli", e.as_int(t), e.mantissa))


def expm1_core(e: Emitter, x: Lanes) -> Lanes:
    """2^n (exp(r) - 1) + (2^n - 1) for x in [-700, 700] (f32: [-80, 80]) or NaN; the sign of a zero is lost."""
    bits, _, r = reduce_ln2(e, x, e.bias)
    p = e.fma(r * r, e.polynomial(COEFFICIENTS["expm1", e.element], r), r)
    power = e.as_float(e.int_op("shli", bits, e.mantissa))
    return e.fma(power, p, power - 1.0)


def expm1(e: Emitter, x: Lanes) -> Lanes:
    """As :func:`expm1_core`, but at half scale so that n = bias + 1 fits."""
    sign = e.sign_bit(x)
    bits, _, r = reduce_ln2(e, e.clamp(x, *_EXPM1_RANGE[e.element]), e.bias - 1)
    p = e.fma(r * r, e.polynomial(COEFFICIENTS["expm1", e.element], r), r)
    half = e.as_float(e.int_op("shli", bits, e.mantissa))
    return e.with_sign(e.fma(half, p, half - 0.5) * 2.0, sign)  # the sign is right but for expm1(-0) = -0


def _half_exp(e: Emitter, magnitude: Lanes) -> Lanes:
    """exp(magnitude)/2, which overflows only where cosh does."""
    bits, _, r = reduce_ln2(e, e.min(magnitude, _COSH_LIMIT[e.element]), 2 * e.bias - 1)
    return scale(e, _exp_polynomial(e, r), bits)


def cosh(e: Emitter, x: Lanes) -> Lanes:
    """`(e ** x + e ** -x) / 2`, of half the exponential so that it does not overflow early."""
    half = _half_exp(e, e.abs(x))
    return half + 0.25 / half


def sinh(e: Emitter, x: Lanes) -> Lanes:
    """exp(a)/2 - exp(-a)/2 for a = |x| > 1, the odd polynomial below."""
    sign, a = e.sign_bit(x), e.abs(x)
    half = _half_exp(e, a)
    z = a * a
    near = e.fma(a * z, e.polynomial(COEFFICIENTS["sinh", e.element], z), a)
    return e.with_sign(e.select(e.compare("ogt", a, 1.0), half - 0.25 / half, near), sign)


def tanh(e: Emitter, x: Lanes) -> Lanes:
    """t/(t + 2) with t = expm1(2|x|): never beyond 1, and accurate at both ends."""
    a = e.abs(x)
    t = expm1_core(e, e.min(a + a, 2.0 * _TANH_LIMIT[e.element]))
    return e.with_sign(t / (t + 2.0), e.sign_bit(x))
