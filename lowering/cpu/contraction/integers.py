# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Vectors of 8-bit integers as a matrix unit: a few steps of k an instruction, sums of 32 bits.

VPDPBUSD (AVX512-VNNI, AVX-VNNI) multiplies four unsigned by four signed numbers: the rhs is taken plus 128, and 128
times the sum of the lhs row is taken off (`OFFSET`). Elsewhere both are widened to 16 bits and multiplied in pairs
(PMADDWD). Neither saturates, so that sums are exact as long as 32 bits hold them, and wrap beyond.
"""

from dataclasses import dataclass, replace

from torch_mlir import ir
from torch_mlir.dialects import arith, vector
from typing_extensions import override

from kiln.lowering.cpu.builder import Builder
from kiln.lowering.cpu.contraction.unit import Place
from kiln.lowering.cpu.contraction.vectors import VectorUnit, shape_of
from kiln.lowering.cpu.intrinsics import call
from kiln.lowering.cpu.isa import Isa

__all__ = ["OFFSET", "IntegerUnit", "integer_unit"]

OFFSET = 128
"""What is added to the rhs where the instruction takes it as unsigned."""


@dataclass(frozen=True, kw_only=True)
class IntegerUnit(VectorUnit):
    """Vectors of `width` sums of `group` products of 8-bit integers.

    shifted: the right operand is taken plus OFFSET. intrinsic: LLVM's, "" for products of 32 bits. A left operand in
    scratch memory has the elements that are multiplied: i8 if `shifted`, else i16.
    """

    shifted: bool
    intrinsic: str

    @override
    def bits(self, side: str) -> int:
        return 8 if self.shifted or side == "right" else 16

    def everywhere(self, b: Builder, place: Place) -> ir.Value:
        """A group of steps of k in all lanes; of the last group of a row only what is not missing, and zeros."""
        kind = b.i8 if self.shifted else b.i16
        steps = b.vload(place.buffer, b.subi(place.at, place.missing), self.group)
        x = b.extract(vector.bitcast(b.vec(1, b.i32), steps), 0)
        if place.missing != 0:  # nothing behind the row is read
            bits = b.muli(place.missing, 8)
            x = arith.shrui(x, b.integer_of(bits, b.i32))
        return vector.bitcast(b.vec(self.width * self.group, kind), b.broadcast(x, self.width))

    def columns_at(self, b: Builder, place: Place) -> ir.Value:
        """Groups of `width` columns side by side."""
        return self._right(b, b.vload(place.buffer, place.at, self.width * self.group))

    @override
    def along(self, b: Builder, place: Place, side: str) -> ir.Value:
        x = b.vload(place.buffer, place.at, self.width * self.group, place.mask)
        return self._right(b, x) if side == "right" else x if self.shifted else self._widened(b, x)

    def _right(self, b: Builder, x: ir.Value) -> ir.Value:
        return arith.xori(x, b.int_(-OFFSET, x.type)) if self.shifted else self._widened(b, x)

    def _widened(self, b: Builder, x: ir.Value) -> ir.Value:
        return arith.extsi(b.vec(self.width * self.group, b.i16), x)

    def along_rows(self) -> "IntegerUnit":
        """The same instruction with neighbours along k in its lanes."""
        return replace(self, **shape_of(self.width, self.group, along_k=True))

    def ones(self, b: Builder) -> ir.Value:
        """A right tile whose products are the steps of k of the left one."""
        return b.int_(1, b.vec(self.width * self.group, b.i8))

    @override
    def add_products(self, b: Builder, sums: ir.Value, left: ir.Value, right: ir.Value) -> ir.Value:
        if self.shifted:
            return call(self.intrinsic, sums.type, sums, right, left)
        if self.intrinsic:
            return arith.addi(sums, call(self.intrinsic, sums.type, right, left))
        for part in range(self.group):
            lanes = range(part, self.width * self.group, self.group)
            x, y = (arith.extsi(sums.type, b.shuffle(v, v, lanes)) for v in (right, left))
            sums = arith.addi(sums, arith.muli(x, y))
        return sums


def integer_unit(width: int, cpu: Isa, *, along_k: bool = False) -> IntegerUnit:
    """The instructions of a CPU for `width` sums a vector."""
    group, shifted = 4, True
    if width == 16 and cpu.has("avx512vnni"):
        intrinsic = "avx512.vpdpbusd.512"
    elif width == 8 and (cpu.has("avxvnni") or cpu.has("avx512vnni") and cpu.has("avx512vl")):
        intrinsic = "avx512.vpdpbusd.256"
    else:
        group, shifted = 2, False
        names = {16: ("avx512bw", "avx512.pmaddw.d.512"), 8: ("avx2", "avx2.pmadd.wd"), 4: ("sse2", "sse2.pmadd.wd")}
        feature, intrinsic = names.get(width, ("", ""))
        intrinsic = intrinsic if feature and cpu.has(feature) else ""
    shape = shape_of(width, group, along_k)
    return IntegerUnit(operands="i8", sums="i32", shifted=shifted, intrinsic=intrinsic, **shape)
