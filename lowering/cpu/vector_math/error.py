# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""erf and erfc."""

from kiln.lowering.cpu.vector_math.coefficients import COEFFICIENTS
from kiln.lowering.cpu.vector_math.exponential import exp, expm1_core
from kiln.lowering.cpu.vector_math.lanes import Emitter, Lanes

# erf rounds to 1 from 3.92 and 5.93 on, erfc to 0 from 10.06 and 27.23 on.
_ERF_LIMIT = {"f32": 3.93, "f64": 5.95}
_ERFC_LIMIT = {"f32": 10.1, "f64": 27.3}
_LONGEST_CHAIN = 10  # even and odd powers cancel here: one chain in f32
_FIT = {"f32": "_short", "f64": ""}


def erf(e: Emitter, x: Lanes) -> Lanes:
    """erf(a) = -expm1(-a p(a)), a = |x|: never beyond 1, and accurate at both ends."""
    a = e.min(e.abs(x), _ERF_LIMIT[e.element])
    u = -a * e.polynomial(COEFFICIENTS["erf" + _FIT[e.element], e.element], a, _LONGEST_CHAIN)
    return e.with_sign(e.abs(expm1_core(e, u)), e.sign_bit(x))


def erfc(e: Emitter, x: Lanes) -> Lanes:
    """erfc(a) = exp(-a^2) p(t)/(1 + 2a), t = (a - 2)/(a + 2), a = |x|; 2 - erfc(a) for x < 0.

    For a < 1/2, where the roundings of these factors show most, exp(-a q(a)) instead.

    The form follows M. M. Shepherd and J. G. Laframboise, "Chebyshev approximation of (1 + 2x) exp(x^2) erfc x in
    0 <= x < inf", Math. Comp. 36 (1981).  a^2 = square + error, with exp(-error) = 1 - error.
    """
    a = e.min(e.abs(x), _ERFC_LIMIT[e.element])
    t = (a - 2.0) / (a + 2.0)
    far = e.polynomial(COEFFICIENTS["erfc" + _FIT[e.element], e.element], t, _LONGEST_CHAIN) / e.fma(a, 2.0, 1.0)
    square = a * a
    error = e.fma(a, a, -square)
    far = e.fma(far, -error, far)
    near = a * e.polynomial(COEFFICIENTS["erfc_near", e.element], a)
    is_near = e.compare("olt", a, 0.5)
    result = exp(e, -e.select(is_near, near, square), e.select(is_near, 1.0, far))
    return e.select(e.compare("olt", x, 0.0), 2.0 - result, result)
