# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""erf and tanh for sums with one (`lowering/tile/short_formulas.py` decides): GELU of 16-bit tensors.

A fused product waits for these: of the library's functions the epilogue of 128 x 256 results takes as long as the
product itself with 1024 terms.
"""

from math import e, log2

from torch_mlir import ir

from kiln.lowering.gpu.builder import Builder

# Abramowitz and Stegun, Handbook of Mathematical Functions, 7.1.26: an absolute error of 1.5e-7, and 5.6e-7 in f32.
_P = 0.3275911
_A = (0.254829592, -0.284496736, 1.421413741, -1.453152027, 1.061405429)


def emit_short_erf(b: Builder, x: ir.Value) -> ir.Value:
    """erf(x) for f32: a tenth of the instructions of the library's function, which fused products feel."""
    size = b.math("absf", x)
    t = b.divf(1.0, b.addf(b.mulf(size, _P), 1.0))
    polynomial = b.mulf(t, _A[4])
    for coefficient in _A[3::-1]:
        polynomial = b.mulf(t, b.addf(polynomial, coefficient))
    decay = b.math("exp2", b.mulf(b.mulf(size, size), -log2(e)))
    magnitude = b.subf(1.0, b.mulf(polynomial, decay))
    return b.select(b.cmpf("olt", x, 0.0), b.subf(0.0, magnitude), magnitude)


def emit_short_tanh(b: Builder, x: ir.Value) -> ir.Value:
    """tanh(x) for f32 as 1 - 2 / (exp(2 x) + 1): an absolute error of 1.9e-7, and the right limits and NaN."""
    growth = b.math("exp2", b.mulf(x, 2 * log2(e)))
    return b.subf(1.0, b.divf(2.0, b.addf(growth, 1.0)))
