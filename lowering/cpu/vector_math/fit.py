# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Derives ``coefficients.py`` and ``constants.py``: ``python -m kiln.lowering.cpu.vector_math.fit``.

Every entry of ``FITS`` names the function that is approximated (of t), the weight that makes the
error relative to the final result, the interval, and the degrees for f32 and f64.
Coefficients are rounded to the element type once, from 50 digits.  Needs mpmath.
"""

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import mpmath as mp
import numpy as np

from kiln.lowering.cpu.vector_math.remez import DIGITS, Function, Real, minimax


class Fit(NamedTuple):
    """One approximation: f(t) ~ p(t) on [low, high], error divided by weight(t); f32 and f64 are degrees of p."""

    what: str
    f: Function
    weight: Function
    low: float
    high: float
    f32: int | None
    f64: int | None


def _fit(what: str, f: Function, weight: Function, low: float, high: float, f32: int | None, f64: int | None) -> Fit:
    return Fit(what, f, weight, low, high, f32, f64)


def _odd(what: str, f: Function, limit: float, f32: int | None, f64: int | None) -> Fit:
    """f(x) = x + x^3 p(x^2), error relative to f."""
    return _fit(
        f"{what} = x + x^3 p(x^2), x^2 in [0, {limit**2:.4g}]",
        lambda t: (f(mp.sqrt(t)) - mp.sqrt(t)) / (t * mp.sqrt(t)),
        lambda t: f(mp.sqrt(t)) / (t * mp.sqrt(t)),
        0.0,
        limit**2,
        f32,
        f64,
    )


def _erfc_scaled(t: Real) -> Real:
    """(1 + 2a) exp(a^2) erfc(a) for t = (a - 2)/(a + 2)."""
    a = 2 * (1 + t) / (1 - t)
    return (1 + 2 * a) * mp.exp(a * a) * mp.erfc(a)


HALF_LN2 = 0.34663
FITS: dict[str, Fit] = {
    "exp": _fit(
        "exp(r) = 1 + r + r^2 p(r), |r| <= ln(2)/2",
        lambda r: (mp.expm1(r) - r) / r**2,
        lambda r: mp.exp(r) / r**2,
        -HALF_LN2, HALF_LN2, 4, 9,
    ),
    "expm1": _fit(
        "expm1(r) = r + r^2 p(r), |r| <= ln(2)/2, error relative to expm1",
        lambda r: (mp.expm1(r) - r) / r**2,
        lambda r: mp.expm1(r) / r**2,
        -HALF_LN2, HALF_LN2, 5, 10,
    ),
    "exp2": _fit(
        "2^r = 1 + r p(r), |r| <= 1/2",
        lambda r: mp.expm1(r * mp.ln(2)) / r,
        lambda r: mp.mpf(2) ** r / r,
        -0.50001, 0.50001, 5, 10,
    ),
    "exp2_short": _fit(
        "2^r = 1 + r p(r), |r| <= 1/2",
        lambda r: mp.expm1(r * mp.ln(2)) / r,
        lambda r: mp.mpf(2) ** r / r,
        -0.50001, 0.50001, 3, None,
    ),
    "log": _fit(
        "log(1 + f) = f - f^2/2 + f^3 p(f), 1 + f in [sqrt(1/2), sqrt(2)]",
        lambda f: (mp.log1p(f) - f + f * f / 2) / f**3,
        lambda f: mp.log1p(f) / f**3,
        -0.29290, 0.41422, 7, None,
    ),
    "log_atanh": _fit(
        "log((1 + s)/(1 - s)) = 2s + s^3 p(s^2), |s| <= 0.1716",
        lambda z: (2 * mp.atanh(mp.sqrt(z)) / mp.sqrt(z) - 2) / z,
        lambda z: 2 * mp.atanh(mp.sqrt(z)) / mp.sqrt(z) / z,
        0.0, 0.17158**2, None, 6,
    ),
    "pow_log2": _fit(
        "log2((1 + s)/(1 - s)) = s p(s^2), |s| <= 0.1716; f64 arithmetic for f32 pow",
        lambda z: 2 * mp.atanh(mp.sqrt(z)) / mp.sqrt(z) / mp.ln(2),
        lambda z: 2 * mp.atanh(mp.sqrt(z)) / mp.sqrt(z) / mp.ln(2),
        0.0, 0.17158**2, None, 4,
    ),
    "pow_atanh": _fit(
        "log((1 + s)/(1 - s)) = s (2 + z (2/3 + z p(z))), z = s^2, |s| <= 0.1716",
        lambda z: ((2 * mp.atanh(mp.sqrt(z)) / mp.sqrt(z) - 2) / z - mp.mpf(2) / 3) / z,
        lambda z: 2 * mp.atanh(mp.sqrt(z)) / mp.sqrt(z) / z**2,
        0.0, 0.17158**2, None, 7,
    ),
    "pow_exp2": _fit(
        "2^r = p(r), |r| <= 1/2; f64 arithmetic for f32 pow",
        lambda r: mp.mpf(2) ** r,
        lambda r: mp.mpf(2) ** r,
        -0.50001, 0.50001, None, 7,
    ),
    "sin": _odd("sin", mp.sin, 1.5709, 3, 7),
    "sin_quarter": _odd("sin", mp.sin, 0.78541, None, 5),
    "cos_quarter": _fit(
        "cos(x) = 1 - x^2/2 + x^4 p(x^2), |x| <= pi/4",
        lambda t: (mp.cos(mp.sqrt(t)) - 1 + t / 2) / t**2,
        lambda t: mp.cos(mp.sqrt(t)) / t**2,
        0.0, 0.78541**2, None, 5,
    ),
    "tan": _odd("tan", mp.tan, 0.78541, 6, None),
    "sinh": _odd("sinh", mp.sinh, 1.0, 2, 6),
    "asin": _odd("asin", mp.asin, 0.5, 4, 11),
    "atan": _odd("atan", mp.atan, 0.41422, 4, 10),
    "erf": _fit(
        "erf(a) = -expm1(-a p(a)), 0 <= a <= 5.95",
        lambda a: -mp.log(mp.erfc(a)) / a,
        lambda a: mp.erf(a) / mp.erfc(a) / a,
        0.0, 5.95, None, 24,
    ),
    "erf_short": _fit(
        "erf(a) = -expm1(-a p(a)), 0 <= a <= 3.93",
        lambda a: -mp.log(mp.erfc(a)) / a,
        lambda a: mp.erf(a) / mp.erfc(a) / a,
        0.0, 3.93, 8, None,
    ),
    "erf_log2": _fit(
        "erf(a) = 1 - 2^(a p(a)), 0 <= a <= 4, error relative to 1 - erf",
        lambda a: mp.log(mp.erfc(a), 2) / a,
        lambda a: 1 / (a * mp.ln(2)),
        0.0, 4.0, 5, None,
    ),
    "erfc_near": _fit(
        "erfc(a) = exp(-a p(a)), 0 <= a <= 1/2",
        lambda a: -mp.log(mp.erfc(a)) / a,
        lambda a: 1 / a,
        0.0, 0.5, 4, 10,
    ),
    "erfc_short": _fit(
        "(1 + 2a) exp(a^2) erfc(a) = p((a - 2)/(a + 2)), 0 <= a <= 10.1",
        _erfc_scaled, _erfc_scaled, -1.0, 0.66945, 9, None,
    ),
    "erfc": _fit(
        "(1 + 2a) exp(a^2) erfc(a) = p((a - 2)/(a + 2)), 0 <= a <= 27.3",
        _erfc_scaled, _erfc_scaled, -1.0, 0.86349, None, 25,
    ),
}  # fmt: skip

# Numbers as sums of parts: (value, leading bits of the first part or 0 for all, number of parts) for (f32, f64).
# A short first part makes its product with the integers of a range reduction exact.
PARTS: dict[str, tuple[Callable[[], Real], tuple[int, int], int]] = {
    "ln(2)": (lambda: mp.ln(2), (15, 32), 2),
    "log10(2)": (lambda: mp.log10(2), (12, 40), 2),
    "1/ln(2)": (lambda: 1 / mp.ln(2), (0, 0), 2),
    "1/ln(10)": (lambda: 1 / mp.ln(10), (0, 0), 2),
    "2/3": (lambda: mp.mpf(2) / 3, (0, 0), 2),
    "pi": (lambda: +mp.pi, (0, 0), 3),
    "pi/2": (lambda: mp.pi / 2, (0, 0), 3),
    "pi/4": (lambda: mp.pi / 4, (0, 0), 2),
    "1/pi": (lambda: 1 / mp.pi, (0, 0), 1),
    "2/pi": (lambda: 2 / mp.pi, (0, 0), 1),
}

_LICENSE = """# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""

