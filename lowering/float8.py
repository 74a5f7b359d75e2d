# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Conversions between 8-bit floats and f32 as integer arithmetic, for code that has no instructions for them.

Values are scalars, vectors or blocks; the ops are those of `arith`.  Narrowing is that of the installed PyTorch
(torch/headeronly/util/Float8_e4m3fn.h, Float8_e5m2.h): to nearest, ties to even.  What is too large is an infinity for
e5m2; for e4m3fn, which has none, it is the largest number from PyTorch 2.13 on, and was a NaN before.
"""

import functools
from collections.abc import Callable
from dataclasses import dataclass

from torch_mlir import ir
from torch_mlir.dialects import arith

from kiln.dialects.elements import element_of, with_element

__all__ = ["Float8", "form_of", "is_float8", "narrow", "too_large", "widen"]


@dataclass(frozen=True)
class Float8:
    """mantissa, bias: of the format. least: the largest f32 exponent field of numbers below the normal ones, plus 1.
    magic: the f32 exponent field whose sum with such a number has the result in its last bits. limit: bits of the least
    f32 that is too large without rounding. above, nan: what stands for that, and for a NaN.
    infinity: what stands for an infinity.
    """

    mantissa: int
    bias: int
    least: int
    magic: int
    limit: int
    above: int
    infinity: int | None = None
    nan: int = 0x7F


Bitcast = Callable[[ir.Type, ir.Value], ir.Value]
"""`bitcast(type, value)`: blocks have another op for it than scalars and vectors."""

_FORMS: dict[type, Float8] = {
    ir.Float8E4M3FNType: Float8(3, 7, 121, 141, 1087 << 20, 0x7E),
    ir.Float8E5M2Type: Float8(2, 15, 113, 134, 143 << 23, 0x7C, 0x7C),
}
_INFINITY = 255 << 23


@functools.cache
def _saturates() -> bool:
    """Whether PyTorch makes the largest float8_e4m3fn of what is larger."""
    import torch

    return bool(torch.tensor([1e4]).to(torch.float8_e4m3fn).view(torch.uint8).item() == 0x7E)


def too_large(type_: ir.Type) -> int:
    """The bits, without the sign, that PyTorch's conversion gives for finite numbers that are too large."""
    form = form_of(type_)
    assert form is not None
    return form.above if form.infinity is not None or _saturates() else form.nan


def form_of(type_: ir.Type) -> Float8 | None:
    """The format of an element, vector or block type; None for other types, also for the fnuz ones."""
    return _FORMS.get(type(element_of(type_)))


def is_float8(type_: ir.Type) -> bool:
    """Whether the (element) type is float8_e4m3fn or float8_e5m2."""
    return form_of(type_) is not None


def _int(type_: ir.Type, value: int) -> ir.Value:
    """A constant of an integer type, or a splat."""
    element = ir.IntegerType(element_of(type_))
    attribute: ir.Attribute = ir.IntegerAttr.get(element, value - (1 << 32) if value >= 1 << 31 else value)
    if type_ != element:
        attribute = ir.DenseElementsAttr.get_splat(type_, attribute)
    return arith.constant(type_, attribute)


def widen(x: ir.Value, bitcast: Bitcast = arith.bitcast) -> ir.Value:
    """An 8-bit float as f32: exactly."""
    form = form_of(x.type)
    assert form is not None
    i32 = with_element(x.type, ir.IntegerType.get_signless(32))
    f32 = with_element(x.type, ir.F32Type.get())
    bits = arith.extui(i32, bitcast(with_element(x.type, ir.IntegerType.get_signless(8)), x))
    size = arith.andi(bits, _int(i32, 0x7F))
    # The exponent's field is that of f32 but for its bias, also where it is 0.
    scaled = bitcast(f32, arith.shli(size, _int(i32, 23 - form.mantissa)))
    factor = bitcast(f32, _int(i32, (127 + 127 - form.bias) << 23))
    finite = bitcast(i32, arith.mulf(scaled, factor))
    beyond = arith.cmpi(9, size, _int(i32, form.infinity or form.nan))
    special = _int(i32, _INFINITY | 1 << 22)
    if form.infinity is not None:
        special = arith.select(arith.cmpi(0, size, _int(i32, form.infinity)), _int(i32, _INFINITY), special)
    sign = arith.shli(arith.andi(bits, _int(i32, 0x80)), _int(i32, 24))
    return bitcast(f32, arith.ori(arith.select(beyond, special, finite), sign))


def narrow(x: ir.Value, element: ir.Type, bitcast: Bitcast = arith.bitcast) -> ir.Value:
    """f32 as an 8-bit float, as PyTorch converts it."""
    form = form_of(element)
    assert form is not None
    i32 = with_element(x.type, ir.IntegerType.get_signless(32))
    given = bitcast(i32, x)
    sign = arith.andi(given, _int(i32, 0x80000000))
    bits = arith.xori(given, sign)
    drop = 23 - form.mantissa
    odd = arith.andi(arith.shrui(bits, _int(i32, drop)), _int(i32, 1))
    offset = ((form.bias - 127) << 23) + (1 << (drop - 1)) - 1
    moved = arith.addi(arith.addi(bits, _int(i32, offset)), odd)
    normal = arith.shrui(moved, _int(i32, drop))
    magic = _int(i32, form.magic << 23)
    summed = arith.addf(bitcast(x.type, bits), bitcast(x.type, magic))
    small = arith.subi(bitcast(i32, summed), magic)
    result = arith.select(arith.cmpi(6, bits, _int(i32, form.least << 23)), small, normal)
    above = too_large(element)
    result = arith.select(arith.cmpi(9, bits, _int(i32, form.limit)), _int(i32, above), result)
    result = arith.minui(result, _int(i32, above))  # rounding may carry into what is beyond
    result = arith.select(arith.cmpi(8, bits, _int(i32, _INFINITY)), _int(i32, form.nan), result)
    result = arith.ori(result, arith.shrui(sign, _int(i32, 24)))
    i8 = with_element(x.type, ir.IntegerType.get_signless(8))
    return bitcast(with_element(x.type, element), arith.trunci(i8, result))
