# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Views that lie in one part of a concatenation, as views of that part."""

from torch_mlir import ir

from kiln.dialects import affine, kiln
from kiln.dialects.walk import defining_op
from kiln.passes.views.function_views import FunctionViews, View

__all__ = ["in_one_part", "is_returned"]


def in_one_part(views: FunctionViews, view: View) -> View | None:
    """The same elements, read of the operand of a ``kiln.cat`` that holds them all; None if no one operand does.

    Sizes may be symbols: what counts is that the index is provably within the operand.
    """
    op = defining_op(view.source)
    if op is None or kiln.name_of(op) != "kiln.cat":
        return None
    dim = ir.IntegerAttr(op.attributes["dim"]).value
    begin: ir.AffineExpr = ir.AffineExpr.get_constant(0)
    for operand in op.operands:
        if not isinstance(operand.type, ir.RankedTensorType):
            continue
        size = views.sizes(operand)[dim]
        index = (view.indices[dim] - begin).maybe_downcast()
        last = (size - 1).maybe_downcast()
        if affine.nonnegative(index, view.sizes) and affine.nonnegative((last - index).maybe_downcast(), view.sizes):
            at = list(view.indices)
            at[dim] = index
            below = views.read(operand)
            indices = [affine.simplify(affine.substitute(e, at), view.sizes) for e in below.indices]
            return View(below.source, tuple(indices), view.sizes)
        begin = (begin + size).maybe_downcast()
    return None


def is_returned(value: ir.Value) -> bool:
    """Whether the function returns `value`, or a view of it: then it must not share memory with another value."""
    for use in value.uses:
        owner = use.owner.operation
        if owner.name == "func.return" or (owner.name == "kiln.view" and is_returned(owner.results[0])):
            return True
    return False
