# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Sizes of tensors, as a call through the dispatcher names them: maps over those of the function's symbols in use."""

from collections.abc import Sequence
from typing import Any

from torch_mlir import ir

from kiln.dialects import affine
from kiln.dialects.shapes import SymbolicShapes

__all__ = ["Symbols", "static_sizes"]


class Symbols:
    """The function's symbols: names in the order of ``kiln.symbols``, and their index values."""

    def __init__(self, function: ir.Operation) -> None:
        self.function = function
        block = function.regions[0].blocks[0]
        attributes = function.attributes["arg_attrs"] if "arg_attrs" in function.attributes else None
        self.values: dict[str, ir.Value] = {}
        for k, argument in enumerate(block.arguments):
            entry = ir.DictAttr(attributes[k]) if attributes is not None else None
            if entry is not None and "kiln.symbol" in entry:
                self.values[ir.StringAttr(entry["kiln.symbol"]).value] = argument
        for op in block.operations:
            if "unbacked_names" in op.operation.attributes:
                indices = [r for r in op.operation.results if isinstance(r.type, ir.IndexType)]
                names = [ir.StringAttr(n).value for n in op.operation.attributes["unbacked_names"]]
                self.values.update(zip(names, indices, strict=True))
        given: Any = function.attributes["kiln.symbols"] if "kiln.symbols" in function.attributes else []
        self.names = [ir.StringAttr(name).value for name in given] or list(self.values)

    def sizes(self, value: ir.Value) -> tuple[ir.AffineMap, list[ir.Value]] | None:
        """A tensor's sizes as a map over those symbols of the function that they need, and the symbols' values; None if
        they need others.
        """
        type_ = ir.RankedTensorType(value.type)
        if type_.has_static_shape:
            return static_sizes(type_.shape), []
        shapes = SymbolicShapes(self.function)
        dims = shapes.dims(value)
        used = sorted({p for e in dims for p in affine.symbols_in(e)})
        if any(p >= len(shapes.symbols) for p in used):
            return None
        table = {old: ir.AffineExpr.get_symbol(new) for new, old in enumerate(used)}
        packed = ir.AffineMap.get(0, len(used), [affine.substitute(e, {}, table) for e in dims])
        return packed, [shapes.symbols[p] for p in used]

    def pack(
        self, op: ir.Operation, maps: Sequence[ir.AffineMap | None]
    ) -> tuple[list[ir.AffineMap | None], list[ir.Value]]:
        """Maps over the symbols that ``op`` names (else ``kiln.symbols``), packed to those in use, and their values."""
        given = op.attributes["symbols"] if "symbols" in op.attributes else None
        names = self.names if given is None else [ir.StringAttr(name).value for name in given]
        used = sorted({p for m in maps if m is not None for e in m.results for p in affine.symbols_in(e)})
        table = {old: ir.AffineExpr.get_symbol(new) for new, old in enumerate(used)}
        packed = [
            None if m is None else ir.AffineMap.get(0, len(used), [affine.substitute(e, {}, table) for e in m.results])
            for m in maps
        ]
        return packed, [self.values[names[p]] for p in used]


def static_sizes(sizes: Sequence[int]) -> ir.AffineMap:
    """Known sizes as a map of no symbols."""
    return ir.AffineMap.get(0, 0, [ir.AffineExpr.get_constant(s) for s in sizes])
