# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Weighted minimax fits of polynomials by the Remez exchange.

Only ``fit.py`` uses this, offline: it needs mpmath, which the compiler itself does not.
The exchange runs on a fixed grid of Chebyshev points, in multiple precision; on a grid it
converges in a few steps, and a grid of 64 points per coefficient is within 0.1 % of the true optimum.

Source: E. Ya. Remez, "Sur la détermination des polynômes d'approximation de degré donné" (1934), multiple exchange.
"""

from collections.abc import Callable, Sequence
from typing import TypeAlias

import mpmath as mp

DIGITS = 50

Real: TypeAlias = float  # an mpmath.mpf, which computes like one to more digits
Function: TypeAlias = Callable[[Real], Real]


def _grid(low: Real, high: Real, count: int) -> list[Real]:
    """``count`` Chebyshev points of [low, high], ends included; a zero is moved off the removable singularity."""
    middle, half = (low + high) / 2, (high - low) / 2
    points = [middle - half * mp.cos(mp.pi * i / (count - 1)) for i in range(count)]
    tiny = (high - low) * mp.mpf(10) ** -10
    return [p if abs(p) > tiny else tiny for p in points]


def _extrema(errors: Sequence[Real], wanted: int) -> list[int]:
    """Indices of ``wanted`` alternating extrema of ``errors``: the largest of every run of one sign."""
    peaks: list[int] = []
    for i, e in enumerate(errors):
        if peaks and (errors[peaks[-1]] > 0) == (e > 0):
            if abs(e) > abs(errors[peaks[-1]]):
                peaks[-1] = i
        else:
            peaks.append(i)
    while len(peaks) > wanted:  # drop the smaller end
        peaks.pop(0 if abs(errors[peaks[0]]) < abs(errors[peaks[-1]]) else -1)
    return peaks


def minimax(f: Function, weight: Function, low: float, high: float, degree: int) -> tuple[list[Real], float]:
    """Fit p(t) to ``f`` on [low, high] with least maximum of |p - f| / |weight|.

    Returns the coefficients, lowest first, and the maximum weighted error.
    """
    with mp.workdps(DIGITS):
        count = 64 * (degree + 2) + 1
        x = _grid(mp.mpf(low), mp.mpf(high), count)
        y = [f(t) for t in x]
        w = [weight(t) for t in x]
        size = degree + 2
        reference = [round((count - 1) * (1 - mp.cos(mp.pi * i / (size - 1))) / 2) for i in range(size)]
        p, worst = [], mp.inf
        for _ in range(40):
            p, level = _solve(x, y, w, reference)
            errors = [(mp.polyval(p[::-1], t) - v) / s for t, v, s in zip(x, y, w, strict=True)]
            worst = max(abs(e) for e in errors)
            peaks = _extrema(errors, size)
            if worst <= abs(level) * mp.mpf("1.0005") or len(peaks) < size:
                break
            reference = peaks
        return p, float(worst)


def _solve(
    x: Sequence[Real], y: Sequence[Real], w: Sequence[Real], reference: Sequence[int]
) -> tuple[list[Real], Real]:
    """Coefficients whose weighted error alternates between +level and -level on ``reference``, and the level."""
    size = len(reference)
    a, b = mp.matrix(size, size), mp.matrix(size, 1)
    for row, i in enumerate(reference):
        for k in range(size - 1):
            a[row, k] = x[i] ** k
        a[row, size - 1] = w[i] * (-1) ** row
        b[row] = y[i]
    solution = list(mp.lu_solve(a, b))
    return solution[:-1], solution[-1]
