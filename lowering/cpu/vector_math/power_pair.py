# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""a^y in f64 with a logarithm of about 68 bits, as the unevaluated sum of two doubles (high, low).

An error of the logarithm is multiplied by y log(a), up to 745, so double precision is 10 bits short.  The sums and
products follow T. J. Dekker, "A floating-point technique for extending the available precision", Numer. Math. 18
(1971), with fused multiply-adds for the products' low parts; terms below 2^-66 of the result are left out.
"""

import math

from kiln.lowering.cpu.vector_math.coefficients import COEFFICIENTS
from kiln.lowering.cpu.vector_math.constants import PARTS
from kiln.lowering.cpu.vector_math.exponential import exp_of_sum
from kiln.lowering.cpu.vector_math.lanes import Emitter, Lanes
from kiln.lowering.cpu.vector_math.logarithm import split

Pair = tuple[Lanes, Lanes]


def _sum(high: Lanes | float, low: Lanes) -> Pair:
    """high + low exactly, for |high| >= |low| or high = 0."""
    total = high + low
    return total, low - (total - high)


def _product(e: Emitter, a: Pair, b: Pair) -> Pair:
    """a * b to about 2^-104."""
    high = a[0] * b[0]
    return high, e.fma(a[0], b[0], -high) + e.fma(a[0], b[1], a[1] * b[0])


def log_pair(e: Emitter, a: Lanes) -> Pair:
    """log(a) for finite a > 0: n ln(2) + s (2 + z (2/3 + z p(z))), s = f/(2 + f), z = s^2."""
    n, f = split(e, a)
    total, rest = _sum(e.f(2.0), f)
    inverse = 1.0 / total
    s_high = f * inverse
    s = s_high, (e.fma(-s_high, total, f) - s_high * rest) * inverse
    z = _product(e, s, s)
    third, third_low = PARTS["2/3", "f64"]
    inner, inner_low = _sum(e.f(third), z[0] * e.polynomial(COEFFICIENTS["pow_atanh", "f64"], z[0]))
    w = _product(e, z, (inner, inner_low + third_low))
    two, two_low = _sum(e.f(2.0), w[0])
    high, low = _product(e, s, (two, two_low + w[1]))
    ln2, ln2_low = PARTS["ln(2)", "f64"]
    total, rest = _sum(n * ln2, high)
    return _sum(total, rest + e.fma(n, ln2_low, low))


def power_of_magnitude(e: Emitter, a: Lanes, y: Lanes) -> Lanes:
    """a^y for a >= 0 in f64; a = 0 and inf as limits, NaN for 0^0 and the like."""
    high, low = log_pair(e, a)
    high = e.select(e.compare("oeq", a, 0.0), -math.inf, high)
    high = e.select(e.compare("uge", a, math.inf), a, high)
    product = y * high
    tail = e.fma(y, high, -product) + y * low
    tail = e.select(e.compare("olt", e.abs(product), 1000.0), tail, 0.0)  # beyond: 0, inf or NaN already
    return exp_of_sum(e, product, tail)
