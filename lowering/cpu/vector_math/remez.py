# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Weighted minimax fits (Remez exchange) of polynomials and rational functions.

Only ``fit.py`` uses this, offline: it needs mpmath, which the compiler itself does not.
The exchange runs on a fixed grid of Chebyshev points, in multiple precision; on a grid it
converges in a few steps, and a grid of 64 points per coefficient is within 0.1 % of the true optimum.

Source: E. Ya. Remez (1934); the form for rational functions follows W. Fraser and J. F. Hart,
"On the computation of rational approximations to continuous functions", CACM 5 (1962).
"""

from collections.abc import Callable, Sequence

import mpmath as mp

DIGITS = 50

Function = Callable[[mp.mpf], mp.mpf]


def _grid(low: mp.mpf, high: mp.mpf, count: int) -> list[mp.mpf]:
    """``count`` Chebyshev points of [low, high], ends included; a zero is moved off the removable singularity."""
    middle, half = (low + high) / 2, (high - low) / 2
    points = [middle - half * mp.cos(mp.pi * i / (count - 1)) for i in range(count)]
    tiny = (high - low) * mp.mpf(10) ** -10
    return [p if abs(p) > tiny else tiny for p in points]


def _extrema(errors: Sequence[mp.mpf], wanted: int) -> list[int]:
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


def minimax(
    f: Function, weight: Function, low: float, high: float, degree: int, denominator: int = 0
) -> tuple[list[mp.mpf], list[mp.mpf], float]:
    """Fit p(t)/q(t) to ``f`` on [low, high] with least maximum of |p/q - f| / |weight|.

    ``degree`` is that of p, ``denominator`` that of q (q(0) = 1; 0 asks for a polynomial).
    Returns the coefficients of p and of q, lowest first, and the maximum weighted error.
    """
    with mp.workdps(DIGITS):
        unknowns = degree + 1 + denominator
        count = 64 * (unknowns + 1) + 1
        reference = [round((count - 1) * (1 - mp.cos(mp.pi * i / unknowns)) / 2) for i in range(unknowns + 1)]
        level = mp.mpf(0)
        # A rational fit converges only from close by: widen the interval step by step, from one where the
        # function is nearly a polynomial, and keep the reference (as grid indices, it scales along).
        steps = 24 if denominator else 0
        for step in range(steps, 0, -1):
            end = low + (high - low) * mp.mpf("0.8") ** step
            reference, level = _exchange(f, weight, low, end, count, degree, denominator, reference, level, 4)[3:]
        p, q, worst, *_ = _exchange(f, weight, low, high, count, degree, denominator, reference, level, 40)
        return p, q, float(worst)


def _exchange(f, weight, low, high, count, degree, denominator, reference, level, rounds):
    """Exchange steps on one interval: (p, q, worst error, reference, level)."""
    x = _grid(mp.mpf(low), mp.mpf(high), count)
    y = [f(t) for t in x]
    w = [weight(t) for t in x]
    p, q, worst = [], [], mp.inf
    for _ in range(rounds):
        p, q, level = _solve(x, y, w, reference, degree, denominator, level)
        errors = [(mp.polyval(p[::-1], t) / mp.polyval(q[::-1], t) - v) / s for t, v, s in zip(x, y, w, strict=True)]
        worst = max(abs(e) for e in errors)
        if worst <= abs(level) * mp.mpf("1.0005"):
            break
        peaks = _extrema(errors, len(reference))
        if len(peaks) < len(reference):
            break  # no full alternation: the fit is degenerate
        reference = peaks
    return p, q, worst, reference, level


def _solve(x, y, w, reference, degree, denominator, level):
    """Coefficients that make the weighted error alternate between +level and -level on ``reference``.

    p(x_i) = (f_i + s_i level w_i) q(x_i): for a rational fit a generalised eigenvalue problem in (level, q), once p is
    projected out; the wanted pair has the least |level| among those whose q keeps its sign.
    """
    signs = [-1 if row % 2 else 1 for row in range(len(reference))]
    q = [mp.mpf(1)]
    if denominator:
        powers = mp.matrix([[x[i] ** k for k in range(max(degree, denominator) + 1)] for i in reference])
        z = mp.qr(powers[:, : degree + 1])[0][:, degree + 1 :].T
        right = powers[:, : denominator + 1]
        a = z * mp.diag([y[i] for i in reference]) * right
        b = z * mp.diag([-s * w[i] for s, i in zip(signs, reference, strict=True)]) * right
        values, vectors = mp.eig(b**-1 * a)
        best = None
        for k, value in enumerate(values):
            if abs(mp.im(value)) > abs(value) * mp.mpf(10) ** -20:
                continue
            c = [mp.re(vectors[i, k] / vectors[0, k]) for i in range(denominator + 1)]
            if all(mp.polyval(c[::-1], t) > 0 for t in x) and (best is None or abs(value) < abs(best[0])):
                best = (mp.re(value), c)
        if best is None:
            raise ArithmeticError("no denominator without a zero on the interval")
        level, q = best
    size = degree + 1 if denominator else degree + 2
    a, b = mp.matrix(len(reference), size), mp.matrix(len(reference), 1)
    for row, (i, sign) in enumerate(zip(reference, signs, strict=True)):
        for k in range(degree + 1):
            a[row, k] = x[i] ** k
        if denominator:
            b[row] = (y[i] + sign * level * w[i]) * mp.polyval(q[::-1], x[i])
        else:
            a[row, size - 1] = -sign * w[i]
            b[row] = y[i]
    solution = mp.lu_solve(a, b)
    return [solution[k] for k in range(degree + 1)], q, level if denominator else solution[size - 1]
