# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Vector instructions as matrix units: fused multiply-adds, and VDPBF16PS on pairs of bf16 (integers.py: i8).

A tile of sums is one vector. Its lanes are one of two things:

- columns: the right tile has `group` rows of them, interleaved, and the left one is `group` steps of k of one row, the
  same in all lanes;
- steps of k (`along_k`): both tiles are vectors of neighbours along k, and the lanes of the sums are added at the end
  (`fold`).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torch_mlir import ir
from torch_mlir.dialects import llvm, vector
from typing_extensions import override

from kiln.lowering.cpu.bf16 import LANES, as_pairs, from_memory, interleave
from kiln.lowering.cpu.builder import Builder
from kiln.lowering.cpu.contraction.unit import MatrixUnit, Place, Tile
from kiln.lowering.cpu.intrinsics import call
from kiln.lowering.cpu.problem import element_type

__all__ = ["VectorUnit", "float_unit", "fold", "shape_of"]


@dataclass(frozen=True, kw_only=True)
class VectorUnit(MatrixUnit):
    """An instruction on vectors of `width` sums; LLVM chooses their registers."""

    width: int
    along_k: bool = False
    rows: int = 1
    registers: int = 1 << 16

    @property
    @override
    def is_numbered(self) -> bool:
        return False

    def zero(self, b: Builder, register: int = 0) -> ir.Value:
        """Sums that are zero."""
        return b.zero(b.vec(self.width, element_type(self.sums)))

    def load(self, b: Builder, register: int, place: Place, side: str) -> Tile:
        """An operand as `multiply_accumulate` takes it."""
        if self.along_k:
            if place.missing != 0:  # lanes past the end are zero in both operands
                place = place._replace(mask=b.mask_below(b.subi(self.depth, place.missing), self.depth))
            return self.along(b, place, side)
        return self.everywhere(b, place) if side == "left" else self.columns_at(b, place)

    def store(self, b: Builder, tile: Tile, place: Place) -> None:
        """Write a vector of sums."""
        assert isinstance(tile, ir.Value)
        b.vstore(tile, place.buffer, place.at)

    def multiply_accumulate(self, b: Builder, sums: Tile, left: Tile, right: Tile) -> ir.Value:
        """Lane i of the sums plus the products of group i of both operands."""
        assert isinstance(sums, ir.Value) and isinstance(left, ir.Value) and isinstance(right, ir.Value)
        return self.add_products(b, sums, left, right)

    def add_products(self, b: Builder, sums: ir.Value, left: ir.Value, right: ir.Value) -> ir.Value:
        """`multiply_accumulate` of values."""
        raise NotImplementedError

    def everywhere(self, b: Builder, place: Place) -> ir.Value:
        """`group` steps of k of one row, in all lanes."""
        raise NotImplementedError

    def columns_at(self, b: Builder, place: Place) -> ir.Value:
        """`width` columns of `group` steps of k."""
        raise NotImplementedError

    def along(self, b: Builder, place: Place, side: str) -> ir.Value:
        """`width * group` neighbours along k."""
        raise NotImplementedError


def shape_of(width: int, group: int, along_k: bool) -> dict[str, Any]:
    """The fields of a `VectorUnit` that follow from its lanes."""
    columns, depth = (1, width * group) if along_k else (width, group)
    return {"width": width, "group": group, "along_k": along_k, "columns": columns, "depth": depth}


@dataclass(frozen=True, kw_only=True)
class _Fma(VectorUnit):
    """Fused multiply-adds of floats, widened (or integers converted) to the type of the sums."""

    def everywhere(self, b: Builder, place: Place) -> ir.Value:
        x = b.cast_float(b.load(place.buffer, place.at), element_type(self.sums))
        return b.broadcast(x, self.width)

    def columns_at(self, b: Builder, place: Place) -> ir.Value:
        x = b.vload(place.buffer, place.at, self.width, place.mask)
        return b.cast_float(x, element_type(self.sums))

    def along(self, b: Builder, place: Place, side: str) -> ir.Value:
        return self.columns_at(b, place)

    def add_products(self, b: Builder, sums: ir.Value, left: ir.Value, right: ir.Value) -> ir.Value:
        return b.fma(left, right, sums)


