# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The pointwise ops in front of a write with indices."""

from collections.abc import Sequence

from torch_mlir import ir
from torch_mlir.dialects import arith

from kiln.dialects import affine, scalar
from kiln.dialects.builder import Builder, dims
from kiln.dialects.walk import defining_op
from kiln.lowering.tile.bounds import CHECKED

__all__ = ["Values"]


class Values:
    """Builds at the current insertion point; `name` is the op that errors of its indices name."""

    def __init__(self, b: Builder, name: str) -> None:
        self.b, self.name = b, name

    def checked(
        self,
        index: ir.Value,
        map_: Sequence[ir.AffineExpr],
        space: Sequence[ir.AffineExpr],
        size: ir.AffineExpr,
        wrap: bool,
    ) -> ir.Value:
        """An index as i64 for each point of `space`: negative ones from the end with `wrap`, then clamped.

        The clamp's last op has the attribute that has kernels assert that it changes nothing.
        """
        integer = ir.IntegerType.get_signless(64)
        known = affine.constant_of(size)
        length = None if known is not None else self.b.size_value(size, integer)

        def body(given: ir.Value) -> ir.Value:
            value = scalar.cast(given, integer)
            last = scalar.constant(integer, known - 1) if known is not None else None
            if wrap:
                whole = length if length is not None else scalar.constant(integer, known or 0)
                negative = scalar.compare("lt", value, scalar.constant(integer, 0))
                value = scalar.select(negative, scalar.add(value, whole), value)
            if last is None:
                assert length is not None
                last = scalar.sub(length, scalar.constant(integer, 1))
            low = scalar.maximum(value, scalar.constant(integer, 0))
            high = scalar.minimum(low, last)
            if "unsafe" not in self.name:
                high.owner.operation.attributes[CHECKED] = ir.StringAttr.get(self.name)
            return high

        return self.b.map([(index, map_)], space, integer, body)

    def scaled(self, x: ir.Value, factor: float) -> ir.Value:
        """`x * factor`, 16-bit floats rounded once."""
        element = ir.RankedTensorType(x.type).element_type
        wide = scalar.compute_type(element)

        def body(v: ir.Value) -> ir.Value:
            return scalar.cast(scalar.mul(scalar.cast(v, wide), scalar.constant(wide, factor)), element)

        sizes = self.b.sizes(x)
        return self.b.map([(x, dims(len(sizes)))], sizes, element, body)

    def dropped(self, x: ir.Value, index: ir.Value, map_: Sequence[ir.AffineExpr], row: int) -> ir.Value:
        """`x` with zeros where the index is `row`."""
        sizes = self.b.sizes(x)
        element = ir.RankedTensorType(x.type).element_type

        def body(v: ir.Value, i: ir.Value) -> ir.Value:
            is_row = scalar.compare("eq", i, scalar.constant(i.type, row))
            return scalar.select(is_row, scalar.constant(element, 0), v)

        return self.b.map([(x, dims(len(sizes))), (index, map_)], sizes, element, body)

    def one_nan(self, x: ir.Value, reduce: str) -> ir.Value:
        """`x` with the one NaN that atomic ops on bits keep: positive for the largest, negative for the smallest."""
        element = ir.RankedTensorType(x.type).element_type
        integer = ir.IntegerType.get_signless(element.width)
        quiet = 0x7FC00000 if element.width == 32 else 0x7FF8000000000000
        if reduce == "amin":
            quiet -= 1 << (element.width - 1)

        def body(v: ir.Value) -> ir.Value:
            bits = arith.bitcast(integer, v)
            chosen = scalar.select(scalar.compare("uno", v, v), scalar.constant(integer, quiet), bits)
            return arith.bitcast(element, chosen)

        sizes = self.b.sizes(x)
        return self.b.map([(x, dims(len(sizes)))], sizes, element, body)

    @staticmethod
    def is_zero(x: ir.Value) -> bool:
        """Whether all elements are known to be zero: a fill, or views of one."""
        op = defining_op(x)
        while op is not None and op.name == "kiln.view":
            op = defining_op(op.operands[0])
        if op is None:
            return False
        if op.name == "linalg.generic" and len(op.operands) == 1:
            op = defining_op(list(op.regions[0].blocks[0].operations)[-1].operands[0])
        if op is None or op.name != "arith.constant":
            return False
        value = op.attributes["value"]
        if isinstance(value, ir.DenseElementsAttr):
            value = value.get_splat_value() if value.is_splat else None
        if isinstance(value, ir.FloatAttr):
            return str(value.value) == "0.0"  # and not -0.0
        return isinstance(value, ir.IntegerAttr | ir.BoolAttr) and not value.value
