# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Which math functions Triton lowers well by itself, and what the device's math library calls the others.

Triton's own `math.sin`, `math.log` and the like on f32 are the hardware's approximations, whose error is large for
large arguments or near 1; several others it does not lower at all.  All f64 functions come from the library.
"""

from torch_mlir import ir

__all__ = ["DIRECT", "INSTRUCTIONS", "LIBRARY", "library_symbol"]

DIRECT = ("math.exp", "math.exp2", "math.erf", "math.absf", "math.floor", "math.ceil", "math.fma", "math.rsqrt")
"""Ops that are emitted as they are for f32."""

INSTRUCTIONS = {
    "math.exp2": "ex2.approx.ftz.f32", "math.rsqrt": "rsqrt.approx.f32",
    "math.ceil": "cvt.rpi.f32.f32", "math.floor": "cvt.rmi.f32.f32",
}  # fmt: skip
"""Ops on f32 that are one instruction of an NVIDIA GPU, by which the library has them, too. Reading the library takes
Triton 40 ms a kernel, and Python's interpreter lock for as long, so that no other kernel is emitted. Its `ceilf` and
`floorf`, as Triton links them, take denormal numbers as zero: `ceil` of 1e-40 is 1."""

_EXACT = ("math.absf", "math.floor", "math.ceil", "math.fma")  # also for f64

LIBRARY = {
    "math.acos": "acos", "math.acosh": "acosh", "math.asin": "asin", "math.asinh": "asinh", "math.atan": "atan",
    "math.atan2": "atan2", "math.atanh": "atanh", "math.cbrt": "cbrt", "math.ceil": "ceil",
    "math.copysign": "copysign", "math.cos": "cos", "math.cosh": "cosh", "math.erf": "erf", "math.erfc": "erfc",
    "math.exp": "exp", "math.exp2": "exp2", "math.expm1": "expm1", "math.log": "log", "math.log10": "log10",
    "math.log1p": "log1p", "math.log2": "log2", "math.powf": "pow", "math.round": "round",
    "math.roundeven": "rint", "math.rsqrt": "rsqrt", "math.sin": "sin", "math.sinh": "sinh", "math.sqrt": "sqrt",
    "math.tan": "tan", "math.tanh": "tanh", "math.trunc": "trunc", "arith.remf": "fmod",
}  # fmt: skip
"""Names in the device's math library (libdevice and OCML agree on them) by op."""


def library_symbol(name: str, element: ir.Type, backend: str) -> str | None:
    """The library function for an op on f32 or f64 elements; None where the op is emitted as it is, or unknown.

    `backend` is "cuda" (libdevice) or "hip" (OCML).
    """
    wide = isinstance(element, ir.F64Type)
    if name in (_EXACT if wide else DIRECT) or name not in LIBRARY:
        return None
    function = LIBRARY[name]
    if backend == "hip":
        return f"__ocml_{function}_{'f64' if wide else 'f32'}"
    return f"__nv_{function}{'' if wide else 'f'}"