@dataclass(frozen=True, kw_only=True)
class _PairsOfBf16(VectorUnit):
    """VDPBF16PS: two products of bf16 a lane, which take subnormal numbers as zero.

    in_rows: a right tile is two rows in memory, `stride` apart, and not pairs side by side.
    """

    in_rows: bool = False

    def everywhere(self, b: Builder, place: Place) -> ir.Value:
        if place.missing == 0:
            pair = b.vload(place.buffer, place.at, 2)
        else:  # the last element of an odd number of them, and a zero
            zero = b.zero(ir.BF16Type.get())
            pair = vector.from_elements(b.vec(2, ir.BF16Type.get()), [b.load(place.buffer, place.at), zero])
        return as_pairs(b, b.broadcast(llvm.bitcast(b.i32, pair), LANES))

    def columns_at(self, b: Builder, place: Place) -> ir.Value:
        if not self.in_rows:
            is_pairs = isinstance(ir.MemRefType(place.buffer.type).element_type, ir.IntegerType)
            return as_pairs(b, b.vload(place.buffer, place.at, LANES if is_pairs else 2 * LANES))
        x = from_memory(b, b.vload(place.buffer, place.at, LANES, place.mask))
        if place.missing != 0:
            return as_pairs(b, interleave(b, x, b.zero(x.type)))
        y = from_memory(b, b.vload(place.buffer, b.addi(place.at, place.stride), LANES, place.mask))
        return as_pairs(b, interleave(b, x, y))

    def along(self, b: Builder, place: Place, side: str) -> ir.Value:
        return as_pairs(b, from_memory(b, b.vload(place.buffer, place.at, 2 * LANES, place.mask)))

    def add_products(self, b: Builder, sums: ir.Value, left: ir.Value, right: ir.Value) -> ir.Value:
        return call("avx512bf16.dpbf16ps.512", sums.type, sums, left, right)


def float_unit(
    sums: str, width: int, *, pairs: bool = False, in_rows: bool = False, along_k: bool = False
) -> VectorUnit:
    """The unit for floats with sums of a type ("f32", "f64").

    pairs: VDPBF16PS, where `has_pairs`; in_rows: right tiles are rows, which it interleaves.
    """
    if pairs:
        return _PairsOfBf16(operands="bf16", sums="f32", in_rows=in_rows, **shape_of(width, 2, along_k))
    return _Fma(operands=sums, sums=sums, **shape_of(width, 1, along_k))


def fold(b: Builder, sums: Sequence[Tile], wide: int) -> list[ir.Value]:
    """Of each row of `wide` tiles of sums along k (a power of two, at most one a lane): their sums, as one vector."""
    values = [x for x in sums if isinstance(x, ir.Value)]
    return [_sum_lanes(b, values[start : start + wide]) for start in range(0, len(values), wide)]


def _sum_lanes(b: Builder, vectors: Sequence[ir.Value]) -> ir.Value:
    """Sums of the lanes of each of the vectors (a power of two of them, at most one a lane), as one vector."""
    width, count = ir.VectorType(vectors[0].type).shape[0], len(vectors)
    while len(vectors) > 1:
        pairs = zip(vectors[::2], vectors[1::2], strict=True)
        vectors = [_fold(b, x, y, range(2 * width)) for x, y in pairs]
    result, lanes = vectors[0], width
    while lanes > count:
        result = _fold(b, result, result, range(lanes))
        lanes //= 2
    return result


def _fold(b: Builder, x: ir.Value, y: ir.Value, lanes: range) -> ir.Value:
    """Adds neighbouring lanes of the concatenation of x and y."""
    left, right = b.shuffle(x, y, lanes[::2]), b.shuffle(x, y, lanes[1::2])
    is_int = isinstance(ir.VectorType(x.type).element_type, ir.IntegerType)
    return b.addiv(left, right) if is_int else b.addf(left, right)
