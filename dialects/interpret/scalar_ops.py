# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""The ops of `arith` and `math` on tensors: one function per op, floats computed in the dtype given.

Integers wrap, as MLIR's do; those without a sign are kept in torch's signed dtypes, and what reads them as unsigned
looks at their bits.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch_mlir import ir

from kiln.dialects.interpret.types import Precision, dtype_of, element_of, width
from kiln.functions import Fn

__all__ = ["FLOAT_OPS", "INTEGER_OPS", "OTHER_OPS", "Tensor"]

Tensor = torch.Tensor


def _round_away(x: Tensor) -> Tensor:
    whole = torch.trunc(x)
    return torch.where((x - whole).abs() >= 0.5, whole + torch.sign(x), whole)


def _cube_root(x: Tensor) -> Tensor:
    return torch.copysign(x.abs().double().pow(1 / 3), x.double()).to(x.dtype)


def _fused(a: Tensor, b: Tensor, c: Tensor) -> Tensor:
    return (a.double() * b.double() + c.double()).to(a.dtype)


FLOAT_OPS: dict[str, Fn[Tensor, Tensor]] = {
    "arith.addf": torch.add, "arith.subf": torch.sub, "arith.mulf": torch.mul, "arith.divf": torch.div,
    "arith.remf": torch.fmod, "arith.negf": torch.neg, "arith.maximumf": torch.maximum,
    "arith.minimumf": torch.minimum, "arith.maxnumf": torch.fmax, "arith.minnumf": torch.fmin,
    "math.absf": torch.abs, "math.ceil": torch.ceil, "math.floor": torch.floor, "math.trunc": torch.trunc,
    "math.round": _round_away, "math.roundeven": torch.round, "math.exp": torch.exp, "math.exp2": torch.exp2,
    "math.expm1": torch.expm1, "math.log": torch.log, "math.log2": torch.log2, "math.log10": torch.log10,
    "math.log1p": torch.log1p, "math.sin": torch.sin, "math.cos": torch.cos, "math.tan": torch.tan,
    "math.sinh": torch.sinh, "math.cosh": torch.cosh, "math.tanh": torch.tanh, "math.asin": torch.asin,
    "math.acos": torch.acos, "math.atan": torch.atan, "math.asinh": torch.asinh, "math.acosh": torch.acosh,
    "math.atanh": torch.atanh, "math.erf": torch.erf, "math.erfc": torch.erfc, "math.sqrt": torch.sqrt,
    "math.rsqrt": torch.rsqrt, "math.cbrt": _cube_root, "math.powf": torch.pow, "math.atan2": torch.atan2,
    "math.copysign": torch.copysign, "math.fma": _fused,
}  # fmt: skip
"""Ops from floats to a float of the same type."""


# ----------------------------------------------------------------------------------------------------------- integers


def _minimum(x: Tensor) -> int:
    return torch.iinfo(x.dtype).min


def _ordered(x: Tensor) -> Tensor:
    """Signed integers in the order that their bits have as unsigned ones."""
    return x if x.dtype == torch.bool else x ^ _minimum(x)


def _unsigned(x: Tensor, bits: int) -> Tensor:
    """An integer's bits as a number, in i64; those of 64 bits stay."""
    return x.long() & ((1 << bits) - 1) if bits < 64 else x


def _wrapped(x: Tensor, dtype: torch.dtype) -> Tensor:
    return (x & 1).bool() if dtype == torch.bool and x.dtype != torch.bool else x.to(dtype)


def _nonzero(x: Tensor) -> Tensor:
    # Division by zero is undefined in MLIR, and an error in ATen: a select drops the quotient.
    return torch.where(x == 0, torch.ones_like(x), x)


def _divided(a: Tensor, b: Tensor, mode: str) -> Tensor:
    return torch.div(a, _nonzero(b), rounding_mode=mode)


def _divided_unsigned(a: Tensor, b: Tensor) -> Tensor:
    """Of 64 bits, by half the dividend (Hacker's Delight, 9-3)."""
    b = _nonzero(b)
    half = torch.div(_shifted_right(a, 1), b, rounding_mode="trunc") * 2
    quotient = half + (_ordered(a - half * b) >= _ordered(b)).long()
    return torch.where(b < 0, (_ordered(a) >= _ordered(b)).long(), quotient)


