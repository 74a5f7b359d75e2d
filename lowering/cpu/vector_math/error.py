# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""erf and erfc (f64 through libm, see ``fallback.py``)."""

from kiln.lowering.cpu.vector_math.coefficients import COEFFICIENTS
from kiln.lowering.cpu.vector_math.exponential import exp
from kiln.lowering.cpu.vector_math.fallback import call_libm
from kiln.lowering.cpu.vector_math.lanes import Emitter, Lanes

_ERF_LIMIT = 3.93  # erf rounds to 1 in f32 from 3.92 on
_ERFC_LIMIT = 10.1  # erfc rounds to 0 in f32 from 10.06 on


def erf(e: Emitter, x: Lanes) -> Lanes:
    """A rational function, odd, all coefficients positive."""
    if e.bits == 64:
        return call_libm(e, "erf", x)
    x = e.clamp(x, -_ERF_LIMIT, _ERF_LIMIT)
    z = x * x
    p, q = (e.polynomial(COEFFICIENTS["erf", "f32", part], z) for part in "pq")
    return x * p / q


def erfc(e: Emitter, x: Lanes) -> Lanes:
    """erfc(a) = exp(-a^2) p(t)/(1 + 2a), t = (a - 2)/(a + 2), a = |x|; 2 - erfc(a) for x < 0.

    The form follows M. M. Shepherd and J. G. Laframboise, "Chebyshev approximation of (1 + 2x) exp(x^2) erfc x in
    0 <= x < inf", Math. Comp. 36 (1981).  a^2 = square + error, with exp(-error) = 1 - error.
    """
    if e.bits == 64:
        return call_libm(e, "erfc", x)
    a = e.min(e.abs(x), _ERFC_LIMIT)
    p = e.polynomial(COEFFICIENTS["erfc", "f32", "p"], (a - 2.0) / (a + 2.0)) / e.fma(a, 2.0, 1.0)
    square = a * a
    error = e.fma(a, a, -square)
    result = exp(e, -square, e.fma(p, -error, p))
    return e.select(e.compare("olt", x, 0.0), 2.0 - result, result)
