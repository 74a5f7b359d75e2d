# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Functions on f32 that a GPU computes with an error: results here are off by as much as documented.

Which instruction an op becomes was read off the PTX that Triton 3.9 makes for sm_90. The errors of instructions are
those of the PTX ISA 9.1 (sections 9.7.3.8 `div`, 9.7.3.13 `rcp`, 9.7.3.15 `sqrt`, 9.7.3.16 `rsqrt`, 9.7.3.18 `sin`,
9.7.3.19 `cos`, 9.7.3.20 `lg2`, 9.7.3.21 `ex2`, 9.7.3.22 `tanh`), those of libdevice's functions the greatest ones in
the CUDA C++ Programming Guide (appendix "Mathematical Functions"). The sign of the error is a hash of the result's
bits: the same operands have the same result.
Triton links libdevice with `__CUDA_FTZ`: its functions, and instructions with `.ftz`, take subnormal numbers for zero.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import pi

from torch_mlir import ir
from torch_mlir.dialects import arith, math

from kiln.dialects.kiln import name_of
from kiln.lowering.cpu.builder import Builder

__all__ = ["Inexact", "inexact_form", "is_power_of_two"]


@dataclass(frozen=True)
class Inexact:
    """The greatest error: `ulps` units in the last place, or `relative` to the result, or what `absolute(b, x, y)`
    emits for an operand x and its result y. flushes: subnormal operands and results are zero.
    """

    ulps: int = 0
    relative: float = 0.0
    absolute: Callable[[Builder, ir.Value, ir.Value], ir.Value] | None = None
    flushes: bool = False

    def operand(self, b: Builder, x: ir.Value) -> ir.Value:
        """`x` as the GPU's instruction reads it: subnormal numbers become zeros if it flushes."""
        return _flushed(b, x) if self.flushes else x

    def result(self, b: Builder, x: ir.Value, y: ir.Value) -> ir.Value:
        """The exact result of an operand (the first of several) with its error. What is 0, 1 or -1 (the limits of
        functions), infinite or NaN has none, nor has a subnormal number: with fewer units than the error, it would
        become NaN.
        """
        bits = arith.bitcast(b.i32, y)
        # Knuth's multiplicative hash; its highest bit is the sign.
        is_negative = arith.cmpi(2, arith.muli(bits, b.int_(-1640531535, b.i32)), b.int_(0, b.i32))
        if self.ulps:
            step = arith.select(is_negative, b.int_(-self.ulps, b.i32), b.int_(self.ulps, b.i32))
            moved = arith.bitcast(b.f32, arith.addi(bits, step))
        elif self.absolute is not None:
            size = self.absolute(b, x, y)
            moved = arith.addf(y, arith.select(is_negative, arith.negf(size), size))
        else:
            part = arith.select(is_negative, b.float_(-self.relative, b.f32), b.float_(self.relative, b.f32))
            moved = math.fma(y, part, y)
        magnitude = math.absf(y)
        is_number = arith.cmpf(4, magnitude, b.float_(float("inf"), b.f32))
        is_special = arith.ori(_equals(b, magnitude, 1.0), _is_small(b, magnitude))
        keeps = arith.xori(is_special, b.int_(1, b.i1))
        changed = arith.select(arith.andi(is_number, keeps), moved, y)
        return _flushed(b, changed) if self.flushes else changed


def _equals(b: Builder, x: ir.Value, y: float) -> ir.Value:
    return arith.cmpf(1, x, b.float_(y, b.f32))


def _is_small(b: Builder, magnitude: ir.Value) -> ir.Value:
    """Whether a number is subnormal, or 0."""
    return arith.cmpf(4, magnitude, b.float_(2.0**-126, b.f32))


def _flushed(b: Builder, x: ir.Value) -> ir.Value:
    """Zero, with its sign, for a subnormal number."""
    is_small = _is_small(b, math.absf(x))
    zero = arith.bitcast(b.f32, arith.andi(arith.bitcast(b.i32, x), b.int_(-(1 << 31), b.i32)))
    return arith.select(is_small, zero, x)


def is_power_of_two(b: Builder, x: ir.Value) -> ir.Value:
    """Whether a divisor only changes the exponent: its reciprocal is in the unit's table, and the quotient exact. The
    documents do not say so; `1 - 2 / (exp(2 x) + 1)` for the limits of tanh counts on it.
    """
    fraction = arith.andi(arith.bitcast(b.i32, x), b.int_((1 << 23) - 1, b.i32))
    return arith.cmpi(0, fraction, b.int_(0, b.i32))