def _shifted_right(a: Tensor, count: Any) -> Tensor:
    """Of 64 bits, with zeros coming in."""
    count = torch.as_tensor(count, device=a.device)
    rest = (torch.ones_like(a) << (64 - count).clamp(max=63)) - 1
    return torch.where(count == 0, a, (a >> count) & rest)


def _divui(a: Tensor, b: Tensor) -> Tensor:
    bits = a.dtype.itemsize * 8
    if bits == 64:
        return _divided_unsigned(a, b)
    return _divided(_unsigned(a, bits), _unsigned(b, bits), "trunc").to(a.dtype)


def _remui(a: Tensor, b: Tensor) -> Tensor:
    return a - _divui(a, b) * b


def _shrui(a: Tensor, b: Tensor) -> Tensor:
    bits = a.dtype.itemsize * 8
    return _shifted_right(a, b) if bits == 64 else (_unsigned(a, bits) >> b.long()).to(a.dtype)


def _on_bits(integers: Callable[..., Tensor], booleans: Callable[..., Tensor]) -> Callable[[Tensor, Tensor], Tensor]:
    """The op where torch's function does not do i1."""
    return lambda a, b: booleans(a, b) if a.dtype == torch.bool else integers(a, b)


def _by_order(function: Callable[..., Tensor], booleans: Callable[..., Tensor]) -> Callable[[Tensor, Tensor], Tensor]:
    def ordered(a: Tensor, b: Tensor) -> Tensor:
        return booleans(a, b) if a.dtype == torch.bool else _ordered(function(_ordered(a), _ordered(b)))

    return ordered


INTEGER_OPS: dict[str, Fn[Tensor, Tensor]] = {
    "arith.addi": _on_bits(torch.add, torch.logical_xor), "arith.subi": _on_bits(torch.sub, torch.logical_xor),
    "arith.muli": _on_bits(torch.mul, torch.logical_and), "arith.andi": torch.bitwise_and,
    "arith.ori": torch.bitwise_or, "arith.xori": torch.bitwise_xor,
    "arith.divsi": lambda a, b: _divided(a, b, "trunc"), "arith.floordivsi": lambda a, b: _divided(a, b, "floor"),
    "arith.ceildivsi": lambda a, b: -_divided(-a, b, "floor"), "arith.remsi": lambda a, b: torch.fmod(a, _nonzero(b)),
    "arith.divui": _divui, "arith.remui": _remui, "arith.ceildivui": lambda a, b: _divui(a + b - 1, b),
    # i1's true is -1 where it has a sign.
    "arith.maxsi": _on_bits(torch.maximum, torch.logical_and), "arith.minsi": _on_bits(torch.minimum, torch.logical_or),
    "arith.maxui": _by_order(torch.maximum, torch.logical_or),
    "arith.minui": _by_order(torch.minimum, torch.logical_and),
    "arith.shli": torch.bitwise_left_shift, "arith.shrsi": torch.bitwise_right_shift, "arith.shrui": _shrui,
    "math.absi": torch.abs,
}  # fmt: skip
"""Ops from integers to an integer of the same type."""


# --------------------------------------------------------------------------------------------------------- the others

_COMPARE = {"eq": torch.eq, "ne": torch.ne, "gt": torch.gt, "ge": torch.ge, "lt": torch.lt, "le": torch.le}
_CMPF = ["false", "oeq", "ogt", "oge", "olt", "ole", "one", "ord", "ueq", "ugt", "uge", "ult", "ule", "une", "uno"]
_CMPI = ["eq", "ne", "slt", "sle", "sgt", "sge", "ult", "ule", "ugt", "uge"]


def _cmpf(op: Any, precision: Precision, a: Tensor, b: Tensor) -> Tensor:
    number = ir.IntegerAttr(op.attributes["predicate"]).value
    name = _CMPF[number] if number < len(_CMPF) else "true"
    unordered = torch.isnan(a) | torch.isnan(b)
    if name in ("false", "true"):
        return torch.full_like(unordered, name == "true")
    if name in ("ord", "uno"):
        return unordered if name == "uno" else ~unordered
    found = _COMPARE[name[1:]](a, b)
    return found | unordered if name[0] == "u" else found & ~unordered


def _cmpi(op: Any, precision: Precision, a: Tensor, b: Tensor) -> Tensor:
    name = _CMPI[ir.IntegerAttr(op.attributes["predicate"]).value]
    if name[0] == "u":
        return _COMPARE[name[1:]](_ordered(a), _ordered(b))
    if a.dtype == torch.bool and name[0] == "s":
        a, b = b, a  # true is -1
    return _COMPARE[name.removeprefix("s")](a, b)