_COEFFICIENTS = '''"""Coefficients of the vector math, lowest order first.  Generated by ``fit.py``; do not edit.

Keys: (name, element type).  The comments give the fitted form and the maximum relative
error of the exact fit (before the coefficients and the arithmetic are rounded).
"""

COEFFICIENTS: dict[tuple[str, str], tuple[float, ...]] = {
'''

_CONSTANTS = '''"""Constants of the vector math as sums of parts, largest first.  Generated by ``fit.py``; do not edit.

Keys: (name, element type).
"""

PARTS: dict[tuple[str, str], tuple[float, ...]] = {
'''


def fit_coefficients(fit: Fit, element: str) -> tuple[tuple[float, ...], float]:
    """(coefficients rounded to ``element``, maximum weighted error of the unrounded fit)."""
    degree = fit.f32 if element == "f32" else fit.f64
    if degree is None:
        raise ValueError(f"{fit.what}: no fit for {element}")
    with mp.workdps(DIGITS):
        p, error = minimax(fit.f, fit.weight, fit.low, fit.high, degree)
        return tuple(_round(c, np.float32 if element == "f32" else np.float64) for c in p), error


def render() -> dict[str, str]:
    """The texts of ``coefficients.py`` and ``constants.py``."""
    coefficients, constants = [_LICENSE, _COEFFICIENTS], [_LICENSE, _CONSTANTS]
    with mp.workdps(DIGITS):
        for name, fit in FITS.items():
            for element in ("f32", "f64"):
                if getattr(fit, element) is None:
                    continue
                found, error = fit_coefficients(fit, element)
                coefficients += [f"    # {fit.what}; error {error:.2e}\n", *_entry(name, element, found)]
        for name, (value, bits, count) in PARTS.items():
            for element, kind, leading in (("f32", np.float32, bits[0]), ("f64", np.float64, bits[1])):
                constants += _entry(name, element, _parts(value(), kind, leading, count))
    return {"coefficients.py": "".join([*coefficients, "}\n"]), "constants.py": "".join([*constants, "}\n"])}


