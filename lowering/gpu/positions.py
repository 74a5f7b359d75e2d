# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Which kernels of dynamic sizes may compute positions in 32 bits.

`kiln.limits` of a function are expressions over `kiln.limit_symbols`, which a guard of each call promises to be below
2^31 less a margin (frontend/import_/limits.py). A kernel is narrow where each of its tensors is no larger than one of
these.
"""

from typing import Any

from torch_mlir import ir

from kiln.dialects import affine
from kiln.dialects.kiln import name_of
from kiln.dialects.shapes import SymbolicShapes
from kiln.lowering.tile.body import FusionBody
from kiln.lowering.tile.layouts import fusion_layouts

__all__ = ["narrow_positions"]


def narrow_positions(function: ir.OpView) -> int:
    """Sets `narrow` on the fusions of a function; returns on how many."""
    if "kiln.limits" not in function.operation.attributes:
        return 0
    shapes = SymbolicShapes(function)
    limits = _limits(function, shapes)
    count = 0
    for op in function.regions[0].blocks[0].operations:
        if name_of(op) == "kiln.fusion" and limits and _fits(op, shapes, limits):
            op.operation.attributes["narrow"] = ir.UnitAttr.get()
            count += 1
    return count


def _limits(function: ir.OpView, shapes: SymbolicShapes) -> list[ir.AffineExpr]:
    """The limits over the symbols of `shapes`; those with symbols that are no argument are left out."""
    attributes = function.operation.attributes
    block = function.regions[0].blocks[0]
    entries: Any = attributes["arg_attrs"] if "arg_attrs" in attributes else []
    values: dict[str, ir.AffineExpr] = {}
    for argument, entry in zip(block.arguments, entries, strict=False):
        given = ir.DictAttr(entry)
        if "kiln.symbol" in given:
            values[ir.StringAttr(given["kiln.symbol"]).value] = shapes.expr(argument)
    names = [ir.StringAttr(name).value for name in attributes["kiln.limit_symbols"]]
    table = {i: values[name] for i, name in enumerate(names) if name in values}
    found: list[ir.AffineExpr] = []
    for attribute in ir.ArrayAttr(attributes["kiln.limits"]):
        (expr,) = ir.AffineMapAttr(attribute).value.results
        if affine.symbols_in(expr) <= table.keys():
            found.append(affine.simplify(affine.substitute(expr, {}, table)))
    return found


def _fits(fusion: ir.OpView, shapes: SymbolicShapes, limits: list[ir.AffineExpr]) -> bool:
    """Whether the number of elements and the last offset of each tensor are covered by a limit, or known and small."""
    body = FusionBody(fusion)
    table = {i: shapes.expr(v) for i, v in enumerate(list(fusion.operands)[len(body.tensors) :])}
    one = ir.AffineConstantExpr.get(1)
    is_dynamic = False
    for value, layout in zip([*body.tensors, *body.roots], fusion_layouts(fusion, body), strict=True):
        sizes = [affine.substitute(e, {}, table) for e in body.dims(value)]
        count: ir.AffineExpr = one
        for size in sizes:
            count = count * size
        last = [n - one for n in sizes]
        reach = affine.substitute(layout.results[0], dict(enumerate(last)), table) + one
        for expr in (affine.simplify(count.maybe_downcast()), affine.simplify(reach.maybe_downcast())):
            known = affine.constant_of(expr)
            is_dynamic |= known is None
            if known is not None:
                if known + (1 << 21) >= 1 << 31:
                    return False
            elif not any(affine.nonnegative(affine.simplify(limit - expr)) for limit in limits):
                return False
    return is_dynamic