def _float_cast(op: Any, precision: Precision, x: Tensor) -> Tensor:
    return x.to(precision.dtype(element_of(op.results[0].type)))


def _signed(x: Tensor) -> Tensor:
    return -x.long() if x.dtype == torch.bool else x


def _integer_cast(op: Any, precision: Precision, x: Tensor) -> Tensor:
    return _wrapped(_signed(x), dtype_of(element_of(op.results[0].type)))


def _unsigned_cast(op: Any, precision: Precision, x: Tensor) -> Tensor:
    bits = width(element_of(op.operands[0].type))
    return _wrapped(_unsigned(x, bits), dtype_of(element_of(op.results[0].type)))


def _sitofp(op: Any, precision: Precision, x: Tensor) -> Tensor:
    return _float_cast(op, precision, _signed(x))


def _uitofp(op: Any, precision: Precision, x: Tensor) -> Tensor:
    bits = width(element_of(op.operands[0].type))
    wide = _unsigned(x, bits)
    if bits < 64:
        return _float_cast(op, precision, wide)
    # Half of it with the bit that would be lost kept for the rounding, then twice that.
    half = (_shifted_right(wide, 1) | (wide & 1)).to(precision.arithmetic(element_of(op.results[0].type)))
    return _float_cast(op, precision, torch.where(wide < 0, half * 2, wide.to(half.dtype)))


def _fptosi(op: Any, precision: Precision, x: Tensor) -> Tensor:
    dtype = dtype_of(element_of(op.results[0].type))
    return x.long().bool() if dtype == torch.bool else x.to(dtype)


def _fptoui(op: Any, precision: Precision, x: Tensor) -> Tensor:
    wide = x.double()
    high = wide >= 2.0**63
    signed = torch.where(high, wide - 2.0**63, wide).long()
    return _wrapped(torch.where(high, signed ^ _minimum(signed), signed), dtype_of(element_of(op.results[0].type)))


def _bitcast(op: Any, precision: Precision, x: Tensor) -> Tensor:
    source, target = (element_of(v.type) for v in (op.operands[0], op.results[0]))
    return x.to(dtype_of(source)).contiguous().view(dtype_of(target)).to(precision.dtype(target))


def _mului_extended(op: Any, precision: Precision, a: Tensor, b: Tensor) -> list[Tensor]:
    bits = a.dtype.itemsize * 8
    half = bits // 2 if bits == 64 else bits
    mask = (1 << half) - 1
    if bits < 64:
        product = _unsigned(a, bits) * _unsigned(b, bits)
        return [product.to(a.dtype), _shifted_right(product, bits).to(a.dtype)]
    a0, a1, b0, b1 = a & mask, _shifted_right(a, half), b & mask, _shifted_right(b, half)
    middle = a1 * b0 + _shifted_right(a0 * b0, half)
    other = a0 * b1 + (middle & mask)
    return [a * b, a1 * b1 + _shifted_right(middle, half) + _shifted_right(other, half)]


def _select(op: Any, precision: Precision, c: Tensor, a: Tensor, b: Tensor) -> Tensor:
    return torch.where(c, a, b)


def _predicate(function: Callable[[Tensor], Tensor]) -> Callable[[Any, Precision, Tensor], Tensor]:
    return lambda op, precision, x: function(x)


OTHER_OPS: dict[str, Callable[..., Any]] = {
    "arith.cmpf": _cmpf, "arith.cmpi": _cmpi, "arith.select": _select, "arith.extf": _float_cast,
    "arith.truncf": _float_cast, "arith.extsi": _integer_cast, "arith.trunci": _integer_cast,
    "arith.index_cast": _integer_cast, "arith.extui": _unsigned_cast, "arith.index_castui": _unsigned_cast,
    "arith.sitofp": _sitofp, "arith.uitofp": _uitofp, "arith.fptosi": _fptosi, "arith.fptoui": _fptoui,
    "arith.bitcast": _bitcast, "arith.mului_extended": _mului_extended, "math.isnan": _predicate(torch.isnan),
    "math.isinf": _predicate(torch.isinf), "math.isfinite": _predicate(torch.isfinite),
}  # fmt: skip
"""Ops between types: `function(op, precision, *operands)`."""
