# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""How errors pass through scalar ops, and how large the error is that each op adds.

First order and elementwise: `propagated` bounds how far a result moves when the operands move by given distances.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product

import torch
from torch_mlir import ir

from kiln.dialects.interpret.scalar_ops import FLOAT_OPS

__all__ = ["TF32_UNIT", "Format", "added", "format_of", "propagated"]

Tensor = torch.Tensor


@dataclass(frozen=True)
class Format:
    """Of a floating point type: the unit roundoff, the least number whose error is relative, the largest number.

    is_short: kernels may keep its values in f32 between two ops, or round them.
    """

    unit: float
    least: float
    largest: float
    is_short: bool = False


TF32_UNIT = 2.0**-11
"""Of operands of products that a library rounds to TF32."""
_FORMATS = {
    # Hardware may take numbers below the least normal one for zero.
    "f64": Format(2.0**-53, 2.0**-1022, torch.finfo(torch.float64).max),
    "f32": Format(2.0**-24, 2.0**-126, torch.finfo(torch.float32).max),
    "f16": Format(2.0**-11, 2.0**-24, 65504.0, True),
    "bf16": Format(2.0**-8, 2.0**-126, torch.finfo(torch.bfloat16).max, True),
    "f8E4M3FN": Format(2.0**-4, 2.0**-9, 448.0, True),
    "f8E5M2": Format(2.0**-3, 2.0**-16, 57344.0, True),
}


def format_of(element: ir.Type, *, tf32: bool = False) -> Format:
    """The format of a float's element type; of types that are not listed the coarsest.

    tf32: f32 as an operand of products that a library rounds to TF32.
    """
    found = _FORMATS.get(str(element), _FORMATS["f8E5M2"])
    return replace(found, unit=TF32_UNIT) if tf32 and str(element) == "f32" else found


_EXACT = {
    *("arith.negf", "arith.maximumf", "arith.minimumf", "arith.maxnumf", "arith.minnumf", "arith.remf", "math.absf"),
    *("math.ceil", "math.floor", "math.trunc", "math.round", "math.roundeven", "math.copysign"),
}
_ROUNDED = {"arith.addf", "arith.subf", "arith.mulf", "math.fma", "math.sqrt"}
_BESIDE_ONE = {"math.tanh", "math.erf", "math.erfc", "math.log", "math.log2", "math.log10", "math.log1p"}
"""Functions for which kernels may have formulas with an error relative to one (docs/vector-math.md)."""
_FUNCTION_UNITS = 4.0
"""Error of functions, in units of roundoff."""


def added(name: str, operands: Sequence[Tensor], result: Tensor, unit: float) -> tuple[Tensor | None, Tensor | None]:
    """The error that computing one op adds: what may have one sign everywhere, and what rounding adds at random."""
    if name in _EXACT:
        return None, None
    size = result.abs()
    if name in _ROUNDED:
        return None, unit * size
    if name == "arith.divf":
        return None, 2 * unit * size
    if name in ("math.exp", "math.exp2", "math.expm1", "math.powf", "math.sinh", "math.cosh"):
        # The argument is scaled, and rounded, before its fraction is taken.
        base = operands[0].abs() if name != "math.powf" else (operands[1] * operands[0].abs().log()).nan_to_num().abs()
        return _FUNCTION_UNITS * unit * size * (1 + base), None
    if name in _BESIDE_ONE:
        return _FUNCTION_UNITS * unit * (1 + size), None
    if name in ("math.sin", "math.cos", "math.tan"):
        return _FUNCTION_UNITS * unit * (1 + size), None
    return _FUNCTION_UNITS * unit * size, None


def propagated(name: str, operands: Sequence[Tensor], result: Tensor, moved: Sequence[Tensor | None]) -> Tensor | None:
    """How far the result moves, at most, when each operand moves by the distance given; None: not at all."""
    if all(m is None for m in moved):
        return None
    d = [torch.zeros((), dtype=result.dtype, device=result.device) if m is None else m for m in moved]
    if name in ("arith.addf", "arith.subf"):
        return d[0] + d[1]
    if name in ("arith.negf", "math.absf", "math.copysign"):
        return d[0]
    if name == "arith.mulf":
        return operands[0].abs() * d[1] + operands[1].abs() * d[0] + d[0] * d[1]
    if name == "math.fma":
        return operands[0].abs() * d[1] + operands[1].abs() * d[0] + d[0] * d[1] + d[2]
    if name == "arith.divf":
        left = operands[1].abs() - d[1]
        moved_by = (d[0] + result.abs() * d[1]) / left
        return torch.where((d[0] == 0) & (d[1] == 0), 0.0, torch.where(left > 0, moved_by, float("inf")))
    if name in ("arith.maximumf", "arith.minimumf", "arith.maxnumf", "arith.minnumf"):
        return torch.maximum(d[0], d[1])
    if name in ("math.sin", "math.cos"):
        return d[0].clamp(max=2.0)
    return _corners(name, operands, result, d)


def _corners(name: str, operands: Sequence[Tensor], result: Tensor, d: Sequence[Tensor]) -> Tensor:
    """The op at the corners of the box around its operands: enough for one that is monotonic in each."""
    farthest = torch.zeros_like(result)
    for signs in product((-1.0, 1.0), repeat=len(operands)):
        at = FLOAT_OPS[name](*(x + s * m for x, s, m in zip(operands, signs, d, strict=True)))
        farthest = torch.maximum(farthest, (at - result).abs())
    # Outside of the op's domain: the result says nothing.
    return torch.where(torch.isnan(farthest) & ~torch.isnan(result), float("inf"), farthest)