def _of_logarithm(b: Builder, x: ir.Value, y: ir.Value) -> ir.Value:
    """Absolute where the result is near 0, for operands between 0.5 and 2; else relative."""
    error = b.float_(2.0**-22, b.f32)
    is_near = arith.andi(arith.cmpf(2, x, b.float_(0.5, b.f32)), arith.cmpf(4, x, b.float_(2.0, b.f32)))
    return arith.select(is_near, error, arith.mulf(math.absf(y), error))


def _of_wave(b: Builder, x: ir.Value, y: ir.Value) -> ir.Value:
    """By how many periods the angle is reduced; beyond 50 nothing is promised."""
    size, angle = b.float_(1.0, b.f32), math.absf(x)
    for limit, error in ((100 * pi, 2.0**-14.7), (2 * pi, 2.0**-20.5)):
        size = arith.select(arith.cmpf(5, angle, b.float_(limit, b.f32)), b.float_(error, b.f32), size)
    return size


_DIVISION = Inexact(ulps=2)  # div.full.f32
_SQUARE_ROOT = Inexact(relative=2.0**-23, flushes=True)  # sqrt.approx.ftz.f32
_RECIPROCAL_ROOT = Inexact(relative=2.0**-22.9, flushes=True)  # rsqrt.approx.ftz.f32

_INSTRUCTIONS = {
    "ex2": Inexact(ulps=2),
    "rsqrt": Inexact(relative=2.0**-22.9),
    "sqrt": Inexact(relative=2.0**-23),
    "rcp": Inexact(ulps=1),
    "sin": Inexact(absolute=_of_wave),
    "cos": Inexact(absolute=_of_wave),
    "lg2": Inexact(absolute=_of_logarithm),
    "tanh": Inexact(relative=2.0**-11),
}

_LIBDEVICE = {
    "acos": 2, "acosh": 4, "asin": 4, "asinh": 3, "atan": 2, "atan2": 3, "atanh": 3, "cbrt": 1, "cos": 2, "cosh": 2,
    "erf": 2, "erfc": 4, "exp": 2, "exp10": 2, "exp2": 2, "expm1": 1, "hypot": 3, "lgamma": 6, "log": 1, "log10": 2,
    "log1p": 1, "log2": 1, "pow": 4, "sin": 2, "sinh": 3, "tan": 4, "tanh": 2, "tgamma": 5,
}  # fmt: skip
"""Greatest errors in units in the last place."""


def inexact_form(op: ir.Operation, operands: Sequence[ir.Value]) -> Inexact | None:
    """How far off an op on f32, or on 16-bit floats, which are computed in f32, may be; None for one that is exact."""
    if not all(isinstance(v.type, (ir.F32Type, ir.F16Type, ir.BF16Type)) for v in operands):
        return None
    name = name_of(op)
    rule = _RULES.get(name)
    return None if rule is None else rule(op)


def _library(op: ir.Operation) -> Inexact | None:
    symbol = ir.StringAttr(op.attributes["symbol"]).value
    found = re.fullmatch(r"__nv_(?:fast_)?(\w+?)f?", symbol)
    name = found[1] if found else ""
    if name == "sqrt":
        return _SQUARE_ROOT
    if name == "rsqrt":
        return _RECIPROCAL_ROOT
    return Inexact(ulps=_LIBDEVICE[name], flushes=True) if name in _LIBDEVICE else None


def _instruction(op: ir.Operation) -> Inexact | None:
    text = ir.StringAttr(op.attributes["asm_string"]).value
    found = re.search(r"([a-z0-9]+)\.approx(\.ftz)?", text)
    if found is None or found[1] not in _INSTRUCTIONS:
        return None
    error = _INSTRUCTIONS[found[1]]
    return replace(error, flushes=found[2] is not None)


def _named(name: str) -> Callable[[ir.Operation], Inexact | None]:
    return lambda op: Inexact(ulps=_LIBDEVICE[name], flushes=True)


_RULES: dict[str, Callable[[ir.Operation], Inexact | None]] = {
    "arith.divf": lambda op: _DIVISION,
    "math.sqrt": lambda op: _SQUARE_ROOT,
    "math.rsqrt": lambda op: _RECIPROCAL_ROOT,
    "math.exp": lambda op: Inexact(ulps=2),  # mul.f32, ex2.approx.f32
    "math.exp2": lambda op: Inexact(ulps=2, flushes=True),  # ex2.approx.ftz.f32
    # Triton calls libdevice for these.
    **{f"math.{name}": _named(name) for name in ("cos", "erf", "log", "log2", "sin")},
    "tt.extern_elementwise": _library,
    "tt.elementwise_inline_asm": _instruction,
}
