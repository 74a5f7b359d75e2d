# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""erf and tanh with an error of 2^-15 or less of their distance from one, for results that are rounded to 16 bits.

Half the operations of the accurate formulas, and half the latency, which is what an epilogue waits for.
"""

import math

from kiln.lowering.cpu.vector_math.coefficients import COEFFICIENTS
from kiln.lowering.cpu.vector_math.exponential import round_magic
from kiln.lowering.cpu.vector_math.lanes import Emitter, Lanes

__all__ = ["erf_short", "tanh_short"]

_ERF_LIMIT = 4.0  # 1 - erf is a quarter of the last bit of one there
_TANH_LIMIT = 28.0  # in units of log2: 1 - tanh is an eighth of it


def _power(e: Emitter, t: Lanes, r: Lanes) -> tuple[Lanes, Lanes]:
    """2^(n + r) as two factors, for the sum t of n and `round_magic`; |r| <= 1/2, n a normal number's exponent."""
    p = e.fma(e.polynomial(COEFFICIENTS["exp2_short", e.element], r), r, 1.0)
    return p, e.as_float(e.int_op("shli", e.as_int(t), e.mantissa))


def erf_short(e: Emitter, x: Lanes) -> Lanes:
    """erf(a) = 1 - 2^(a p(a)), a = |x|."""
    a = e.min(e.abs(x), _ERF_LIMIT)
    p = e.polynomial(COEFFICIENTS["erf_log2", e.element], a)
    magic = round_magic(e, e.bias)
    t = e.fma(a, p, magic)
    r = e.fma(a, p, magic - t)
    factor, power = _power(e, t, r)
    return e.with_sign(e.fma(-factor, power, 1.0), e.sign_bit(x))


def tanh_short(e: Emitter, x: Lanes) -> Lanes:
    """tanh(x) = 1 - 2/(exp(2 x) + 1)."""
    y = e.clamp(x * (2.0 * math.log2(math.e)), -_TANH_LIMIT, _TANH_LIMIT)
    magic = round_magic(e, e.bias)
    t = y + magic
    factor, power = _power(e, t, y - (t - magic))
    return 1.0 - 2.0 / e.fma(factor, power, 1.0)
