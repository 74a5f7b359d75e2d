# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Casts from and to 8-bit floats on blocks, as PyTorch does them.

`tt.fp_to_fp` rounds as PyTorch does, and gives the largest number for what is too large. Where that is a NaN (e4m3fn
before PyTorch 2.13) in PyTorch it gets a NaN, and where it is an infinity (e5m2) its bits are put in behind it.
Chips without conversions run integer arithmetic: of e4m3fn Triton has none there, and that of Triton 3.6 for e5m2 is
refused by its assembler.
"""

from torch_mlir import ir
from torch_mlir.dialects import arith

from kiln.dialects import tt
from kiln.lowering.float8 import is_float8, narrow, too_large, widen
from kiln.lowering.gpu.builder import Builder

__all__ = ["convert"]

_LARGEST = 0x7E
"""The bits of the largest number of e4m3fn."""


def convert(b: Builder, x: ir.Value, element: ir.Type) -> ir.Value:
    """`x`, of a float type, in another float type."""
    source = tt.element_of(x.type)
    if is_float8(source) and source != element:
        return b.cast_float(b.cast_float(x, b.f32) if b.has_float8 else widen(x, _bitcast), element)
    if is_float8(element) and source != element:
        return _narrow(b, b.cast_float(x, b.f32), element)
    return b.cast_float(x, element)


def _narrow(b: Builder, x: ir.Value, element: ir.Type) -> ir.Value:
    if not b.has_float8:
        return narrow(x, element, _bitcast)
    above = too_large(element)
    if isinstance(element, ir.Float8E4M3FNType):
        if above != _LARGEST:
            # Half a step beyond the largest number, which is even, is a tie that goes down.
            x = b.select(b.cmpf("ogt", b.math("absf", x), 464.0), b.constant(float("nan"), x.type), x)
        return b.cast_float(x, element)
    i8 = tt.with_element(x.type, b.i8)
    sign = arith.trunci(i8, arith.shrui(b.bitcast(x, b.i32), b.constant(24, tt.with_element(x.type, b.i32))))
    infinite = arith.ori(arith.andi(sign, b.constant(0x80, i8)), b.constant(above, i8))
    # As far beyond e5m2's largest number, which is odd, the tie goes up.
    beyond = b.cmpf("oge", b.math("absf", x), 61440.0)
    return b.bitcast(b.select(beyond, infinite, b.bitcast(b.cast_float(x, element), b.i8)), element)


def _bitcast(type_: ir.Type, x: ir.Value) -> ir.Value:
    return tt.BitcastOp.create([x], [type_]).result
