# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Casts from and to 8-bit floats on blocks, as PyTorch does them.

`tt.fp_to_fp` rounds as PyTorch does, and gives the largest number for what is too large. Where that is a NaN (e4m3fn
before PyTorch 2.13) or an infinity (e5m2) in PyTorch, the bits of these are put in behind it.
"""

from torch_mlir import ir
from torch_mlir.dialects import arith

from kiln.dialects import tt
from kiln.lowering.float8 import form_of, is_float8, narrow, too_large, widen
from kiln.lowering.gpu.builder import Builder

__all__ = ["convert"]


def convert(b: Builder, x: ir.Value, element: ir.Type) -> ir.Value:
    """`x`, of a float type, in another float type."""
    source = tt.element_of(x.type)
    if is_float8(source) and source != element:
        by_hand = not b.has_float8 and isinstance(source, ir.Float8E4M3FNType)
        return b.cast_float(widen(x, _bitcast) if by_hand else b.cast_float(x, b.f32), element)
    if is_float8(element) and source != element:
        return _narrow(b, b.cast_float(x, b.f32), element)
    return b.cast_float(x, element)


def _narrow(b: Builder, x: ir.Value, element: ir.Type) -> ir.Value:
    if not b.has_float8 and isinstance(element, ir.Float8E4M3FNType):
        return narrow(x, element, _bitcast)
    form = form_of(element)
    assert form is not None
    converted = b.cast_float(x, element)
    above = too_large(element)
    if above == 0x7E:
        return converted
    i8 = tt.with_element(x.type, b.i8)
    given = b.bitcast(x, b.i32)
    sign = arith.trunci(i8, arith.andi(arith.shrui(given, b.constant(24, given.type)), b.constant(0x80, given.type)))
    size = arith.andi(given, b.constant(0x7FFFFFFF, given.type))
    bits = b.bitcast(converted, b.i8)
    # The least f32 that rounds to more than the largest number: half a step beyond it is a tie, which for e4m3fn goes
    # down (its largest number is even) and for e5m2 up.
    first = {"f8E4M3FN": 0x43E80001, "f8E5M2": 0x47700000}[str(element)]
    for limit, meaning in ((first, above), (0x7F800001, form.nan)):
        beyond = arith.cmpi(5, size, b.constant(limit, size.type))
        bits = arith.select(beyond, arith.ori(sign, b.constant(meaning, i8)), bits)
    return b.bitcast(bits, element)


def _bitcast(type_: ir.Type, x: ir.Value) -> ir.Value:
    return tt.BitcastOp.create([x], [type_]).result