def _entry(name: str, element: str, numbers: Sequence[float]) -> list[str]:
    """The lines of one entry."""
    if len(numbers) == 1:
        return [f'    ("{name}", "{element}"): (float.fromhex("{numbers[0].hex()}"),),\n']
    lines = [f'        float.fromhex("{c.hex()}"),\n' for c in numbers]
    return [f'    ("{name}", "{element}"): (\n', *lines, "    ),\n"]


def _round(value: Real, kind: type) -> float:
    """``value`` rounded to nearest in float32 or float64."""
    return float(kind(mp.nstr(value, 40)))


def _parts(value: Real, kind: type, leading: int, count: int) -> list[float]:
    """``value`` as a sum of ``count`` numbers, the first cut to ``leading`` bits (0: all).

    All but the last are cut towards zero.
    """
    found: list[float] = []
    for i in range(count):
        bits = (leading if i == 0 else 0) or np.finfo(kind).nmant + 1
        fraction, exponent = mp.frexp(value)
        cut = float(mp.ldexp(mp.floor(mp.ldexp(fraction, bits)), exponent - bits))
        found.append(cut if i < count - 1 else _round(value, kind))
        value -= mp.mpf(found[-1])
    return found


if __name__ == "__main__":
    for file_name, text in render().items():
        target = Path(__file__).with_name(file_name)
        if "--check" not in sys.argv:
            target.write_text(text)
        elif target.read_text() != text:
            sys.exit(f"{target} is out of date: run {__spec__.name}")
