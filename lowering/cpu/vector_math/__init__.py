# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Vector math: functions of f32 and f64 lanes as formulas in arith (docs/vector-math.md has accuracy and speed).

``FUNCTIONS`` maps a ``math`` (or ``arith``) op to its formula ``f(emitter, *operands) -> Lanes``;
``APPROXIMATE`` holds the cheaper ones for ``fastmath<afn>``: exponentials that flush denormal results, and functions
for results of 16 bits (f32 alone).
"""

from collections.abc import Callable

from kiln.lowering.cpu.vector_math import (
    conversion,
    error,
    exponential,
    logarithm,
    power,
    short,
    trigonometric,
)
from kiln.lowering.cpu.vector_math.lanes import Emitter, Lanes

__all__ = ["APPROXIMATE", "FUNCTIONS", "Emitter", "Lanes"]

FUNCTIONS: dict[str, Callable[..., Lanes]] = {
    "math.exp": exponential.exp,
    "math.exp2": exponential.exp2,
    "math.expm1": exponential.expm1,
    "math.sinh": exponential.sinh,
    "math.cosh": exponential.cosh,
    "math.tanh": exponential.tanh,
    "math.log": logarithm.log,
    "math.log2": logarithm.log2,
    "math.log10": logarithm.log10,
    "math.log1p": logarithm.log1p,
    "math.asinh": logarithm.asinh,
    "math.acosh": logarithm.acosh,
    "math.atanh": logarithm.atanh,
    "math.sin": trigonometric.sin,
    "math.cos": trigonometric.cos,
    "math.tan": trigonometric.tan,
    "math.asin": trigonometric.asin,
    "math.acos": trigonometric.acos,
    "math.atan": trigonometric.atan,
    "math.atan2": trigonometric.atan2,
    "math.erf": error.erf,
    "math.erfc": error.erfc,
    "math.powf": power.powf,
    "math.fpowi": power.fpowi,
    "math.rsqrt": power.rsqrt,
    "math.cbrt": power.cbrt,
    "arith.remf": power.remainder,
    "arith.maximumf": conversion.maximum,
    "arith.minimumf": conversion.minimum,
    "math.clampf": conversion.clamp,
    "math.isnan": conversion.is_nan,
    "math.isinf": conversion.is_infinite,
    "math.isfinite": conversion.is_finite,
}

APPROXIMATE: dict[str, Callable[..., Lanes]] = {
    "math.exp": exponential.exp_flushed,
    "math.exp2": exponential.exp2_flushed,
    "math.erf": short.erf_short,
    "math.tanh": short.tanh_short,
}
